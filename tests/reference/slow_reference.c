#include "tests/reference/slow_sim.h"

#include <stdio.h>
#include <stdlib.h>

void slow_require(bool condition, const char *what)
{
    if (!condition) {
        fprintf(stderr, "slow_reference: broken invariant: %s\n", what);
        abort();
    }
}

void *slow_alloc(size_t count, size_t size)
{
    void *memory = calloc(count + 1, size);
    slow_require(memory != NULL, "out of memory");
    return memory;
}

int64_t slow_max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

int64_t slow_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- sizes that the rules allow -------------------------------------------------------------- */

static int slow_sum(const int *layers, int count)
{
    int sum = 0;
    for (int i = 0; i < count; i++) {
        sum += layers[i];
    }
    return sum;
}

static bool slow_any_negative(const int *layers, int count)
{
    for (int i = 0; i < count; i++) {
        if (layers[i] < 0) {
            return true;
        }
    }
    return false;
}

static int slow_group(const slow_config *config)
{
    int groups = config->microbatches / config->gpus;
    return config->microbatches / (groups > 1 ? groups : 1);
}

static bool slow_baseline_allowed(const slow_config *config)
{
    int stages = config->stage_count;
    if (stages < 1 || stages % config->gpus != 0 ||
        slow_sum(config->stage_layers, stages) != config->layers) {
        return false;
    }
    int groups = config->microbatches / config->gpus;
    switch (config->schedule) {
    case SLOW_GPIPE:
    case SLOW_1F1B:
        return stages == config->gpus;
    case SLOW_INTERLEAVED_1F1B:
        return config->microbatches % (groups > 1 ? groups : 1) == 0;
    case SLOW_LOOPED_BFS:
        return true;
    case SLOW_ROUNDPIPE:
        break;
    }
    return false;
}

/* Stage 0's layers have no forward stage: their forward is part of its pre-work. */
static bool slow_fused(const slow_config *config)
{
    return slow_sum(config->stage_layers, config->stage_count) != config->layers;
}

static bool slow_roundpipe_allowed(const slow_config *config)
{
    if (config->round < 0 || config->backward_count < 1 ||
        slow_any_negative(config->backward_layers, config->backward_count) ||
        slow_sum(config->backward_layers, config->backward_count) != config->layers) {
        return false;
    }
    int forward = slow_sum(config->stage_layers, config->stage_count);
    return forward == config->layers || forward == config->layers - config->backward_layers[0];
}

static bool slow_allowed(const slow_config *config)
{
    if (config->gpus < 1 || config->microbatches < 1 || config->iterations < 1 ||
        config->layers < 0 || config->stage_count < 0 ||
        slow_any_negative(config->stage_layers, config->stage_count)) {
        return false;
    }
    return config->schedule == SLOW_ROUNDPIPE ? slow_roundpipe_allowed(config)
                                              : slow_baseline_allowed(config);
}

/* ---- costs of the stages --------------------------------------------------------------------- */

static int64_t slow_layer_sum(const int64_t *times, int first, int count)
{
    int64_t sum = 0;
    for (int i = 0; i < count; i++) {
        sum += times[first + i];
    }
    return sum;
}

static void slow_fill_baseline_work(slow_sim *sim)
{
    const slow_config *config = sim->config;
    int first = 0;
    for (int s = 0; s < config->stage_count; s++) {
        bool last = s == config->stage_count - 1;
        int64_t forward = slow_layer_sum(config->fwd_ps, first, config->stage_layers[s]);
        int64_t backward = slow_layer_sum(config->bwd_ps, first, config->stage_layers[s]);
        first += config->stage_layers[s];
        sim->forward_work[s].body = forward + (last ? config->head_fwd_ps : 0);
        sim->backward_work[s].body = backward + (last ? config->head_bwd_ps : 0);
        switch (config->recompute) {
        case SLOW_RECOMPUTE_NONE:
            break;
        case SLOW_RECOMPUTE_WAIT:
            sim->backward_work[s].body += forward;
            break;
        case SLOW_RECOMPUTE_EARLY:
            sim->backward_work[s].pre = forward;
            break;
        }
    }
}

static void slow_fill_roundpipe_work(slow_sim *sim)
{
    const slow_config *config = sim->config;
    int first = 0;
    for (int s = 0; s < config->stage_count; s++) {
        sim->forward_work[s].body = slow_layer_sum(config->fwd_ps, first, config->stage_layers[s]);
        first += config->stage_layers[s];
    }
    int behind = config->layers;
    for (int j = 0; j < config->backward_count; j++) {
        slow_work *work = &sim->backward_work[j];
        int count = config->backward_layers[j];
        behind -= count;
        work->body = slow_layer_sum(config->bwd_ps, behind, count);
        if (config->recompute != SLOW_RECOMPUTE_NONE || (j == 0 && slow_fused(config))) {
            work->pre = slow_layer_sum(config->fwd_ps, behind, count);
        }
        if (j == 0) {
            work->head_fwd = config->head_fwd_ps;
            work->pre += config->head_fwd_ps;
            work->body += config->head_bwd_ps;
        }
    }
}

const slow_work *slow_work_of(const slow_sim *sim, const slow_op *op)
{
    return op->backward ? &sim->backward_work[op->stage] : &sim->forward_work[op->stage];
}

int64_t slow_duration(const slow_sim *sim, const slow_op *op)
{
    const slow_work *work = slow_work_of(sim, op);
    return work->pre + work->body;
}

/* ---- the ops, in the order of their queues --------------------------------------------------- */

static int *slow_id_at(const slow_sim *sim, bool backward, int iteration, int stage, int microbatch)
{
    size_t stages = (size_t)(backward ? sim->backs : sim->config->stage_count);
    size_t row = (size_t)iteration * stages + (size_t)stage;
    int *ids = backward ? sim->backward_ids : sim->forward_ids;
    return &ids[row * (size_t)sim->config->microbatches + (size_t)microbatch];
}

static void slow_emit(slow_sim *sim, int iteration, bool backward, int stage, int microbatch,
                      int gpu)
{
    int id = sim->op_count++;
    sim->ops[id] = (slow_op){.backward = backward,
                             .iteration = iteration,
                             .stage = stage,
                             .microbatch = microbatch,
                             .gpu = gpu,
                             .end = -1};
    *slow_id_at(sim, backward, iteration, stage, microbatch) = id;
    slow_queue *queue = &sim->queues[gpu];
    if (queue->count == queue->capacity) {
        queue->capacity = 2 * queue->capacity + 64;
        queue->ids = realloc(queue->ids, (size_t)queue->capacity * sizeof(int));
        slow_require(queue->ids != NULL, "out of memory");
    }
    queue->ids[queue->count++] = id;
}

static void slow_emit_gpipe(slow_sim *sim, int iteration, int rank)
{
    for (int m = 0; m < sim->config->microbatches; m++) {
        slow_emit(sim, iteration, false, rank, m, rank);
    }
    for (int m = 0; m < sim->config->microbatches; m++) {
        slow_emit(sim, iteration, true, rank, m, rank);
    }
}

static void slow_emit_1f1b(slow_sim *sim, int iteration, int rank)
{
    int microbatches = sim->config->microbatches;
    int warmup = (int)slow_min(sim->config->gpus - 1 - rank, microbatches);
    int forward = 0;
    int backward = 0;
    while (forward < warmup) {
        slow_emit(sim, iteration, false, rank, forward++, rank);
    }
    while (forward < microbatches) {
        slow_emit(sim, iteration, false, rank, forward++, rank);
        slow_emit(sim, iteration, true, rank, backward++, rank);
    }
    while (backward < microbatches) {
        slow_emit(sim, iteration, true, rank, backward++, rank);
    }
}

static void slow_emit_interleaved(slow_sim *sim, int iteration, int rank)
{
    int gpus = sim->config->gpus;
    int chunks = sim->config->stage_count / gpus;
    int total = chunks * sim->config->microbatches;
    int q = slow_group(sim->config);
    int warmup = (int)slow_min((int64_t)(chunks - 1) * q + 2 * (gpus - 1 - rank), total);
    int *forwards = slow_alloc((size_t)chunks, sizeof(int));
    int *backwards = slow_alloc((size_t)chunks, sizeof(int));
    for (int k = 0; k < warmup + total; k++) {
        if (k < total) {
            int chunk = (k / q) % chunks;
            slow_emit(sim, iteration, false, chunk * gpus + rank, forwards[chunk]++, rank);
        }
        if (k >= warmup) {
            int chunk = chunks - 1 - ((k - warmup) / q) % chunks;
            slow_emit(sim, iteration, true, chunk * gpus + rank, backwards[chunk]++, rank);
        }
    }
    free(forwards);
    free(backwards);
}

static void slow_emit_looped(slow_sim *sim, int iteration, int rank)
{
    int gpus = sim->config->gpus;
    for (int s = rank; s < sim->config->stage_count; s += gpus) {
        for (int m = 0; m < sim->config->microbatches; m++) {
            slow_emit(sim, iteration, false, s, m, rank);
        }
    }
    for (int s = sim->config->stage_count - gpus + rank; s >= 0; s -= gpus) {
        for (int m = sim->config->microbatches - 1; m >= 0; m--) {
            slow_emit(sim, iteration, true, s, m, rank);
        }
    }
}

static void slow_emit_round(slow_sim *sim, int iteration, int first_gpu, int from, int to)
{
    int stages = sim->config->stage_count;
    for (int s = 0; s < stages; s++) {
        for (int m = from; m < to; m++) {
            slow_emit(sim, iteration, false, s, m, (first_gpu + s) % sim->config->gpus);
        }
    }
    for (int j = 0; j < sim->backs; j++) {
        for (int m = from; m < to; m++) {
            slow_emit(sim, iteration, true, j, m, (first_gpu + stages + j) % sim->config->gpus);
        }
    }
}

/* ---- running the queues ---------------------------------------------------------------------- */

int slow_dependencies(const slow_sim *sim, const slow_op *op, int ids_out[2])
{
    int count = 0;
    int iteration = op->iteration;
    int stage = op->stage;
    int last = sim->config->stage_count - 1;
    int m = op->microbatch;
    if (!op->backward) {
        if (stage > 0) {
            ids_out[count++] = *slow_id_at(sim, false, iteration, stage - 1, m);
        }
    } else if (sim->config->schedule == SLOW_ROUNDPIPE) {
        if (last >= 0) {
            ids_out[count++] = *slow_id_at(sim, false, iteration, last, m);
        }
        if (stage > 0) {
            ids_out[count++] = *slow_id_at(sim, true, iteration, stage - 1, m);
        }
    } else {
        ids_out[count++] = *slow_id_at(sim, false, iteration, stage, m);
        if (stage < last) {
            ids_out[count++] = *slow_id_at(sim, true, iteration, stage + 1, m);
        }
    }
    return count;
}

int64_t slow_hop(const slow_sim *sim, const slow_op *a, const slow_op *b)
{
    return a->gpu == b->gpu ? 0 : sim->config->hop_ps;
}

/* Starts `op` at the head of its queue; false while a dependency has not run. */
static bool slow_start(slow_sim *sim, slow_op *op)
{
    slow_queue *queue = &sim->queues[op->gpu];
    const slow_work *work = slow_work_of(sim, op);
    int deps[2] = {-1, -1};
    int dep_count = slow_dependencies(sim, op, deps);
    int64_t ready = 0;
    int64_t ready_without_hops = 0;
    int64_t hops = 0;
    for (int i = 0; i < dep_count; i++) {
        const slow_op *dep = &sim->ops[deps[i]];
        if (dep->end < 0) {
            return false;
        }
        ready = slow_max(ready, dep->end + slow_hop(sim, dep, op));
        ready_without_hops = slow_max(ready_without_hops, dep->end);
        hops += slow_hop(sim, dep, op);
    }
    int64_t alone = 0;
    if (sim->pre_early) {
        op->start = slow_max(queue->free_ps + work->pre, ready);
        op->begin = op->start - work->pre;
        alone = op->start - slow_max(queue->free_ps + work->pre, ready_without_hops);
    } else {
        op->begin = slow_max(queue->free_ps, ready);
        op->start = op->begin + work->pre;
        alone = op->begin - slow_max(queue->free_ps, ready_without_hops);
    }
    op->end = op->start + work->body;
    queue->free_ps = op->end;
    sim->comm_total_ps += hops;
    sim->comm_exposed_ps += slow_max(0, alone);
    return true;
}

static void slow_drain_queues(slow_sim *sim)
{
    bool progress = true;
    while (progress) {
        progress = false;
        for (int g = 0; g < sim->config->gpus; g++) {
            slow_queue *queue = &sim->queues[g];
            while (queue->next < queue->count &&
                   slow_start(sim, &sim->ops[queue->ids[queue->next]])) {
                sim->order[sim->order_count++] = queue->ids[queue->next++];
                progress = true;
            }
        }
    }
    slow_require(sim->order_count == sim->op_count, "deadlock");
}

int64_t slow_latest_end(const slow_sim *sim, bool all, int iteration)
{
    int64_t latest = 0;
    for (int i = 0; i < sim->op_count; i++) {
        const slow_op *op = &sim->ops[i];
        if ((all || op->iteration == iteration) && slow_duration(sim, op) > 0) {
            latest = slow_max(latest, op->end);
        }
    }
    return latest;
}

static void slow_barrier(slow_sim *sim)
{
    int64_t makespan = slow_latest_end(sim, true, 0);
    for (int g = 0; g < sim->config->gpus; g++) {
        sim->queues[g].free_ps = makespan;
    }
}

static void slow_run_baseline(slow_sim *sim, int iteration)
{
    for (int rank = 0; rank < sim->config->gpus; rank++) {
        switch (sim->config->schedule) {
        case SLOW_GPIPE:
            slow_emit_gpipe(sim, iteration, rank);
            break;
        case SLOW_1F1B:
            slow_emit_1f1b(sim, iteration, rank);
            break;
        case SLOW_INTERLEAVED_1F1B:
            slow_emit_interleaved(sim, iteration, rank);
            break;
        case SLOW_LOOPED_BFS:
            slow_emit_looped(sim, iteration, rank);
            break;
        case SLOW_ROUNDPIPE:
            slow_require(false, "roundpipe is no baseline");
            break;
        }
    }
    slow_drain_queues(sim);
}

static int slow_free_first(const slow_sim *sim)
{
    int first = 0;
    for (int g = 1; g < sim->config->gpus; g++) {
        if (sim->queues[g].free_ps < sim->queues[first].free_ps) {
            first = g;
        }
    }
    return first;
}

static void slow_run_roundpipe(slow_sim *sim, int iteration, int *first_gpu)
{
    const slow_config *config = sim->config;
    int microbatches = config->microbatches;
    int size = config->round == 0 ? microbatches : config->round;
    bool rotate = config->rotate || config->round == 0;
    if (!rotate) {
        *first_gpu = slow_free_first(sim); /* GPU 0 after a barrier, and at the very start */
    }
    for (int from = 0; from < microbatches;) {
        int to = (int)slow_min((int64_t)from + size, microbatches);
        slow_emit_round(sim, iteration, *first_gpu, from, to);
        slow_drain_queues(sim);
        *first_gpu = rotate ? (*first_gpu + config->stage_count + sim->backs) % config->gpus
                            : slow_free_first(sim);
        from = to;
    }
}

/* ---- the whole simulation -------------------------------------------------------------------- */

static void slow_init(slow_sim *sim, const slow_config *config)
{
    bool roundpipe = config->schedule == SLOW_ROUNDPIPE;
    *sim = (slow_sim){.config = config};
    sim->backs = roundpipe ? config->backward_count : config->stage_count;
    sim->pre_early = config->recompute == SLOW_RECOMPUTE_EARLY;
    size_t per_stage = (size_t)config->iterations * (size_t)config->microbatches;
    size_t forwards = per_stage * (size_t)config->stage_count;
    size_t backwards = per_stage * (size_t)sim->backs;
    sim->forward_work = slow_alloc((size_t)config->stage_count, sizeof(slow_work));
    sim->backward_work = slow_alloc((size_t)sim->backs, sizeof(slow_work));
    sim->ops = slow_alloc(forwards + backwards, sizeof(slow_op));
    sim->forward_ids = slow_alloc(forwards, sizeof(int));
    sim->backward_ids = slow_alloc(backwards, sizeof(int));
    sim->order = slow_alloc(forwards + backwards, sizeof(int));
    sim->queues = slow_alloc((size_t)config->gpus, sizeof(slow_queue));
    if (roundpipe) {
        slow_fill_roundpipe_work(sim);
    } else {
        slow_fill_baseline_work(sim);
    }
}

static void slow_fini(slow_sim *sim)
{
    for (int g = 0; g < sim->config->gpus; g++) {
        free(sim->queues[g].ids);
    }
    free(sim->forward_work);
    free(sim->backward_work);
    free(sim->ops);
    free(sim->forward_ids);
    free(sim->backward_ids);
    free(sim->order);
    free(sim->queues);
}

bool slow_run(const slow_config *config, slow_result *result_out)
{
    if (!slow_allowed(config)) {
        return false;
    }
    slow_sim sim;
    slow_init(&sim, config);
    int first_gpu = 0;
    for (int i = 0; i < config->iterations; i++) {
        if (i > 0 && !config->async) {
            slow_barrier(&sim);
        }
        if (config->schedule == SLOW_ROUNDPIPE) {
            slow_run_roundpipe(&sim, i, &first_gpu);
        } else {
            slow_run_baseline(&sim, i);
        }
    }
    *result_out = slow_measure(&sim);
    slow_fini(&sim);
    return true;
}
