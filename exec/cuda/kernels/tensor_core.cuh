/** @file tensor_core.cuh  Tiles of 16-bit values in shared memory and their fragments for mma.
 *
 * Lines of a tile have LENGTH values, padded by 8 so that eight lines lie in different banks. An
 * operand is read transposed if its lines run across the sum (k). machine.cuh describes fragments.
 */
#pragma once

#include "exec/cuda/kernels/device.cuh"

/** Values from a line to the next. */
template <int LENGTH> struct tile_pitch {
    static constexpr int values = LENGTH + 8;
};

/**
 * Begins to copy lines [line, line + LINES) from `begin` on into a tile, zeros beyond line_end and
 * end. With `whole` by asynchronous copies of 16 bytes, which addresses and `end` must allow,
 * otherwise value by value.
 */
template <int LINES, int LENGTH, int THREADS, typename T>
__device__ inline void fetch(const T *from, uint64_t pitch, uint64_t line, uint64_t line_end,
                             uint64_t begin, uint64_t end, bool whole, T *to)
{
    for (uint32_t i = threadIdx.x; i < LINES * LENGTH / 8; i += THREADS) {
        uint64_t y = line + i / (LENGTH / 8);
        uint64_t x = begin + i % (LENGTH / 8) * 8;
        T *place = to + i / (LENGTH / 8) * tile_pitch<LENGTH>::values + i % (LENGTH / 8) * 8;
        bool valid = y < line_end && x < end;
        const T *source = from + (valid ? y * pitch + x : 0);
        if (whole) {
            copy_pack_async(place, source, valid);
            continue;
        }
        for (uint32_t j = 0; j < 8; j++) {
            place[j].bits = valid && x + j < end ? source[j].bits : (uint16_t)0;
        }
    }
}

/** A fragment of a (16 x 16); lines are rows. */
template <int LENGTH, typename T>
__device__ inline void load_a(uint32_t a[4], const T *tile, uint32_t row, uint32_t k)
{
    uint32_t lane = threadIdx.x % 32;
    load_matrices(a, tile + (row + lane % 16) * tile_pitch<LENGTH>::values + k + lane / 16 * 8);
}

/** The same where lines are k. */
template <int LENGTH, typename T>
__device__ inline void load_a_across(uint32_t a[4], const T *tile, uint32_t row, uint32_t k)
{
    uint32_t lane = threadIdx.x % 32;
    load_matrices_transposed(a, tile + (k + lane / 16 * 8 + lane % 8) * tile_pitch<LENGTH>::values +
                                    row + lane / 8 % 2 * 8);
}

/** Fragments of b (16 x 8 each) for columns n and n + 8; lines are columns. */
template <int LENGTH, typename T>
__device__ inline void load_b(uint32_t b[4], const T *tile, uint32_t n, uint32_t k)
{
    uint32_t lane = threadIdx.x % 32;
    load_matrices(b, tile + (n + lane / 16 * 8 + lane % 8) * tile_pitch<LENGTH>::values + k +
                         lane / 8 % 2 * 8);
}

/** The same where lines are k. */
template <int LENGTH, typename T>
__device__ inline void load_b_across(uint32_t b[4], const T *tile, uint32_t n, uint32_t k)
{
    uint32_t lane = threadIdx.x % 32;
    load_matrices_transposed(b, tile +
                                    (k + lane / 8 % 2 * 8 + lane % 8) * tile_pitch<LENGTH>::values +
                                    n + lane / 16 * 8);
}

/** Two neighbouring results (16 x 8 each) as the next product's a. */
template <typename T>
__device__ inline void as_a(T type, const float left[4], const float right[4], uint32_t a[4])
{
    a[0] = pair(type, left[0], left[1]);
    a[1] = pair(type, left[2], left[3]);
    a[2] = pair(type, right[0], right[1]);
    a[3] = pair(type, right[2], right[3]);
}
