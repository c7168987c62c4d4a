/** @file joined.h  Tensors of checkpoints that join several tensors of the executor
 * (rpexec_joined). Used only in exec/checkpoint.
 *
 * Experts' matrices may be packed as MXFP4 (OCP Microscaling Formats 1.0: blocks of 32 values of
 * E2M1 with a scale of E8M0). NAME_blocks [E, rows, columns / 32, 16] and NAME_scales [E, rows,
 * columns / 32] then stand for the joined tensor NAME [E, columns, rows]. The lower half of a byte
 * holds the first of its two values.
 */
#pragma once

#include "exec/checkpoint/weights.h"

/** Values of a joined tensor while its parts are taken. */
typedef struct rpexec_held {
    const char *name; /**< tensor whose values are held; NULL: none */
    bool is_turned;   /**< the values are in the order [E, rows, columns] of packed tensors */
    float *values;
} rpexec_held;

/** A tensor of MXFP4. */
typedef struct rpexec_packed {
    const rpexec_safetensors *blocks_file;
    const rpexec_stored *blocks;
    const rpexec_safetensors *scales_file;
    const rpexec_stored *scales;
} rpexec_packed;

/** Allocates room for the largest joined tensor of the model. @retval RP_OK, RP_NO_MEMORY */
rp_status rpexec_held_make(rpexec_held *held, const rpexec_model *model, rp_arena *arena);

/** Reads a tensor that must have the shape of `part`.
 * @param name borrowed for as long as the values are held
 * @retval RP_OK, RP_INPUT (logged), RP_IO */
rp_status rpexec_held_read(rpexec_held *held, const rpexec_safetensors *file,
                           const rpexec_stored *stored, const char *name,
                           const rpexec_joined *part);

/** Reads a packed tensor in the same way. */
rp_status rpexec_held_unpack(rpexec_held *held, const rpexec_packed *packed, const char *name,
                             const rpexec_joined *part);

/** Refuses values other than 0 that belong to no tensor of the layer. @retval RP_OK, RP_INPUT */
rp_status rpexec_held_check(const rpexec_held *held, const rpexec_layer *layer,
                            const rpexec_joined *part, const char *path);

/** Copies a part's values. @param to [rows, columns] */
void rpexec_held_take(const rpexec_held *held, const rpexec_tensor *tensor, float *to);

/** Makes the name of the joined tensor whose part is called `own`. @param name_out lives in
 * `arena` */
rp_status rpexec_weights_joined_name(const char *own, const rpexec_tensor *tensor, rp_arena *arena,
                                     const char **name_out);
