/** @file machine.cuh  exec/cuda/gpu/machine.cuh on a CPU: a fiber for each CUDA thread.
 *
 * Blocks run one after the other, and the threads of a block in turns: each thread runs until a
 * barrier or an operation of its warp. Shared memory is poisoned before every block, asynchronous
 * copies arrive only when they are waited for, and the order of the threads' turns can be reversed:
 * if two runs in different orders leave different bits, there is a race. A warp operation in which
 * not all threads of the warp take part ends the program.
 */
#pragma once

#include <cuda_runtime_api.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#define __global__
#define __device__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __shared__ static
#define __restrict__

struct dim3 {
    unsigned int x, y, z;
    dim3(unsigned int first = 1, unsigned int second = 1, unsigned int third = 1)
        : x(first), y(second), z(third)
    {
    }
};

extern dim3 threadIdx, blockIdx, blockDim, gridDim;

struct half16 {
    uint16_t bits;
};
struct bfloat16 {
    uint16_t bits;
};

extern "C" {
/* Conversions of exec/operators/dtype.c, for a single value. */
float emulator_widen_half(uint16_t bits);
uint16_t emulator_narrow_half(float x);
uint16_t emulator_narrow_bfloat(float x);

/* Order of turns for launches from now on (emulator.h). */
bool emulator_is_reversed(void);
struct emulated_grid {
    dim3 blocks;
    unsigned int threads;
    size_t shared;
    bool reversed;
};
/* Runs a kernel; `call` is the kernel with its arguments. */
void emulator_run(const emulated_grid *grid, void (*call)(const void *), const void *context);
unsigned char *emulator_shared(void);
/* Bytes of dynamic shared memory that a kernel may have without a further setting. */
enum { EMULATOR_MOST_SHARED = 48 << 10 };
/* Returns when all threads of the warp have stored their word; emulator_word then gives the words
 * of lanes. */
void emulator_exchange(const void *word, size_t bytes);
const void *emulator_word(unsigned int lane);
void emulator_warp_barrier(void);
/* Ends the program, as on a GPU, at an access that is not aligned to its size. */
void emulator_require_aligned(const void *address, size_t bytes);
void emulator_barrier(void);
/* Barrier that returns the number of threads whose `value` was not zero. */
int emulator_barrier_count(int value);
void emulator_copy_async(void *shared, const void *global, size_t bytes, bool valid);
void emulator_copies_commit(void);
void emulator_copies_wait(int left);
}

static inline float widen(float x)
{
    return x;
}
static inline float widen(half16 x)
{
    return emulator_widen_half(x.bits);
}
static inline float widen(bfloat16 x)
{
    uint32_t bits = (uint32_t)x.bits << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
static inline void narrow(float x, float *to)
{
    *to = x;
}
static inline void narrow(float x, half16 *to)
{
    to->bits = emulator_narrow_half(x);
}
static inline void narrow(float x, bfloat16 *to)
{
    to->bits = emulator_narrow_bfloat(x);
}

template <typename T> static uint32_t pair(T, float low, float high)
{
    T a, b;
    narrow(low, &a);
    narrow(high, &b);
    return (uint32_t)a.bits | (uint32_t)b.bits << 16;
}

template <typename F> static void emulator_call(const void *context)
{
    (*static_cast<const F *>(context))();
}

template <typename F> struct emulated_kernel {
    emulated_grid grid;
    F call;
};

template <typename F> static void emulator_kernel(const void *arguments)
{
    auto *k = static_cast<const emulated_kernel<F> *>(arguments);
    emulator_run(&k->grid, emulator_call<F>, &k->call);
}

template <typename... P, typename... A>
cudaError_t launch(void (*kernel)(P...), dim3 grid, unsigned int threads, size_t shared,
                   cudaStream_t stream, A... arguments)
{
    auto call = [=]() { kernel(static_cast<P>(arguments)...); };
    if (grid.x == 0 || grid.y == 0 || grid.z == 0) {
        return cudaSuccess;
    }
    if (shared > EMULATOR_MOST_SHARED) {
        return cudaErrorInvalidValue;
    }
    using F = decltype(call);
    static_assert(__is_trivially_copyable(F), "arguments of kernels are bytes");
    emulated_kernel<F> k = {{grid, threads, shared, emulator_is_reversed()}, call};
    return emulated_launch(stream, emulator_kernel<F>, &k, sizeof k);
}

template <typename... P> uint32_t resident_blocks(void (*)(P...), unsigned int threads, size_t)
{
    return 1536 / threads;
}
static inline unsigned char *dynamic_shared()
{
    return emulator_shared();
}
template <typename W, typename T> static W *wide(T *address)
{
    emulator_require_aligned(address, alignof(W));
    return reinterpret_cast<W *>(address);
}
template <typename P> static void store_pack(void *to, const P &pack)
{
    emulator_require_aligned(to, sizeof pack);
    memcpy(to, &pack, sizeof pack);
}
static inline float times(float a, float b)
{
    return a * b;
}
static inline float plus(float a, float b)
{
    return a + b;
}
static inline float power_of_two(float x)
{
    return exp2f(x);
}
static inline float reciprocal(float x)
{
    return 1.0f / x;
}
static inline uint32_t __float_as_uint(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
static inline long long __double_as_longlong(double x)
{
    long long bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}
static inline float __uint_as_float(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
static inline void __syncthreads()
{
    emulator_barrier();
}
static inline int __syncthreads_or(int value)
{
    return emulator_barrier_count(value) > 0;
}
static inline int __syncthreads_count(int value)
{
    return emulator_barrier_count(value);
}

template <typename T> static T emulator_from(T x, unsigned int lane)
{
    T result;
    emulator_exchange(&x, sizeof x);
    memcpy(&result, emulator_word(lane), sizeof result);
    return result;
}
template <typename T> static T __shfl_xor_sync(unsigned int, T x, int mask)
{
    return emulator_from(x, (threadIdx.x % 32) ^ (unsigned int)mask);
}
template <typename T> static T __shfl_sync(unsigned int, T x, int lane)
{
    return emulator_from(x, (unsigned int)lane % 32);
}
template <typename T> static T __shfl_up_sync(unsigned int, T x, unsigned int distance)
{
    unsigned int lane = threadIdx.x % 32;
    return emulator_from(x, lane < distance ? lane : lane - distance);
}
static inline void __syncwarp()
{
    emulator_warp_barrier();
}
static inline unsigned int __ballot_sync(unsigned int, int value)
{
    unsigned int bits = 0;
    emulator_exchange(&value, sizeof value);
    for (unsigned int lane = 0; lane < 32; lane++) {
        int other;
        memcpy(&other, emulator_word(lane), sizeof other);
        bits |= (unsigned int)(other != 0) << lane;
    }
    return bits;
}
static inline int __popc(unsigned int x)
{
    return __builtin_popcount(x);
}
static inline int __ffs(unsigned int x)
{
    return __builtin_ffs((int)x);
}

/* The fragments, written from the PTX manual and not from the kernels: a lane's own values, of
 * a[0], a[1], ..., the lower half of each first. */
struct emulator_fragment {
    float a[8], b[4];
};

template <typename T> static void emulator_halves(uint32_t word, float to[2])
{
    T low, high;
    low.bits = (uint16_t)word;
    high.bits = (uint16_t)(word >> 16);
    to[0] = widen(low);
    to[1] = widen(high);
}

static inline const emulator_fragment *emulator_fragment_of(unsigned int lane)
{
    return static_cast<const emulator_fragment *>(emulator_word(lane));
}

template <typename T> static void multiply(T, float d[4], const uint32_t a[4], const uint32_t b[2])
{
    emulator_fragment mine;
    unsigned int lane = threadIdx.x % 32;
    for (int i = 0; i < 4; i++) {
        emulator_halves<T>(a[i], mine.a + 2 * i);
    }
    emulator_halves<T>(b[0], mine.b);
    emulator_halves<T>(b[1], mine.b + 2);
    emulator_exchange(&mine, sizeof mine);
    /* Fragments with all k of a's rows g and g + 8, and of b's columns 2t and 2t + 1. */
    const emulator_fragment *rows[4], *columns[2][4];
    for (unsigned int i = 0; i < 4; i++) {
        rows[i] = emulator_fragment_of(lane / 4 * 4 + i);
        columns[0][i] = emulator_fragment_of(lane % 4 * 2 * 4 + i);
        columns[1][i] = emulator_fragment_of((lane % 4 * 2 + 1) * 4 + i);
    }
    for (unsigned int i = 0; i < 4; i++) {
        float sum = 0;
        for (unsigned int k = 0; k < 16; k++) {
            sum += rows[k % 8 / 2]->a[(i / 2 + k / 8 * 2) * 2 + k % 2] *
                   columns[i % 2][k % 8 / 2]->b[k / 8 * 2 + k % 2];
        }
        d[i] += sum;
    }
}

static inline uint16_t emulator_at(unsigned int matrix, unsigned int row, unsigned int column)
{
    const unsigned char *address;
    uint16_t value;
    memcpy(&address, emulator_word(matrix * 8 + row), sizeof address);
    memcpy(&value, address + column * 2, sizeof value);
    return value;
}
static inline void emulator_load(uint32_t r[4], const void *row, bool transposed)
{
    unsigned int g = threadIdx.x % 32 / 4;
    unsigned int t = threadIdx.x % 4;
    emulator_require_aligned(row, 16);
    emulator_exchange(&row, sizeof row);
    for (unsigned int i = 0; i < 4; i++) {
        uint32_t low = transposed ? emulator_at(i, 2 * t, g) : emulator_at(i, g, 2 * t);
        uint32_t high = transposed ? emulator_at(i, 2 * t + 1, g) : emulator_at(i, g, 2 * t + 1);
        r[i] = low | high << 16;
    }
}
static inline void load_matrices(uint32_t r[4], const void *row)
{
    emulator_load(r, row, false);
}
static inline void load_matrices_transposed(uint32_t r[4], const void *row)
{
    emulator_load(r, row, true);
}
static inline void copy_pack_async(void *shared, const void *global, bool valid)
{
    emulator_copy_async(shared, global, 16, valid);
}
static inline void copy_float_async(float *shared, const float *global, bool valid)
{
    emulator_copy_async(shared, global, sizeof *shared, valid);
}
static inline void copies_commit()
{
    emulator_copies_commit();
}
template <int LEFT> static void copies_wait()
{
    emulator_copies_wait(LEFT);
}
