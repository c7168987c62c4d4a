/* The machine's state, its contexts and its memories. */
#include "exec/cuda/emulator/machine/machine_internal.h"

#include "common/base/mem.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MOST_DEVICES 8
#define MOST_CONTEXTS 64u
/* From this size on the heap gives fresh pages. */
#define FRESH ((uint64_t)32 << 20)

/* Memory that kernels or copies can reach. */
typedef struct region {
    const unsigned char *begin;
    const unsigned char *end;
    int device; /* -1: pinned memory of the host */
    rp_arena *arena;
} region;

static struct {
    emulated_machine machine;
    pthread_mutex_t lock;
    region *regions;
    uint32_t region_count;
    uint32_t region_room;
    const void *current[MOST_CONTEXTS]; /* contexts that are current in a thread */
    bool reached[MOST_DEVICES][MOST_DEVICES];
    uint64_t pinned;
    bool stuck;
    pthread_cond_t unstuck;
} world = {.lock = PTHREAD_MUTEX_INITIALIZER, .unstuck = PTHREAD_COND_INITIALIZER};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static atomic_uint counts[EMULATED_COUNTS];
static _Thread_local rpexec_cuda_part here;

static void ask_environment(void)
{
    const char *devices = getenv("EMULATED_DEVICES");
    const char *peers = getenv("EMULATED_PEERS");
    const char *delay_us = getenv("EMULATED_DELAY_US");
    long count = devices != NULL ? strtol(devices, NULL, 10) : 1;
    world.machine =
        (emulated_machine){.devices = count < 1              ? 1
                                      : count > MOST_DEVICES ? MOST_DEVICES
                                                             : (int)count,
                           .peers = peers != NULL && *peers != '\0',
                           .delay_us = delay_us != NULL ? (uint32_t)strtoul(delay_us, NULL, 10) : 0,
                           .nccl = true};
}

const emulated_machine *emulator_machine(void)
{
    pthread_once(&once, ask_environment);
    return &world.machine;
}

void emulator_set_machine(const emulated_machine *machine)
{
    pthread_once(&once, ask_environment);
    world.machine = *machine;
    world.pinned = 0;
    memset(world.reached, 0, sizeof world.reached);
    for (int i = EMULATED_LEFT + 1; i < EMULATED_COUNTS; i++) {
        atomic_store(&counts[i], 0);
    }
}

uint32_t emulator_counted(emulated_count what)
{
    return atomic_load(&counts[what]);
}

uint32_t emulator_count(emulated_count what, int more)
{
    return atomic_fetch_add(&counts[what], (unsigned)more);
}

void emulator_count_most(emulated_count what, uint32_t number)
{
    uint32_t most = atomic_load(&counts[what]);
    while (number > most && !atomic_compare_exchange_weak(&counts[what], &most, number)) {
    }
}

const char *emulator_text(int error)
{
    switch (error) {
    case 0:
        return "no error";
    case cudaErrorInvalidValue:
        return "invalid argument";
    case cudaErrorMemoryAllocation:
        return "out of memory";
    case cudaErrorNoDevice:
        return "no CUDA-capable device is detected";
    case cudaErrorInvalidDevice:
        return "invalid device ordinal";
    case cudaErrorDeviceUninitialized:
        return "invalid device context";
    case cudaErrorInvalidResourceHandle:
        return "invalid resource handle";
    case cudaErrorIllegalAddress:
        return "an illegal memory access was encountered";
    case cudaErrorHostMemoryAlreadyRegistered:
        return "part or all of the requested memory range is already mapped";
    case cudaErrorStreamCaptureUnsupported:
        return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureInvalidated:
        return "operation failed due to a previous error during capture";
    case cudaErrorUnknown:
        return "an event that was never recorded, or too much of something";
    default:
        return error >= RPEXEC_NCCL_ERRORS ? emulator_nccl_text(error) : "another error";
    }
}

/* ---- memory ---------------------------------------------------------------------------------- */

static int add_region(const void *begin, uint64_t bytes, int device, rp_arena *arena)
{
    pthread_mutex_lock(&world.lock);
    bool well = rp_mem_reserve(&world.regions, world.region_count, &world.region_room,
                               sizeof *world.regions) == RP_OK;
    if (well) {
        world.regions[world.region_count++] =
            (region){begin, (const unsigned char *)begin + bytes, device, arena};
        emulator_count(EMULATED_LEFT, 1);
    }
    pthread_mutex_unlock(&world.lock);
    return well ? 0 : cudaErrorMemoryAllocation;
}

int emulator_give(void *memory)
{
    rp_arena *arena = NULL;
    uint32_t i = 0;
    if (emulator_breaks_capture()) {
        return cudaErrorStreamCaptureUnsupported;
    }
    pthread_mutex_lock(&world.lock);
    while (i < world.region_count && world.regions[i].begin != memory) {
        i++;
    }
    bool found = i < world.region_count;
    if (found) {
        arena = world.regions[i].arena;
        world.regions[i] = world.regions[--world.region_count];
        emulator_count(EMULATED_LEFT, -1);
    }
    if (world.region_count == 0) { /* the machine then keeps no memory, either */
        rp_mem_release(&world.regions);
        world.region_room = 0;
    }
    pthread_mutex_unlock(&world.lock);
    rp_arena_destroy(arena);
    return found ? 0 : cudaErrorInvalidValue;
}

/* The beginning of the address's region; NULL: none. Taken memory is looked up first: it comes from
 * the heap, too, and may lie in a page that is pinned for another array. */
static const void *region_of(const unsigned char *address, int *device_out)
{
    const region *found = NULL;
    pthread_mutex_lock(&world.lock);
    for (uint32_t i = 0; i < world.region_count; i++) {
        const region *r = &world.regions[i];
        if (address >= r->begin && address < r->end && (found == NULL || r->arena != NULL)) {
            found = r;
        }
    }
    *device_out = found != NULL ? found->device : -2;
    const void *begin = found != NULL ? found->begin : NULL;
    pthread_mutex_unlock(&world.lock);
    return begin;
}

int emulator_owner(const void *address)
{
    int device;
    (void)region_of(address, &device);
    return device;
}

/* True if all bytes were taken or pinned by the same call, or by no call. */
static bool is_one(const void *address, uint64_t bytes)
{
    int device;
    const unsigned char *at = address;
    return bytes == 0 || region_of(at, &device) == region_of(at + bytes - 1, &device);
}

bool emulator_reaches(int device, int of)
{
    pthread_mutex_lock(&world.lock);
    bool reached = of < 0 || of == device || world.reached[device][of];
    pthread_mutex_unlock(&world.lock);
    return reached;
}

bool emulator_is_reached(int device, const void *address)
{
    int of = emulator_owner(address);
    return address == NULL || (of >= -1 && emulator_reaches(device, of));
}

bool emulator_reach(int device, int peer)
{
    pthread_mutex_lock(&world.lock);
    world.reached[device][peer] = world.machine.peers;
    pthread_mutex_unlock(&world.lock);
    return world.machine.peers;
}

static int take(uint64_t bytes, int device, void **memory_out)
{
    rp_arena *arena = NULL;
    if (emulator_breaks_capture()) {
        return cudaErrorStreamCaptureUnsupported;
    }
    if (rp_arena_create(&arena) != RP_OK || rp_arena_alloc(arena, bytes, 1, memory_out) != RP_OK) {
        rp_arena_destroy(arena);
        return cudaErrorMemoryAllocation;
    }
    /* New memory must not show earlier values of the program. */
    if (bytes < FRESH) {
        memset(*memory_out, 0xa5, bytes);
    }
    return add_region(*memory_out, bytes, device, arena);
}

int emulator_memory_take(uint64_t bytes, void **memory_out)
{
    uint64_t most = emulator_machine()->most_bytes;
    return most != 0 && bytes > most ? cudaErrorMemoryAllocation
                                     : take(bytes, here.device, memory_out);
}

int emulator_host_take(uint64_t bytes, void **memory_out)
{
    return take(bytes, -1, memory_out);
}

int emulator_host_pin(void *memory, uint64_t bytes)
{
    const emulated_machine *machine = emulator_machine();
    pthread_mutex_lock(&world.lock);
    world.pinned += bytes;
    bool refused =
        world.pinned > machine->most_pinned && (machine->unpinnable || machine->most_pinned != 0);
    pthread_mutex_unlock(&world.lock);
    if (refused) {
        emulator_count(EMULATED_REFUSED_PINS, 1);
        return cudaErrorHostMemoryAlreadyRegistered;
    }
    return add_region(memory, bytes, -1, NULL);
}

/* ---- contexts -------------------------------------------------------------------------------- */

rpexec_cuda_part *emulator_here(void)
{
    return &here;
}

/* The place of a context among the current contexts, or of a free place for NULL; MOST_CONTEXTS:
 * none. */
static uint32_t place_of(const void *context)
{
    uint32_t i = 0;
    while (i < MOST_CONTEXTS && world.current[i] != context) {
        i++;
    }
    return i;
}

bool emulator_is_current(const void *context)
{
    pthread_mutex_lock(&world.lock);
    bool is = place_of(context) < MOST_CONTEXTS;
    pthread_mutex_unlock(&world.lock);
    return is;
}

int emulator_leave(const rpexec_cuda_part *part)
{
    bool was = true;
    if (part->context != NULL) {
        pthread_mutex_lock(&world.lock);
        uint32_t place = place_of(part->context);
        was = place < MOST_CONTEXTS;
        if (was) {
            world.current[place] = NULL;
        }
        pthread_mutex_unlock(&world.lock);
    }
    here = (rpexec_cuda_part){.device = part->device};
    return was ? 0 : cudaErrorDeviceUninitialized;
}

int emulator_enter(const rpexec_cuda_part *part)
{
    bool twice = false;
    if (here.context != NULL && here.context != part->context) {
        (void)emulator_leave(&here);
    }
    if (part->context != NULL && here.context != part->context) {
        pthread_mutex_lock(&world.lock);
        twice = place_of(part->context) < MOST_CONTEXTS;
        uint32_t room = place_of(NULL);
        if (!twice && room < MOST_CONTEXTS) {
            world.current[room] = part->context;
        }
        pthread_mutex_unlock(&world.lock);
    }
    here = *part;
    return twice ? cudaErrorDeviceUninitialized : 0;
}

/* ---- copies ---------------------------------------------------------------------------------- */

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

void emulator_unstick(void)
{
    pthread_mutex_lock(&world.lock);
    world.stuck = false;
    pthread_cond_broadcast(&world.unstuck);
    pthread_mutex_unlock(&world.lock);
}

bool emulator_is_stuck(void)
{
    pthread_mutex_lock(&world.lock);
    bool is = world.stuck;
    pthread_mutex_unlock(&world.lock);
    return is;
}

static int stick(void *stream)
{
    const emulated_work stuck = {.run = run_stuck};
    pthread_mutex_lock(&world.lock);
    world.stuck = true;
    pthread_mutex_unlock(&world.lock);
    return emulator_launch(stream, &stuck);
}

/* CUDA copies from memory that is not pinned at once, into its own buffer; a copy into such memory
 * is complete when the call returns. */
int emulator_copy(void *to, const void *from, uint64_t bytes, void *stream)
{
    const emulated_machine *machine = emulator_machine();
    int device = emulator_part_of(stream)->device;
    int of_to = emulator_owner(to);
    int of_from = emulator_owner(from);
    bool odd = of_to >= 0 && of_to < of_from;
    const move m = {.to = to,
                    .from = from,
                    .bytes = bytes,
                    .slow = of_to < 0,
                    .spoils = odd && machine->peer_copies == EMULATED_PEERS_SPOIL};
    const emulated_work work = {.run = run_copy, .arguments = &m, .bytes = sizeof m};
    uint32_t number = emulator_count(EMULATED_COPIES, 1) + 1;
    if (number == machine->fail_at) {
        return cudaErrorIllegalAddress;
    }
    if (!emulator_reaches(device, of_to) || !emulator_reaches(device, of_from) ||
        !is_one(to, bytes) || !is_one(from, bytes)) {
        return cudaErrorInvalidValue;
    }
    int error = 0;
    if (number == machine->stick_at || (odd && machine->peer_copies == EMULATED_PEERS_HANG)) {
        error = stick(stream);
    }
    error = error == 0 ? emulator_launch(stream, &work) : error;
    bool pageable = of_to == -2 || of_from == -2;
    return error == 0 && pageable ? emulator_stream_synchronize(stream) : error;
}

int emulator_fill(void *to, int byte, uint64_t bytes, void *stream)
{
    const move m = {.to = to, .byte = byte, .bytes = bytes};
    const emulated_work work = {.run = run_fill, .arguments = &m, .bytes = sizeof m};
    return emulator_launch(stream, &work);
}
