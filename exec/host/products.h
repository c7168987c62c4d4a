/** @file products.h  Matrix products of blocks that fit into a core's caches. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Number of columns of a product that are taken at a time, from its multiples on. */
#define RPEXEC_PRODUCT_COLUMNS 8u

/** No bound of a band. */
#define RPEXEC_UNBOUNDED (INT64_C(1) << 40)

/** The numbers that concern row m: m + first to m + last, each at most RPEXEC_UNBOUNDED. */
typedef struct rpexec_band {
    int64_t first;
    int64_t last;
} rpexec_band;

extern const rpexec_band rpexec_everything;

/** @return the first of `count` numbers that concern rows from m on; count: none. */
static inline uint32_t rpexec_band_begin(rpexec_band band, uint32_t m, uint32_t count)
{
    int64_t first = band.first + m;
    return first <= 0 ? 0 : first < count ? (uint32_t)first : count;
}

/** @return the first of `count` numbers after those that concern rows up to m. */
static inline uint32_t rpexec_band_end(rpexec_band band, uint32_t m, uint32_t count)
{
    int64_t end = band.last + m + 1;
    return end <= 0 ? 0 : end < count ? (uint32_t)end : count;
}

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
    /** Terms k of row m. A tile takes the terms of all its rows: outside of the band a(m, k) is
     * 0. */
    rpexec_band terms;
    /** Columns n of row m that are computed, widened to multiples of RPEXEC_PRODUCT_COLUMNS. Other
     * columns may be overwritten or not. */
    rpexec_band columns;
} rpexec_product;

/** @return whether products are fused: on x86 if the processor has FMA, in every build. */
bool rpexec_host_fuses(void);

/**
 * Sums go up in k, and are fused if the processor multiplies and adds in a single instruction.
 * OpenBLAS is faster if a, b and c do not stay in the caches; for these sizes it spends as much
 * time on packing them as on the product.
 */
void rpexec_host_product(const rpexec_product *product);
