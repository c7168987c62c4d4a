#include "exec/checkpoint/joined.h"

#include "common/base/log.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- parts ----------------------------------------------------------------------------------- */

static uint64_t elements_of(const rpexec_joined *part)
{
    uint64_t elements = 1;
    for (uint32_t i = 0; i < part->rank; i++) {
        elements *= part->shape[i];
    }
    return elements;
}

rp_status rpexec_weights_joined_name(const char *own, const rpexec_tensor *tensor, rp_arena *arena,
                                     const char **name_out)
{
    int before = (int)(strlen(own) - strlen(tensor->name));
    return rp_arena_print(arena, name_out, "%.*s%s", before, own, tensor->part->name);
}

/* ---- writing --------------------------------------------------------------------------------- */

/* The joined tensor of that name, or `count` if there is none. It is among the last tensors, so the
 * search goes backwards. */
static uint32_t find(const rpexec_writable *tensors, uint32_t count, const char *name)
{
    for (uint32_t i = count; i-- > 0;) {
        if (tensors[i].part_count > 0 && strcmp(tensors[i].name, name) == 0) {
            return i;
        }
    }
    return count;
}

static rpexec_writable begin_joined(const rpexec_writable *own, const char *name)
{
    const rpexec_joined *part = own->parts->tensor->part;
    rpexec_writable joined = {.name = name, .dtype = own->dtype, .rank = part->rank};
    memcpy(joined.shape, part->shape, part->rank * sizeof *joined.shape);
    return joined;
}

/* @param to_of [count] the joined tensor of each tensor */
static rp_status give_parts(const rpexec_writable *own, uint32_t count, const uint32_t *to_of,
                            rpexec_writable *joined, uint32_t joined_count, rp_arena *arena)
{
    rpexec_weight_part **parts = NULL;
    RP_TRY(rp_arena_alloc(arena, joined_count, sizeof *parts, &parts));
    for (uint32_t i = 0; i < joined_count; i++) {
        RP_TRY(rp_arena_alloc(arena, joined[i].part_count, sizeof **parts, &parts[i]));
        joined[i].parts = parts[i];
        joined[i].part_count = 0;
    }
    for (uint32_t i = 0; i < count; i++) {
        if (own[i].parts != NULL) {
            rpexec_writable *to = &joined[to_of[i]];
            parts[to_of[i]][to->part_count++] = *own[i].parts;
        }
    }
    return RP_OK;
}

rp_status rpexec_weights_joined(const rpexec_state *state, const float *values, const char *prefix,
                                rp_arena *arena, rpexec_writable **tensors_out, uint32_t *count_out)
{
    rpexec_writable *own = NULL;
    rpexec_writable *joined = NULL;
    uint32_t *to_of = NULL;
    uint32_t count = 0;
    uint32_t joined_count = 0;
    RP_TRY(rpexec_weights_list(state, values, prefix, arena, &own, &count));
    RP_TRY(rp_arena_alloc(arena, count, sizeof *joined, &joined));
    RP_TRY(rp_arena_alloc(arena, count, sizeof *to_of, &to_of));
    for (uint32_t i = 0; i < count; i++) {
        const char *name = NULL;
        if (own[i].parts == NULL) {
            joined[joined_count++] = own[i];
            continue;
        }
        RP_TRY(rpexec_weights_joined_name(own[i].name, own[i].parts->tensor, arena, &name));
        to_of[i] = find(joined, joined_count, name);
        if (to_of[i] == joined_count) {
            joined[joined_count++] = begin_joined(&own[i], name);
        }
        joined[to_of[i]].part_count++;
    }
    *tensors_out = joined;
    *count_out = joined_count;
    return give_parts(own, count, to_of, joined, joined_count, arena);
}

void rpexec_weights_put_together(const rpexec_writable *t, void *to)
{
    size_t width = rp_dtype_bytes(t->dtype);
    memset(to, 0, rpexec_writable_elements(t) * width); /* zero has these bits in every type */
    for (uint32_t i = 0; i < t->part_count; i++) {
        const rpexec_tensor *tensor = t->parts[i].tensor;
        const rpexec_joined *part = tensor->part;
        const unsigned char *from = t->parts[i].values;
        for (uint64_t row = 0; row < tensor->rows; row++) {
            unsigned char *at =
                (unsigned char *)to + (part->first + row * part->row_stride) * width;
            for (uint64_t column = 0; column < tensor->columns; column++) {
                memcpy(at, from, width);
                at += part->column_stride * width;
                from += width;
            }
        }
    }
}

/* ---- reading --------------------------------------------------------------------------------- */

rp_status rpexec_held_make(rpexec_held *held, const rpexec_model *model, rp_arena *arena)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < model->block.tensor_count; i++) {
        const rpexec_joined *part = model->block.tensors[i].part;
        most = part != NULL && elements_of(part) > most ? elements_of(part) : most;
    }
    *held = (rpexec_held){0};
    return rp_arena_alloc_raw(arena, most, sizeof *held->values, &held->values);
}

static bool has_shape(const rpexec_stored *stored, uint32_t rank, const uint64_t *shape)
{
    bool same = stored->rank == rank;
    for (uint32_t i = 0; same && i < rank; i++) {
        same = stored->shape[i] == shape[i];
    }
    return same;
}

static rp_status refuse_shape(const char *path, const char *name, uint32_t rank,
                              const uint64_t *shape)
{
    char valid[96] = "";
    size_t length = 0;
    for (uint32_t i = 0; i < rank && length < sizeof valid; i++) {
        length += (size_t)snprintf(valid + length, sizeof valid - length, "%s%" PRIu64,
                                   i > 0 ? ", " : "", shape[i]);
    }
    rp_log_error("%s: tensor \"%s\" has another shape; valid for this model is [%s]", path, name,
                 valid);
    return RP_INPUT;
}

rp_status rpexec_held_read(rpexec_held *held, const rpexec_safetensors *file,
                           const rpexec_stored *stored, const char *name, const rpexec_joined *part)
{
    if (!has_shape(stored, part->rank, part->shape)) {
        return refuse_shape(file->path, name, part->rank, part->shape);
    }
    held->is_turned = false;
    RP_TRY(rpexec_safetensors_read(file, stored, held->values));
    held->name = name;
    return RP_OK;
}

/* The index `at` in the layout whose neighbours are columns. It also converts a distance. */
static uint64_t turned(const rpexec_joined *part, uint64_t at)
{
    uint64_t columns = part->shape[1];
    uint64_t rows = part->shape[2];
    return at / (columns * rows) * (columns * rows) + at % rows * columns + at / rows % columns;
}

static rpexec_joined part_in(const rpexec_held *held, const rpexec_tensor *tensor)
{
    rpexec_joined part = *tensor->part;
    if (held->is_turned) {
        part.first = turned(tensor->part, part.first);
        part.row_stride = turned(tensor->part, part.row_stride);
        part.column_stride = turned(tensor->part, part.column_stride);
    }
    return part;
}

void rpexec_held_take(const rpexec_held *held, const rpexec_tensor *tensor, float *to)
{
    const rpexec_joined part = part_in(held, tensor);
    for (uint64_t row = 0; row < tensor->rows; row++) {
        const float *from = held->values + part.first + row * part.row_stride;
        for (uint64_t column = 0; column < tensor->columns; column++) {
            *to++ = from[column * part.column_stride];
        }
    }
}

static uint64_t not_zero(const rpexec_held *held, const rpexec_tensor *tensor)
{
    const rpexec_joined part = part_in(held, tensor);
    uint64_t count = 0;
    for (uint64_t row = 0; row < tensor->rows; row++) {
        const float *from = held->values + part.first + row * part.row_stride;
        for (uint64_t column = 0; column < tensor->columns; column++) {
            count += from[column * part.column_stride] != 0 ? 1 : 0;
        }
    }
    return count;
}

rp_status rpexec_held_check(const rpexec_held *held, const rpexec_layer *layer,
                            const rpexec_joined *part, const char *path)
{
    uint64_t covered = 0;
    uint64_t found = 0;
    uint64_t all = 0;
    for (uint32_t i = 0; i < layer->tensor_count; i++) {
        const rpexec_tensor *t = &layer->tensors[i];
        covered +=
            t->part != NULL && strcmp(t->part->name, part->name) == 0 ? t->rows * t->columns : 0;
    }
    if (covered == elements_of(part)) {
        return RP_OK;
    }
    for (uint32_t i = 0; i < layer->tensor_count; i++) {
        const rpexec_tensor *t = &layer->tensors[i];
        found += t->part != NULL && strcmp(t->part->name, part->name) == 0 ? not_zero(held, t) : 0;
    }
    for (uint64_t i = 0; i < elements_of(part); i++) {
        all += held->values[i] != 0 ? 1 : 0;
    }
    if (all != found) {
        rp_log_error("%s: tensor \"%s\" has %" PRIu64 " values that none of the model's own "
                     "tensors has; valid are zeros there, as rpexec saves them",
                     path, held->name, all - found);
        return RP_INPUT;
    }
    return RP_OK;
}

/* ---- MXFP4 ----------------------------------------------------------------------------------- */

#define BLOCK 32u       /* values that share a scale */
#define BLOCK_BYTES 16u /* two values a byte */
#define SCALE_BIAS 127  /* bias of the exponent that a scale holds */
#define SCALE_NAN UINT8_C(255)

/* E2M1: a bit of sign, two bits of exponent and a bit of mantissa. */
static const float four_bits[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                    -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

static rp_status check_packed(const rpexec_packed *packed, const char *name,
                              const rpexec_joined *part)
{
    const uint64_t blocks[4] = {part->shape[0], part->shape[2], part->shape[1] / BLOCK,
                                BLOCK_BYTES};
    if (part->rank != 3 || part->shape[1] % BLOCK != 0) {
        rp_log_error("%s: tensor \"%s\" is packed in blocks of 32, and the model has %" PRIu64
                     " columns; valid are multiples of 32",
                     packed->blocks_file->path, packed->blocks->name, part->shape[1]);
        return RP_INPUT;
    }
    if (!packed->blocks->is_bytes || !packed->scales->is_bytes) {
        rp_log_error("%s: tensor \"%s\": the dtype of its blocks and scales is not U8; valid are "
                     "those of MXFP4",
                     packed->blocks_file->path, name);
        return RP_INPUT;
    }
    if (!has_shape(packed->blocks, 4, blocks)) {
        return refuse_shape(packed->blocks_file->path, packed->blocks->name, 4, blocks);
    }
    return has_shape(packed->scales, 3, blocks)
               ? RP_OK
               : refuse_shape(packed->scales_file->path, packed->scales->name, 3, blocks);
}

static rp_status unpack_expert(const rpexec_packed *packed, uint64_t expert, uint64_t count,
                               uint8_t *blocks, uint8_t *scales, float *to)
{
    RP_TRY(rpexec_safetensors_read_bytes(packed->blocks_file, packed->blocks,
                                         expert * count * BLOCK_BYTES, count * BLOCK_BYTES,
                                         blocks));
    RP_TRY(rpexec_safetensors_read_bytes(packed->scales_file, packed->scales, expert * count, count,
                                         scales));
    for (uint64_t i = 0; i < count; i++) {
        if (scales[i] == SCALE_NAN) {
            rp_log_error("%s: tensor \"%s\": scale %" PRIu64 " is NaN; valid are 0 to 254",
                         packed->scales_file->path, packed->scales->name, expert * count + i);
            return RP_INPUT;
        }
        float scale = ldexpf(1.0f, scales[i] - SCALE_BIAS);
        for (uint32_t k = 0; k < BLOCK_BYTES; k++) {
            uint8_t byte = blocks[i * BLOCK_BYTES + k];
            *to++ = four_bits[byte & 15] * scale;
            *to++ = four_bits[byte >> 4] * scale;
        }
    }
    return RP_OK;
}

rp_status rpexec_held_unpack(rpexec_held *held, const rpexec_packed *packed, const char *name,
                             const rpexec_joined *part)
{
    rp_arena *arena = NULL;
    uint8_t *bytes = NULL;
    RP_TRY(check_packed(packed, name, part));
    uint64_t of_expert = part->shape[1] * part->shape[2];
    uint64_t count = of_expert / BLOCK;
    RP_TRY(rp_arena_create(&arena));
    rp_status status = rp_arena_alloc(arena, count, BLOCK_BYTES + 1, &bytes);
    for (uint64_t e = 0; status == RP_OK && e < part->shape[0]; e++) {
        status = unpack_expert(packed, e, count, bytes, bytes + count * BLOCK_BYTES,
                               held->values + e * of_expert);
    }
    rp_arena_destroy(arena);
    held->is_turned = true;
    held->name = status == RP_OK ? name : NULL;
    return status;
}
