/* The least makespan of any order with one stage per rank and backwards in two parts, by trying all
 * of them. For very small sizes. Shares no code with common/ or sim/. */
#pragma once

#include "tests/reference/slow_split.h"

/* At most `capacity` forwards of a rank are without their weight part at any time. Microbatches are
 * equal, so that each kind of cell comes in their order. */
int64_t slow_exact_makespan(int ranks, int microbatches, int capacity, const slow_split *stages,
                            int64_t hop);
