/* Runs the threads of a block as fibers that take turns; see machine.cuh. */
#include "exec/cuda/emulator/emulator.h"
extern "C" {
#include "exec/operators/dtype.h"
}

#include <machine.cuh>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

/* ThreadSanitizer sees every CUDA thread as a fiber, and their accesses are ordered as CUDA
 * defines: by barriers of the block, by __syncwarp, and by the beginning and end of a block. A
 * shuffle orders nothing. The kernels are compiled with -fsanitize=thread, this file is not, so
 * that the emulator's own accesses do not count. Blocks run one after the other, and
 * ThreadSanitizer sees them ordered: the reversed order of turns finds races between blocks. */
#ifdef EMULATOR_RACES
#include <sanitizer/tsan_interface.h>
#endif

/* emulator_switch(&from, to): saves the registers that a call must preserve on the stack, and
 * continues on another stack. swapcontext would call the kernel for the signal mask each time. */
#if defined(__x86_64__)
asm(".text\n"
    ".type emulator_switch, @function\n"
    "emulator_switch:\n"
    "pushq %rbp\n pushq %rbx\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n"
    "movq %rsp, (%rdi)\n movq %rsi, %rsp\n"
    "popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbx\n popq %rbp\n"
    "ret\n"
    ".size emulator_switch, . - emulator_switch\n");
enum { SAVED = 6 };
#elif defined(__aarch64__)
asm(".text\n"
    ".type emulator_switch, %function\n"
    "emulator_switch:\n"
    "sub sp, sp, #160\n"
    "stp x19, x20, [sp, #0]\n stp x21, x22, [sp, #16]\n stp x23, x24, [sp, #32]\n"
    "stp x25, x26, [sp, #48]\n stp x27, x28, [sp, #64]\n stp x29, x30, [sp, #80]\n"
    "stp d8, d9, [sp, #96]\n stp d10, d11, [sp, #112]\n stp d12, d13, [sp, #128]\n"
    "stp d14, d15, [sp, #144]\n"
    "mov x9, sp\n str x9, [x0]\n mov sp, x1\n"
    "ldp x19, x20, [sp, #0]\n ldp x21, x22, [sp, #16]\n ldp x23, x24, [sp, #32]\n"
    "ldp x25, x26, [sp, #48]\n ldp x27, x28, [sp, #64]\n ldp x29, x30, [sp, #80]\n"
    "ldp d8, d9, [sp, #96]\n ldp d10, d11, [sp, #112]\n ldp d12, d13, [sp, #128]\n"
    "ldp d14, d15, [sp, #144]\n"
    "add sp, sp, #160\n"
    "ret\n"
    ".size emulator_switch, . - emulator_switch\n");
#endif
extern "C" void emulator_switch(void **from, void *to);

dim3 threadIdx, blockIdx, blockDim, gridDim;

enum { MOST_THREADS = 1024, STACK_BYTES = 64 << 10, MOST_COPIES = 256 };
/* Most bytes of a word that the threads of a warp exchange: a fragment of machine.cuh has 48.
 */
enum { WORD_BYTES = 48 };
enum state { RUNNING, AT_WARP, AT_BLOCK, ENDED };

struct pending {
    void *shared;
    const void *global;
    size_t bytes;
    bool valid;
    int group;
};

struct fiber {
    void *stack; /* saved stack pointer */
    state where;
    int value;           /* argument of a counting barrier */
    unsigned int parity; /* parity of the number of warp operations that it has begun */
    unsigned char words[2][WORD_BYTES];
    pending copies[MOST_COPIES];
    int copy_count;
    int group; /* number of the group of copies that is being filled */
#ifdef EMULATOR_RACES
    void *tsan;
    char warp[2];          /* of a warp's first thread: addresses by which __syncwarp orders */
    unsigned int warped;   /* barriers of the warp so far */
    unsigned int gathered; /* barriers of the block so far */
#endif
};

static fiber fibers[MOST_THREADS];
alignas(64) static unsigned char stacks[MOST_THREADS][STACK_BYTES];
alignas(64) static unsigned char shared_memory[EMULATOR_MOST_SHARED];
static void *scheduler;
static unsigned int current;
static unsigned int thread_count;
static int counted;   /* result of the last counting barrier */
static bool reversed; /* for the running kernel */
static bool reverses; /* for launches from now on */
static void (*call_now)(const void *);
static const void *context_now;
static pthread_mutex_t machine = PTHREAD_MUTEX_INITIALIZER; /* held by the only running kernel */

#ifdef EMULATOR_RACES
static void *scheduler_tsan;
/* Two addresses used in turn: the thread that goes on first may reach the next barrier before the
 * others have left this barrier, and its accesses in between are not ordered before their accesses
 * after this barrier. */
static char at_begin, at_end, at_barrier_of_block[2];

static void go_to(void *tsan)
{
    __tsan_switch_to_fiber(tsan, __tsan_switch_to_fiber_no_sync);
}
static void happened(char *what)
{
    __tsan_release(what);
}
static void happens_after(char *what)
{
    __tsan_acquire(what);
}
/* Functions that the compiler calls for accesses of 16 bytes; asynchronous copies count as accesses
 * of the thread. */
extern "C" void __tsan_read_range(void *address, size_t bytes);
extern "C" void __tsan_write_range(void *address, size_t bytes);
#define READS(address, bytes) __tsan_read_range(const_cast<void *>(address), bytes)
#define WRITES(address, bytes) __tsan_write_range(address, bytes)
#define GO_TO(fiber) go_to((fiber).tsan)
#define GO_BACK() go_to(scheduler_tsan)
#define HAPPENED(what) happened(&(what))
#define HAPPENS_AFTER(what) happens_after(&(what))
#else
#define READS(address, bytes) (void)0
#define WRITES(address, bytes) (void)0
#define GO_TO(fiber) (void)0
#define GO_BACK() (void)0
#define HAPPENED(what) (void)0
#define HAPPENS_AFTER(what) (void)0
#endif

extern "C" void emulator_reverse(bool reverse)
{
    reverses = reverse;
}

extern "C" bool emulator_is_reversed(void)
{
    return reverses;
}

extern "C" bool emulator_finds_races(void)
{
#ifdef EMULATOR_RACES
    return true;
#else
    return false;
#endif
}

static void stop(const char *why)
{
    printf("emulator: %s (block %u %u %u, thread %u)\n", why, blockIdx.x, blockIdx.y, blockIdx.z,
           current);
    fflush(stdout);
    abort();
}

static void yield(state where)
{
    fiber *f = &fibers[current];
    f->where = where;
    GO_BACK();
    emulator_switch(&f->stack, scheduler);
}

static void begin()
{
    HAPPENS_AFTER(at_begin);
    call_now(context_now);
    HAPPENED(at_end);
    if (fibers[current].copy_count > 0) {
        stop("a thread ends with copies that nobody waits for");
    }
    yield(ENDED);
}

/* Makes a stack on which emulator_switch jumps to begin(). */
static void *fresh_stack(unsigned int index)
{
    void **top = reinterpret_cast<void **>(stacks[index] + STACK_BYTES);
    void *entry = reinterpret_cast<void *>(begin);
#if defined(__x86_64__)
    top[-1] = nullptr;
    top[-2] = entry;
    return top - 2 - SAVED;
#elif defined(__aarch64__)
    top[-20 + 11] = entry; /* x30 */
    return top - 20;
#endif
}

static void resume(unsigned int index)
{
    current = index;
    threadIdx = dim3(index, 0, 0);
    fibers[index].where = RUNNING;
    GO_TO(fibers[index]);
    emulator_switch(&scheduler, fibers[index].stack);
}

/* Runs the threads of a warp until each has come to a barrier of the block, or to its end. */
static void run_warp(unsigned int first, unsigned int count)
{
    bool again = true;
    while (again) {
        unsigned int waiting = 0;
        unsigned int left = 0;
        for (unsigned int i = 0; i < count; i++) {
            unsigned int index = first + (reversed ? count - 1 - i : i);
            state before = fibers[index].where;
            if (before != ENDED) {
                resume(index);
                left++;
            }
            waiting += fibers[index].where == AT_WARP;
        }
        again = waiting > 0;
        if (again && (waiting != count || count != 32 || left != count)) {
            stop("a warp's operation without all of its threads");
        }
    }
}

static bool run_to_barrier()
{
    unsigned int at_barrier = 0;
    unsigned int warps = (thread_count + 31) / 32;
    int total = 0;
    for (unsigned int i = 0; i < warps; i++) {
        unsigned int first = (reversed ? warps - 1 - i : i) * 32;
        run_warp(first, thread_count - first < 32 ? thread_count - first : 32);
    }
    for (unsigned int i = 0; i < thread_count; i++) {
        at_barrier += fibers[i].where == AT_BLOCK;
        total += fibers[i].value != 0;
    }
    if (at_barrier != 0 && at_barrier != thread_count) {
        stop("a barrier without all threads");
    }
    counted = total;
    return at_barrier > 0;
}

static void run_block(size_t shared)
{
    memset(shared_memory, 0xff, shared); /* NaN in every type */
    for (unsigned int i = 0; i < thread_count; i++) {
        fiber *f = &fibers[i];
        f->copy_count = f->group = f->value = 0;
        f->parity = 0;
        f->where = RUNNING;
        f->stack = fresh_stack(i);
    }
#ifdef EMULATOR_RACES
    scheduler_tsan = __tsan_get_current_fiber();
    for (unsigned int i = 0; i < thread_count; i++) {
        fibers[i].tsan = fibers[i].tsan != nullptr ? fibers[i].tsan : __tsan_create_fiber(0);
        fibers[i].warped = fibers[i].gathered = 0;
    }
#endif
    HAPPENED(at_begin);
    while (run_to_barrier()) {
    }
    HAPPENS_AFTER(at_end);
}

extern "C" void emulator_run(const emulated_grid *grid, void (*call)(const void *),
                             const void *context)
{
    pthread_mutex_lock(&machine);
    dim3 n = grid->blocks;
    call_now = call;
    context_now = context;
    reversed = grid->reversed;
    blockDim = dim3(grid->threads);
    gridDim = n;
    thread_count = grid->threads;
    if (thread_count == 0 || thread_count > MOST_THREADS || grid->shared > EMULATOR_MOST_SHARED ||
        n.x == 0 || n.x > 0x7fffffff || n.y == 0 || n.y > 65535 || n.z == 0 || n.z > 65535) {
        stop("a launch that no GPU would take");
    }
    uint64_t blocks = (uint64_t)n.x * n.y * n.z;
    for (uint64_t i = 0; i < blocks; i++) {
        uint64_t index = reversed ? blocks - 1 - i : i;
        blockIdx = dim3((unsigned int)(index % n.x), (unsigned int)(index / n.x % n.y),
                        (unsigned int)(index / n.x / n.y));
        run_block(grid->shared);
    }
    pthread_mutex_unlock(&machine);
}

extern "C" unsigned char *emulator_shared(void)
{
    return shared_memory;
}

/* Copies bytes; ThreadSanitizer would see a memcpy. */
static void keep(unsigned char *to, const void *from, size_t bytes)
{
    const volatile unsigned char *at = static_cast<const volatile unsigned char *>(from);
    for (size_t i = 0; i < bytes; i++) {
        to[i] = at[i];
    }
}

/* Words have two places, used in turn, since a thread may be an operation ahead of the others. */
extern "C" void emulator_exchange(const void *word, size_t bytes)
{
    fiber *f = &fibers[current];
    if (bytes > WORD_BYTES) {
        stop("a word that is too long");
    }
    f->parity ^= 1;
    keep(f->words[f->parity], word, bytes);
    yield(AT_WARP);
}

extern "C" void emulator_warp_barrier(void)
{
    char nothing = 0;
    HAPPENED(fibers[current / 32 * 32].warp[fibers[current].warped % 2]);
    emulator_exchange(&nothing, sizeof nothing);
    HAPPENS_AFTER(fibers[current / 32 * 32].warp[fibers[current].warped++ % 2]);
}

extern "C" const void *emulator_word(unsigned int lane)
{
    return fibers[current / 32 * 32 + lane].words[fibers[current].parity];
}

extern "C" void emulator_require_aligned(const void *address, size_t bytes)
{
    if ((uintptr_t)address % bytes != 0) {
        stop("an access to several values at an address that is not aligned to them");
    }
}

static void meet()
{
    HAPPENED(at_barrier_of_block[fibers[current].gathered % 2]);
    yield(AT_BLOCK);
    HAPPENS_AFTER(at_barrier_of_block[fibers[current].gathered++ % 2]);
}

extern "C" void emulator_barrier(void)
{
    meet();
}

extern "C" int emulator_barrier_count(int value)
{
    fibers[current].value = value;
    meet();
    int result = counted;
    fibers[current].value = 0;
    return result;
}

extern "C" void emulator_copy_async(void *shared, const void *global, size_t bytes, bool valid)
{
    fiber *f = &fibers[current];
    if (f->copy_count == MOST_COPIES) {
        stop("too many copies");
    }
    emulator_require_aligned(shared, bytes);
    emulator_require_aligned(global, bytes);
    WRITES(shared, bytes);
    memset(shared, 0xff, bytes);
    f->copies[f->copy_count++] = {shared, global, bytes, valid, f->group};
}

extern "C" void emulator_copies_commit(void)
{
    fibers[current].group++;
}

extern "C" void emulator_copies_wait(int left)
{
    fiber *f = &fibers[current];
    int kept = 0;
    for (int i = 0; i < f->copy_count; i++) {
        pending *p = &f->copies[i];
        if (p->group >= f->group - left) {
            f->copies[kept++] = *p;
        } else if (p->valid) {
            READS(p->global, p->bytes);
            WRITES(p->shared, p->bytes);
            memcpy(p->shared, p->global, p->bytes);
        } else {
            WRITES(p->shared, p->bytes);
            memset(p->shared, 0, p->bytes);
        }
    }
    f->copy_count = kept;
}

/* Converts by a table, since the emulator spends most of its time here. */
extern "C" float emulator_widen_half(uint16_t bits)
{
    static float values[1 << 16];
    static bool filled;
    if (!filled) {
        for (uint32_t i = 0; i < 1 << 16; i++) {
            uint16_t one = (uint16_t)i;
            rpexec_widen(RP_DTYPE_F16, 1, &one, &values[i]);
        }
        filled = true;
    }
    return values[bits];
}

extern "C" uint16_t emulator_narrow_half(float x)
{
    uint16_t bits;
    rpexec_narrow(RP_DTYPE_F16, 1, &x, &bits);
    return bits;
}

extern "C" uint16_t emulator_narrow_bfloat(float x)
{
    uint16_t bits;
    rpexec_narrow(RP_DTYPE_BF16, 1, &x, &bits);
    return bits;
}
