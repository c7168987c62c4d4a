/** @file host_bench.h  The host's part of a step by itself: Adam, refresh and collection of a
 * layer's values, by threads and by tensor size.
 *
 * The passes are those that the executor runs (state/pass.h), on fp32 masters and fp16 working
 * weights and gradients. The fp16 arrays are pinned if there is a GPU, as in a run. Rates count the
 * bytes that programs give for these ops (common/lower/lower.h), like the keys of a platform.
 */
#pragma once

#include "common/base/mem.h"
#include "exec/describe/pins.h"

#include <stdio.h>

/** X(enumerator, word, bytes per parameter). */
#define RPEXEC_HOST_PASSES(X)                                                                      \
    X(ADAM, "adam", RP_ADAM_BYTES)                                                                 \
    X(REFRESH, "refresh", RP_REFRESH_BYTES)                                                        \
    X(COLLECT, "collect", RP_COLLECT_BYTES)

typedef enum rpexec_host_pass {
#define RPEXEC_HOST_PASS_ENUM(name, text, bytes) RPEXEC_HOST_##name,
    RPEXEC_HOST_PASSES(RPEXEC_HOST_PASS_ENUM)
#undef RPEXEC_HOST_PASS_ENUM
        RPEXEC_HOST_PASS_COUNT
} rpexec_host_pass;

/** Most rows: numbers of threads times sizes. */
#define RPEXEC_HOST_ROWS 64u

typedef struct rpexec_host_row {
    uint32_t threads;
    uint32_t mib;                       /**< MiB of each fp32 array */
    double Bps[RPEXEC_HOST_PASS_COUNT]; /**< median of three */
} rpexec_host_row;

typedef struct rpexec_host_bench {
    rpexec_host_row rows[RPEXEC_HOST_ROWS];
    uint32_t row_count; /**< the last row has all threads and the largest arrays */
    bool pinned;
    double whole_Bps; /**< the three passes one after the other, in the last row */
} rpexec_host_bench;

/**
 * Measures; takes some seconds and 1.3 GB, less if the machine has little memory.
 * @param pins NULL: memory is not pinned
 * @retval RP_OK, RP_NO_MEMORY, RP_BROKEN
 */
rp_status rpexec_host_bench_run(rpexec_pins *pins, rpexec_host_bench *bench_out);

/** Prints the rows as comments ("# …"), for a platform file. */
void rpexec_host_bench_write(const rpexec_host_bench *bench, FILE *stream);
