/** @file hash.h  64-bit hash of a stream of integers: same values, same hash on every machine.
 *
 * Not for adversaries; it tells equal runs from different ones. Mixing step: splitmix64's finaliser
 * (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014).
 */
#pragma once

#include <stdint.h>

#define RP_HASH_SEED UINT64_C(0x9e3779b97f4a7c15)

static inline uint64_t rp_hash_add(uint64_t hash, uint64_t value)
{
    uint64_t z = (hash ^ value) + UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static inline uint64_t rp_hash_add_text(uint64_t hash, const char *text)
{
    for (; *text != '\0'; text++) {
        hash = rp_hash_add(hash, (unsigned char)*text);
    }
    return rp_hash_add(hash, 256);
}
