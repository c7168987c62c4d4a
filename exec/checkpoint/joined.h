/** @file joined.h  Tensors of checkpoints that are several of ours (rpexec_joined). Inside of
 * exec/checkpoint.
 *
 * Experts' matrices may be packed as MXFP4 (OCP Microscaling Formats 1.0: blocks of 32 values of
 * E2M1 with a scale of E8M0). NAME_blocks [E, rows, columns / 32, 16] and NAME_scales [E, rows,
 * columns / 32] then are the joined tensor NAME [E, columns, rows], the lower half of a byte first.
 */
#pragma once

#include "exec/checkpoint/weights.h"

/** Values of one joined tensor while its parts are taken. */
typedef struct rpexec_held {
    const char *name; /**< whose values are there; NULL: nobody's */
    bool is_turned;   /**< they are [E, rows, columns], as they were packed */
    float *values;
} rpexec_held;

/** A tensor of MXFP4. */
typedef struct rpexec_packed {
    const rpexec_safetensors *blocks_file;
    const rpexec_stored *blocks;
    const rpexec_safetensors *scales_file;
    const rpexec_stored *scales;
} rpexec_packed;

/** Room for the largest joined tensor of the model. @retval RP_OK, RP_NO_MEMORY */
rp_status rpexec_held_make(rpexec_held *held, const rpexec_model *model, rp_arena *arena);

/** Reads a tensor that must have the shape of `part`.
 * @param name kept
 * @retval RP_OK, RP_INPUT (logged), RP_IO */
rp_status rpexec_held_read(rpexec_held *held, const rpexec_safetensors *file,
                           const rpexec_stored *stored, const char *name,
                           const rpexec_joined *part);

/** The same of what is packed. */
rp_status rpexec_held_unpack(rpexec_held *held, const rpexec_packed *packed, const char *name,
                             const rpexec_joined *part);

/** Refuses values other than 0 that are in no tensor of the layer. @retval RP_OK, RP_INPUT */
rp_status rpexec_held_check(const rpexec_held *held, const rpexec_layer *layer,
                            const rpexec_joined *part, const char *path);

/** Copies a part's values. @param to [rows, columns] */
void rpexec_held_take(const rpexec_held *held, const rpexec_tensor *tensor, float *to);

/** @return in name_out the joined tensor's name, where a part of it is called `own`. */
rp_status rpexec_weights_joined_name(const char *own, const rpexec_tensor *tensor, rp_arena *arena,
                                     const char **name_out);
