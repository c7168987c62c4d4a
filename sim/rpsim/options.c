#include "sim/rpsim/options_internal.h"

#include "common/base/log.h"
#include "common/base/text.h"
#include "common/cli/option_values.h"
#include "sim/rpsim/report/columns.h"
#include "sim/run/intervals.h"

#include <string.h>

bool rpsim_options_tuned(const rpsim_options *o)
{
    return o->partition != NULL && strcmp(o->partition, "tuned") == 0;
}

/* ---- values with rules of their own ------------------------------------------------------------
 */

static rp_status take_schedules(const rp_option *row, const char *text, rp_arena *arena,
                                void *options)
{
    rpsim_options *o = options;
    o->all_schedules = strcmp(text, "all") == 0;
    if (o->all_schedules) {
        RP_TRY(rp_arena_alloc(arena, rp_schedule_count, sizeof *o->schedules, &o->schedules));
        for (uint32_t i = 0; i < rp_schedule_count; i++) {
            o->schedules[i] = rp_schedules[i]->name;
        }
        o->schedule_count = rp_schedule_count;
        return RP_OK;
    }
    RP_TRY(rp_option_list(row->name, text, arena, &o->schedules, &o->schedule_count));
    for (uint32_t i = 0; i < o->schedule_count; i++) {
        const rp_schedule_type *schedule = NULL;
        RP_TRY(rp_schedule_require("--schedule", o->schedules[i], true, &schedule));
        for (uint32_t k = 0; k < i; k++) {
            if (strcmp(o->schedules[k], o->schedules[i]) == 0) {
                return rp_option_bad(row->name, text, "different schedules");
            }
        }
    }
    return RP_OK;
}

static rp_status take_recompute(const rp_option *row, const char *text, rp_arena *arena,
                                void *options)
{
    rpsim_options *o = options;
    if (strcmp(text, "all") == 0) {
        o->recomputes[0] = RP_RECOMPUTE_WAIT;
        o->recomputes[1] = RP_RECOMPUTE_EARLY;
        o->recompute_count = 2;
        return RP_OK;
    }
    const char **names = NULL;
    uint32_t count = 0;
    RP_TRY(rp_option_list(row->name, text, arena, &names, &count));
    o->recompute_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        rp_recompute recompute;
        if (i == RP_RECOMPUTE_COUNT || !rp_recompute_parse(names[i], &recompute)) {
            return rp_option_bad(row->name, text, row->valid);
        }
        for (uint32_t k = 0; k < i; k++) {
            if (o->recomputes[k] == recompute) {
                return rp_option_bad(row->name, text, row->valid);
            }
        }
        o->recomputes[o->recompute_count++] = recompute;
    }
    return RP_OK;
}

static rp_status take_changes(const rp_option *row, const char *text, rp_arena *arena,
                              void *options)
{
    return rp_changes_add(row->name, text, arena, &((rpsim_options *)options)->changes);
}

static rp_status take_gantt_iterations(const rp_option *row, const char *text, rp_arena *arena,
                                       void *options)
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
        return rp_option_bad(row->name, text, row->valid);
    }
    o->gantt_first = (uint32_t)numbers[0];
    o->gantt_last = (uint32_t)numbers[1];
    return RP_OK;
}

static rp_status take_columns(const rp_option *row, const char *text, rp_arena *arena,
                              void *options)
{
    rpsim_options *o = options;
    o->all_columns = strcmp(text, "all") == 0;
    o->column_count = 0;
    if (o->all_columns) {
        return RP_OK;
    }
    RP_TRY(rp_option_list(row->name, text, arena, &o->columns, &o->column_count));
    for (uint32_t i = 0; i < o->column_count; i++) {
        if (rpsim_column_find(o->columns[i]) == rpsim_column_count || i == RPSIM_MAX_FIELDS) {
            const char *nearest = rpsim_column_nearest(o->columns[i]);
            rp_log_error(
                "--%s: there is no column '%s'%s%s; valid are all and the keys of --format "
                "json",
                row->name, o->columns[i], nearest != NULL ? "; did you mean " : "",
                nearest != NULL ? nearest : "");
            return RP_USAGE;
        }
    }
    return RP_OK;
}

static rp_status take_intervals(const rp_option *row, const char *text, rp_arena *arena,
                                void *options)
{
    rpsim_options *o = options;
    uint64_t draws = 0;
    (void)arena;
    if (strcmp(text, "off") != 0 && !rp_option_count(text, 1000, 1, RPSIM_MAX_DRAWS, &draws)) {
        return rp_option_bad(row->name, text, row->valid);
    }
    o->intervals = (uint32_t)draws;
    o->intervals_given = true;
    return RP_OK;
}

/* Runs without them have no such key. */
static void write_intervals(const void *options, rp_json *json)
{
    const rpsim_options *o = options;
    if (o->intervals != 0) {
        rp_json_key(json, "intervals");
        rp_json_uint(json, o->intervals);
    }
}

static rp_status take_tokens(const rp_option *row, const char *text, rp_arena *arena, void *options)
{
    (void)arena;
    return rp_option_tokens(row->name, text, &((rpsim_options *)options)->tokens);
}

static rp_status take_accumulation(const rp_option *row, const char *text, rp_arena *arena,
                                   void *options)
{
    (void)arena;
    bool known = rp_accumulation_parse(text, &((rpsim_options *)options)->accumulation);
    return known ? RP_OK : rp_option_bad(row->name, text, row->valid);
}

static rp_status take_slow_gpu(const rp_option *row, const char *text, rp_arena *arena,
                               void *options)
{
    rpsim_options *o = options;
    (void)arena;
    return rp_option_factor(row->name, text, RP_MAX_GPUS, RPSIM_MAX_SLOW_FACTOR, &o->slow_gpu,
                            &o->slow_factor);
}

static void write_slow_gpu(const void *options, rp_json *json)
{
    const rpsim_options *o = options;
    rp_json_key(json, "slow_gpu");
    rp_json_uint(json, o->slow_gpu);
    rp_json_key(json, "slow_factor");
    rp_json_double(json, o->slow_factor);
}

static rp_status take_dialect(const rp_option *row, const char *text, rp_arena *arena,
                              void *options)
{
    rpsim_options *o = options;
    (void)arena;
    o->torch_legacy = strcmp(text, "legacy") == 0 || strcmp(text, "lowered-legacy") == 0;
    o->torch_lowering.waits = strcmp(text, "lowered-waits") == 0;
    o->torch_lowered = strncmp(text, "lowered", strlen("lowered")) == 0;
    bool known = o->torch_legacy || o->torch_lowering.waits || strcmp(text, "lowered") == 0 ||
                 strcmp(text, "compute-only") == 0;
    return known ? RP_OK : rp_option_bad(row->name, text, row->argument);
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

#define TO(member) .to = RP_OPTION_MEMBER(rpsim_options, member)
#define COUNT(member) .count = RP_OPTION_MEMBER(rpsim_options, member)
#define GIVEN(member) .given = RP_OPTION_MEMBER(rpsim_options, member)
/* The record of a run has what came of it (record.c). */
#define RECORDED .own_setting = true

static const rp_option rows[] = {
#define OPTION(members, ...) {__VA_ARGS__},
#include "sim/rpsim/options_rows.inc"
#undef OPTION
};

/* ---- combinations ---------------------------------------------------------------------------- */

static bool at_stage(const void *options)
{
    return !((const rpsim_options *)options)->hardware;
}

static bool has_no_groups(const void *options)
{
    const rpsim_options *o = options;
    return o->tensor_parallel < 2 && o->data_parallel < 2;
}

static bool draws_at_stage(const void *options)
{
    return at_stage(options) && ((const rpsim_options *)options)->intervals != 0;
}

static bool has_no_single_source(const void *options)
{
    const rpsim_options *o = options;
    return (o->program_in != NULL) + (o->schedule_count != 0) + (o->torch_csv_in != NULL) != 1;
}

static bool has_models(const void *options)
{
    const rpsim_options *o = options;
    if (o->model_count > 1) {
        rp_log_error("--costs: one table does not fit %u models; valid is one --model",
                     o->model_count);
    }
    return o->model_count > 1;
}

static bool is_uneven(const void *options)
{
    const rpsim_options *o = options;
    return o->partition != NULL && strcmp(o->partition, "even") != 0;
}

static bool is_tuned(const void *options)
{
    return rpsim_options_tuned(options);
}

static bool is_not_tuned(const void *options)
{
    return !rpsim_options_tuned(options);
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
    const rpsim_options *o = options;
    return !o->hardware || o->program_in != NULL || o->seq_len != 0;
}

static bool reduces_half(const void *options)
{
    return ((const rpsim_options *)options)->reduce_dtype == RP_DTYPE_F16;
}

static const char *partition_of(const void *options)
{
    return ((const rpsim_options *)options)->partition;
}

static bool has_a_plan(const void *options)
{
    return strcmp(partition_of(options), "paper") == 0 ||
           strcmp(partition_of(options), "auto") == 0;
}

static bool has_sidecar(const void *options)
{
    return ((const rpsim_options *)options)->torch_sidecar != NULL;
}

static bool is_not_lowered(const void *options)
{
    return !((const rpsim_options *)options)->torch_lowered;
}

static bool adds_up_half(const void *options)
{
    const rpsim_options *o = options;
    return o->accumulation == RP_ACCUMULATION_F16 && o->dtype_given && o->dtype != RP_DTYPE_F16;
}

static const char *dtype_of(const void *options)
{
    return rp_dtype_text(((const rpsim_options *)options)->dtype);
}

static const rp_option_rule rules[] = {
    {.when = has_no_single_source,
     .message = "--schedule: give either --schedule or --program-in or --torch-csv-in; valid is "
                "--schedule NAME[,NAME…]|all (rpsim --list schedules), for example: rpsim "
                "--schedule roundpipe --gpus 8"},
    {.given = "program-in",
     .with = "gpus microbatches partition stages recompute iterations optimizer round round-start "
             "config global-batch accumulate reduce-each reduce-dtype data-parallel "
             "tensor-parallel sequence-parallel expert-parallel expert-tensor-parallel zero "
             "bucket-mb axes collectives",
     .message = "the program fixes GPUs, microbatches, partition, stages, recompute, iterations, "
                "optimizer and round; valid beside it are --model, --platform, --costs and "
                "outputs"},
    {.given = "costs", .when = has_models},
    {.given = "stages", .when = is_uneven, .message = "valid only with --partition even"},
    {.given = "config global-batch accumulate",
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
    {.given = "grain piece-mb dtype accumulation nodes reduce-each reduce-dtype data-parallel "
              "tensor-parallel "
              "sequence-parallel expert-parallel expert-tensor-parallel zero bucket-mb axes "
              "collectives",
     .when = at_stage,
     .message = "valid only with --fidelity hardware"},
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
     .with = "gpus microbatches stages round round-start config accumulate data-parallel "
             "tensor-parallel sequence-parallel expert-parallel expert-tensor-parallel zero "
             "bucket-mb axes collectives",
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
    {.given = "partition recompute",
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

rp_status rpsim_options_parse(int argc, char **argv, rp_arena *arena, rpsim_options *options_out)
{
    rpsim_options *o = options_out;
    *o = (rpsim_options){.hardware = true, .dtype = RP_DTYPE_F16};
    RP_TRY(rp_options_parse(&rpsim_command_line, argc, argv, arena, o));
    if (o->common.request == RP_OPTIONS_RUN &&
        (o->action == RPSIM_ACTION_RUN || o->action == RPSIM_ACTION_CHECK)) {
        RP_TRY(rp_options_check(&rpsim_command_line, o));
    }
    if (o->hardware && !o->intervals_given) {
        o->intervals = RPSIM_DEFAULT_DRAWS;
    }
    if (o->jitter_given && o->replicas == 0) {
        o->replicas = RPSIM_DEFAULT_REPLICAS;
    }
    return RP_OK;
}
