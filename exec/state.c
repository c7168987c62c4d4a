#include "exec/state.h"

#include "common/host_limits.h"

#include <string.h>

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
    uint64_t slots = values * rpexec_dtype_bytes(model->dtype);
    uint64_t working = s.offsets[model->layer_count] * rpexec_dtype_bytes(model->dtype);
    const struct {
        void *to;
        uint64_t bytes;
    } arrays[] = {{&s.working, working},
                  {&s.slots, slots},
                  {&s.master, values * sizeof(float)},
                  {&s.gradients, values * sizeof(float)},
                  {&s.m, values * sizeof(float)},
                  {&s.v, values * sizeof(float)}};
    RP_TRY(rp_host_memory_require(working + slots + 4 * values * sizeof(float),
                                  "weights, gradients and Adam's moments"));
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) {
        void *array = NULL;
        RP_TRY(rp_arena_alloc(arena, arrays[i].bytes, 1, &array));
        memcpy(arrays[i].to, &array, sizeof array);
        /* What has been granted is taken now: whoever asks later must not count on it, too. */
        memset(array, 0, arrays[i].bytes);
    }
    RP_TRY(rp_arena_alloc(arena, model->layer_count, sizeof *s.slices, &s.slices));
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

/* A tied table that is trained; frozen ones are just two copies. */
static bool is_tied_head(const rpexec_state *s, uint32_t layer)
{
    return layer + 1 == s->model->layer_count && s->model->config->tied_head &&
           s->model->head.frozen == 0;
}

/* Where the table begins in the head's array. */
static uint64_t table_offset(const rpexec_state *s)
{
    return s->model->head.tensors[RPEXEC_HEAD_TABLE].offset;
}

/* Floats of a layer that have a master of their own. */
static uint64_t own_floats(const rpexec_state *s, uint32_t layer)
{
    return is_tied_head(s, layer) ? table_offset(s) : floats_of(s, layer);
}

void rpexec_state_freeze(rpexec_state *s, uint32_t layer, const rpexec_tensor *tensor,
                         const float *values)
{
    uint64_t count = tensor->rows * tensor->columns;
    rpexec_dtype dtype = s->model->dtype;
    rpexec_narrow(dtype, count, values,
                  rpexec_element(dtype, rpexec_state_working(s, layer), tensor->offset));
    if (layer == 0 && s->model->config->tied_head) {
        void *head = rpexec_state_working(s, s->model->layer_count - 1);
        rpexec_narrow(dtype, count, values, rpexec_element(dtype, head, table_offset(s)));
    }
}

void rpexec_state_copy_working(rpexec_state *s, void *values, bool back)
{
    rpexec_dtype dtype = s->model->dtype;
    for (uint32_t i = 0; i < s->model->layer_count; i++) {
        uint64_t frozen = rpexec_model_layer(s->model, i)->frozen;
        void *working = rpexec_element(dtype, rpexec_state_working(s, i), frozen);
        void *packed = rpexec_element(dtype, values, s->trained[i]);
        size_t bytes = floats_of(s, i) * rpexec_dtype_bytes(dtype);
        memcpy(back ? working : packed, back ? packed : working, bytes);
    }
}

/* Layers with frozen weights: all of a layer at a time, then where each tensor belongs. */
static rp_status initialise_parts(rpexec_state *s, uint64_t seed, rp_arena *arena)
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
        rpexec_model_initialise(m, i, seed, array);
        for (uint32_t k = 0; k < layer->tensor_count; k++) {
            if (layer->tensors[k].offset < layer->frozen) {
                rpexec_state_freeze(s, i, &layer->tensors[k], array + layer->tensors[k].offset);
            }
        }
        memcpy(s->master + s->trained[i], array + layer->frozen, floats_of(s, i) * sizeof *array);
    }
    return RP_OK;
}

static rp_status initialise(rpexec_state *s, uint64_t seed)
{
    if (s->model->rank == 0) {
        for (uint32_t i = 0; i < s->model->layer_count; i++) {
            rpexec_model_initialise(s->model, i, seed, s->master + s->trained[i]);
        }
        return RP_OK;
    }
    rp_arena *arena = NULL;
    RP_TRY(rp_arena_create(&arena));
    rp_status status = initialise_parts(s, seed, arena);
    rp_arena_destroy(arena);
    return status;
}

rp_status rpexec_state_initialise(rpexec_state *s, uint64_t seed)
{
    uint64_t floats = s->trained[s->model->layer_count];
    RP_TRY(initialise(s, seed));
    memset(s->m, 0, floats * sizeof *s->m);
    memset(s->v, 0, floats * sizeof *s->v);
    s->step = 0;
    s->skipped = 0;
    s->scaler = rpexec_scaler_initial(s->model->dtype);
    for (uint32_t i = 0; i < s->model->layer_count; i++) {
        rpexec_state_refresh(s, i);
    }
    return RP_OK;
}

static void take(rpexec_state *s, uint32_t layer, const void *gradients, float scale, bool add)
{
    rpexec_dtype dtype = s->model->dtype;
    bool adds = add || (layer == 0 && is_tied_head(s, s->model->layer_count - 1));
    bool finite = rpexec_unscale(dtype, own_floats(s, layer), gradients, scale, adds,
                                 s->gradients + s->trained[layer]);
    if (is_tied_head(s, layer)) {
        finite &= rpexec_unscale(dtype, floats_of(s, 0),
                                 rpexec_element_const(dtype, gradients, table_offset(s)), scale,
                                 add, s->gradients);
    }
    s->overflow |= !finite;
}

/* What the head has delivered of a tied table is taken at once: the next step may already write its
 * slot when the embedding delivers (executor.md 1.8). */
void rpexec_state_collect(rpexec_state *s, uint32_t layer, float scale)
{
    take(s, layer, rpexec_state_slot(s, layer), scale, false);
}

void rpexec_state_add(rpexec_state *s, uint32_t layer, const void *gradients, float scale)
{
    take(s, layer, gradients, scale, true);
}

void rpexec_state_optimise(rpexec_state *s, const rpexec_adam *adam)
{
    bool overflow = s->overflow;
    s->overflow = false;
    if (rpexec_scaler_needed(s->model->dtype)) {
        rpexec_scaler_step(&s->scaler, overflow);
    }
    if (overflow) {
        s->skipped++;
        return;
    }
    s->step++;
    for (uint32_t i = 0; i < s->model->layer_count; i++) {
        uint64_t at = s->trained[i];
        s->slices[i] = (rpexec_adam_slice){.parameters = s->master + at,
                                           .gradients = s->gradients + at,
                                           .m = s->m + at,
                                           .v = s->v + at,
                                           .count = own_floats(s, i)};
    }
    rpexec_adam_steps(adam, s->step, s->slices, s->model->layer_count, 0);
}

uint64_t rpexec_state_own(const rpexec_state *s, uint32_t begin, uint32_t end)
{
    return s->trained[end - 1] + own_floats(s, end - 1) - s->trained[begin];
}

void rpexec_state_refresh(rpexec_state *s, uint32_t layer)
{
    rpexec_dtype dtype = s->model->dtype;
    uint64_t own = own_floats(s, layer);
    void *to = rpexec_element(dtype, rpexec_state_working(s, layer),
                              rpexec_model_layer(s->model, layer)->frozen);
    rpexec_narrow(dtype, own, s->master + s->trained[layer], to);
    if (is_tied_head(s, layer)) {
        rpexec_narrow(dtype, s->trained[1], s->master, rpexec_element(dtype, to, own));
    }
    s->scaler.next = layer == 0 ? s->scaler.scale : s->scaler.next;
}
