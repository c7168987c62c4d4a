/** @file limits.h  The highest numbers of stages, ops, bytes and other parts that a program may
 * have. */
#pragma once

#include <stdint.h>

#define RP_MAX_GPUS 4096u
/** Most GPUs of a node that a platform may describe one by one. */
#define RP_LISTED_GPUS 64u
#define RP_MAX_MICROBATCHES 1048576u
#define RP_MAX_ITERATIONS 65535u
#define RP_MAX_LAYERS 65536u

/** Most stages in a direction. */
#define RP_MAX_STAGES 32767u

#define RP_MAX_OPS UINT32_C(0x7fffffff)

/** Most sequences of a microbatch. */
#define RP_MAX_SEQUENCES UINT32_C(16777216)

/** Most bytes of an op or buffer in a file: a petabyte. */
#define RP_MAX_BYTES UINT64_C(1000000000000000)
/** Most bytes of all ops of a file, and of all its buffers. All sums of these, with
 * allocator_overhead_pct, are below 2^64. */
#define RP_MAX_TOTAL_BYTES (UINT64_C(1) << 60)
