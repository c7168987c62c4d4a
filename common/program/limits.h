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
