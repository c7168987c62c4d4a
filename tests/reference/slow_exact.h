/* The least makespan of all orders with one stage per rank and backwards in two parts, found by
 * trying them all. For very small sizes. Shares no code with common/ or sim/. */
#pragma once

#include "tests/reference/slow_split.h"

/* At any time at most `capacity` forwards of a rank wait for their weight part. Microbatches are
 * equal, so each kind of cell comes in the microbatches' order. */
int64_t slow_exact_makespan(int ranks, int microbatches, int capacity, const slow_split *stages,
                            int64_t hop);
