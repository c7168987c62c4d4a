/** @file checkpoint.h  Saving and resuming a training run, atomically.
 *
 * A run's folder holds step-N folders, each a model of Hugging Face's: model.safetensors (weights,
 * as they are named there, in the storage type of the run) and its companions (companions.h).
 * Beside them is training.safetensors: Adam's moments, masters where the storage type is not fp32,
 * the working weights of the next step, and in the metadata step, place in the data, seed, storage
 * type, scale of the loss, the optimizer's settings and what tells the data from others. A step's
 * folder gets its name when all of it is on disk, so a killed run leaves whole checkpoints and what
 * is ignored and removed by the next one, when it has the lock. The newest ones are kept; what else
 * is in the folder is the user's and stays (run_folder.h). With LoRA the weights are those of the
 * adapters alone, in adapter_model.safetensors as PEFT names them: a resuming run brings the frozen
 * ones. Random ones are saved once, in RPEXEC_BASE.
 *
 * Resuming equals continuing, bit for bit: asynchronous training begins its next step with weights
 * one step old, which is why working weights are saved.
 */
#pragma once

#include "exec/checkpoint/companions.h"
#include "exec/state/state.h"

/** Where a run is. */
typedef struct rpexec_progress {
    uint64_t place; /**< in the data's stream: sequences that have been used */
    uint64_t seed;
    uint32_t seq_len;
    const char *recipe; /**< settings of the optimizer, for people; NULL: not known */
    const char *data;   /**< rpexec_tokens_identity; NULL: not known */
} rpexec_progress;

/** A run's folder. One process at a time has it, since saving removes what others leave. */
typedef struct rpexec_checkpoints {
    const char *folder; /**< borrowed */
    uint32_t keep;      /**< so many checkpoints, the newest ones; at least 1 */
    int lock;           /**< descriptor of the locked FOLDER/.lock; -1: not open */
    bool made;          /**< the folder was not there before */
    bool is_resumed;    /**< from a checkpoint */
    bool has_base;      /**< this run has saved the weights that its adapters are on */
    bool warned;        /**< of a folder that could not be removed */
} rpexec_checkpoints;

/**
 * Makes a run's folder and locks it, so that one that cannot be written is known before the run.
 * A folder that another process has is asked for during a second. A file system without locks is
 * warned about and used.
 * @param anew nothing is resumed: a folder with checkpoints is refused, since those of a longer run
 *        would be taken for newer
 * @param keep checkpoints, at least 1
 * @param checkpoints_out given back with rpexec_checkpoints_close
 * @retval RP_OK, RP_INPUT (it cannot be made or written, or a file or a link is called as a
 *         checkpoint; logged), RP_USAGE (another process has it,
 *         or it has checkpoints; logged), RP_NO_MEMORY
 */
rp_status rpexec_checkpoints_open(const char *folder, uint32_t keep, bool anew,
                                  rpexec_checkpoints *checkpoints_out);

/** Looks, before a run, whether the weights that its adapters are on could be saved: under
 * RPEXEC_BASE there may be others than rpexec's. @retval RP_OK, RP_INPUT (logged) */
rp_status rpexec_checkpoints_check_base(const rpexec_checkpoints *checkpoints,
                                        const rpexec_companions *companions);

/** Gives the lock back, and removes a folder that was made and has got no checkpoint. Harmless on
 * what is not open. */
void rpexec_checkpoints_close(rpexec_checkpoints *checkpoints);

/**
 * Saves under FOLDER/step-N, N = rpexec_state_iterations.
 * @param companions that every checkpoint of the run has
 * @retval RP_OK, RP_IO (logged), RP_NO_MEMORY
 */
rp_status rpexec_checkpoint_save(rpexec_checkpoints *checkpoints,
                                 const rpexec_companions *companions, rpexec_state *state,
                                 const rpexec_progress *progress);

/**
 * Loads the newest checkpoint of a folder.
 * @param arena the texts lie there
 * @param found_out whether there was one; otherwise nothing changes
 * @retval RP_OK, RP_INPUT (damaged, of another model or storage type; logged), RP_IO, RP_NO_MEMORY
 */
rp_status rpexec_checkpoint_resume(rpexec_checkpoints *checkpoints, rpexec_state *state,
                                   rpexec_progress *progress_out, rp_arena *arena, bool *found_out);
