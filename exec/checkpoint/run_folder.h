/** @file run_folder.h  The folder of a run's checkpoints: what is found there, and what is removed.
 * Inside of exec/checkpoint.
 *
 * The folder is the user's and may hold other things. A checkpoint is a folder, no link, called
 * step-N, N from 1 on without zeroes before it. What a killed run leaves is called .step-N, .old-N,
 * .base or .old-base, with .K behind it where that name was taken. Of these, folders are removed in
 * which all names are rpexec's own, a checkpoint where it has training.safetensors; all others are
 * left as they are. Links are never followed.
 */
#pragma once

#include "exec/checkpoint/checkpoint.h"

#define RPEXEC_STEP "step-"
#define RPEXEC_TRAINING "training.safetensors"

/** Logs errno of a call about a path. @return RP_IO */
rp_status rpexec_run_folder_failed(const char *path, const char *what);

/** Entries of a folder are on disk. @retval RP_OK, RP_IO (logged) */
rp_status rpexec_run_folder_sync(const char *path);

/**
 * Finds the newest entry called as a checkpoint.
 * @param step_out 0: there is none, nor such a folder
 * @retval RP_OK, RP_INPUT (an entry called so is no folder; logged), RP_IO (logged)
 */
rp_status rpexec_run_folder_newest(const char *folder, uint64_t *step_out);

/**
 * Removes checkpoints but for the newest `checkpoints->keep`, and what killed runs have left. The
 * first folder that has to stay, for what else is in it, is warned about.
 * @retval RP_OK, RP_IO (logged), RP_NO_MEMORY
 */
rp_status rpexec_run_folder_clean(rpexec_checkpoints *checkpoints, rp_arena *arena);

/**
 * Makes an unfinished folder: "." and what it will be called, or with .1, .2, … behind that.
 * @param path_out lives in `arena`
 * @retval RP_OK, RP_IO (logged), RP_NO_MEMORY
 */
rp_status rpexec_run_folder_make(const char *folder, const char *name, rp_arena *arena,
                                 const char **path_out);

/**
 * Gives an unfinished folder its name; what had it before is removed.
 * @retval RP_OK, RP_IO (also where that has to stay; logged), RP_NO_MEMORY
 */
rp_status rpexec_run_folder_finish(const char *folder, const char *unfinished, const char *name,
                                   rp_arena *arena);

/** @return true where rpexec_run_folder_finish would find nothing under a name that has to stay;
 * otherwise logged as an error. */
bool rpexec_run_folder_is_free(const char *folder, const char *name);
