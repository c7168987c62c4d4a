/* GPUs, and the resources that stay with them between programs: streams, arenas, events, pinned
 * memory. */
#include "common/base/log.h"
#include "exec/gpu/gpu_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Estimates of the free memory that arenas do not get: for contexts, modules and cuBLAS; for each
 * green context, with the lane's workspace and scratch memory; for graphs' nodes. */
#define KEPT_MIB 1024u
#define KEPT_PER_PART_MIB 192u
#define KEPT_FOR_GRAPHS_MIB 512u

/* A device is split into at least so many parts, so that one of two virtual GPUs is as fast as one
 * of eight: times of runs on 1 to 8 virtual GPUs can be compared. */
#define LEAST_PARTS 8u

/* Tries at reading a GPU's clock: the shortest counts. */
#define PROBES 8

/* Bytes of a piece of a copy between GPUs over the host. */
#define STAGE_BYTES (UINT64_C(2) << 20)

/* Hardware queues of a context, which its streams share: the most that CUDA allows for the device's
 * own context. Each green context has its own hardware queues, of which a device has a limited
 * number; 8 are more than its streams (and CUDA's own needs). */
#define CONNECTIONS "32"
#define CONNECTIONS_OF_PARTS "8"

/* Queues of kinds that are not on GPUs have no stream. */
static bool has_stream(uint32_t kind)
{
    return rp_queue_kind_on_gpu((rp_queue_kind)kind);
}

rp_status rpexec_gpu_check(const rpexec_devices *devices, int error, const char *call)
{
    if (error == 0) {
        return RP_OK;
    }
    rp_log_error("%s: %s%s", call, devices->calls->text(error), rpexec_gpu_remedy(devices, error));
    return RP_TOOL;
}

static uint32_t kept_mib(const rpexec_devices *d)
{
    return KEPT_MIB + (d->config.is_virtual ? d->count * KEPT_PER_PART_MIB : 0) +
           (d->config.graphs ? KEPT_FOR_GRAPHS_MIB : 0);
}

const char *rpexec_gpu_remedy(const rpexec_devices *d, int error)
{
    return error == d->calls->no_memory ? d->remedy : "";
}

/* Makes the advice for a call that finds the GPU's memory full. */
static rp_status make_remedy(rpexec_devices *d)
{
    return rp_arena_print(d->arena, &d->remedy,
                          "%s (by default a device's free memory but for %" PRIu32 " MiB)%s%s",
                          rp_log_spell("; lower {gpu_memory_mb}").text, kept_mib(d),
                          rp_log_spell(", {microbatch_size} or {seq_len}").text,
                          d->config.graphs ? rp_log_spell(", or leave out {graphs}").text : "");
}

void rpexec_gpu_visit(const rpexec_devices *devices, rpexec_gpu *gpu)
{
    if (gpu->part.context != NULL) {
        rpexec_gpu_turn_take(&gpu->turn);
    }
    (void)devices->calls->enter(&gpu->part); /* a failure shows in the next call */
}

void rpexec_gpu_leave(const rpexec_devices *devices, rpexec_gpu *gpu)
{
    if (gpu->part.context != NULL) {
        (void)devices->calls->leave(&gpu->part);
        rpexec_gpu_turn_give(&gpu->turn);
    }
}

/* ---- taking hold ----------------------------------------------------------------------------- */

static rp_status require_devices(const rpexec_devices *d)
{
    int count = 0;
    int error = d->calls->device_count(&count);
    if (error != 0 || count == 0) {
        rp_log_error("{backend} cuda: no device: cudaGetDeviceCount: %s (%s); valid here is host",
                     error != 0 ? d->calls->text(error) : "0 devices", d->calls->versions());
        return RP_USAGE;
    }
    if (!d->config.is_virtual && d->config.gpus > (uint32_t)count) {
        rp_log_error("{gpus}: %" PRIu32 " GPUs, and this machine has %d; valid are 1 to %d, or "
                     "{virtual_gpus} %" PRIu32 ", which splits one of them",
                     d->config.gpus, count, count, d->config.gpus);
        return RP_USAGE;
    }
    return RP_OK;
}

/* Takes parts of device 0: with their own multiprocessors if it can be split. */
static rp_status take_parts(rpexec_devices *d)
{
    uint32_t parts = d->count > LEAST_PARTS ? d->count : LEAST_PARTS;
    rpexec_cuda_part *split = NULL;
    uint64_t bytes = 0;
    uint32_t sm_count = 0;
    const char *why = "";
    RP_TRY(rp_arena_alloc(d->arena, d->count, sizeof *split, &split));
    RP_TRY(rpexec_gpu_check(d, d->calls->device_facts(0, &sm_count, &bytes), "cudaMemGetInfo"));
    d->is_split = d->calls->split(0, parts, d->count, split, &why);
    if (!d->is_split) {
        rp_log_warning("{virtual_gpus}: device 0 is not split into green contexts (%s): plain "
                       "streams, so that the virtual GPUs compete for all %" PRIu32
                       " multiprocessors",
                       why, sm_count);
    }
    for (uint32_t i = 0; i < d->count; i++) {
        d->gpus[i].part = d->is_split ? split[i] : (rpexec_cuda_part){.sm_count = sm_count};
    }
    return RP_OK;
}

static rp_status take_gpus(rpexec_devices *d, uint64_t *gpu_bytes_out)
{
    uint64_t least = UINT64_MAX;
    uint64_t kept = (uint64_t)kept_mib(d) << 20;
    if (d->config.is_virtual) {
        RP_TRY(take_parts(d));
    }
    for (uint32_t i = 0; i < d->count; i++) {
        rpexec_gpu *gpu = &d->gpus[i];
        uint64_t bytes = 0;
        uint32_t sm_count = 0;
        RP_TRY(rpexec_gpu_check(d, d->calls->device_facts(gpu->part.device, &sm_count, &bytes),
                                "cudaMemGetInfo"));
        gpu->part.sm_count = gpu->part.sm_count != 0 ? gpu->part.sm_count : sm_count;
        bytes = bytes > kept ? bytes - kept : bytes;
        bytes /= d->config.is_virtual ? d->count : 1;
        least = bytes < least ? bytes : least;
    }
    *gpu_bytes_out = least;
    rpexec_gpu_name_exchange(d);
    return RP_OK;
}

const char *rpexec_gpu_transport(const rpexec_devices *d)
{
    return d->transport;
}

static rp_status make_streams(rpexec_devices *d)
{
    for (uint32_t i = 0; i < d->count; i++) {
        rpexec_gpu *gpu = &d->gpus[i];
        const rpexec_cuda_part whole = {.device = gpu->part.device};
        RP_TRY(rpexec_gpu_check(d, d->calls->enter(&whole), "cudaSetDevice"));
        RP_TRY(rpexec_gpu_check(d, d->calls->stream_create(&whole, &gpu->aside),
                                "cudaStreamCreateWithFlags"));
        rpexec_gpu_visit(d, gpu);
        int error = d->calls->event_create(&gpu->base);
        rpexec_gpu_leave(d, gpu);
        RP_TRY(rpexec_gpu_check(d, error, "cudaEventCreateWithFlags"));
    }
    return RP_OK;
}

void rpexec_gpu_set_connections(bool is_virtual)
{
    (void)setenv("CUDA_DEVICE_MAX_CONNECTIONS", is_virtual ? CONNECTIONS_OF_PARTS : CONNECTIONS, 0);
}

rp_status rpexec_gpu_attach(const rpexec_cuda_calls *calls, const rpexec_devices_config *config,
                            rpexec_devices **devices_out, uint64_t *gpu_bytes_out)
{
    rp_arena *arena = NULL;
    rpexec_devices *d = NULL;
    *devices_out = NULL;
    rpexec_gpu_set_connections(config->is_virtual);
    RP_TRY(rp_arena_create(&arena));
    rp_status status = rp_arena_alloc(arena, 1, sizeof *d, &d);
    if (status != RP_OK) {
        rp_arena_destroy(arena);
        return status;
    }
    *d = (rpexec_devices){.calls = calls, .config = *config, .arena = arena};
    d->config.stage_bytes = config->stage_bytes != 0 ? config->stage_bytes : STAGE_BYTES;
    pthread_mutex_init(&d->enqueuing, NULL);
    status = require_devices(d);
    size_t gpus = config->gpus;
    status = status == RP_OK ? rp_arena_alloc(arena, gpus, sizeof *d->gpus, &d->gpus) : status;
    status =
        status == RP_OK ? rp_arena_alloc(arena, gpus * gpus, sizeof(bool), &d->reached) : status;
    for (uint32_t i = 0; status == RP_OK && i < config->gpus; i++) {
        rpexec_gpu_turn_init(&d->gpus[i].turn);
        d->gpus[i].part.device = config->is_virtual ? 0 : (int)i;
        d->count++;
    }
    status = status == RP_OK ? make_remedy(d) : status;
    /* First, since arenas get the memory that is free afterwards, and NCCL has to know of peers. */
    status = status == RP_OK ? rpexec_gpu_find_peers(d) : status;
    status = status == RP_OK ? rpexec_gpu_open_attention(d) : status;
    status = status == RP_OK ? rpexec_gpu_open_exchange(d) : status;
    status = status == RP_OK ? take_gpus(d, gpu_bytes_out) : status;
    status = status == RP_OK ? make_streams(d) : status;
    if (status != RP_OK) {
        rpexec_gpu_detach(d);
        return status;
    }
    *devices_out = d;
    return RP_OK;
}

/* ---- giving back ----------------------------------------------------------------------------- */

/* Failures do not matter any more. */
static void give_back_gpu(const rpexec_devices *d, rpexec_gpu *gpu)
{
    const rpexec_cuda_calls *c = d->calls;
    rpexec_gpu_visit(d, gpu);
    for (uint32_t kind = 0; kind < RP_QUEUE_KIND_COUNT; kind++) {
        if (gpu->streams[kind] != NULL) {
            (void)c->stream_synchronize(gpu->streams[kind]);
            rpexec_gpu_graphs_clear(gpu->graphs[kind]);
            c->lane_close(gpu->lanes[kind]);
            (void)c->stream_destroy(gpu->streams[kind]);
        }
    }
    for (uint32_t i = 0; i < gpu->event_count; i++) {
        (void)c->event_destroy(gpu->events[i]);
    }
    if (gpu->base != NULL) {
        (void)c->event_destroy(gpu->base);
    }
    if (gpu->arena != NULL) {
        (void)c->memory_give(gpu->arena);
    }
    if (gpu->scratch != NULL) {
        (void)c->memory_give(gpu->scratch);
    }
    if (gpu->rotary != NULL) {
        (void)c->memory_give(gpu->rotary);
    }
    rpexec_gpu_leave(d, gpu);
    if (gpu->aside != NULL) {
        const rpexec_cuda_part whole = {.device = gpu->part.device};
        (void)c->enter(&whole);
        (void)c->stream_synchronize(gpu->aside);
        (void)c->stream_destroy(gpu->aside);
    }
}

void rpexec_gpu_detach(rpexec_devices *d)
{
    if (d == NULL || d->abandoned || !rpexec_gpu_close_peers(d)) {
        return;
    }
    rpexec_gpu_close_exchange(d);
    for (uint32_t i = 0; i < d->count; i++) {
        give_back_gpu(d, &d->gpus[i]);
    }
    rpexec_gpu_unpin(d);
    if (d->host != NULL) {
        (void)d->calls->host_give(d->host);
    }
    for (uint32_t i = 0; d->is_split && i < d->count; i++) {
        d->calls->unsplit(1, &d->gpus[i].part);
    }
    for (uint32_t i = 0; i < d->count; i++) {
        rpexec_gpu_turn_destroy(&d->gpus[i].turn);
    }
    pthread_mutex_destroy(&d->enqueuing);
    rp_arena_destroy(d->arena);
}

void rpexec_gpu_count_graphs(const rpexec_devices *d, rpexec_graph_counts *counts_out)
{
    *counts_out = (rpexec_graph_counts){0};
    for (uint32_t i = 0; i < d->count; i++) {
        for (uint32_t kind = 0; kind < RP_QUEUE_KIND_COUNT; kind++) {
            rpexec_gpu_graphs_count(d->gpus[i].graphs[kind], counts_out);
        }
    }
}

/* ---- a program's needs ----------------------------------------------------------------------- */

/* Memory only grows: the programs of a run need about as much as each other. */
static rp_status need_memory(const rpexec_devices *d, uint64_t bytes, const char *what,
                             unsigned char **memory, uint64_t *has)
{
    if (bytes <= *has) {
        return RP_OK;
    }
    void *taken = NULL;
    if (*memory != NULL) {
        (void)d->calls->memory_give(*memory);
        *memory = NULL;
        *has = 0;
    }
    int error = d->calls->memory_take(bytes, &taken);
    if (error != 0) {
        rp_log_error("cudaMalloc of %" PRIu64 " bytes for %s: %s%s", bytes, what,
                     d->calls->text(error), rpexec_gpu_remedy(d, error));
        return RP_TOOL;
    }
    *memory = taken;
    *has = bytes;
    return RP_OK;
}

static rp_status need_events(rpexec_devices *d, rpexec_gpu *gpu, uint32_t count)
{
    void **events = NULL;
    if (count <= gpu->event_count) {
        return RP_OK;
    }
    RP_TRY(rp_arena_alloc(d->arena, count, sizeof *events, &events));
    if (gpu->event_count != 0) {
        memcpy(events, gpu->events, gpu->event_count * sizeof *events);
    }
    gpu->events = events;
    for (; gpu->event_count < count; gpu->event_count++) {
        RP_TRY(rpexec_gpu_check(d, d->calls->event_create(&events[gpu->event_count]),
                                "cudaEventCreateWithFlags"));
    }
    return RP_OK;
}

/* Makes the lane of the queue's operators. Graphs have the addresses of the lane's scratch
 * memory. */
static rp_status need_lane(rpexec_driver *d, rpexec_gpu *gpu, const rp_queue *queue)
{
    const rpexec_model *model = d->config.plan->model;
    uint32_t sequences = rpexec_plan_most_sequences(d->config.plan);
    bool computes = queue->kind == RP_QUEUE_COMPUTE;
    const rpexec_cuda_lane_shape shape = {
        .model = model,
        .tokens = computes ? (uint64_t)sequences * model->seq_len : 0,
        .half_accumulation = d->devices->config.half_accumulation};
    rpexec_cuda_lane_shape *has = &gpu->shapes[queue->kind];
    rpexec_lane **lane = &gpu->lanes[queue->kind];
    if (*lane != NULL && has->model == model && has->tokens >= shape.tokens) {
        return RP_OK;
    }
    rpexec_gpu_graphs_clear(gpu->graphs[queue->kind]);
    d->calls->lane_close(*lane);
    *lane = NULL;
    *has = shape;
    return d->calls->lane_open(&gpu->part, &shape, gpu->streams[queue->kind], d->devices->arena,
                               lane);
}

/* Makes the queue's stream, its lane and, if wanted, its graphs. */
static rp_status need_queue(rpexec_driver *d, rpexec_gpu *gpu, const rp_queue *queue)
{
    void **stream = &gpu->streams[queue->kind];
    rpexec_gpu_graphs **graphs = &gpu->graphs[queue->kind];
    if (*stream == NULL) {
        RP_TRY(rpexec_gpu_check(d->devices, d->calls->stream_create(&gpu->part, stream),
                                "cudaStreamCreateWithFlags"));
    }
    RP_TRY(need_lane(d, gpu, queue));
    if (d->devices->config.graphs && *graphs == NULL) {
        RP_TRY(rpexec_gpu_graphs_open(d->calls, d->devices->arena, graphs));
    }
    if (*graphs != NULL) {
        rpexec_gpu_graphs_begin(*graphs, d, gpu, gpu->lanes[queue->kind], *stream);
    }
    return RP_OK;
}

static uint32_t ops_of_gpu(const rp_program *p, uint32_t gpu)
{
    uint32_t ops = 0;
    for (uint32_t i = 0; i < p->queue_count; i++) {
        bool mine = p->queues[i].gpu == gpu && has_stream(p->queues[i].kind);
        ops += mine ? p->queues[i].op_end - p->queues[i].op_begin : 0;
    }
    return ops;
}

/* Fills the tables in the stream of the whole device. */
static rp_status fill_rotary(const rpexec_devices *d, const rpexec_gpu *gpu,
                             const rpexec_model *model)
{
    uint64_t bytes = rpexec_model_rotary_values(model) * sizeof(float);
    const rpexec_cuda_part whole = {.device = gpu->part.device};
    int error = d->calls->enter(&whole);
    error = error == 0 ? rpexec_gpu_copy_pieces(d, gpu->rotary, model->cosines, bytes, gpu->aside)
                       : error;
    error = error == 0
                ? rpexec_gpu_copy_pieces(d, gpu->rotary + bytes, model->sines, bytes, gpu->aside)
                : error;
    error = error == 0 ? d->calls->stream_synchronize(gpu->aside) : error;
    return rpexec_gpu_check(d, error, "cudaMemcpyAsync");
}

static rp_status prepare_gpu(rpexec_driver *d, uint32_t index)
{
    const rpexec_plan *plan = d->config.plan;
    const rp_program *p = plan->program;
    rpexec_gpu *gpu = &d->devices->gpus[index];
    uint64_t had = gpu->arena_bytes + gpu->rotary_bytes;
    RP_TRY(need_memory(d->devices, plan->arena_bytes[index] + 1, "a GPU's arena", &gpu->arena,
                       &gpu->arena_bytes));
    RP_TRY(need_memory(d->devices, rpexec_gpu_pair_scratch(plan, index), "sums", &gpu->scratch,
                       &gpu->scratch_bytes));
    RP_TRY(need_memory(d->devices, 2 * rpexec_model_rotary_values(plan->model) * sizeof(float),
                       "rotary tables", &gpu->rotary, &gpu->rotary_bytes));
    for (uint32_t i = 0; gpu->arena_bytes + gpu->rotary_bytes != had && i < RP_QUEUE_KIND_COUNT;
         i++) {
        rpexec_gpu_graphs_clear(gpu->graphs[i]); /* graphs have the old addresses */
    }
    RP_TRY(need_events(d->devices, gpu, 2 * ops_of_gpu(p, index)));
    for (uint32_t i = 0; i < p->queue_count; i++) {
        if (p->queues[i].gpu == index && has_stream(p->queues[i].kind)) {
            RP_TRY(need_queue(d, gpu, &p->queues[i]));
        }
    }
    return RP_OK;
}

static rp_status need_host(rpexec_devices *d, uint64_t bytes)
{
    void *taken = NULL;
    if (bytes <= d->host_bytes) {
        return RP_OK;
    }
    if (d->host != NULL) {
        (void)d->calls->host_give(d->host);
        d->host = NULL;
        d->host_bytes = 0;
    }
    RP_TRY(rpexec_gpu_check(d, d->calls->host_take(bytes, &taken), "cudaHostAlloc"));
    d->host = taken;
    d->host_bytes = bytes;
    return RP_OK;
}

rp_status rpexec_gpu_prepare(rpexec_driver *d)
{
    rpexec_devices *devices = d->devices;
    const rpexec_plan *plan = d->config.plan;
    uint32_t gpus = plan->program->gpu_count;
    if (gpus != devices->count) {
        rp_log_error("the program has %" PRIu32 " GPUs, taken hold of were %" PRIu32
                     "; valid are as many",
                     gpus, devices->count);
        return rp_broken();
    }
    for (uint32_t i = 0; i < gpus; i++) {
        rpexec_gpu_visit(devices, &devices->gpus[i]);
        rp_status status = prepare_gpu(d, i);
        rpexec_gpu_leave(devices, &devices->gpus[i]);
        RP_TRY(status);
        RP_TRY(fill_rotary(devices, &devices->gpus[i], plan->model));
    }
    RP_TRY(rpexec_gpu_choose_attention(d));
    RP_TRY(need_host(devices, plan->arena_bytes[gpus] + 1));
    rpexec_gpu_pin(devices, d->config.pinned);
    return RP_OK;
}

/* ---- clocks ---------------------------------------------------------------------------------- */

/* The host's clock is read before and after an event whose time on the GPU's clock is known: the
 * closer the two readings, the better. */
static int align_one(const rpexec_devices *d, rpexec_gpu *gpu)
{
    const rpexec_cuda_calls *c = d->calls;
    void *stream = gpu->streams[RP_QUEUE_COMPUTE];
    void *probe = NULL;
    int64_t narrowest = INT64_MAX;
    int error = c->event_create(&probe);
    error = error == 0 ? c->event_record(gpu->base, stream) : error;
    for (int i = 0; error == 0 && i < PROBES; i++) {
        float ms = 0;
        error = c->stream_synchronize(stream);
        int64_t before = rpexec_driver_now_ns();
        error = error == 0 ? c->event_record(probe, stream) : error;
        error = error == 0 ? c->event_synchronize(probe) : error;
        int64_t after = rpexec_driver_now_ns();
        error = error == 0 ? c->event_elapsed(&ms, gpu->base, probe) : error;
        if (after - before < narrowest) {
            narrowest = after - before;
            gpu->base_ns = (double)before + (double)narrowest / 2 - 1e6 * (double)ms;
        }
    }
    if (probe != NULL) {
        (void)c->event_destroy(probe);
    }
    return error;
}

rp_status rpexec_gpu_align(rpexec_devices *d)
{
    for (uint32_t i = 0; i < d->count; i++) {
        rpexec_gpu_visit(d, &d->gpus[i]);
        int error = align_one(d, &d->gpus[i]);
        rpexec_gpu_leave(d, &d->gpus[i]);
        RP_TRY(rpexec_gpu_check(d, error, "cudaEventElapsedTime"));
    }
    return RP_OK;
}
