/** @file hash.h  64-bit hash of a stream of integers: same values, same hash on every machine.
 *
 * The hash tells equal runs from different runs; it does not resist adversaries. Mixing step:
 * splitmix64's finaliser (Steele, Lea, Flood, "Fast splittable pseudorandom number generators",
 * OOPSLA 2014).
 */
#pragma once

#include <stdint.h>

/** Step that splitmix64 adds to its state before each number. */
#define RP_SPLITMIX64_STEP UINT64_C(0x9e3779b97f4a7c15)

#define RP_HASH_SEED RP_SPLITMIX64_STEP

/** @return the number that splitmix64 gives in state `x`; the next state is x + RP_SPLITMIX64_STEP.
 */
static inline uint64_t rp_splitmix64(uint64_t x)
{
    uint64_t z = x + RP_SPLITMIX64_STEP;
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static inline uint64_t rp_hash_add(uint64_t hash, uint64_t value)
{
    return rp_splitmix64(hash ^ value);
}

static inline uint64_t rp_hash_add_text(uint64_t hash, const char *text)
{
    for (; *text != '\0'; text++) {
        hash = rp_hash_add(hash, (unsigned char)*text);
    }
    return rp_hash_add(hash, 256);
}
