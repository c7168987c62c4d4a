/** @file run_folder.h  The folder of a run's checkpoints: finding entries, and removing old ones.
 * Used only in exec/checkpoint.
 *
 * The folder is the user's and may hold other things. A checkpoint is a folder, not a link, called
 * step-N, with N from 1 on without leading zeroes. Remains of a killed run are called .step-N,
 * .old-N, .base or .old-base, with .K appended if that name was taken. Such a folder is removed
 * only if all names in it are rpexec's own, and a checkpoint only if it also has
 * training.safetensors; all others stay as they are. Links are never followed.
 */
#pragma once

#include "exec/checkpoint/checkpoint.h"

#define RPEXEC_STEP "step-"
#define RPEXEC_TRAINING "training.safetensors"

/** Logs the errno of a failed call on a path. @return RP_IO */
rp_status rpexec_run_folder_failed(const char *path, const char *what);

/** Flushes the entries of a folder to disk. @retval RP_OK, RP_IO (logged) */
rp_status rpexec_run_folder_sync(const char *path);

/**
 * Finds the newest entry with a checkpoint's name.
 * @param step_out 0: there is no such entry, or no such folder
 * @retval RP_OK, RP_INPUT (the entry is not a folder; logged), RP_IO (logged)
 */
rp_status rpexec_run_folder_newest(const char *folder, uint64_t *step_out);

/**
 * Removes all checkpoints but the newest `checkpoints->keep`, and the remains of killed runs. The
 * first folder that has to stay because of other files in it gets a warning.
 * @retval RP_OK, RP_IO (logged), RP_NO_MEMORY
 */
rp_status rpexec_run_folder_clean(rpexec_checkpoints *checkpoints, rp_arena *arena);

/**
 * Makes an unfinished folder: "." and its later name, with .1, .2, … appended if that is taken.
 * @param path_out lives in `arena`
 * @retval RP_OK, RP_IO (logged), RP_NO_MEMORY
 */
rp_status rpexec_run_folder_make(const char *folder, const char *name, rp_arena *arena,
                                 const char **path_out);

/**
 * Gives an unfinished folder its name; an older folder of that name is removed.
 * @retval RP_OK, RP_IO (also if the older folder has to stay; logged), RP_NO_MEMORY
 */
rp_status rpexec_run_folder_finish(const char *folder, const char *unfinished, const char *name,
                                   rp_arena *arena);

/** @return whether rpexec_run_folder_finish could use the name: nothing has it, or only a folder
 * that may be removed. Otherwise an error is logged. */
bool rpexec_run_folder_is_free(const char *folder, const char *name);
