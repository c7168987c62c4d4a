#include "experiments/options.h"

#include "common/base/log.h"
#include "common/base/reason.h"
#include "common/cli/option_values.h"

#include <stdlib.h>
#include <string.h>

#define MOST_JOBS 1024u
#define MOST_SHARDS 100000u

static rp_status take_shard(const rp_option *row, const char *text, rp_arena *arena, void *options,
                            rp_reason *reason)
{
    rpsweep_options *o = options;
    (void)arena;
    char *end = NULL;
    unsigned long shard = strtoul(text, &end, 10);
    unsigned long shards = 0;
    if (text[0] >= '0' && text[0] <= '9' && *end == '/' && end[1] >= '0' && end[1] <= '9') {
        shards = strtoul(end + 1, &end, 10);
    }
    if (*end != '\0' || shards < 1 || shards > MOST_SHARDS || shard >= shards) {
        return rp_option_bad(row->name, text, "I/N with N from 1 to 100000 and I from 0 to N - 1",
                             reason);
    }
    o->shard = (uint32_t)shard;
    o->shards = (uint32_t)shards;
    return RP_OK;
}

/* ---- rows ------------------------------------------------------------------------------------ */

enum { RUNS, STORES };

static const rp_option_group groups[] = {
    [RUNS] = {"Runs of an experiment", true},
    [STORES] = {"Stores", false},
};

#define TO(member) .to = RP_OPTION_MEMBER(rpsweep_options, member)

static const rp_option rows[] = {
#define OPTION(members, ...) {__VA_ARGS__},
#include "experiments/options_rows.inc"
#undef OPTION
};

static bool has_no_experiment(const void *options)
{
    return ((const rpsweep_options *)options)->experiment == NULL;
}

static bool has_no_reference(const void *options)
{
    return ((const rpsweep_options *)options)->action != RPSWEEP_ACTION_REFERENCE;
}

static bool has_no_report(const void *options)
{
    return ((const rpsweep_options *)options)->action != RPSWEEP_ACTION_REPORT;
}

static bool has_report(const void *options)
{
    return !has_no_report(options);
}

static const rp_option_rule rules[] = {
    {.with = "jobs resume retry-failed shard rpexec watchdog-s dry-run",
     .when = has_no_experiment,
     .message = "--jobs, --resume, --retry-failed, --shard, --rpexec, --watchdog-s, --dry-run: "
                "valid with an experiment, not with export, merge, reference or report"},
    {.given = "retry-failed", .without = "resume", .message = "valid with --resume"},
    {.given = "cell", .when = has_no_reference, .message = "valid with reference"},
    {.given = "html-out", .when = has_no_report, .message = "valid with report"},
    {.given = "db", .when = has_report, .message = "valid is rpsweep report STORE, without --db"},
};

const rp_options_program rpsweep_command_line = {
    .name = "rpsweep",
    .purpose = "runs experiment files and keeps their stores",
    .usage = "rpsweep EXPERIMENT [options]\n"
             "rpsweep export VIEW --db F\n"
             "rpsweep merge STORE... --db F\n"
             "rpsweep reference FILE.csv --db F\n"
             "rpsweep report STORE [--html-out F]",
    .words = "FILE|export|merge|reference|report",
    .description =
        "Runs all points of an experiment file (experiments/README.md) and stores the results; "
        "prints a table or view of a store as CSV; puts the stores of shards into one; adds "
        "published or measured values, which the view error_per_cell compares with the runs; makes "
        "a page of a store: what varied, the best points, a picture per parameter. "
        "Defaults are in parentheses.\n"
        "mpirun rpsweep EXPERIMENT: the ranks run the points, rank 0 stores them.",
    .exit_status = "0 success, 1 a point or the sweep failed, 2 bad usage or bad input.",
    .example = "rpsweep experiments/pipeline-study.yaml --db study.db --resume",
    RP_OPTION_TABLES(groups, rows, rules),
};

/* ---- words ----------------------------------------------------------------------------------- */

static rp_status need_db(const rpsweep_options *o, const char *what)
{
    if (o->db != NULL) {
        return RP_OK;
    }
    rp_log_error("%s: the store is missing; valid is --db F", what);
    return RP_USAGE;
}

/* Reads the words that are no options. */
static rp_status take_words(rpsweep_options *o)
{
    const char **words = o->common.words;
    uint32_t count = o->common.word_count;
    if (count > 0 && strcmp(words[0], "export") == 0) {
        o->action = RPSWEEP_ACTION_EXPORT;
        o->view = count == 2 ? words[1] : NULL;
        if (o->view == NULL) {
            rp_log_error("export: expected one table or view; valid is rpsweep export VIEW --db F");
            return RP_USAGE;
        }
        return need_db(o, "export");
    }
    if (count > 0 && strcmp(words[0], "merge") == 0) {
        o->action = RPSWEEP_ACTION_MERGE;
        o->stores = words + 1;
        o->store_count = count - 1;
        if (count == 1) {
            rp_log_error("merge: no store to merge; valid is rpsweep merge STORE... --db F");
            return RP_USAGE;
        }
        return need_db(o, "merge");
    }
    if (count > 0 && strcmp(words[0], "reference") == 0) {
        o->action = RPSWEEP_ACTION_REFERENCE;
        o->table = count == 2 ? words[1] : NULL;
        if (o->table == NULL) {
            rp_log_error(
                "reference: expected one table; valid is rpsweep reference FILE.csv --db F");
            return RP_USAGE;
        }
        return need_db(o, "reference");
    }
    if (count > 0 && strcmp(words[0], "report") == 0) {
        o->action = RPSWEEP_ACTION_REPORT;
        o->stores = words + 1;
        o->store_count = count - 1;
        if (count != 2) {
            rp_log_error("report: expected one store, not %u; valid is rpsweep report STORE "
                         "[--html-out F]",
                         count - 1);
            return RP_USAGE;
        }
        return RP_OK;
    }
    if (count != 1) {
        rp_log_error("expected one experiment, not %u; valid is rpsweep EXPERIMENT [options]",
                     count);
        return RP_USAGE;
    }
    o->experiment = words[0];
    return RP_OK;
}

rp_status rpsweep_options_parse(int argc, char **argv, rp_arena *arena,
                                rpsweep_options *options_out)
{
    *options_out = (rpsweep_options){.shards = 1};
    RP_TRY(rp_options_parse(&rpsweep_command_line, argc, argv, arena, options_out, NULL));
    if (options_out->common.request != RP_OPTIONS_RUN) {
        return RP_OK;
    }
    RP_TRY(take_words(options_out));
    return rp_options_check(&rpsweep_command_line, options_out, NULL);
}
