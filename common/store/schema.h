/** @file schema.h  The tables of the store; used by store.c, add.c and the generator of
 * docs/generated, which has a row for each column in store_rows.inc. */
#pragma once

#include "common/store/store.h"

/** "RPDB": distinguishes this project's databases from those of other applications. */
#define RP_STORE_APPLICATION_ID 0x52504442

#define RP_STORE_MS(time) time "_ps / 1e9 AS " time "_ms, "
#define RP_STORE_PCT(time) "100.0 * " time "_ps / (gpus * makespan_ps) AS " time "_pct, "

/** X(name, shown): the metrics that have a column in the table results, and their form in the view
 * summary. A new metric also needs a column of the table: rp_store_upgrade. */
#define RP_STORE_COLUMNS(X)                                                                        \
    X(makespan_ps, RP_STORE_MS("makespan"))                                                        \
    X(busy_ps, "")                                                                                 \
    X(bubble_ps, RP_STORE_MS("bubble") RP_STORE_PCT("bubble"))                                     \
    X(fill_ps, RP_STORE_PCT("fill"))                                                               \
    X(switch_ps, RP_STORE_PCT("switch"))                                                           \
    X(drain_ps, RP_STORE_PCT("drain"))                                                             \
    X(intra_ps, RP_STORE_PCT("intra"))                                                             \
    X(comm_total_ps, RP_STORE_MS("comm_total"))                                                    \
    X(comm_exposed_ps, RP_STORE_MS("comm_exposed"))                                                \
    X(lower_bound_ps, RP_STORE_MS("lower_bound"))                                                  \
    X(iteration_ps, RP_STORE_MS("iteration"))                                                      \
    X(tokens_per_s, "tokens_per_s, ")                                                              \
    X(peak_gpu_bytes, "peak_gpu_bytes, ")                                                          \
    X(peak_host_bytes, "peak_host_bytes, ")                                                        \
    X(host_memory_bytes, "host_memory_bytes, ")                                                    \
    X(fits, "fits, ")                                                                              \
    X(max_seqlen, "max_seqlen, ")

/** SQL: results.configuration and results.cell of a row of runs. store.c registers the function
 * rp_store_hash. This text is part of version 3: never edit it. */
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

/** SQL in parts, ended by NULL, as ISO C only guarantees strings of up to 4095 bytes; to be run
 * inside a transaction. The tables are those of version 3 (release 0.2.0) and stay unchanged; the
 * upgrade leads to the current version. Views hold no data: an upgrade makes them again. */
extern const char *const rp_store_tables[];
extern const char *const rp_store_upgrade[];
extern const char *const rp_store_views[];

/** SQL: the triggers of the tables for a single connection. The triggers in the file do not run
 * here, because the file may come from a stranger; they serve other programs that write to a
 * store. */
extern const char rp_store_own_triggers[];
