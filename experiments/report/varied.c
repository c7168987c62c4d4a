/* The settings that varied among the runs of a store. */
#include "common/base/log.h"
#include "common/base/text.h"
#include "experiments/report/internal.h"

#include <stdlib.h>
#include <string.h>

#define MOST_PARAMETERS 100

/* Settings that people choose come first, and settings that may follow from others come last: a
 * parameter is dropped if the parameters before it determine its value. */
static const char *const firsts[] = {"schedule",  "model",     "platform",        "gpus",
                                     "nodes",     "seq_len",   "microbatch_size", "microbatches",
                                     "optimizer", "recompute", "fidelity",        NULL};
static const char *const lasts[] = {"costs",          "parameters", "partition", "global_batch",
                                    "boundary_bytes", "hop_ms",     "replicas",  NULL};

static uint32_t position(const char *const *names, const char *key)
{
    uint32_t i = 0;
    while (names[i] != NULL && strcmp(names[i], key) != 0) {
        i++;
    }
    return i;
}

static uint32_t rank(const char *key)
{
    uint32_t first = position(firsts, key);
    uint32_t last = position(lasts, key);
    if (firsts[first] != NULL) {
        return first;
    }
    return lasts[last] != NULL ? 1000 + last : 100;
}

static int by_rank(const void *a, const void *b)
{
    const rpsweep_parameter *left = a;
    const rpsweep_parameter *right = b;
    uint32_t ranks[] = {rank(left->key), rank(right->key)};
    if (ranks[0] != ranks[1]) {
        return ranks[0] < ranks[1] ? -1 : 1;
    }
    return strcmp(left->key, right->key);
}

static rp_status add(rpsweep_parameters *to, rp_arena *arena, const rpsweep_parameter *parameter)
{
    if (to->list == NULL) {
        RP_TRY(rp_arena_alloc(arena, MOST_PARAMETERS, sizeof *to->list, &to->list));
    }
    if (to->count < MOST_PARAMETERS) {
        to->list[to->count++] = *parameter;
    }
    return RP_OK;
}

static rp_status read_number(void *context, const char *const *cells, int columns)
{
    uint64_t *numbers = context;
    for (int i = 0; i < columns; i++) {
        numbers[i] = cells[i] != NULL ? strtoull(cells[i], NULL, 10) : 0;
    }
    return RP_OK;
}

/* Reads a row: key, number of values, whether all runs have a number for it, a value. */
static rp_status read_parameter(void *context, const char *const *cells, int columns)
{
    rpsweep_findings *f = context;
    rpsweep_parameter parameter = {.values = (uint32_t)strtoul(cells[1], NULL, 10),
                                   .is_number = cells[2][0] == '1'};
    (void)columns;
    RP_TRY(rp_arena_copy_text(f->arena, cells[0], strlen(cells[0]), &parameter.key));
    if (parameter.values > 1) {
        return add(&f->varied, f->arena, &parameter);
    }
    if (cells[3] != NULL) {
        RP_TRY(rp_arena_copy_text(f->arena, cells[3], strlen(cells[3]), &parameter.same));
        RP_TRY(add(&f->constant, f->arena, &parameter));
    }
    return RP_OK;
}

static rp_status find_measure(rpsweep_findings *f)
{
    static const rpsweep_measure measures[] = {
        {"tokens_per_s", "tokens per second", false},
        {"max_seqlen", "longest sequence (tokens)", false},
        {"makespan_ms", "makespan (ms)", true},
    };
    uint64_t counts[3] = {0};
    RP_TRY(rp_store_query(f->store,
                          "SELECT count(tokens_per_s), count(max_seqlen), count(makespan_ms)"
                          " FROM summary WHERE latest",
                          read_number, counts));
    f->measure = measures[counts[0] > 0 ? 0 : counts[1] > 0 ? 1 : 2];
    return RP_OK;
}

/* Makes the temporary table: the measure, and a column for each setting that varied. */
static rp_status make_table(rpsweep_findings *f)
{
    rp_text sql = {0};
    rp_status status = rp_text_print(
        &sql, "CREATE TEMP TABLE report AS SELECT run_id, %s AS y, summary.fits AS fits",
        f->measure.column);
    for (uint32_t i = 0; i < f->varied.count && status == RP_OK; i++) {
        const char *key = f->varied.list[i].key;
        status = rp_text_print(&sql, ", json_extract(config_json, '$.%s') AS p_%s", key, key);
    }
    if (status == RP_OK) {
        status = rp_text_print(&sql, " FROM summary JOIN runs ON runs.id = run_id WHERE latest");
    }
    if (status == RP_OK) {
        status = rp_store_query(f->store, sql.bytes, NULL, NULL);
    }
    rp_text_fini(&sql);
    return status;
}

/* Counts the combinations of values of the parameters that are kept together with `key`. */
static rp_status count_combinations(const rpsweep_findings *f, const rpsweep_parameters *kept,
                                    const char *key, uint64_t *count_out)
{
    rp_text sql = {0};
    rp_status status = rp_text_print(&sql, "SELECT count(*) FROM (SELECT DISTINCT p_%s", key);
    for (uint32_t i = 0; i < kept->count && status == RP_OK; i++) {
        status = rp_text_print(&sql, ", p_%s", kept->list[i].key);
    }
    if (status == RP_OK) {
        status = rp_text_print(&sql, " FROM temp.report)");
    }
    if (status == RP_OK) {
        status = rp_store_query(f->store, sql.bytes, read_number, count_out);
    }
    rp_text_fini(&sql);
    return status;
}

/* Moves parameters that the parameters before them determine to `follow`. */
static rp_status part_followers(rpsweep_findings *f)
{
    rpsweep_parameters all = f->varied;
    uint64_t combinations = 1;
    f->varied = (rpsweep_parameters){0};
    for (uint32_t i = 0; i < all.count; i++) {
        uint64_t with = 0;
        RP_TRY(count_combinations(f, &f->varied, all.list[i].key, &with));
        RP_TRY(add(with > combinations ? &f->varied : &f->follow, f->arena, &all.list[i]));
        combinations = with > combinations ? with : combinations;
    }
    return RP_OK;
}

rp_status rpsweep_find(rpsweep_findings *f)
{
    uint64_t counts[3] = {0};
    RP_TRY(rp_store_query(f->store,
                          "SELECT count(*), sum(latest), sum(latest AND fits = 0) FROM results",
                          read_number, counts));
    f->runs = counts[0];
    f->latest = counts[1];
    f->unfit = counts[2];
    if (f->latest == 0) {
        rp_log_error(
            "%s: there is no run in it; valid is a store that rpsweep EXPERIMENT --db F or "
            "rpsim --db F has filled",
            f->path);
        return RP_INPUT;
    }
    RP_TRY(find_measure(f));
    RP_TRY(rp_store_query(
        f->store,
        "SELECT key, count(DISTINCT json_each.value) + (count(json_each.value) <"
        " (SELECT count(*) FROM results WHERE latest)),"
        " count(json_each.value) = (SELECT count(*) FROM results WHERE latest)"
        " AND sum(json_each.type NOT IN ('integer', 'real')) = 0, max(json_each.value)"
        " FROM runs JOIN results ON run_id = runs.id, json_each(config_json) WHERE latest"
        " AND key NOT GLOB '*[^a-z0-9_]*' GROUP BY key",
        read_parameter, f));
    if (f->varied.count > 0) {
        qsort(f->varied.list, f->varied.count, sizeof *f->varied.list, by_rank);
    }
    RP_TRY(make_table(f));
    uint64_t fitting = 0;
    RP_TRY(rp_store_query(f->store,
                          "SELECT count(*) FROM temp.report WHERE y IS NOT NULL AND fits IS NOT 0",
                          read_number, &fitting));
    f->unfit_count = fitting == 0;
    return part_followers(f);
}

const char *rpsweep_compared(const rpsweep_findings *findings)
{
    return findings->unfit_count ? "y IS NOT NULL" : "y IS NOT NULL AND fits IS NOT 0";
}
