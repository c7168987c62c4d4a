/** @file checkpoint.h  Saving and resuming a training run, atomically.
 *
 * A run's folder holds step-N folders, each with model.safetensors (weights, as Hugging Face names
 * them, in the storage type of the run) and training.safetensors (Adam's moments, masters where the
 * storage type is not fp32, the working weights of the next step, and in the metadata step, place
 * in the data, seed, storage type and scale of the loss). A step's folder gets its name when all of
 * it is on disk, so a killed run leaves whole checkpoints and what is ignored and removed by the
 * next one. The newest two are kept. With LoRA the weights are those of the adapters alone, in
 * adapter_model.safetensors as PEFT names them: whoever resumes brings the frozen ones.
 *
 * Resuming equals continuing, bit for bit: asynchronous training begins its next step with weights
 * one step old, which is why working weights are saved.
 */
#pragma once

#include "exec/state.h"

/** Where a run is. */
typedef struct rpexec_progress {
    uint64_t place; /**< in the data's stream: sequences that have been used */
    uint64_t seed;
    uint32_t seq_len;
} rpexec_progress;

/**
 * Saves under folder/step-N, N = rpexec_state_iterations.
 * @param folder is made if it is not there
 * @retval RP_OK, RP_IO, RP_INPUT (folder cannot be made; logged), RP_NO_MEMORY
 */
rp_status rpexec_checkpoint_save(const char *folder, rpexec_state *state,
                                 const rpexec_progress *progress);

/**
 * Makes a run's folder, so that one that cannot be written is known before the run.
 * @param anew nothing is resumed: a folder with checkpoints is refused, since those of a longer run
 *        would be taken for newer
 * @retval RP_OK, RP_INPUT (it cannot be made or written; logged), RP_USAGE (logged)
 */
rp_status rpexec_checkpoint_open(const char *folder, bool anew);

/**
 * Loads the newest checkpoint of a folder.
 * @param found_out whether there was one; otherwise nothing changes
 * @retval RP_OK, RP_INPUT (damaged, of another model or storage type; logged), RP_IO, RP_NO_MEMORY
 */
rp_status rpexec_checkpoint_resume(const char *folder, rpexec_state *state,
                                   rpexec_progress *progress_out, bool *found_out);
