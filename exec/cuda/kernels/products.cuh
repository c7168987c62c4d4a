/** @file products.cuh  The tile of a block, for both kinds of our own matrix products. */
#pragma once

#include "exec/cuda/kernels/device.cuh"

/** c[m, n] (+)= sum over k of a b; lines of an operand run along k, or across it. */
template <typename T, typename S = T> struct product {
    rpexec_cuda_products sizes;
    const T *a;
    const T *b;
    S *c;
    bool whole; /* 16 bytes of a line may be read at a time */
    bool pairs; /* two values of c may be accessed at a time, at even columns */
};

/** A block's tile: rows [m, m_end), columns [n, n_end), summed over [k, k_end). Rows of gathered
 * tensors count from the first expert's first row, all else within a matrix. */
struct tile {
    uint64_t m, m_end;
    uint64_t n, n_end;
    uint64_t k, k_end;
    uint64_t matrix; /* beginning of the expert's matrix */
    bool any;
};

/** A tile's rows among those of all experts. */
struct tile_rows {
    uint32_t expert;
    uint64_t first, end; /* from the tile's first row to the end of its expert */
    bool any;
};

/** Tile `number` of `size` rows; every expert begins a tile. The lanes of each warp count the tiles
 * of 32 experts at a time. */
__device__ inline tile_rows rows_of_tile(const rpexec_cuda_products &p, uint64_t number,
                                         uint32_t size)
{
    uint32_t lane = threadIdx.x % 32;
    for (uint32_t expert = 0; expert < p.experts; expert += 32) {
        bool valid = expert + lane < p.experts;
        uint32_t first = valid ? p.begins[expert + lane] : 0;
        uint32_t end = valid ? p.begins[expert + lane + 1] : 0;
        uint32_t tiles = (end - first + size - 1) / size;
        uint32_t until = tiles; /* of this lane's expert and earlier experts */
        for (uint32_t distance = 1; distance < 32; distance *= 2) {
            uint32_t other = __shfl_up_sync(0xffffffffu, until, distance);
            until += lane >= distance ? other : 0;
        }
        uint32_t found = __ballot_sync(0xffffffffu, number < until);
        if (found != 0) {
            int owner = __ffs((int)found) - 1;
            uint32_t before = __shfl_sync(0xffffffffu, until - tiles, owner);
            first = __shfl_sync(0xffffffffu, first, owner);
            end = __shfl_sync(0xffffffffu, end, owner);
            return {expert + (uint32_t)owner, first + (number - before) * size, end, true};
        }
        number -= __shfl_sync(0xffffffffu, until, 31);
    }
    return {0, 0, 0, false};
}

/** The block's tile of `size` rows and columns, in product_grid. All threads must call. */
__device__ inline tile tile_of(const rpexec_cuda_products &p, uint32_t size)
{
    tile t = {};
    tile_rows rows = {blockIdx.z, 0, p.rows, true};
    if (p.which == RPEXEC_CUDA_WEIGHT) {
        if (p.begins != nullptr) {
            rows.first = p.begins[blockIdx.z];
            rows.end = p.begins[blockIdx.z + 1];
        }
        t.m = (uint64_t)blockIdx.y * size;
        t.m_end = p.out;
        t.n_end = p.in;
        t.k = rows.first;
        t.k_end = rows.end;
        t.any = rows.first < rows.end;
    } else {
        if (p.begins != nullptr) {
            rows = rows_of_tile(p, blockIdx.y, size);
        } else {
            rows.first = (uint64_t)blockIdx.y * size;
        }
        t.m = rows.first;
        t.m_end = rows.end;
        t.n_end = p.which == RPEXEC_CUDA_FORWARD ? p.out : p.in;
        t.k_end = p.which == RPEXEC_CUDA_FORWARD ? p.in : p.out;
        t.any = rows.any;
    }
    t.n = (uint64_t)blockIdx.x * size;
    t.matrix = (uint64_t)rows.expert * p.stride;
    return t;
}

/** Blocks: columns, rows (the most that experts could need), experts of a gradient. */
static inline dim3 product_grid(const rpexec_cuda_products *p, uint32_t size)
{
    uint32_t columns = p->which == RPEXEC_CUDA_FORWARD ? p->out : p->in;
    if (p->which == RPEXEC_CUDA_WEIGHT) {
        return dim3((columns + size - 1) / size, (p->out + size - 1) / size, p->experts);
    }
    uint64_t most = (p->rows + size - 1) / size + (p->begins != nullptr ? p->experts - 1 : 0);
    return dim3((columns + size - 1) / size, p->rows > 0 ? (uint32_t)most : 0, 1);
}
