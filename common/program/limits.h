/** @file limits.h  The most that a program may have of anything. */
#pragma once

#include <stdint.h>

#define RP_MAX_GPUS 4096u
#define RP_MAX_MICROBATCHES 1048576u
#define RP_MAX_ITERATIONS 65535u
#define RP_MAX_LAYERS 65536u

/** Longest list of stages in one direction. */
#define RP_MAX_STAGES 32767u

#define RP_MAX_OPS UINT32_C(0x7fffffff)

/** Sequences of a microbatch. */
#define RP_MAX_SEQUENCES UINT32_C(16777216)

/** Bytes of one op or buffer that a file may say: a petabyte. */
#define RP_MAX_BYTES UINT64_C(1000000000000000)
/** Bytes of all ops of a file, and of all its buffers. Whatever is added up of them, with
 * allocator_overhead_pct, is below 2^64. */
#define RP_MAX_TOTAL_BYTES (UINT64_C(1) << 60)
