/** @file products.h  Matrix products of blocks that fit into a core's caches. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Columns of a product are taken so many at a time, from multiples of it on. */
#define RPEXEC_PRODUCT_COLUMNS 8u

/** No bound of a band. */
#define RPEXEC_UNBOUNDED (INT64_C(1) << 40)

/** Numbers that row m has to do with: m + first to m + last, each at most RPEXEC_UNBOUNDED. */
typedef struct rpexec_band {
    int64_t first;
    int64_t last;
} rpexec_band;

extern const rpexec_band rpexec_everything;

/** c[m][n] = (add ? c[m][n] : 0) + sum over k of a(m, k) b[k][n], all of them rows of floats. */
typedef struct rpexec_product {
    uint32_t m, n, k;
    const float *a;
    size_t a_row;  /**< floats from a(m, k) to a(m + 1, k) */
    size_t a_step; /**< floats from a(m, k) to a(m, k + 1) */
    const float *b;
    size_t b_row; /**< floats */
    float *c;     /**< apart from a and b */
    size_t c_row; /**< floats */
    bool add;
    /** k outside of it are left out; a(m, k) is 0 there, as some are read all the same. */
    rpexec_band terms;
    /** Columns outside of it are left out, all but those that one with it has to be computed with:
     * from the last multiple of RPEXEC_PRODUCT_COLUMNS before the band to the first one behind it,
     * c is set. What is beyond may be set or not. */
    rpexec_band columns;
} rpexec_product;

/**
 * Sums go up in k, fused where the processor multiplies and adds in one instruction. OpenBLAS is
 * faster where a, b and c do not stay in the caches; here it spends as much time on packing them.
 */
void rpexec_host_product(const rpexec_product *product);
