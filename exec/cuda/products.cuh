/** @file products.cuh  What both kinds of our own matrix products share: which tile a block has. */
#pragma once

#include "exec/cuda/device.cuh"

/** c[m, n] (+)= sum over k of a b; operands are stored in lines: along k, or across it. */
template <typename T> struct product {
    rpexec_cuda_products sizes;
    const T *a;
    const T *b;
    T *c;
    bool whole; /* lines may be read 16 bytes at a time */
};

/** The tile of a block: rows [m, m_end), columns [n, n_end), summed over [k, k_end). Rows of the
 * gathered tensors are counted from the first expert's first row, all else within a matrix. */
struct tile {
    uint64_t m, m_end;
    uint64_t n, n_end;
    uint64_t k, k_end;
    uint64_t matrix; /* where the expert's matrix begins */
    bool any;
};

/** The block's tile; `size` rows and columns. Grid: product_grid. */
__device__ inline tile tile_of(const rpexec_cuda_products &p, uint32_t size)
{
    tile t = {};
    uint64_t first = 0, end = p.rows;
    uint32_t expert = blockIdx.z;
    if (p.which == RPEXEC_CUDA_WEIGHT) {
        if (p.begins != nullptr) {
            first = p.begins[expert];
            end = p.begins[expert + 1];
        }
        t.m = (uint64_t)blockIdx.y * size;
        t.m_end = p.out;
        t.n_end = p.in;
        t.k = first;
        t.k_end = end;
        t.any = first < end;
    } else {
        /* Every expert's rows begin a tile of their own: skip those of the experts before. */
        uint64_t left = blockIdx.y;
        for (expert = 0; expert < p.experts; expert++) {
            if (p.begins != nullptr) {
                first = p.begins[expert];
                end = p.begins[expert + 1];
            }
            uint64_t tiles = (end - first + size - 1) / size;
            if (left < tiles) {
                t.any = true;
                break;
            }
            left -= tiles;
        }
        t.m = first + left * size;
        t.m_end = end;
        t.n_end = p.which == RPEXEC_CUDA_FORWARD ? p.out : p.in;
        t.k_end = p.which == RPEXEC_CUDA_FORWARD ? p.in : p.out;
    }
    t.n = (uint64_t)blockIdx.x * size;
    t.matrix = (uint64_t)expert * p.stride;
    return t;
}

/** Blocks: columns, rows (as many as the experts' rows could need), experts of a gradient. */
static inline dim3 product_grid(const rpexec_cuda_products *p, uint32_t size)
{
    uint32_t columns = p->which == RPEXEC_CUDA_FORWARD ? p->out : p->in;
    if (p->which == RPEXEC_CUDA_WEIGHT) {
        return dim3((columns + size - 1) / size, (p->out + size - 1) / size, p->experts);
    }
    uint64_t most = (p->rows + size - 1) / size + (p->begins != nullptr ? p->experts - 1 : 0);
    return dim3((columns + size - 1) / size, p->rows > 0 ? (uint32_t)most : 0, 1);
}
