#include "tests/support/fake/cuda_internal.h"

#include "common/base/log.h"
#include "exec/state/scaler.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#define MOST_REGIONS 512u
#define SM_COUNT 128u

/* Memory that operators or copies can reach. */
typedef struct region {
    const unsigned char *begin;
    const unsigned char *end;
    int device; /* -1: the host's, pinned */
    rp_arena *arena;
} region;

static struct {
    rp_fake_cuda machine;
    pthread_mutex_t lock;
    region regions[MOST_REGIONS];
    void *current[64]; /* contexts that are current in some thread */
    bool reached[8][8];
    bool stuck;
    pthread_cond_t unstuck;
} world = {.lock = PTHREAD_MUTEX_INITIALIZER, .unstuck = PTHREAD_COND_INITIALIZER};

static atomic_uint copies;
static atomic_uint sums;
static atomic_uint left;
static atomic_uint greens;
static _Atomic uint64_t pinned;
static atomic_uint refused_pins;
static _Thread_local rpexec_cuda_part here;

uint32_t rp_fake_cuda_sums(void)
{
    return atomic_load(&sums);
}

uint32_t rp_fake_cuda_copies(void)
{
    return atomic_load(&copies);
}

uint32_t rp_fake_cuda_refused_pins(void)
{
    return atomic_load(&refused_pins);
}

uint32_t rp_fake_cuda_greens(void)
{
    return atomic_load(&greens);
}

uint32_t rp_fake_cuda_left(void)
{
    return atomic_load(&left);
}

rpexec_cuda_part *rp_fake_here(void)
{
    return &here;
}

const rp_fake_cuda *rp_fake_machine(void)
{
    return &world.machine;
}

void rp_fake_count(int more)
{
    atomic_fetch_add(&left, (unsigned)more);
}

/* ---- memory -----------------------------------------------------------------------------------
 */

static int add_region(const void *begin, uint64_t bytes, int device, rp_arena *arena)
{
    pthread_mutex_lock(&world.lock);
    uint32_t i = 0;
    while (i < MOST_REGIONS && world.regions[i].begin != NULL) {
        i++;
    }
    if (i < MOST_REGIONS) {
        world.regions[i] = (region){begin, (const unsigned char *)begin + bytes, device, arena};
    }
    pthread_mutex_unlock(&world.lock);
    return i < MOST_REGIONS ? 0 : ERROR_MISUSE;
}

static int remove_region(const void *begin)
{
    rp_arena *arena = NULL;
    bool found = false;
    pthread_mutex_lock(&world.lock);
    for (uint32_t i = 0; !found && i < MOST_REGIONS; i++) {
        if (world.regions[i].begin == begin && begin != NULL) {
            arena = world.regions[i].arena;
            world.regions[i] = (region){0};
            found = true;
        }
    }
    pthread_mutex_unlock(&world.lock);
    rp_arena_destroy(arena);
    return found ? 0 : ERROR_INVALID;
}

/* MOST_REGIONS: none. The heap holds what was taken, too, and may put it into a page that is pinned
 * for another array, so what was taken is asked first. */
static uint32_t region_of(const unsigned char *address, int *device_out)
{
    uint32_t found = MOST_REGIONS;
    pthread_mutex_lock(&world.lock);
    for (uint32_t i = 0; i < MOST_REGIONS; i++) {
        const region *r = &world.regions[i];
        bool holds = r->begin != NULL && address >= r->begin && address < r->end;
        if (holds && (found == MOST_REGIONS || r->arena != NULL)) {
            found = i;
        }
    }
    *device_out = found < MOST_REGIONS ? world.regions[found].device : -2;
    pthread_mutex_unlock(&world.lock);
    return found;
}

int rp_fake_owner(const void *address)
{
    int device;
    (void)region_of(address, &device);
    return device;
}

/* True where all bytes were taken or pinned by one call, or by none. */
static bool is_one(const void *address, uint64_t bytes)
{
    int device;
    const unsigned char *at = address;
    return bytes == 0 || region_of(at, &device) == region_of(at + bytes - 1, &device);
}

static bool reaches(int device, int of)
{
    if (of < 0 || of == device) {
        return true;
    }
    pthread_mutex_lock(&world.lock);
    bool reached = world.reached[device][of];
    pthread_mutex_unlock(&world.lock);
    return reached;
}

bool rp_fake_is_reached(const rp_fake_lane *lane, const void *address)
{
    int of = rp_fake_owner(address);
    return address == NULL || (of >= -1 && reaches(rp_fake_part_of(lane->stream)->device, of));
}

static int take(uint64_t bytes, int device, void **memory_out)
{
    rp_arena *arena = NULL;
    if (rp_fake_is_capturing()) {
        rp_fake_invalidate();
        return ERROR_CAPTURE;
    }
    if (rp_arena_create(&arena) != RP_OK || rp_arena_alloc(arena, bytes, 1, memory_out) != RP_OK) {
        rp_arena_destroy(arena);
        return ERROR_MEMORY;
    }
    /* New memory has none of the program's earlier values. */
    memset(*memory_out, 0xa5, bytes);
    atomic_fetch_add(&left, 1);
    return add_region(*memory_out, bytes, device, arena);
}

static int give(void *memory)
{
    if (rp_fake_is_capturing()) {
        rp_fake_invalidate();
        return ERROR_CAPTURE;
    }
    atomic_fetch_sub(&left, 1);
    return remove_region(memory);
}

static int memory_take(uint64_t bytes, void **memory_out)
{
    if (world.machine.most_bytes != 0 && bytes > world.machine.most_bytes) {
        return ERROR_MEMORY;
    }
    return take(bytes, here.device, memory_out);
}

static int host_take(uint64_t bytes, void **memory_out)
{
    return take(bytes, -1, memory_out);
}

static int host_pin(void *memory, uint64_t bytes)
{
    if (atomic_fetch_add(&pinned, bytes) + bytes > world.machine.most_pinned &&
        (world.machine.unpinnable || world.machine.most_pinned != 0)) {
        atomic_fetch_add(&refused_pins, 1);
        return ERROR_PINNED;
    }
    atomic_fetch_add(&left, 1);
    return add_region(memory, bytes, -1, NULL);
}

/* ---- contexts ---------------------------------------------------------------------------------
 */

static int leave(const rpexec_cuda_part *part)
{
    bool was = false;
    pthread_mutex_lock(&world.lock);
    for (uint32_t i = 0; part->context != NULL && i < 64; i++) {
        if (world.current[i] == part->context) {
            world.current[i] = NULL;
            was = true;
        }
    }
    pthread_mutex_unlock(&world.lock);
    here = (rpexec_cuda_part){.device = part->device};
    return was || part->context == NULL ? 0 : ERROR_CONTEXT;
}

static int enter(const rpexec_cuda_part *part)
{
    bool twice = false;
    uint32_t room = 64;
    if (here.context != NULL && here.context != part->context) {
        (void)leave(&here);
    }
    pthread_mutex_lock(&world.lock);
    for (uint32_t i = 0; part->context != NULL && i < 64; i++) {
        twice |= world.current[i] == part->context && here.context != part->context;
        room = world.current[i] == NULL ? i : room;
    }
    if (!twice && part->context != NULL && here.context != part->context) {
        world.current[room] = part->context;
    }
    pthread_mutex_unlock(&world.lock);
    here = *part;
    return twice ? ERROR_CONTEXT : 0;
}

static const char *versions(void)
{
    return "driver and runtime are of threads";
}

static int device_count(int *count_out)
{
    *count_out = world.machine.devices;
    return world.machine.devices == 0 ? 100 : 0;
}

static int device_facts(int device, uint32_t *sm_count_out, uint64_t *free_bytes_out)
{
    *sm_count_out = SM_COUNT;
    *free_bytes_out = UINT64_C(8) << 30;
    return device < world.machine.devices ? 0 : ERROR_INVALID;
}

static bool split(int device, uint32_t cuts, uint32_t count, rpexec_cuda_part *parts_out,
                  const char **why_out)
{
    static unsigned char contexts[64];
    if (!world.machine.green) {
        *why_out = "the fake does not split";
        return false;
    }
    for (uint32_t i = 0; i < count; i++) {
        atomic_fetch_add(&left, 1);
        atomic_fetch_add(&greens, 1);
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
    atomic_fetch_sub(&left, count);
}

static bool reach(int device, int peer)
{
    pthread_mutex_lock(&world.lock);
    world.reached[device][peer] = world.machine.peers;
    pthread_mutex_unlock(&world.lock);
    return world.machine.peers;
}

/* ---- copies and sums --------------------------------------------------------------------------
 */

typedef struct move {
    void *to;
    const void *from;
    uint64_t bytes;
    int byte;
    bool slow;
    bool spoils;
} move;

static void run_copy(const void *arguments)
{
    const move *m = arguments;
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    memcpy(m->to, m->from, m->bytes);
    if (m->spoils) {
        ((unsigned char *)m->to)[m->bytes / 2] ^= 1;
    }
    if (world.machine.copy_Bps > 0) {
        double seconds = (m->slow ? 2 : 1) * (double)m->bytes / world.machine.copy_Bps;
        int64_t ns = until.tv_nsec + (int64_t)(1e9 * seconds) + 1000 * world.machine.copy_us;
        until.tv_sec += ns / 1000000000;
        until.tv_nsec = ns % 1000000000;
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
    }
}

static void run_fill(const void *arguments)
{
    const move *m = arguments;
    memset(m->to, m->byte, m->bytes);
}

static void run_stuck(const void *arguments)
{
    (void)arguments;
    pthread_mutex_lock(&world.lock);
    while (world.stuck) {
        pthread_cond_wait(&world.unstuck, &world.lock);
    }
    pthread_mutex_unlock(&world.lock);
}

void rp_fake_cuda_unstick(void)
{
    pthread_mutex_lock(&world.lock);
    world.stuck = false;
    pthread_cond_broadcast(&world.unstuck);
    pthread_mutex_unlock(&world.lock);
}

/* From memory that is not pinned CUDA reads at once, into a buffer of its own; into such memory it
 * has written when the call returns. */
static int copy(void *to, const void *from, uint64_t bytes, void *stream)
{
    rp_fake_stream *s = stream;
    bool odd = rp_fake_owner(to) >= 0 && rp_fake_owner(to) < rp_fake_owner(from);
    const move m = {.to = to,
                    .from = from,
                    .bytes = bytes,
                    .slow = rp_fake_owner(to) < 0,
                    .spoils = odd && world.machine.peer_copies == RP_FAKE_PEERS_SPOIL};
    uint32_t number = atomic_fetch_add(&copies, 1) + 1;
    if (number == world.machine.fail_at) {
        return ERROR_ADDRESS;
    }
    if (!reaches(rp_fake_part_of(s)->device, rp_fake_owner(to)) ||
        !reaches(rp_fake_part_of(s)->device, rp_fake_owner(from)) || !is_one(to, bytes) ||
        !is_one(from, bytes)) {
        return ERROR_INVALID;
    }
    if (number == world.machine.stick_at ||
        (odd && world.machine.peer_copies == RP_FAKE_PEERS_HANG)) {
        pthread_mutex_lock(&world.lock);
        world.stuck = true;
        pthread_mutex_unlock(&world.lock);
        int error = rp_fake_enqueue(s, run_stuck, &m, sizeof m);
        if (error != 0) {
            return error;
        }
    }
    int error = rp_fake_enqueue(s, run_copy, &m, sizeof m);
    bool pageable = rp_fake_owner(to) == -2 || rp_fake_owner(from) == -2;
    return error == 0 && pageable ? rp_fake_synchronize(s) : error;
}

static int fill(void *to, int byte, uint64_t bytes, void *stream)
{
    const move m = {.to = to, .byte = byte, .bytes = bytes};
    return rp_fake_enqueue(stream, run_fill, &m, sizeof m);
}

typedef struct sum {
    rpexec_dtype dtype;
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

static int add(const rpexec_cuda_part *part, rpexec_dtype dtype, uint64_t count, const void *values,
               bool adds, float *to, void *stream)
{
    const sum s = {.dtype = dtype, .count = count, .from = values, .to = to, .add = adds};
    atomic_fetch_add(&sums, 1);
    return rp_fake_owner(values) != part->device || rp_fake_owner(to) != part->device
               ? ERROR_ADDRESS
               : rp_fake_enqueue(stream, run_add, &s, sizeof s);
}

static int narrow(const rpexec_cuda_part *part, rpexec_dtype dtype, uint64_t count,
                  const float *from, void *to, void *stream)
{
    const sum s = {.dtype = dtype, .count = count, .from = from, .to = to};
    atomic_fetch_add(&sums, 1);
    return rp_fake_owner(from) != part->device || rp_fake_owner(to) != part->device
               ? ERROR_ADDRESS
               : rp_fake_enqueue(stream, run_narrow, &s, sizeof s);
}

/* ---- lanes ------------------------------------------------------------------------------------
 */

static rp_status lane_open(const rpexec_cuda_part *part, const rpexec_cuda_lane_shape *shape,
                           void *stream, rp_arena *arena, rpexec_lane **lane_out)
{
    rp_fake_lane *lane = NULL;
    RP_TRY(rp_arena_alloc(arena, 1, sizeof *lane, &lane));
    lane->taker = rp_fake_taker;
    lane->stream = stream;
    lane->is_odd = part->device == (world.machine.cudnn_on_first ? 0 : world.machine.devices - 1);
    RP_TRY(rpexec_host_lane_create(shape->model, shape->tokens, arena, &lane->host));
    rp_fake_stream_of_queue(stream, shape->tokens != 0);
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

static const char *text(int error)
{
    if (error >= RPEXEC_NCCL_ERRORS) {
        return rp_fake_nccl_text(error);
    }
    switch (error) {
    case ERROR_INVALID:
        return "invalid argument (fake)";
    case ERROR_MEMORY:
        return "out of memory (fake)";
    case ERROR_CONTEXT:
        return "invalid device context (fake)";
    case ERROR_HANDLE:
        return "invalid resource handle (fake)";
    case ERROR_ADDRESS:
        return "an illegal memory access was encountered (fake)";
    case ERROR_CAPTURE:
        return "operation not permitted when stream is capturing (fake)";
    case ERROR_INVALIDATED:
        return "operation failed due to a previous error during capture (fake)";
    case ERROR_MISUSE:
        return "an event that was never recorded, or too much of something (fake)";
    default:
        return "another error (fake)";
    }
}

static const rpexec_operators *const operators[RPEXEC_DTYPE_COUNT] = {
    [RPEXEC_DTYPE_F32] = &rpexec_noting_operators,
    [RPEXEC_DTYPE_F16] = &rpexec_noting_operators,
    [RPEXEC_DTYPE_BF16] = &rpexec_noting_operators,
};

static const rpexec_cuda_calls calls = {
    .operators = operators,
    .nccl = &rp_fake_nccl,
    .not_ready = ERROR_NOT_READY,
    .no_memory = ERROR_MEMORY,
    .text = text,
    .versions = versions,
    .range_begin = rp_fake_range_begin,
    .range_end = rp_fake_range_end,
    .device_count = device_count,
    .device_facts = device_facts,
    .split = split,
    .unsplit = unsplit,
    .reach = reach,
    .enter = enter,
    .leave = leave,
    .stream_create = rp_fake_stream_create,
    .stream_destroy = rp_fake_stream_destroy,
    .stream_wait = rp_fake_stream_wait,
    .stream_synchronize = rp_fake_stream_synchronize,
    .event_create = rp_fake_event_create,
    .event_destroy = rp_fake_event_destroy,
    .event_record = rp_fake_event_record,
    .event_query = rp_fake_event_query,
    .event_synchronize = rp_fake_event_synchronize,
    .event_elapsed = rp_fake_event_elapsed,
    .memory_take = memory_take,
    .memory_give = give,
    .host_take = host_take,
    .host_give = give,
    .host_pin = host_pin,
    .host_unpin = give,
    .copy = copy,
    .fill = fill,
    .capture_begin = rp_fake_capture_begin,
    .capture_end = rp_fake_capture_end,
    .capture_invalidated = ERROR_INVALIDATED,
    .captured_destroy = rp_fake_captured_destroy,
    .graph_make = rp_fake_graph_make,
    .graph_launch = rp_fake_graph_launch,
    .graph_destroy = rp_fake_graph_destroy,
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

/* Streams that were stuck need time to come to their end, and detaching gives back nothing that a
 * trial of peer access still uses. */
static void detach(rpexec_devices *devices)
{
    pthread_mutex_lock(&world.lock);
    bool go_on = world.machine.peer_copies == RP_FAKE_PEERS_HANG && !world.stuck;
    pthread_mutex_unlock(&world.lock);
    if (go_on) {
        rp_fake_wait_idle();
    }
    rpexec_gpu_detach(devices);
}

const rpexec_driver_type *rp_fake_cuda_driver(const rp_fake_cuda *machine)
{
    static rpexec_driver_type type;
    world.machine = *machine;
    memset(world.reached, 0, sizeof world.reached);
    atomic_store(&copies, 0);
    atomic_store(&sums, 0);
    atomic_store(&greens, 0);
    atomic_store(&pinned, 0);
    atomic_store(&refused_pins, 0);
    rp_fake_restart_streams();
    rp_fake_restart_graphs();
    rp_fake_restart_nccl();
    rp_fake_restart_attention();
    type = rpexec_gpu_driver;
    type.operators = operators;
    type.attach = attach;
    type.detach = detach;
    return &type;
}
