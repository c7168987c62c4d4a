/** @file units.h  Time is an int64 in picoseconds: exact, so sums do not depend on their order.
 *
 * 2^63 ps are 106 days. A cost in milliseconds is rounded to the nearest picosecond once, when it
 * is read; every later sum is exact. Published costs have at most 8 decimals of a millisecond and
 * are therefore represented exactly.
 */
#pragma once

#include <math.h>
#include <stdint.h>

#define RP_PS_PER_MS INT64_C(1000000000)

/** Longest single cost that is accepted, in milliseconds: an hour. */
#define RP_MAX_COST_MS 3.6e6

static inline double rp_ps_to_ms(int64_t ps)
{
    return (double)ps / (double)RP_PS_PER_MS;
}

static inline int64_t rp_ms_to_ps(double ms)
{
    return (int64_t)llround(ms * (double)RP_PS_PER_MS);
}

static inline int64_t rp_max_ps(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/** @return a non-negative time, rounded to the nearest picosecond; INT64_MAX for larger times.
 */
static inline int64_t rp_round_ps(double ps)
{
    return ps < 0x1p63 ? (int64_t)(ps + 0.5) : INT64_MAX;
}
