#include "exec/operators/random.h"

#include "common/base/hash.h"

#include <math.h>

uint64_t rpexec_random_bits(uint64_t seed, uint64_t stream, uint64_t index)
{
    return rp_splitmix64(rp_splitmix64(rp_splitmix64(seed) ^ stream) ^ index);
}

static double uniform(uint64_t bits) /* (0, 1] */
{
    return ((double)(bits >> 11) + 1.0) * 0x1p-53;
}

void rpexec_random_normal_from(uint64_t seed, uint64_t stream, double deviation, uint64_t first,
                               uint64_t count, float *to)
{
    const double turn = 2 * acos(-1.0);
    for (uint64_t i = 0; i < count; i += 2) {
        uint64_t index = first + i;
        double radius =
            deviation * sqrt(-2 * log(uniform(rpexec_random_bits(seed, stream, index))));
        double angle = turn * uniform(rpexec_random_bits(seed, stream, index + 1));
        to[i] = (float)(radius * cos(angle));
        if (i + 1 < count) {
            to[i + 1] = (float)(radius * sin(angle));
        }
    }
}

void rpexec_random_normal(uint64_t seed, uint64_t stream, double deviation, uint64_t count,
                          float *to)
{
    rpexec_random_normal_from(seed, stream, deviation, 0, count, to);
}

void rpexec_random_uniform_from(uint64_t seed, uint64_t stream, double bound, uint64_t first,
                                uint64_t count, float *to)
{
    for (uint64_t i = 0; i < count; i++) {
        uint64_t bits = rpexec_random_bits(seed, stream, first + i);
        to[i] = (float)(bound * (2 * uniform(bits) - 1));
    }
}

uint64_t rpexec_random_permute(uint64_t seed, uint64_t count, uint64_t index)
{
    uint32_t half = 1; /* bits of each half */
    while (half < 31 && (UINT64_C(1) << (2 * half)) < count) {
        half++;
    }
    uint64_t mask = (UINT64_C(1) << half) - 1;
    do {
        uint64_t left = index >> half;
        uint64_t right = index & mask;
        for (uint64_t round = 0; round < 4; round++) {
            uint64_t next = left ^ (rpexec_random_bits(seed, round, right) & mask);
            left = right;
            right = next;
        }
        index = left << half | right;
    } while (index >= count);
    return index;
}
