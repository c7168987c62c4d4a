/** @file schema.h  The tables of the store; used by store.c and add.c only. */
#pragma once

#include "common/store/store.h"

/** "RPDB": tells our databases from those of other applications. */
#define RP_STORE_APPLICATION_ID 0x52504442

/** X(name): the metrics that have a column in the table results. */
#define RP_STORE_COLUMNS(X)                                                                        \
    X(makespan_ps)                                                                                 \
    X(busy_ps)                                                                                     \
    X(bubble_ps)                                                                                   \
    X(fill_ps)                                                                                     \
    X(switch_ps)                                                                                   \
    X(drain_ps)                                                                                    \
    X(intra_ps)                                                                                    \
    X(comm_total_ps)                                                                               \
    X(comm_exposed_ps)                                                                             \
    X(lower_bound_ps)                                                                              \
    X(iteration_ps)                                                                                \
    X(tokens_per_s)                                                                                \
    X(peak_gpu_bytes)                                                                              \
    X(peak_host_bytes)                                                                             \
    X(fits)                                                                                        \
    X(max_seqlen)

/** SQL: results.configuration and results.cell of a row of runs. rp_store_hash is a function that
 * store.c registers. Part of version 3: never edit it. */
#define RP_STORE_HASHES                                                                            \
    "rp_store_hash(program, schedule, model, platform, costs, partition, fidelity, recompute,"     \
    " optimizer, gpus, microbatches, microbatch_size, seq_len, iterations, seed, config_json),"    \
    " rp_store_hash(program, model, platform, costs, fidelity, gpus, microbatches,"                \
    " microbatch_size, seq_len, iterations,"                                                       \
    " coalesce(json_extract(config_json, '$.global_batch'),"                                       \
    "          json_extract(config_json, '$.accumulate')),"                                        \
    " json_extract(config_json, '$.jitter_cv'), json_extract(config_json, '$.slow_gpu'),"          \
    " json_extract(config_json, '$.slow_factor'),"                                                 \
    " iif(json_extract(config_json, '$.jitter_cv') IS NULL, NULL, seed))"

/** SQL that makes the tables of an empty database, in parts, NULL behind them; run inside a
 * transaction. ISO C's compilers need not take longer strings than 4095 bytes. Version 3 is that
 * of release 0.2.0: a later one leaves it as it is and comes with the SQL that leads there. */
extern const char *const rp_store_schema[];
