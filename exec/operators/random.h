/** @file random.h  Reproducible random numbers of the executor: initial weights, shuffles, tests.
 *
 * Counter-based (SplitMix64's output function, Steele, Lea and Flood 2014, applied to a hashed
 * counter): number i of a stream needs no number before it, so that resuming needs no state.
 */
#pragma once

#include <stdint.h>

/** @return number `index` of stream (`seed`, `stream`): 64 uniform bits. */
uint64_t rpexec_random_bits(uint64_t seed, uint64_t stream, uint64_t index);

/** Fills `to` with normal numbers `first` .. `first + count - 1` of a stream, of mean 0 (Box and
 * Muller, in double: they come in pairs). @param first even */
void rpexec_random_normal_from(uint64_t seed, uint64_t stream, double deviation, uint64_t first,
                               uint64_t count, float *to);

/** The same for the first `count` numbers. */
void rpexec_random_normal(uint64_t seed, uint64_t stream, double deviation, uint64_t count,
                          float *to);

/** Fills `to` with numbers `first` .. `first + count - 1`, uniform between -bound and bound. */
void rpexec_random_uniform_from(uint64_t seed, uint64_t stream, double bound, uint64_t first,
                                uint64_t count, float *to);

/**
 * @return the image of `index` < count under a seeded permutation of 0 .. count - 1: a Feistel
 *         network on the next power of four, applied until the result is below count (cycle
 *         walking)
 */
uint64_t rpexec_random_permute(uint64_t seed, uint64_t count, uint64_t index);
