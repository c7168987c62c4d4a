/** @file machine.cuh  Functions of the GPU that kernels use beyond CUDA's language.
 *
 * exec/cuda/emulator/include/machine.cuh has the same interface in plain C++, so that tests run the
 * same kernels on a CPU. Both files are included by name only: the build sets the folder that is
 * searched.
 */
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>

/** 16-bit storage; kernels compute in fp32. */
struct half16 {
    uint16_t bits;
};
struct bfloat16 {
    uint16_t bits;
};

__device__ inline float widen(float x)
{
    return x;
}
__device__ inline float widen(half16 x)
{
    return __half2float(__ushort_as_half(x.bits));
}
__device__ inline float widen(bfloat16 x)
{
    return __uint_as_float((uint32_t)x.bits << 16);
}

/** Rounds to nearest, ties to even. */
__device__ inline void narrow(float x, float *to)
{
    *to = x;
}
__device__ inline void narrow(float x, half16 *to)
{
    to->bits = __half_as_ushort(__float2half_rn(x));
}
__device__ inline void narrow(float x, bfloat16 *to)
{
    to->bits = __bfloat16_as_ushort(__float2bfloat16_rn(x));
}

/** Two values in a word, the first in its lower half, each rounded as narrow does. */
__device__ inline uint32_t pair(half16, float low, float high)
{
    __half2 both = __floats2half2_rn(low, high);
    return (uint32_t)__half_as_ushort(__low2half(both)) |
           (uint32_t)__half_as_ushort(__high2half(both)) << 16;
}
__device__ inline uint32_t pair(bfloat16, float low, float high)
{
    __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    return (uint32_t)__bfloat16_as_ushort(__low2bfloat16(both)) |
           (uint32_t)__bfloat16_as_ushort(__high2bfloat16(both)) << 16;
}

/** Runs a kernel; an empty grid launches nothing. At most 48 KiB of `shared`. */
template <typename... P, typename... A>
cudaError_t launch(void (*kernel)(P...), dim3 grid, unsigned int threads, size_t shared,
                   cudaStream_t stream, A... arguments)
{
    if (grid.x == 0 || grid.y == 0 || grid.z == 0) {
        return cudaSuccess;
    }
    kernel<<<grid, threads, shared, stream>>>(static_cast<P>(arguments)...);
    return cudaGetLastError();
}

/** @return blocks of a kernel that a multiprocessor holds at once; each thread of the host asks
 * CUDA once per kernel, or again after another kernel with its place */
template <typename... P>
uint32_t resident_blocks(void (*kernel)(P...), unsigned int threads, size_t shared)
{
    constexpr size_t PLACES = 64;
    static thread_local struct {
        uintptr_t kernel;
        size_t shared;
        int blocks;
    } known[PLACES];
    uintptr_t address = reinterpret_cast<uintptr_t>(kernel);
    auto *k = &known[address / 16 % PLACES];
    if (k->kernel != address || k->shared != shared) {
        k->kernel = address;
        k->shared = shared;
        if (cudaOccupancyMaxActiveBlocksPerMultiprocessor(&k->blocks, kernel, (int)threads,
                                                          shared) != cudaSuccess ||
            k->blocks < 1) {
            k->blocks = 1; /* the launch says why */
        }
    }
    return (uint32_t)k->blocks;
}

/** The block's dynamic shared memory, aligned to 16 bytes. */
__device__ inline unsigned char *dynamic_shared()
{
    extern __shared__ __align__(16) unsigned char shared[];
    return shared;
}

/** The address as a pointer to W, for a single access to several values; it must be aligned to
 * W. */
template <typename W, typename T> __device__ inline W *wide(T *address)
{
    return reinterpret_cast<W *>(address);
}

/** Stores a pack, aligned to its size, to global memory 16 bytes at a time, or all of a smaller
 * pack: the compiler may split a plain store into its values. */
template <typename P> __device__ inline void store_pack(void *to, const P &pack)
{
    constexpr size_t BYTES = sizeof(P) < 16 ? sizeof(P) : 16;
    size_t address = __cvta_generic_to_global(to);
#pragma unroll
    for (size_t at = 0; at < sizeof(P); at += BYTES) {
        uint32_t x[4] = {};
        memcpy(x, reinterpret_cast<const unsigned char *>(&pack) + at, BYTES);
        if constexpr (BYTES == 16) {
            asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(address + at), "r"(x[0]),
                         "r"(x[1]), "r"(x[2]), "r"(x[3])
                         : "memory");
        } else if constexpr (BYTES == 8) {
            asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(address), "r"(x[0]), "r"(x[1])
                         : "memory");
        } else if constexpr (BYTES == 4) {
            asm volatile("st.global.b32 [%0], %1;" ::"l"(address), "r"(x[0]) : "memory");
        } else {
            static_assert(BYTES == 2, "packs of 2, 4, 8 or more bytes");
            asm volatile("st.global.b16 [%0], %1;" ::"l"(address), "h"((uint16_t)x[0]) : "memory");
        }
    }
}

/** Products and sums that are rounded separately, never contracted to a fused operation. */
__device__ inline float times(float a, float b)
{
    return __fmul_rn(a, b);
}
__device__ inline float plus(float a, float b)
{
    return __fadd_rn(a, b);
}

/** 2^x to two units in the last place, in a single instruction; 0 for -infinity. */
__device__ inline float power_of_two(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/** 1 / x to a unit in the last place, in a single instruction; 0 for infinity. */
__device__ inline float reciprocal(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* ---- tensor cores (PTX ISA, warp-level matrix instructions; compute capability 8.0 and above)  */

/** d += a b, computed by the warp: a 16 x 16 row-major, b 16 x 8 column-major, d 16 x 8. With g =
 * lane / 4 and t = lane % 4 a lane has a[0] = (g, 2t) and (g, 2t + 1), a[1] eight rows below, a[2]
 * eight columns on, a[3] both; b[0] = (2t, g) and (2t + 1, g), b[1] eight rows below; d[0], d[1] =
 * (g, 2t) and (g, 2t + 1), d[2], d[3] eight rows below. The lower half of a word comes first. */
__device__ inline void multiply(half16, float d[4], const uint32_t a[4], const uint32_t b[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
                 "{%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ inline void multiply(bfloat16, float d[4], const uint32_t a[4], const uint32_t b[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/** Four 8 x 8 matrices of 16-bit values from shared memory: lane 8 i + j gives the address of row j
 * of matrix i; lane 4 g + t gets elements (g, 2t) and (g, 2t + 1) of each matrix. */
__device__ inline void load_matrices(uint32_t r[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(row))
                 : "memory");
}

/** The same, but the lane gets (2t, g) and (2t + 1, g). */
__device__ inline void load_matrices_transposed(uint32_t r[4], const void *row)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"((uint32_t)__cvta_generic_to_shared(row))
                 : "memory");
}

/** Copies 16 bytes to shared memory, or zeros if not `valid`. The copy is complete after
 * copies_wait. */
__device__ inline void copy_pack_async(void *shared, const void *global, bool valid)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"((uint32_t)__cvta_generic_to_shared(shared)), "l"(global), "r"(valid ? 16 : 0)
                 : "memory");
}

/** The same for a float. */
__device__ inline void copy_float_async(float *shared, const float *global, bool valid)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;"
                 :
                 : "r"((uint32_t)__cvta_generic_to_shared(shared)), "l"(global), "r"(valid ? 4 : 0)
                 : "memory");
}

/** Ends a group of copies. */
__device__ inline void copies_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/** Waits until at most LEFT of this thread's groups are incomplete; a barrier must follow. */
template <int LEFT> __device__ inline void copies_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(LEFT) : "memory");
}
