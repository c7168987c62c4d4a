#include "sim/rpsim/options_internal.h"

#include "common/base/text.h"
#include "common/cli/option_values.h"
#include "sim/run/noise.h"
#include "sim/study/columns.h"

#include <string.h>

/* ---- values with rules of their own ---------------------------------------------------------- */

static rp_status take_gantt_iterations(const rp_option *row, const char *text, rp_arena *arena,
                                       void *options, rp_reason *reason)
{
    rpsim_options *o = options;
    const char *last = strchr(text, '-');
    const char *first = text;
    uint64_t numbers[2] = {0};
    if (last != NULL) {
        RP_TRY(rp_arena_copy_text(arena, text, (size_t)(last - text), &first));
    }
    bool good = rp_parse_u64(first, 1, RP_MAX_ITERATIONS, &numbers[0]);
    numbers[1] = numbers[0];
    good = good &&
           (last == NULL || rp_parse_u64(last + 1, numbers[0], RP_MAX_ITERATIONS, &numbers[1]));
    if (!good) {
        return rp_option_bad(row->name, text, row->valid, reason);
    }
    o->gantt_first = (uint32_t)numbers[0];
    o->gantt_last = (uint32_t)numbers[1];
    return RP_OK;
}

static rp_status take_dialect(const rp_option *row, const char *text, rp_arena *arena,
                              void *options, rp_reason *reason)
{
    rpsim_options *o = options;
    (void)arena;
    o->torch_legacy = strcmp(text, "legacy") == 0 || strcmp(text, "lowered-legacy") == 0;
    o->torch_lowering.waits = strcmp(text, "lowered-waits") == 0;
    o->torch_lowered = strncmp(text, "lowered", strlen("lowered")) == 0;
    bool known = o->torch_legacy || o->torch_lowering.waits || strcmp(text, "lowered") == 0 ||
                 strcmp(text, "compute-only") == 0;
    return known ? RP_OK : rp_option_bad(row->name, text, row->argument, reason);
}

/* ---- rows ------------------------------------------------------------------------------------ */

enum { WORK, INPUTS, SCHEDULE, NOISE, OUTPUT, EXCHANGE, OTHER };

static const rp_option_group groups[] = {
    [WORK] = {"Work", true},
    [INPUTS] = {"Inputs", true},
    [SCHEDULE] = {"Behaviour of the schedule", true},
    [NOISE] = {"Noise", true},
    [OUTPUT] = {"Output", false},
    [EXCHANGE] = {"PyTorch and Chakra", false},
    [OTHER] = {"Instead of a run", false},
};

static const rp_option rows[] = {
#define OPTION(members, ...) {__VA_ARGS__},
#define MORE(...) {__VA_ARGS__},
#define TO(member) .to = RP_OPTION_MEMBER(rpsim_setup, member)
#define COUNT(member) .count = RP_OPTION_MEMBER(rpsim_setup, member)
#define GIVEN(member) .given = RP_OPTION_MEMBER(rpsim_setup, member)
#define WRITE(function) RP_OWN_SETTING
#include "sim/study/setup_rows.inc"
#undef TO
#undef COUNT
#undef GIVEN
#define TO(member) .to = RP_OPTION_MEMBER(rpsim_setup, run.member)
#define GIVEN(member) .given = RP_OPTION_MEMBER(rpsim_setup, run.member)
#include "common/run/run_rows.inc"
#undef TO
#undef GIVEN
#define TO(member) .to = RP_OPTION_MEMBER(rpsim_options, member)
#define GIVEN(member) .given = RP_OPTION_MEMBER(rpsim_options, member)
#include "sim/rpsim/options_rows.inc"
#undef MORE
#undef OPTION
};

/* ---- combinations ---------------------------------------------------------------------------- */

static bool prints_kv(const void *options)
{
    return ((const rpsim_options *)options)->format == RPSIM_FORMAT_KV;
}

static bool prints_kv_of_hardware(const void *options)
{
    return prints_kv(options) && ((const rpsim_options *)options)->setup.run.hardware;
}

static bool prints_markdown(const void *options)
{
    return ((const rpsim_options *)options)->format == RPSIM_FORMAT_MD;
}

static bool prints_lines(const void *options)
{
    return prints_kv(options) || ((const rpsim_options *)options)->format == RPSIM_FORMAT_CSV;
}

static bool is_not_lowered(const void *options)
{
    return !((const rpsim_options *)options)->torch_lowered;
}

static const rp_option_rule rules[] = {
    {.given = "format",
     .when = prints_kv_of_hardware,
     .message = "kv is the log of the paper's stage-level study; valid at hardware fidelity are "
                "table, json, csv"},
    {.given = "format",
     .with = "jitter",
     .when = prints_kv,
     .message = "kv has no place for percentiles; valid with --jitter are table, json, csv"},
    {.given = "explain",
     .when = prints_lines,
     .message = "one line per run has no place for it; valid with it are --format table and json"},
    {.given = "gantt-iterations",
     .without = "gantt-out",
     .message = "valid only with --gantt-out F"},
    {.given = "columns",
     .when = prints_kv,
     .message = "kv has lines of its own; valid with it are --format table, csv, json and md"},
    {.given = "explain",
     .when = prints_markdown,
     .message = "a table of Markdown has no place for it; valid with it are --format table and "
                "json"},
    {.given = "db-ops", .without = "db", .message = "valid only with --db F"},
    {.given = "torch-sidecar",
     .without = "torch-csv-in torch-csv-out",
     .message = "valid only with --torch-csv-in F or --torch-csv-out F"},
    {.given = "torch-csv-dialect",
     .without = "torch-csv-out",
     .message = "valid only with --torch-csv-out F"},
    {.given = "chakra-host-ops",
     .without = "chakra-out",
     .message = "valid only with --chakra-out PREFIX"},
    {.given = "recv-placement",
     .when = is_not_lowered,
     .message = "only lowered files have receives; valid only with --torch-csv-out F and "
                "--torch-csv-dialect lowered, lowered-waits or lowered-legacy"},
};

const rp_options_program rpsim_command_line = {
    .name = "rpsim",
    .purpose = "simulates pipeline schedules on GPUs and compares them",
    .usage = "rpsim --schedule NAME[,NAME…]|all [options]",
    .description = "Simulates pipeline schedules on GPUs and compares them. Defaults are in "
                   "parentheses.",
    .notes = "Counts may end in k, M or B for thousands, millions and billions; lengths of "
             "sequences count 1024s, as models do: --seq-len 4k is 4096.",
    .example = "rpsim --schedule 1f1b,roundpipe --model llama3.1-8b --gpus 8 --gantt-out chart.svg",
    RP_OPTION_TABLES(groups, rows, rules),
};

rp_status rpsim_options_add(int argc, char **argv, rp_arena *arena, rpsim_options *o,
                            rp_reason *reason)
{
    RP_TRY(rp_options_parse(&rpsim_command_line, argc, argv, arena, o, reason));
    if (o->setup.common.request == RP_OPTIONS_RUN &&
        (o->action == RPSIM_ACTION_RUN || o->action == RPSIM_ACTION_CHECK)) {
        RP_TRY(rpsim_setup_check(&rpsim_command_line, &o->setup, reason));
        RP_TRY(rp_options_check(&rpsim_command_line, o, reason));
    }
    rpsim_setup_complete(&o->setup);
    o->setup.one_iteration = o->torch_csv_out != NULL;
    o->setup.hashes = o->db != NULL;
    o->setup.keep = o->trace_out != NULL || o->timeline_out != NULL || o->gantt_out != NULL ||
                    o->html_out != NULL || o->program_out != NULL || o->torch_csv_out != NULL ||
                    o->chakra_out != NULL || o->memory_out != NULL || o->db_ops;
    return RP_OK;
}

rp_status rpsim_options_parse(int argc, char **argv, rp_arena *arena, rpsim_options *options_out,
                              rp_reason *reason)
{
    *options_out = (rpsim_options){.setup = RPSIM_SETUP_INIT};
    return rpsim_options_add(argc, argv, arena, options_out, reason);
}
