#include "experiments/options.h"

#include "common/base/log.h"
#include "common/cli/option_values.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_JOBS 1024u
#define MOST_SHARDS 100000u

#define OPTION_LIST(X)                                                                             \
    X(DB, "db", "F",                                                                               \
      "the SQLite store (NAME.db in the current folder, NAME as the experiment has it)")           \
    X(JOBS, "jobs", "N", "points at a time, each in a process of its own (the cores; rpexec: 1)")  \
    X(RESUME, "resume", NULL, "goes on: points that the store has are not run again")              \
    X(RETRY_FAILED, "retry-failed", NULL, "with --resume: points that have failed are run again")  \
    X(SHARD, "shard", "I/N", "runs every N-th combination, beginning with I, 0 to N - 1 (0/1)")    \
    X(RPEXEC, "rpexec", "F", "the rpexec that runs executed points (beside rpsweep, or in PATH)")  \
    X(CELL, "cell", "NAME=VALUE[,NAME=VALUE…]",                                                    \
      "with reference: columns that the file lacks, such as platform=rtx4090x8,gpus=8")            \
    X(DRY_RUN, "dry-run", NULL, "checks the experiment and prints its points as commands")         \
    X(HELP, "help", NULL, "this text")                                                             \
    X(VERSION, "version", NULL, "the version")

RP_OPTION_TABLES(OPTION_LIST)

void rpsweep_options_help(void)
{
    puts("Usage: rpsweep EXPERIMENT [options]\n"
         "       rpsweep export VIEW --db F\n"
         "       rpsweep merge STORE... --db F\n"
         "       rpsweep reference FILE.csv --db F\n\n"
         "Runs all points of an experiment file (experiments/README.md) and stores the results;\n"
         "prints a table or view of a store as CSV; puts the stores of shards into one; adds\n"
         "published or measured values, which the view error_per_cell compares with the runs.\n"
         "mpirun rpsweep EXPERIMENT: the ranks run the points, rank 0 stores them.\n\n"
         "Options (default):");
    rp_option_print(option_helps, sizeof option_helps / sizeof option_helps[0]);
    puts("\nExit status: 0 success, 1 a point or the sweep failed, 2 bad usage or bad input.\n"
         "Example: rpsweep experiments/pipeline-study.yaml --db study.db --resume");
}

static rp_status parse_shard(const char *text, rpsweep_options *o)
{
    char *end = NULL;
    unsigned long shard = strtoul(text, &end, 10);
    unsigned long shards = 0;
    if (text[0] >= '0' && text[0] <= '9' && *end == '/' && end[1] >= '0' && end[1] <= '9') {
        shards = strtoul(end + 1, &end, 10);
    }
    if (*end != '\0' || shards < 1 || shards > MOST_SHARDS || shard >= shards) {
        return rp_option_bad("shard", text, "I/N with N from 1 to 100000 and I from 0 to N - 1");
    }
    o->shard = (uint32_t)shard;
    o->shards = (uint32_t)shards;
    return RP_OK;
}

static rp_status take(int option, const char *value, rpsweep_options *o)
{
    switch (option) {
    case OPTION_DB:
        o->db = value;
        return RP_OK;
    case OPTION_JOBS:
        return rp_option_u32("jobs", value, MOST_JOBS, &o->jobs);
    case OPTION_RESUME:
        o->resume = true;
        return RP_OK;
    case OPTION_RETRY_FAILED:
        o->retry = true;
        return RP_OK;
    case OPTION_SHARD:
        return parse_shard(value, o);
    case OPTION_RPEXEC:
        o->rpexec = value;
        return RP_OK;
    case OPTION_CELL:
        o->cell = value;
        return RP_OK;
    case OPTION_DRY_RUN:
        o->action = RPSWEEP_ACTION_COUNT;
        return RP_OK;
    case OPTION_HELP:
        o->action = RPSWEEP_ACTION_HELP;
        return RP_OK;
    default:
        o->action = RPSWEEP_ACTION_VERSION;
        return RP_OK;
    }
}

static rp_status need_db(const rpsweep_options *o, const char *what)
{
    if (o->db != NULL) {
        return RP_OK;
    }
    rp_log_error("%s: the store is missing; valid is --db F", what);
    return RP_USAGE;
}

/* Meaning of the words that are no options. */
static rp_status take_words(char **words, int count, rpsweep_options *o)
{
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
        o->store_count = (uint32_t)count - 1;
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
    if (count != 1) {
        rp_log_error("expected one experiment, not %d; valid is rpsweep EXPERIMENT [options]",
                     count);
        return RP_USAGE;
    }
    o->experiment = words[0];
    return RP_OK;
}

/* Options that belong to runs are refused where nothing is to run. */
static rp_status refuse_run_options(const rpsweep_options *o, bool dry_run)
{
    if (o->experiment == NULL &&
        (dry_run || o->resume || o->retry || o->jobs != 0 || o->shards != 1 || o->rpexec != NULL)) {
        rp_log_error("--jobs, --resume, --retry-failed, --shard, --rpexec, --dry-run: valid with "
                     "an experiment, not with export, merge or reference");
        return RP_USAGE;
    }
    return RP_OK;
}

rp_status rpsweep_options_parse(int argc, char **argv, rpsweep_options *options_out)
{
    rpsweep_options o = {.shards = 1};
    optind = 0; /* begins anew */
    opterr = 0;
    for (;;) {
        int result = getopt_long(argc, argv, ":", long_options, NULL);
        if (result == -1) {
            break;
        }
        if (result == ':' || result == '?') {
            return rp_option_unknown("rpsweep", argv[optind - 1], result, long_options);
        }
        RP_TRY(take(result, optarg, &o));
        if (o.action == RPSWEEP_ACTION_HELP || o.action == RPSWEEP_ACTION_VERSION) {
            *options_out = o;
            return RP_OK;
        }
    }
    bool dry_run = o.action == RPSWEEP_ACTION_COUNT;
    RP_TRY(take_words(argv + optind, argc - optind, &o));
    RP_TRY(refuse_run_options(&o, dry_run));
    if (o.retry && !o.resume) {
        rp_log_error("--retry-failed: valid with --resume");
        return RP_USAGE;
    }
    if (o.cell != NULL && o.action != RPSWEEP_ACTION_REFERENCE) {
        rp_log_error("--cell: valid with reference");
        return RP_USAGE;
    }
    *options_out = o;
    return RP_OK;
}
