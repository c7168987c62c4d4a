#include "exec/state/state.h"

#include "common/base/hash.h"
#include "common/base/host_limits.h"
#include "exec/state/pass.h"

#include <stdatomic.h>
#include <string.h>

/* Makes a pool if the passes over the model have enough pieces. */
static rp_status make_pool(const rpexec_model *model, rp_arena *arena, rpexec_pool **pool_out)
{
    uint64_t pieces = 0;
    for (uint32_t i = 0; i < model->layer_count; i++) {
        pieces += rpexec_pool_pieces(rpexec_model_trained(model, i, i + 1));
    }
    return pieces < RPEXEC_POOL_LEAST_PIECES ? RP_OK : rpexec_pool_create(0, arena, pool_out);
}

/* Allocates an array and zeroes it layer by layer, as later passes go, so that each page lies near
 * its threads. Touching the memory takes it now: the system must not promise it to a later caller
 * as well. */
static rp_status take_array(const rpexec_state *s, uint32_t number, const uint64_t *offsets,
                            size_t width, rp_arena *arena, void *array_out)
{
    unsigned char *array = NULL;
    RP_TRY(rpexec_pass_array(arena, number, offsets[s->model->layer_count], width, &array));
    for (uint32_t i = 0; i < s->model->layer_count; i++) {
        rpexec_pass_zero(s->pool, offsets[i + 1] - offsets[i], width, array + offsets[i] * width);
    }
    memcpy(array_out, &array, sizeof array);
    return RP_OK;
}

rp_status rpexec_state_create(const rpexec_model *model, rp_arena *arena, rpexec_state *state_out)
{
    rpexec_state s = {.model = model, .scaler = rpexec_scaler_initial(model->dtype)};
    RP_TRY(rp_arena_alloc(arena, (size_t)model->layer_count + 1, sizeof(uint64_t), &s.offsets));
    RP_TRY(rp_arena_alloc(arena, (size_t)model->layer_count + 1, sizeof(uint64_t), &s.trained));
    for (uint32_t i = 0; i < model->layer_count; i++) {
        s.offsets[i + 1] = s.offsets[i] + rpexec_model_layer(model, i)->floats;
        s.trained[i + 1] = s.trained[i] + rpexec_layer_trained(rpexec_model_layer(model, i));
    }
    uint64_t values = s.trained[model->layer_count];
    uint64_t slots = values * rp_dtype_bytes(model->dtype);
    uint64_t working = s.offsets[model->layer_count] * rp_dtype_bytes(model->dtype);
    RP_TRY(rp_host_memory_require(working + slots + 4 * values * sizeof(float),
                                  "weights, gradients and Adam's moments"));
    RP_TRY(make_pool(model, arena, &s.pool));
    /* These two arrays are pinned, so they begin at the beginning of a page. */
    RP_TRY(take_array(&s, 0, s.offsets, rp_dtype_bytes(model->dtype), arena, &s.working));
    RP_TRY(take_array(&s, 0, s.trained, rp_dtype_bytes(model->dtype), arena, &s.slots));
    float **const arrays[] = {&s.master, &s.gradients, &s.m, &s.v};
    for (uint32_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) {
        RP_TRY(take_array(&s, i + 1, s.trained, sizeof(float), arena, arrays[i]));
    }
    *state_out = s;
    return RP_OK;
}

void *rpexec_state_working(const rpexec_state *s, uint32_t layer)
{
    return rpexec_element(s->model->dtype, s->working, s->offsets[layer]);
}

void *rpexec_state_slot(const rpexec_state *s, uint32_t layer)
{
    return rpexec_element(s->model->dtype, s->slots, s->trained[layer]);
}

static uint64_t floats_of(const rpexec_state *s, uint32_t layer)
{
    return s->trained[layer + 1] - s->trained[layer];
}

/* True for the head of a tied table that is trained; a frozen table just has two copies. */
static bool is_tied_head(const rpexec_state *s, uint32_t layer)
{
    return layer + 1 == s->model->layer_count && s->model->config->tied_head &&
           s->model->head.frozen == 0;
}

/* The offset of the table in the head's array. */
static uint64_t table_offset(const rpexec_state *s)
{
    return s->model->head.tensors[RPEXEC_HEAD_TABLE].offset;
}

/* Floats of a layer that have their own master. */
static uint64_t own_floats(const rpexec_state *s, uint32_t layer)
{
    return is_tied_head(s, layer) ? table_offset(s) : floats_of(s, layer);
}

void rpexec_state_freeze(rpexec_state *s, uint32_t layer, const rpexec_tensor *tensor,
                         const float *values)
{
    uint64_t count = tensor->rows * tensor->columns;
    rp_dtype dtype = s->model->dtype;
    rpexec_pass_refresh(s->pool, dtype, count, values,
                        rpexec_element(dtype, rpexec_state_working(s, layer), tensor->offset));
    if (layer == 0 && s->model->config->tied_head) {
        void *head = rpexec_state_working(s, s->model->layer_count - 1);
        rpexec_pass_refresh(s->pool, dtype, count, values,
                            rpexec_element(dtype, head, table_offset(s)));
    }
}

void rpexec_state_copy_working(rpexec_state *s, void *values, bool back)
{
    rp_dtype dtype = s->model->dtype;
    for (uint32_t i = 0; i < s->model->layer_count; i++) {
        uint64_t frozen = rpexec_model_layer(s->model, i)->frozen;
        void *working = rpexec_element(dtype, rpexec_state_working(s, i), frozen);
        void *packed = rpexec_element(dtype, values, s->trained[i]);
        size_t bytes = floats_of(s, i) * rp_dtype_bytes(dtype);
        memcpy(back ? working : packed, back ? packed : working, bytes);
    }
}

/* Initialises layers with frozen weights: a whole layer in a temporary array, then each tensor in
 * its place. */
static rp_status initialise_parts(rpexec_state *s, uint64_t seed, bool base, rp_arena *arena)
{
    const rpexec_model *m = s->model;
    uint64_t most = 0;
    float *array = NULL;
    for (uint32_t i = 0; i < m->layer_count; i++) {
        uint64_t floats = rpexec_model_layer(m, i)->floats;
        most = floats > most ? floats : most;
    }
    RP_TRY(rp_arena_alloc(arena, most, sizeof *array, &array));
    for (uint32_t i = 0; i < m->layer_count; i++) {
        const rpexec_layer *layer = rpexec_model_layer(m, i);
        rpexec_model_initialise(m, i, seed, base, s->pool, array);
        for (uint32_t k = 0; k < layer->tensor_count; k++) {
            if (layer->tensors[k].offset < layer->frozen) {
                rpexec_state_freeze(s, i, &layer->tensors[k], array + layer->tensors[k].offset);
            }
        }
        rpexec_pass_refresh(s->pool, RP_DTYPE_F32, floats_of(s, i), array + layer->frozen,
                            s->master + s->trained[i]);
    }
    return RP_OK;
}

static rp_status initialise(rpexec_state *s, uint64_t seed, bool base)
{
    if (s->model->rank == 0) {
        for (uint32_t i = 0; i < s->model->layer_count; i++) {
            rpexec_model_initialise(s->model, i, seed, base, s->pool, s->master + s->trained[i]);
        }
        return RP_OK;
    }
    rp_arena *arena = NULL;
    RP_TRY(rp_arena_create(&arena));
    rp_status status = initialise_parts(s, seed, base, arena);
    rp_arena_destroy(arena);
    return status;
}

rp_status rpexec_state_initialise(rpexec_state *s, uint64_t seed, bool base)
{
    RP_TRY(initialise(s, seed, base));
    for (uint32_t i = 0; i < s->model->layer_count; i++) {
        rpexec_pass_zero(s->pool, floats_of(s, i), sizeof *s->m, s->m + s->trained[i]);
        rpexec_pass_zero(s->pool, floats_of(s, i), sizeof *s->v, s->v + s->trained[i]);
    }
    s->step = 0;
    s->skipped = 0;
    s->exhausted = 0;
    s->scaler = rpexec_scaler_initial(s->model->dtype);
    for (uint32_t i = 0; i < s->model->layer_count; i++) {
        rpexec_state_refresh(s, i);
    }
    return RP_OK;
}

static void *slot_table(const rpexec_state *s, uint32_t head)
{
    return rpexec_element(s->model->dtype, rpexec_state_slot(s, head), table_offset(s));
}

static void take_gradients(rpexec_state *s, uint32_t layer, const void *gradients, float scale,
                           bool add)
{
    rp_dtype dtype = s->model->dtype;
    bool adds = add || (layer == 0 && is_tied_head(s, s->model->layer_count - 1));
    bool finite = rpexec_pass_collect(s->pool, dtype, own_floats(s, layer), gradients, scale, adds,
                                      s->gradients + s->trained[layer]);
    if (is_tied_head(s, layer)) {
        finite &= rpexec_pass_collect(s->pool, dtype, floats_of(s, 0),
                                      rpexec_element_const(dtype, gradients, table_offset(s)),
                                      scale, add, s->gradients);
    }
    s->overflow |= !finite;
}

/* The head's gradient of a tied table is taken at once, since the next step may write the head's
 * slot before the embedding delivers its gradient (executor.md 1.8). */
void rpexec_state_collect(rpexec_state *s, uint32_t layer, float scale)
{
    s->collected_scale = scale;
    if (!s->is_fused) {
        take_gradients(s, layer, rpexec_state_slot(s, layer), scale, false);
    }
}

void rpexec_state_collect_part(rpexec_state *s, uint32_t layer, float scale, bool add)
{
    bool finite = rpexec_pass_collect(s->pool, s->model->dtype, floats_of(s, layer),
                                      rpexec_state_slot(s, layer), scale, add,
                                      s->gradients + s->trained[layer]);
    s->collected_scale = scale;
    s->overflow |= !finite;
}

void rpexec_state_sum_tables(rpexec_state *s)
{
    uint32_t head = s->model->layer_count - 1;
    if (is_tied_head(s, head)) {
        (void)rpexec_pass_collect(s->pool, RP_DTYPE_F32, floats_of(s, 0),
                                  s->gradients + s->trained[head] + table_offset(s), 1, true,
                                  s->gradients);
    }
}

void rpexec_state_add(rpexec_state *s, uint32_t layer, const void *gradients, float scale)
{
    take_gradients(s, layer, gradients, scale, true);
}

/* An overflow of any gradient skips the step, so it must be known before any gradient is used.
 * Adding and dividing make no overflow of their own: a sum of finite 16-bit values is finite in
 * fp32, and so is its quotient by a scale of at least 1. */
void rpexec_state_measure(rpexec_state *s, uint32_t layer)
{
    uint32_t head = s->model->layer_count - 1;
    bool tied = layer == 0 && is_tied_head(s, head);
    rp_dtype dtype = s->is_fused ? s->model->dtype : RP_DTYPE_F32;
    const void *slot = rpexec_state_slot(s, layer);
    const void *first = tied ? slot_table(s, head) : slot;
    uint64_t count = own_floats(s, layer);
    if (s->is_fused) {
        rpexec_pass_squares(s->pool, dtype, count, first, tied ? slot : NULL, s->collected_scale,
                            &s->squares);
    } else {
        rpexec_pass_squares(s->pool, dtype, count, s->gradients + s->trained[layer], NULL, 1,
                            &s->squares);
    }
    s->overflow |= rpexec_scaler_needed(s->model->dtype) && s->squares.not_finite != 0;
}

void rpexec_state_fuse(rpexec_state *s, bool fused)
{
    s->is_fused = fused;
}

/* The beginning of a layer's trained working weights. */
static void *trained_working(const rpexec_state *s, uint32_t layer)
{
    return rpexec_element(s->model->dtype, rpexec_state_working(s, layer),
                          rpexec_model_layer(s->model, layer)->frozen);
}

/* Steps with a layer's slot from value `at` on; the head's slot is added for the embedding of a
 * tied table. */
static void step_fused(rpexec_state *s, uint32_t layer, uint64_t at,
                       const rpexec_adam_factors *factors, const rpexec_adam_slice *slice)
{
    rp_dtype dtype = s->model->dtype;
    uint32_t head = s->model->layer_count - 1;
    bool tied = layer == 0 && is_tied_head(s, head);
    void *slot = rpexec_element(dtype, rpexec_state_slot(s, layer), at);
    rpexec_pass_step step = {.dtype = dtype,
                             .gradients =
                                 tied ? rpexec_element(dtype, slot_table(s, head), at) : slot,
                             .more = tied ? slot : NULL,
                             .scale = s->collected_scale,
                             .slice = *slice,
                             .working = rpexec_element(dtype, trained_working(s, layer), at)};
    step.slice.gradients = NULL;
    if (tied) {
        step.copy = rpexec_element(dtype, trained_working(s, head), own_floats(s, head) + at);
    }
    rpexec_pass_run_step(s->pool, factors, &step);
}

/* Adam of a layer, with separate runs for tensors with and without weight decay. */
static void step_layer(rpexec_state *s, uint32_t layer, const rpexec_adam *adam)
{
    uint64_t end = own_floats(s, layer);
    for (uint64_t at = 0; at < end;) {
        bool vectors = false;
        uint64_t to = rpexec_layer_run(rpexec_model_layer(s->model, layer), at, &vectors);
        rpexec_adam part = *adam;
        part.weight_decay = vectors ? 0 : part.weight_decay;
        to = to < end ? to : end;
        if (!adam->decays_matrices || adam->weight_decay == 0) {
            part = *adam;
            to = end;
        }
        const rpexec_adam_factors factors = rpexec_adam_factors_of(&part, s->step);
        uint64_t place = s->trained[layer] + at;
        const rpexec_adam_slice slice = {.parameters = s->master + place,
                                         .gradients = s->gradients + place,
                                         .m = s->m + place,
                                         .v = s->v + place,
                                         .count = to - at};
        if (s->is_fused) {
            step_fused(s, layer, at, &factors, &slice);
        } else {
            rpexec_pass_adam(s->pool, &factors, &slice);
        }
        at = to;
    }
}

void rpexec_state_skip(rpexec_state *s, float scale)
{
    s->skipped++;
    if (s->exhausted == 0 && rpexec_scaler_is_smallest(scale)) {
        s->exhausted = rpexec_state_iterations(s);
    }
}

void rpexec_state_optimise(rpexec_state *s, const rpexec_adam *adam)
{
    rpexec_adam clipped = *adam;
    bool overflow = s->overflow;
    s->norm = rpexec_squares_root(&s->squares);
    s->squares = (rpexec_squares){0};
    clipped.clip = rpexec_adam_clip(adam, s->norm);
    s->overflow = false;
    if (rpexec_scaler_needed(s->model->dtype)) {
        rpexec_scaler_step(&s->scaler, overflow);
    }
    if (overflow) {
        rpexec_state_skip(s, s->collected_scale);
        return;
    }
    s->step++;
    for (uint32_t i = 0; i < s->model->layer_count; i++) {
        step_layer(s, i, &clipped);
    }
}

uint64_t rpexec_state_own(const rpexec_state *s, uint32_t begin, uint32_t end)
{
    return s->trained[end - 1] + own_floats(s, end - 1) - s->trained[begin];
}

static void refresh(rpexec_state *s, uint32_t layer)
{
    rp_dtype dtype = s->model->dtype;
    uint64_t own = own_floats(s, layer);
    void *to = trained_working(s, layer);
    rpexec_pass_refresh(s->pool, dtype, own, s->master + s->trained[layer], to);
    if (is_tied_head(s, layer)) {
        rpexec_pass_refresh(s->pool, dtype, s->trained[1], s->master,
                            rpexec_element(dtype, to, own));
    }
}

void rpexec_state_refresh(rpexec_state *s, uint32_t layer)
{
    if (!s->is_fused) { /* otherwise they equal their masters already, also after a skipped step */
        refresh(s, layer);
    }
    s->scaler.next = layer == 0 ? s->scaler.scale : s->scaler.next;
}

/* ---- comparison ------------------------------------------------------------------------------ */

typedef struct hashed {
    const unsigned char *array;
    uint64_t width;
    atomic_ullong sum; /* sum of all pieces' hashes, in any order */
} hashed;

/* Hashes in independent lanes, which keep up with memory. Each step is invertible, so that no word
 * gets lost. */
static uint64_t hash_values(const unsigned char *at, uint64_t bytes, uint64_t place)
{
    uint64_t lanes[4] = {place, 1, 2, 3};
    uint64_t words[4] = {0};
    for (uint64_t i = 0; i < bytes; i += sizeof words) {
        memcpy(words, at + i, bytes - i < sizeof words ? bytes - i : sizeof words);
        for (uint32_t k = 0; k < 4; k++) {
            uint64_t lane = (lanes[k] ^ words[k]) * RP_SPLITMIX64_STEP;
            lanes[k] = lane << 31 | lane >> 33;
        }
    }
    uint64_t hash = rp_hash_add(RP_HASH_SEED, bytes);
    for (uint32_t k = 0; k < 4; k++) {
        hash = rp_hash_add(hash, lanes[k]);
    }
    return hash;
}

/* Hashes by pieces of the pool, so that the sum does not depend on the number of threads. */
static void hash_piece(void *context, uint64_t first, uint64_t count)
{
    hashed *h = context;
    for (uint64_t at = first; at < first + count; at += RPEXEC_POOL_PIECE) {
        uint64_t left = first + count - at;
        uint64_t values = left < RPEXEC_POOL_PIECE ? left : RPEXEC_POOL_PIECE;
        atomic_fetch_add(&h->sum, hash_values(h->array + at * h->width, values * h->width, at));
    }
}

static uint64_t hash_array(const rpexec_state *s, const void *array, uint64_t count, uint64_t width)
{
    hashed h = {.array = array, .width = width};
    rpexec_pool_run(s->pool, count, hash_piece, &h);
    return atomic_load(&h.sum);
}

uint64_t rpexec_state_hash(const rpexec_state *s)
{
    uint32_t layers = s->model->layer_count;
    uint64_t working =
        hash_array(s, s->working, s->offsets[layers], rp_dtype_bytes(s->model->dtype));
    return rp_hash_add(working, hash_array(s, s->master, s->trained[layers], sizeof(float)));
}
