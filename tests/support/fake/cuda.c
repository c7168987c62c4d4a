#include "tests/support/fake/cuda_internal.h"

#include "exec/state/scaler.h"

#include <string.h>

#define SM_COUNT 128u

static const char *versions(void)
{
    return "driver and runtime are of threads";
}

static int device_count(int *count_out)
{
    *count_out = emulator_machine()->devices;
    return emulator_machine()->devices == 0 ? cudaErrorNoDevice : 0;
}

static int device_facts(int device, uint32_t *sm_count_out, uint64_t *free_bytes_out)
{
    *sm_count_out = SM_COUNT;
    *free_bytes_out = UINT64_C(8) << 30;
    return device < emulator_machine()->devices ? 0 : cudaErrorInvalidValue;
}

static bool split(int device, uint32_t cuts, uint32_t count, rpexec_cuda_part *parts_out,
                  const char **why_out)
{
    static unsigned char contexts[64];
    if (!emulator_machine()->green) {
        *why_out = "the fake does not split";
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        emulator_count(EMULATED_LEFT, 1);
        emulator_count(EMULATED_GREENS, 1);
        parts_out[i] = (rpexec_cuda_part){.device = device,
                                          .sm_count = SM_COUNT / cuts,
                                          .context = &contexts[i],
                                          .green = &contexts[i]};
    }
    return true;
}

static void unsplit(uint32_t count, rpexec_cuda_part *parts)
{
    (void)parts;
    emulator_count(EMULATED_LEFT, -(int)count);
}

/* ---- ranges ---------------------------------------------------------------------------------- */

static _Thread_local uint32_t depth;

static void range_begin(const char *name)
{
    bool well = depth++ == 0 && name[0] != '\0';
    emulator_count(EMULATED_RANGES, well ? 1 : 1000000);
}

static void range_end(void)
{
    depth--;
}

/* ---- copies and sums, which are never captured ----------------------------------------------- */

static int copy(void *to, const void *from, uint64_t bytes, void *stream)
{
    return emulator_breaks_capture() ? cudaErrorStreamCaptureUnsupported
                                     : emulator_copy(to, from, bytes, stream);
}

static int fill(void *to, int byte, uint64_t bytes, void *stream)
{
    return emulator_breaks_capture() ? cudaErrorStreamCaptureUnsupported
                                     : emulator_fill(to, byte, bytes, stream);
}

typedef struct sum {
    rp_dtype dtype;
    uint64_t count;
    const void *from;
    void *to;
    bool add;
} sum;

static void run_add(const void *arguments)
{
    const sum *s = arguments;
    (void)rpexec_unscale(s->dtype, s->count, s->from, 1, s->add, s->to);
}

static void run_narrow(const void *arguments)
{
    const sum *s = arguments;
    rpexec_narrow(s->dtype, s->count, s->from, s->to);
}

/* Starts work on arrays that must both be in the part's own memory. */
static int launch(const rpexec_cuda_part *part, void (*run)(const void *arguments), const sum *s,
                  void *stream)
{
    const emulated_work work = {.run = run, .arguments = s, .bytes = sizeof *s};
    emulator_count(EMULATED_SUMS, 1);
    if (emulator_owner(s->from) != part->device || emulator_owner(s->to) != part->device) {
        return cudaErrorIllegalAddress;
    }
    return emulator_breaks_capture() ? cudaErrorStreamCaptureUnsupported
                                     : emulator_launch(stream, &work);
}

static int add(const rpexec_cuda_part *part, rp_dtype dtype, uint64_t count, const void *values,
               bool adds, float *to, void *stream)
{
    const sum s = {.dtype = dtype, .count = count, .from = values, .to = to, .add = adds};
    return launch(part, run_add, &s, stream);
}

static int narrow(const rpexec_cuda_part *part, rp_dtype dtype, uint64_t count, const float *from,
                  void *to, void *stream)
{
    const sum s = {.dtype = dtype, .count = count, .from = from, .to = to};
    return launch(part, run_narrow, &s, stream);
}

/* ---- lanes ----------------------------------------------------------------------------------- */

static rp_status lane_open(const rpexec_cuda_part *part, const rpexec_cuda_lane_shape *shape,
                           void *stream, rp_arena *arena, rpexec_lane **lane_out)
{
    rp_fake_lane *lane = NULL;
    RP_TRY(rp_arena_alloc(arena, 1, sizeof *lane, &lane));
    lane->taker = rp_fake_taker;
    lane->stream = stream;
    (void)part;
    RP_TRY(rpexec_host_lane_create(shape->model, shape->tokens, arena, &lane->host));
    emulator_stream_of_queue(stream, shape->tokens != 0);
    *lane_out = (rpexec_lane *)(void *)&lane->taker;
    return RP_OK;
}

static void lane_close(rpexec_lane *lane)
{
    if (lane != NULL) {
        rp_fake_attention_own(lane);
        ((rp_fake_lane *)(void *)lane)->is_closed = true;
    }
}

static rp_status lane_status(const rpexec_lane *lane)
{
    return ((const rp_fake_lane *)(const void *)lane)->status;
}

static void lane_forgive(rpexec_lane *lane)
{
    ((rp_fake_lane *)(void *)lane)->status = RP_OK;
}

static const rpexec_operators *const operators[RP_DTYPE_COUNT] = {
    [RP_DTYPE_F32] = &rpexec_noting_operators,
    [RP_DTYPE_F16] = &rpexec_noting_operators,
    [RP_DTYPE_BF16] = &rpexec_noting_operators,
};

static const rpexec_cuda_calls calls = {
    .operators = operators,
    .nccl = &emulator_nccl,
    .not_ready = cudaErrorNotReady,
    .no_memory = cudaErrorMemoryAllocation,
    .text = emulator_text,
    .versions = versions,
    .range_begin = range_begin,
    .range_end = range_end,
    .device_count = device_count,
    .device_facts = device_facts,
    .split = split,
    .unsplit = unsplit,
    .reach = emulator_reach,
    .enter = emulator_enter,
    .leave = emulator_leave,
    .stream_create = emulator_stream_create,
    .stream_destroy = emulator_stream_destroy,
    .stream_wait = emulator_stream_wait,
    .stream_synchronize = emulator_stream_synchronize,
    .event_create = emulator_event_create,
    .event_destroy = emulator_event_destroy,
    .event_record = emulator_event_record,
    .event_query = emulator_event_query,
    .event_synchronize = emulator_event_synchronize,
    .event_elapsed = emulator_event_elapsed,
    .memory_take = emulator_memory_take,
    .memory_give = emulator_give,
    .host_take = emulator_host_take,
    .host_give = emulator_give,
    .host_pin = emulator_host_pin,
    .host_unpin = emulator_give,
    .copy = copy,
    .fill = fill,
    .capture_begin = emulator_capture_begin,
    .capture_end = emulator_capture_end,
    .capture_invalidated = cudaErrorStreamCaptureInvalidated,
    .captured_destroy = emulator_captured_destroy,
    .graph_make = emulator_graph_make,
    .graph_launch = emulator_graph_launch,
    .graph_destroy = emulator_graph_destroy,
    .add = add,
    .narrow = narrow,
    .lane_open = lane_open,
    .lane_close = lane_close,
    .lane_status = lane_status,
    .lane_forgive = lane_forgive,
    .cudnn = rp_fake_find_cudnn,
    .attention_plan = rp_fake_attention_plan,
    .attention_try = rp_fake_attention_try,
    .attention_own = rp_fake_attention_own,
};

static rp_status attach(const rpexec_devices_config *config, rpexec_devices **devices_out,
                        uint64_t *gpu_bytes_out)
{
    return rpexec_gpu_attach(&calls, config, devices_out, gpu_bytes_out);
}

/* Streams that were stuck need time to come to their end, since detaching does not free memory that
 * a trial of peer access still uses. */
static void detach(rpexec_devices *devices)
{
    if (emulator_machine()->peer_copies == EMULATED_PEERS_HANG && !emulator_is_stuck()) {
        emulator_wait_idle();
    }
    rpexec_gpu_detach(devices);
}

const rpexec_driver_type *rp_fake_cuda_driver(const emulated_machine *machine)
{
    static rpexec_driver_type type;
    emulator_set_machine(machine);
    rp_fake_give_cudnn(RP_FAKE_CUDNN_ABSENT, false);
    type = rpexec_gpu_driver;
    type.operators = operators;
    type.attach = attach;
    type.detach = detach;
    return &type;
}
