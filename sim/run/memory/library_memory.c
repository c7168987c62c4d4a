#include "sim/run/memory/library_memory.h"

#include "common/lower/lower.h"

#include <stdbool.h>

/* Number of equal microbatches or jobs in a row that are replayed: from the second on a job's
 * microbatches are equal, and so are successive jobs of the same number of layers, because each
 * holds only memory of its predecessor. */
#define MOST_EQUAL 2u

enum { PARAMS, UPLOAD, COMPUTE };

/* Blocks whose memory is free again only after one stream has waited for another. */
typedef enum queue {
    HELD_UPLOADS,   /* uploads used by this microbatch */
    HELD_DOWNLOADS, /* downloads of this microbatch */
    OLD_UPLOADS,    /* uploads used by the microbatch before */
    OLD_DOWNLOADS,
    OLD_WEIGHTS, /* weights of the job before */
    QUEUES,
} queue;

typedef struct block_list {
    rpsim_block **blocks;
    uint32_t count;
    uint32_t room;
} block_list;

typedef struct replay {
    const rpsim_library_run *run;
    rp_arena *arena;
    rpsim_allocator allocator;
    block_list queues[QUEUES];
    rpsim_block **tensors; /* [run->tensors->tensors] */
    rpsim_block ***grads; /* [layers + 2][tensors] gradients of a layer's weights; NULL: none yet */
    bool out_of_memory;
} replay;

/* A job's layers [begin, end) as the planner counts them: 0 is the embedding, layers + 1 the
 * head. */
typedef struct job {
    uint32_t begin;
    uint32_t end;
    bool backward;
} job;

/* ---- blocks ---------------------------------------------------------------------------------- */

static rp_status take(replay *r, uint32_t stream, uint64_t bytes, rpsim_block **block_out)
{
    *block_out = NULL;
    if (bytes == 0 || r->out_of_memory) {
        return RP_OK;
    }
    RP_TRY(rpsim_allocator_take(&r->allocator, stream, bytes, block_out));
    r->out_of_memory = *block_out == NULL;
    return RP_OK;
}

static rp_status give(replay *r, rpsim_block **block)
{
    rpsim_block *freed = *block;
    *block = NULL;
    return freed == NULL ? RP_OK : rpsim_allocator_free(&r->allocator, freed);
}

static rp_status hold(replay *r, queue where, rpsim_block **block)
{
    block_list *list = &r->queues[where];
    if (*block == NULL) {
        return RP_OK;
    }
    if (list->count == list->room) {
        rpsim_block **grown = NULL;
        uint32_t room = list->room == 0 ? 16 : 2 * list->room;
        RP_TRY(rp_arena_alloc(r->arena, room, sizeof *grown, &grown));
        for (uint32_t i = 0; i < list->count; i++) {
            grown[i] = list->blocks[i];
        }
        list->blocks = grown;
        list->room = room;
    }
    list->blocks[list->count++] = *block;
    *block = NULL;
    return RP_OK;
}

static rp_status release(replay *r, queue from)
{
    block_list *list = &r->queues[from];
    for (uint32_t i = 0; i < list->count; i++) {
        RP_TRY(give(r, &list->blocks[i]));
    }
    list->count = 0;
    return RP_OK;
}

static rp_status move(replay *r, queue from, queue to)
{
    block_list *list = &r->queues[from];
    for (uint32_t i = 0; i < list->count; i++) {
        RP_TRY(hold(r, to, &list->blocks[i]));
    }
    list->count = 0;
    return RP_OK;
}

static uint64_t boundary(const replay *r)
{
    return 2 * r->run->tokens * r->run->model->hidden;
}

static rp_status upload(replay *r, uint64_t bytes)
{
    rpsim_block *block = NULL;
    RP_TRY(take(r, UPLOAD, bytes, &block));
    RP_TRY(hold(r, HELD_UPLOADS, &block));
    return release(r, OLD_UPLOADS);
}

/* Ends a microbatch: its outputs are on their way, and the compute stream waits for the outputs of
 * the microbatch before. */
static rp_status end_microbatch(replay *r)
{
    RP_TRY(release(r, OLD_DOWNLOADS));
    RP_TRY(move(r, HELD_UPLOADS, OLD_UPLOADS));
    return move(r, HELD_DOWNLOADS, OLD_DOWNLOADS);
}

/* ---- weights --------------------------------------------------------------------------------- */

/* Lists the sizes of a layer's weight tensors that are larger than a small block, and the sum of
 * all others as a single tensor. */
static uint32_t weights_of(const rp_model *m, uint32_t layer, uint64_t sizes[static 12])
{
    uint32_t count = 0;
    if (layer == 0 || layer == m->layers + 1) {
        sizes[count++] = 2 * m->embedding_parameters;
        return count;
    }
    uint64_t h = m->hidden;
    uint64_t query = h * m->heads * m->head_dim;
    uint64_t key = h * m->kv_heads * m->head_dim;
    uint64_t matrix = h * m->intermediate;
    uint64_t all = query * 2 + key * 2;
    const uint64_t attention[] = {query, key, key, query};
    for (int i = 0; i < 4; i++) {
        sizes[count++] = 2 * attention[i];
    }
    if (m->expert_bias) { /* the weights of all experts are in two tensors */
        sizes[count++] = 4 * matrix * m->experts;
        sizes[count++] = 2 * matrix * m->experts;
        all += 3 * matrix * m->experts;
    } else if (m->experts == 1) {
        for (int i = 0; i < 3; i++) {
            sizes[count++] = 2 * matrix;
        }
        all += 3 * matrix;
    }
    sizes[count++] = 2 * (rp_model_held_layer(m) - all);
    return count;
}

static rp_status upload_weights(replay *r, const job *j, block_list *weights)
{
    uint64_t sizes[12];
    weights->count = 0;
    for (uint32_t layer = j->begin; layer < j->end; layer++) {
        uint32_t count = weights_of(r->run->model, layer, sizes);
        for (uint32_t i = 0; i < count; i++) {
            RP_TRY(take(r, PARAMS, sizes[i], &weights->blocks[weights->count]));
            weights->count += weights->blocks[weights->count] != NULL;
        }
    }
    return release(r, OLD_WEIGHTS);
}

static rp_status end_job(replay *r, const job *j, block_list *weights)
{
    for (uint32_t i = 0; i < weights->count; i++) {
        RP_TRY(hold(r, OLD_WEIGHTS, &weights->blocks[i]));
    }
    for (uint32_t layer = j->begin; layer < j->end; layer++) {
        rpsim_block **grads = r->grads[layer];
        for (uint32_t t = 0; grads != NULL && t < r->run->tensors->tensors; t++) {
            RP_TRY(hold(r, OLD_DOWNLOADS, &grads[t]));
        }
        r->grads[layer] = NULL;
    }
    return RP_OK;
}

/* ---- layers ---------------------------------------------------------------------------------- */

static rp_status follow(replay *r, rpsim_block **tensors, size_t begin, size_t end)
{
    const rpsim_layer_tensors *layer = r->run->tensors;
    for (size_t i = begin; i < end; i++) {
        const rpsim_tensor_event *event = &layer->events[i];
        if (event->kind == RPSIM_TENSOR_ALLOC) {
            RP_TRY(take(r, COMPUTE, event->bytes, &tensors[event->tensor]));
        } else { /* the first expert has no expert before it whose tensor it would free */
            RP_TRY(give(r, &tensors[event->tensor]));
        }
    }
    return RP_OK;
}

static rp_status take_table_gradient(replay *r, rpsim_block **gradient)
{
    bool trained = r->run->model->lora_rank == 0;
    return take(r, COMPUTE, trained ? 2 * r->run->model->embedding_parameters : 0, gradient);
}

/* Adds the gradient of a table of embeddings or logits: the first gradient stays, later gradients
 * are added to it and freed. */
static rp_status add_table_gradient(replay *r, uint32_t layer, rpsim_block *gradient)
{
    if (gradient == NULL || r->grads[layer] != NULL) {
        return give(r, &gradient);
    }
    RP_TRY(rp_arena_alloc(r->arena, r->run->tensors->tensors, sizeof(rpsim_block *),
                          &r->grads[layer]));
    r->grads[layer][0] = gradient;
    return RP_OK;
}

/* Runs the backward of a layer whose tape lies in `tensors`. `gradient` is at first the output's
 * gradient if another layer has made it, afterwards the input's gradient. */
static rp_status layer_backward(replay *r, uint32_t layer, rpsim_block **tensors,
                                rpsim_block **gradient)
{
    const rpsim_layer_tensors *t = r->run->tensors;
    if (layer == 0) {
        rpsim_block *table = NULL;
        RP_TRY(take_table_gradient(r, &table));
        RP_TRY(add_table_gradient(r, 0, table));
        return give(r, gradient);
    }
    RP_TRY(follow(r, tensors, t->backward, t->count));
    bool first = r->grads[layer] == NULL;
    if (first) {
        RP_TRY(rp_arena_alloc(r->arena, t->tensors, sizeof(rpsim_block *), &r->grads[layer]));
    }
    for (size_t i = t->backward; i < t->count; i++) { /* the gradients of weights stay */
        const rpsim_tensor_event *event = &t->events[i];
        if (first && event->kind == RPSIM_TENSOR_ALLOC && event->weight) {
            r->grads[layer][event->tensor] = tensors[event->tensor];
            tensors[event->tensor] = NULL;
        }
    }
    RP_TRY(give(r, gradient));
    *gradient = tensors[t->input_gradient];
    tensors[t->input_gradient] = NULL;
    for (uint32_t i = 0; i < t->tensors; i++) {
        RP_TRY(give(r, &tensors[i]));
    }
    return RP_OK;
}

static rp_status forward_microbatch(replay *r, const job *j)
{
    const rpsim_layer_tensors *t = r->run->tensors;
    rpsim_block *out = NULL;
    RP_TRY(upload(r, j->begin == 0 ? 8 * r->run->tokens : boundary(r)));
    for (uint32_t layer = j->begin; layer < j->end; layer++) {
        if (layer > j->begin && r->run->layer_grain) {
            RP_TRY(hold(r, HELD_DOWNLOADS, &out));
        }
        if (layer == 0) {
            RP_TRY(take(r, COMPUTE, boundary(r), &out));
            continue;
        }
        RP_TRY(follow(r, r->tensors, 0, t->backward));
        rpsim_block *made = r->tensors[t->output];
        r->tensors[t->output] = NULL;
        for (uint32_t i = 0; i < t->tensors; i++) {
            RP_TRY(give(r, &r->tensors[i]));
        }
        RP_TRY(give(r, &out));
        out = made;
    }
    RP_TRY(hold(r, HELD_DOWNLOADS, &out));
    return end_microbatch(r);
}

/* Runs the loss chunk by chunk: logits in fp16 and fp32, their gradient, the table's gradient and
 * the gradient of the whole head's input. */
static rp_status run_loss(replay *r, rpsim_block **gradient)
{
    const rp_model *m = r->run->model;
    rpsim_block *logits[3] = {0};
    rpsim_block *table = NULL;
    for (uint64_t done = 0; done < r->run->tokens; done += RP_LOSS_CHUNK_TOKENS) {
        uint64_t left = r->run->tokens - done;
        uint64_t count = left < RP_LOSS_CHUNK_TOKENS ? left : RP_LOSS_CHUNK_TOKENS;
        rpsim_block *part = NULL;
        RP_TRY(take(r, COMPUTE, 2 * count * m->vocab, &logits[0]));
        RP_TRY(take(r, COMPUTE, 4 * count * m->vocab, &logits[1]));
        RP_TRY(take(r, COMPUTE, 2 * count * m->vocab, &logits[2]));
        RP_TRY(give(r, &logits[1]));
        RP_TRY(give(r, &logits[0]));
        rpsim_block *more = NULL;
        RP_TRY(take_table_gradient(r, table == NULL ? &table : &more));
        RP_TRY(give(r, &more));
        RP_TRY(take(r, COMPUTE, boundary(r), &part));
        RP_TRY(give(r, &logits[2]));
        if (*gradient == NULL) {
            *gradient = part;
        } else {
            RP_TRY(give(r, &part));
        }
    }
    return add_table_gradient(r, m->layers + 1, table);
}

static rp_status run_head(replay *r, rpsim_block **gradient)
{
    rpsim_block *norm[3] = {0}; /* input in fp32, normalised input, the norm's output */
    rpsim_block *wide = NULL;
    rpsim_block *out = NULL;
    for (int i = 0; i < 3; i++) {
        RP_TRY(take(r, COMPUTE, (i == 0 ? 2 : 1) * boundary(r), &norm[i]));
    }
    RP_TRY(upload(r, 8 * r->run->tokens)); /* labels */
    RP_TRY(run_loss(r, gradient));
    RP_TRY(give(r, &norm[2]));
    RP_TRY(take(r, COMPUTE, 2 * boundary(r), &wide));
    RP_TRY(take(r, COMPUTE, boundary(r), &out));
    RP_TRY(give(r, &wide));
    RP_TRY(give(r, gradient));
    *gradient = out;
    RP_TRY(give(r, &norm[0]));
    return give(r, &norm[1]);
}

/* Runs a microbatch's backward: the tapes of all layers first (stage grain, or the fused stage), or
 * layer by layer. */
static rp_status backward_microbatch(replay *r, const job *j, rpsim_block **tapes)
{
    const rpsim_layer_tensors *t = r->run->tensors;
    uint32_t head = r->run->model->layers + 1;
    bool fused = j->end == head + 1;
    bool one_by_one = r->run->layer_grain && !fused;
    uint64_t input = j->begin == 0 ? 8 * r->run->tokens : boundary(r);
    rpsim_block *gradient = NULL;
    RP_TRY(upload(r, one_by_one ? boundary(r) : input));
    uint32_t end = fused ? head : j->end;
    for (uint32_t layer = j->begin; !one_by_one && layer < end; layer++) {
        RP_TRY(layer == 0
                   ? RP_OK
                   : follow(r, &tapes[(size_t)(layer - j->begin) * t->tensors], 0, t->backward));
    }
    if (fused) {
        RP_TRY(run_head(r, &gradient));
    } else if (!one_by_one) {
        RP_TRY(upload(r, boundary(r)));
    }
    for (uint32_t layer = end; layer-- > j->begin;) {
        rpsim_block **tape = &tapes[(size_t)(layer - j->begin) * t->tensors];
        if (one_by_one) {
            RP_TRY(upload(r, layer == 0 ? 8 * r->run->tokens : boundary(r)));
            RP_TRY(layer == 0 ? RP_OK : follow(r, tape, 0, t->backward));
        }
        RP_TRY(layer_backward(r, layer, tape, &gradient));
    }
    RP_TRY(hold(r, HELD_DOWNLOADS, &gradient));
    return end_microbatch(r);
}

/* ---- jobs ------------------------------------------------------------------------------------ */

static rp_status run_job(replay *r, const job *j)
{
    block_list weights = {0};
    rpsim_block **tapes = NULL;
    size_t layers = j->end - j->begin;
    RP_TRY(rp_arena_alloc(r->arena, 12 * layers, sizeof *weights.blocks, &weights.blocks));
    if (j->backward) {
        RP_TRY(rp_arena_alloc(r->arena, layers * r->run->tensors->tensors, sizeof *tapes, &tapes));
    }
    RP_TRY(upload_weights(r, j, &weights));
    uint32_t most = r->run->microbatches < MOST_EQUAL ? r->run->microbatches : MOST_EQUAL;
    for (uint32_t m = 0; m < most; m++) {
        RP_TRY(j->backward ? backward_microbatch(r, j, tapes) : forward_microbatch(r, j));
    }
    return end_job(r, j, &weights);
}

/* Job `index` of a call; partitions count blocks only (rp_plan_partition). */
static job job_of(const rp_partition *plan, uint32_t blocks, uint32_t index)
{
    uint32_t at = 0;
    if (index < plan->forward_count) {
        for (uint32_t i = 0; i < index; i++) {
            at += plan->forward_layers[i];
        }
        uint32_t begin = index == 0 ? 0 : at + 1;
        return (job){begin, at + plan->forward_layers[index] + 1, false};
    }
    index -= plan->forward_count;
    at = blocks;
    for (uint32_t i = 0; i < index; i++) {
        at -= plan->backward_layers[i];
    }
    bool last = index + 1 == plan->backward_count;
    uint32_t begin = last ? 0 : at - plan->backward_layers[index] + 1;
    return (job){begin, index == 0 ? blocks + 2 : at + 1, true};
}

static uint64_t jobs_of(const rpsim_library_run *run)
{
    uint64_t jobs = 0;
    for (uint32_t p = 0; p < run->plan_count; p++) {
        jobs +=
            (uint64_t)run->calls[p] * (run->plans[p].forward_count + run->plans[p].backward_count);
    }
    return jobs;
}

/* Job `number` of the whole run. */
static job job_at(const rpsim_library_run *run, uint64_t number)
{
    const rp_partition *plan = run->plans;
    for (uint32_t p = 0; p < run->plan_count; p++) {
        plan = &run->plans[p];
        uint64_t jobs = (uint64_t)run->calls[p] * (plan->forward_count + plan->backward_count);
        if (number < jobs) {
            break;
        }
        number -= jobs;
    }
    uint64_t stages = plan->forward_count + plan->backward_count;
    return job_of(plan, run->model->layers, (uint32_t)(number % stages));
}

/* True if both jobs have the same direction, the same number of blocks and the same tables. */
static bool same_kind(const rpsim_library_run *run, const job *a, const job *b)
{
    uint32_t head = run->model->layers + 1;
    bool tables = (a->begin > 0) == (b->begin > 0) && (a->end > head) == (b->end > head);
    return tables && a->backward == b->backward && a->end - a->begin == b->end - b->begin;
}

static bool is_inner(const rpsim_library_run *run, const job *j)
{
    return j->begin > 0 && j->end <= run->model->layers + 1;
}

bool rpsim_library_same(const rpsim_library_run *run, uint32_t gpu, uint32_t other)
{
    uint64_t jobs = jobs_of(run);
    uint64_t at = gpu;
    uint64_t there = other;
    for (; at < jobs && there < jobs; at += run->gpus, there += run->gpus) {
        const job a = job_at(run, at);
        const job b = job_at(run, there);
        if (!same_kind(run, &a, &b)) {
            return false;
        }
    }
    return at >= jobs && there >= jobs;
}

static rp_status run_all(replay *r, uint32_t gpu)
{
    uint64_t jobs = jobs_of(r->run);
    uint32_t repeated = 0;
    job before = {0};
    for (uint64_t number = gpu; number < jobs && !r->out_of_memory; number += r->run->gpus) {
        job j = job_at(r->run, number);
        bool again = is_inner(r->run, &j) && same_kind(r->run, &before, &j);
        repeated = again ? repeated + 1 : 0;
        if (repeated < MOST_EQUAL) {
            RP_TRY(run_job(r, &j));
        }
        before = j;
    }
    return RP_OK;
}

static rp_status replay_gpu(replay *r, uint32_t gpu, bool counts, uint64_t limit_bytes)
{
    RP_TRY(rpsim_allocator_init(limit_bytes, r->arena, &r->allocator));
    r->allocator.counts = counts;
    RP_TRY(rp_arena_alloc(r->arena, r->run->tensors->tensors, sizeof *r->tensors, &r->tensors));
    RP_TRY(
        rp_arena_alloc(r->arena, (size_t)r->run->model->layers + 2, sizeof *r->grads, &r->grads));
    return run_all(r, gpu);
}

/* @param counts true: counts the memory that is enough in any case; false: simulates the allocator
 * itself */
static rp_status replay_once(const rpsim_library_run *run, uint32_t gpu, bool counts,
                             uint64_t limit_bytes, rpsim_library_memory *memory)
{
    replay r = {.run = run};
    RP_TRY(rp_arena_create(&r.arena));
    rp_status status = replay_gpu(&r, gpu, counts, limit_bytes);
    memory->fits = !r.out_of_memory;
    memory->peak_live_bytes = counts ? r.allocator.peak_live_bytes : memory->peak_live_bytes;
    memory->peak_bytes = r.allocator.peak_reserved_bytes;
    rp_arena_destroy(r.arena);
    return status;
}

rp_status rpsim_library_memory_of(const rpsim_library_run *run, uint32_t gpu, uint64_t limit_bytes,
                                  rpsim_library_memory *memory_out)
{
    *memory_out = (rpsim_library_memory){0};
    RP_TRY(replay_once(run, gpu, true, limit_bytes, memory_out));
    bool enough = memory_out->peak_bytes <= limit_bytes;
    bool too_much = memory_out->peak_live_bytes > limit_bytes;
    memory_out->fits = enough;
    return enough || too_much ? RP_OK : replay_once(run, gpu, false, limit_bytes, memory_out);
}
