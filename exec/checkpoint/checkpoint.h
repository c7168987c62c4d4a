/** @file checkpoint.h  Saving and resuming a training run, atomically.
 *
 * A run's folder holds step-N folders, each a model in Hugging Face's layout: model.safetensors
 * (weights under Hugging Face's names, in the storage type of the run) and its companions
 * (companions.h). Beside them is training.safetensors: Adam's moments, masters if the storage type
 * is not fp32, the working weights of the next step, and in the metadata step, place in the data,
 * seed, storage type, scale of the loss, the optimizer's settings and the identity of the data. A
 * step's folder gets its name when all of it is on disk, so a killed run leaves whole checkpoints
 * and unfinished folders, which the next run ignores, and removes when it has the lock. The newest
 * checkpoints are kept; everything else in the folder is the user's and stays (run_folder.h). With
 * LoRA only the weights of the adapters are saved, in adapter_model.safetensors under PEFT's names:
 * a resuming run brings the frozen weights. Random frozen weights are saved once, in RPEXEC_BASE.
 *
 * Resuming equals continuing, bit for bit: asynchronous training begins its next step with weights
 * one step old, which is why working weights are saved.
 */
#pragma once

#include "exec/checkpoint/companions.h"
#include "exec/state/state.h"

/** Progress of a run in its data, and its settings. */
typedef struct rpexec_progress {
    uint64_t place; /**< sequences of the data's stream that have been used */
    uint64_t seed;
    uint32_t seq_len;
    const char *recipe; /**< settings of the optimizer, for people; NULL: not known */
    const char *data;   /**< rpexec_tokens_identity; NULL: not known */
} rpexec_progress;

/** A run's folder. Only a single process at a time has it, since saving removes the remains of
 * other processes. */
typedef struct rpexec_checkpoints {
    const char *folder; /**< borrowed */
    uint32_t keep;      /**< number of newest checkpoints that stay; at least 1 */
    int lock;           /**< descriptor of the locked FOLDER/.lock; -1: not open */
    bool made;          /**< the folder was not there before */
    bool is_resumed;    /**< the run continues a checkpoint */
    bool has_base;      /**< this run has saved the weights that its adapters are on */
    bool warned;        /**< there has been a warning of a folder that could not be removed */
} rpexec_checkpoints;

/**
 * Makes a run's folder and locks it, so that a folder that cannot be written is known before the
 * run. If another process has the lock, it is tried for a second. A file system without locks is
 * used with a warning.
 * @param anew nothing is resumed: a folder with checkpoints is refused, since checkpoints of a
 *        longer run would be taken for newer than this run's
 * @param keep number of newest checkpoints that stay, at least 1
 * @param checkpoints_out release with rpexec_checkpoints_close
 * @retval RP_OK, RP_INPUT (it cannot be made or written, or a file or a link has a checkpoint's
 *         name; logged), RP_USAGE (another process has it, or it has checkpoints; logged),
 *         RP_NO_MEMORY
 */
rp_status rpexec_checkpoints_open(const char *folder, uint32_t keep, bool anew,
                                  rpexec_checkpoints *checkpoints_out);

/** Checks before a run that the weights under its adapters can be saved: RPEXEC_BASE may be a
 * folder that rpexec did not make. @retval RP_OK, RP_INPUT (logged) */
rp_status rpexec_checkpoints_check_base(const rpexec_checkpoints *checkpoints,
                                        const rpexec_companions *companions);

/** Releases the lock, and removes the folder if this run made it and saved no checkpoint. Does
 * nothing if the folder is not open. */
void rpexec_checkpoints_close(rpexec_checkpoints *checkpoints);

/**
 * Saves under FOLDER/step-N, N = rpexec_state_iterations.
 * @param companions files that every checkpoint of the run has
 * @retval RP_OK, RP_IO (logged), RP_NO_MEMORY
 */
rp_status rpexec_checkpoint_save(rpexec_checkpoints *checkpoints,
                                 const rpexec_companions *companions, rpexec_state *state,
                                 const rpexec_progress *progress);

/**
 * Loads the newest checkpoint of a folder.
 * @param arena holds the texts of the progress
 * @param found_out whether the folder has a checkpoint; otherwise nothing changes
 * @retval RP_OK, RP_INPUT (damaged, of another model or storage type; logged), RP_IO, RP_NO_MEMORY
 */
rp_status rpexec_checkpoint_resume(rpexec_checkpoints *checkpoints, rpexec_state *state,
                                   rpexec_progress *progress_out, rp_arena *arena, bool *found_out);
