#include "sim/rpsim/options_internal.h"

#include "common/base/log.h"
#include "common/base/reason.h"
#include "common/base/text.h"
#include "common/cli/option_values.h"
#include "sim/study/columns.h"
#include "sim/run/noise.h"

#include <stdio.h>
#include <string.h>

/* ---- values with rules of their own ------------------------------------------------------------
 */

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

static rp_status take_columns(const rp_option *row, const char *text, rp_arena *arena,
                              void *options, rp_reason *reason)
{
    rpsim_setup *o = &((rpsim_options *)options)->setup;
    o->all_columns = strcmp(text, "all") == 0;
    o->column_count = 0;
    if (o->all_columns) {
        return RP_OK;
    }
    RP_TRY(rp_option_list(row->name, text, arena, &o->columns, &o->column_count, reason));
    for (uint32_t i = 0; i < o->column_count; i++) {
        if (rpsim_column_find(o->columns[i]) == rpsim_column_count || i == RPSIM_MAX_FIELDS) {
            const char *nearest = rpsim_column_nearest(o->columns[i]);
            return rp_refuse(
                reason, RP_USAGE,
                "--%s: there is no column '%s'%s%s; valid are all and the keys of --format "
                "json",
                row->name, o->columns[i], nearest != NULL ? "; did you mean " : "",
                nearest != NULL ? nearest : "");
        }
    }
    return RP_OK;
}

static rp_status take_tokens(const rp_option *row, const char *text, rp_arena *arena, void *options,
                             rp_reason *reason)
{
    (void)arena;
    return rp_option_tokens(row->name, text, &((rpsim_options *)options)->setup.tokens, reason);
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

/* A member of a structure that begins `base` bytes into rpsim_options. */
#define AT(base, type, member)                                                                     \
    {                                                                                              \
        (base) + offsetof(type, member), sizeof(((type *)0)->member)                               \
    }
#define RUN_AT (offsetof(rpsim_options, setup) + offsetof(rpsim_setup, run))
#define SETUP_AT offsetof(rpsim_options, setup)
#define TO_SETUP(member) .to = AT(SETUP_AT, rpsim_setup, member)
/* The record of a run has what came of it (record.c). */
#define RECORDED .own_setting = true

static const rp_option rows[] = {
#define OPTION(members, ...) {__VA_ARGS__},
#define TO(member) .to = AT(SETUP_AT, rpsim_setup, member)
#define COUNT(member) .count = AT(SETUP_AT, rpsim_setup, member)
#define GIVEN(member) .given = AT(SETUP_AT, rpsim_setup, member)
#define WRITE(function) .own_setting = true
#include "sim/study/setup_rows.inc"
#undef TO
#undef COUNT
#undef GIVEN
#define TO(member) .to = AT(RUN_AT, rp_run, member)
#define GIVEN(member) .given = AT(RUN_AT, rp_run, member)
#include "common/run/run_rows.inc"
#undef TO
#undef GIVEN
#define TO(member) .to = RP_OPTION_MEMBER(rpsim_options, member)
#define COUNT(member) .count = RP_OPTION_MEMBER(rpsim_options, member)
#define GIVEN(member) .given = RP_OPTION_MEMBER(rpsim_options, member)
#define OPTION_OF_SETUP(...) {__VA_ARGS__},
#include "sim/rpsim/options_rows.inc"
#undef OPTION
#undef OPTION_OF_SETUP
};

/* ---- combinations ---------------------------------------------------------------------------- */

static const rpsim_setup *setup_of(const void *options)
{
    return &((const rpsim_options *)options)->setup;
}

static const rp_run *run_of(const void *options)
{
    return &setup_of(options)->run;
}

static bool at_stage(const void *options)
{
    return !run_of(options)->hardware;
}

static bool has_no_groups(const void *options)
{
    const rp_run *run = run_of(options);
    return run->tensor_parallel < 2 && run->data_parallel < 2;
}

static bool draws_at_stage(const void *options)
{
    return at_stage(options) && setup_of(options)->intervals != 0;
}

static bool has_no_single_source(const void *options)
{
    const rpsim_setup *o = setup_of(options);
    return (o->program_in != NULL) + (o->schedule_count != 0) + (o->torch_csv_in != NULL) != 1;
}

static bool has_models(const void *options)
{
    return setup_of(options)->model_count > 1;
}

static const char *models_of(const void *options)
{
    static _Thread_local char count[16];
    (void)snprintf(count, sizeof count, "%u", setup_of(options)->model_count);
    return count;
}

static bool is_uneven(const void *options)
{
    const char *partition = run_of(options)->partition;
    return partition != NULL && strcmp(partition, "even") != 0;
}

static bool is_tuned(const void *options)
{
    return rp_run_is_tuned(run_of(options));
}

static bool is_not_tuned(const void *options)
{
    return !rp_run_is_tuned(run_of(options));
}

static bool prints_kv(const void *options)
{
    return ((const rpsim_options *)options)->format == RPSIM_FORMAT_KV;
}

static bool prints_kv_of_hardware(const void *options)
{
    return prints_kv(options) && !at_stage(options);
}

static bool prints_markdown(const void *options)
{
    return ((const rpsim_options *)options)->format == RPSIM_FORMAT_MD;
}

static bool prints_lines(const void *options)
{
    return prints_kv(options) || ((const rpsim_options *)options)->format == RPSIM_FORMAT_CSV;
}

static bool has_a_length(const void *options)
{
    const rp_run *run = run_of(options);
    return !run->hardware || setup_of(options)->program_in != NULL || run->seq_len != 0;
}

static bool reduces_half(const void *options)
{
    return run_of(options)->reduce_dtype == RP_DTYPE_F16;
}

static const char *partition_of(const void *options)
{
    return run_of(options)->partition;
}

static bool has_a_plan(const void *options)
{
    return strcmp(partition_of(options), "paper") == 0 ||
           strcmp(partition_of(options), "auto") == 0;
}

static bool has_sidecar(const void *options)
{
    return setup_of(options)->torch_sidecar != NULL;
}

static bool is_not_lowered(const void *options)
{
    return !((const rpsim_options *)options)->torch_lowered;
}

static bool adds_up_half(const void *options)
{
    const rp_run *run = run_of(options);
    return run->accumulation == RP_ACCUMULATION_F16 && run->dtype_given &&
           run->dtype != RP_DTYPE_F16;
}

static const char *dtype_of(const void *options)
{
    return rp_dtype_text(run_of(options)->dtype);
}

static const rp_option_rule rules[] = {
    {.when = has_no_single_source,
     .message = "--schedule: give either --schedule or --program-in or --torch-csv-in; valid is "
                "--schedule NAME[,NAME…]|all (rpsim --list schedules), for example: rpsim "
                "--schedule roundpipe --gpus 8"},
    {.given = "program-in",
     .with_mark = RP_RUN_OF_PROGRAM,
     .message = "the program fixes GPUs, microbatches, partition, stages, recompute, iterations, "
                "optimizer and round; valid beside it are --model, --platform, --costs and "
                "outputs"},
    {.given = "costs",
     .when = has_models,
     .subject = models_of,
     .message = "one table does not fit @ models; valid is one --model"},
    {.given = "stages", .when = is_uneven, .message = "valid only with --partition even"},
    {.given_mark = RP_RUN_HARDWARE,
     .when = at_stage,
     .message = "valid only with --fidelity hardware"},
    {.given = "format",
     .when = prints_kv_of_hardware,
     .message = "kv is the log of the paper's stage-level study; valid at hardware fidelity are "
                "table, json, csv"},
    {.given = "tune-budget", .when = is_not_tuned, .message = "valid only with --partition tuned"},
    {.given = "max-seqlen",
     .when = is_tuned,
     .message = "every length would need a search of its own; valid with it are --partition "
                "paper, even, auto and lists"},
    {.given = "intervals",
     .when = draws_at_stage,
     .message = "valid only with --fidelity hardware"},
    {.given = "replicas", .without = "jitter", .message = "valid only with --jitter CV"},
    {.given = "slow-gpu",
     .without = "jitter",
     .message = "valid only with --jitter CV, 0 without noise"},
    {.given = "format",
     .with = "jitter",
     .when = prints_kv,
     .message = "kv has no place for percentiles; valid with --jitter are table, json, csv"},
    {.given = "explain",
     .when = prints_lines,
     .message = "one line per run has no place for it; valid with it are --format table and json"},
    {.given = "usd-per-hour", .without = "tokens", .message = "valid only with --tokens"},
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
    {.given = "max-seqlen",
     .when = has_a_length,
     .message = "valid only with --schedule and --fidelity hardware, without --seq-len"},
    {.given = "collectives",
     .when = has_no_groups,
     .message = "valid only with --tensor-parallel or --data-parallel above 1"},
    {.given = "reduce-dtype", .when = reduces_half, .message = "valid values are fp32 and bf16"},
    {.given = "accumulation",
     .when = adds_up_half,
     .subject = dtype_of,
     .message = "products of @ add up in fp32; valid are fp32, and --dtype fp16"},
    {.given = "dtype",
     .with = "program-in",
     .message = "a program has its own type; valid without --program-in"},
    {.given = "lora-rank",
     .with = "program-in",
     .message = "a program has its own trained parameters; valid without --program-in"},
    {.given = "piece-mb",
     .with = "program-in",
     .message = "a program has its own pieces; valid without --program-in"},
    {.given = "torch-csv-in",
     .with_mark = RP_RUN_OF_CSV,
     .message = "the file fixes GPUs, microbatches, stages and their order; valid beside it are "
                "--partition, --recompute, --iterations, --optimizer, sizes of a microbatch, "
                "--model, --platform, --costs and outputs"},
    {.given = "partition",
     .with = "torch-csv-in",
     .when = has_a_plan,
     .subject = partition_of,
     .message = "'@' is not valid with --torch-csv-in; valid values are even and lists such as "
                "3,3,4"},
    {.given = "torch-sidecar",
     .without = "torch-csv-in torch-csv-out",
     .message = "valid only with --torch-csv-in F or --torch-csv-out F"},
    {.given = "allow-multi-rank-stages",
     .without = "torch-sidecar",
     .message = "valid only with --torch-sidecar F, which says which stages these are"},
    {.given_mark = RP_RUN_OF_SIDECAR,
     .with = "torch-csv-in",
     .when = has_sidecar,
     .message = "the side-car fixes partition and recompute; valid without --torch-sidecar"},
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

rp_status rpsim_options_parse(int argc, char **argv, rp_arena *arena, rpsim_options *options_out,
                              rp_reason *reason)
{
    rpsim_options *o = options_out;
    *o = (rpsim_options){.setup = RPSIM_SETUP_INIT};
    RP_TRY(rp_options_parse(&rpsim_command_line, argc, argv, arena, o, reason));
    if (o->common.request == RP_OPTIONS_RUN &&
        (o->action == RPSIM_ACTION_RUN || o->action == RPSIM_ACTION_CHECK)) {
        RP_TRY(rp_options_check(&rpsim_command_line, o, reason));
    }
    rpsim_setup_complete(&o->setup);
    o->setup.one_iteration = o->torch_csv_out != NULL;
    o->setup.hashes = o->db != NULL;
    o->setup.keep = o->trace_out != NULL || o->timeline_out != NULL || o->gantt_out != NULL ||
                    o->html_out != NULL || o->program_out != NULL || o->torch_csv_out != NULL ||
                    o->chakra_out != NULL || o->db_ops;
    return RP_OK;
}
