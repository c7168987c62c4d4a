#include "sim/rpsim/options_internal.h"

#include "common/base/log.h"
#include "common/base/text.h"
#include "common/cli/option_values.h"
#include "sim/run/noise.h"

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
    bool known = (o->torch_legacy || o->torch_lowering.waits || strcmp(text, "lowered") == 0 ||
                  strcmp(text, "compute-only") == 0);
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
    {"schedule", "NAME[,NAME…]|all", WORK, RP_OPTION_TAKE, .take = take_schedules,
     .names = "schedules", RECORDED, .help = "what to simulate; several give a comparison"},
    {"gpus", "N", WORK, RP_OPTION_U32, TO(gpus), .most = RP_MAX_GPUS, RECORDED,
     .help = "GPUs (the platform's)"},
    {"microbatches", "M", WORK, RP_OPTION_U32, TO(microbatches), .most = RP_MAX_MICROBATCHES,
     RECORDED, .help = "microbatches per iteration (2 N)"},
    {"microbatch-size", "B", WORK, RP_OPTION_U32, TO(microbatch_size), .most = 1u << 20, RECORDED,
     .help = "sequences per microbatch (the cost table's)"},
    {"seq-len", "S", WORK, RP_OPTION_U32, TO(seq_len), .most = 1u << 30, RECORDED,
     .help = "tokens per sequence (the cost table's)"},
    {"global-batch", "B", WORK, RP_OPTION_U32, TO(global_batch), .most = 1u << 24, RECORDED,
     .help = "sequences per optimizer step (hardware; calls x microbatches x microbatch size)"},
    {"accumulate", "A", WORK, RP_OPTION_U32, TO(accumulate), .most = RP_MAX_MICROBATCHES, RECORDED,
     .help = "calls that a step is split into, each of --microbatches (hardware; 1)"},
    {"iterations", "I", WORK, RP_OPTION_U32, TO(iterations), .most = RP_MAX_ITERATIONS, RECORDED,
     .help = "iterations (hardware: 16, and 1 with --torch-csv-out; stage: 1, and 16 with "
             "--optimizer async)"},
    {"max-seqlen", NULL, WORK, RP_OPTION_FLAG, TO(max_seqlen), RECORDED,
     .help = "the longest sequence that fits, in steps of 1024 tokens, and a run of it (hardware)"},

    {"model", "NAME|FILE[,…]", INPUTS, RP_OPTION_LIST, TO(models), COUNT(model_count),
     .names = "models", RECORDED, .help = "models (qwen3-1.7b)"},
    {"platform", "NAME|FILE", INPUTS, RP_OPTION_TEXT, TO(platform), .names = "platforms", RECORDED,
     .help = "server (rtx4090x8)"},
    {"costs", "NAME|FILE", INPUTS, RP_OPTION_TEXT, TO(costs), .names = "costs", RECORDED,
     .help = "cost table (MODEL@GPU)"},
    {"set", "CHANGE[,…]", INPUTS, RP_OPTION_TAKE, .take = take_changes, .repeats = true, RECORDED,
     .help = "what if the cost table or the platform said otherwise: costs.KEY=N, "
             "costs.KEY*FACTOR, platform.KEY=N, platform.KEY*FACTOR with the keys of their files; "
             "may be repeated"},
    {"config", NULL, INPUTS, RP_OPTION_CHOICE, .choices = "paper", GIVEN(config_paper), RECORDED,
     .help = "batch, calls and optimizer of the published runs (hardware); partition auto for "
             "roundpipe"},
    {"program-in", "F", INPUTS, RP_OPTION_TEXT, TO(program_in), RECORDED,
     .help = "run this program instead of a schedule's"},
    {"torch-csv-in", "F", INPUTS, RP_OPTION_TEXT, TO(torch_csv_in), RECORDED,
     .help = "run the orders of this schedule CSV of PyTorch's pipelining, in any of its dialects"},

    {"jitter", "CV", NOISE, RP_OPTION_REAL, TO(jitter), .most = RPSIM_MAX_JITTER,
     GIVEN(jitter_given), .key = "jitter_cv",
     .help = "Monte Carlo: compute times vary, log-normal with mean 1 and this coefficient of "
             "variation (0 to 2): 5th, 50th and 95th percentile of the iteration time, and how "
             "often each run beats each other"},
    {"replicas", "R", NOISE, RP_OPTION_U32, TO(replicas), .most = RPSIM_MAX_REPLICAS,
     .help = "runs per schedule with --jitter (100)"},
    {"slow-gpu", "G*FACTOR", NOISE, RP_OPTION_TAKE, .take = take_slow_gpu, .write = write_slow_gpu,
     .help = "in the runs of --jitter, whose CV may be 0, compute of GPU G takes FACTOR (1 to 100) "
             "times as long; the schedule does not know"},
    {"seed", "K", NOISE, RP_OPTION_U64, TO(seed), RECORDED,
     .help = "of --jitter and --partition tuned, stored with every run (0); nothing else is "
             "random"},

    {"fidelity", NULL, SCHEDULE, RP_OPTION_CHOICE, TO(hardware), .choices = "stage|hardware",
     RECORDED,
     .help = "stage: per-layer times and one fixed hop; hardware: links, transfers and host "
             "(default)"},
    {"partition", "P|paper|even|auto|tuned", SCHEDULE, RP_OPTION_TEXT, TO(partition), RECORDED,
     .help = "layers per stage: 3,3,4,… or fwd…|bwd… (paper where it is listed, otherwise even); "
             "auto: RoundPipe's planner (rpplan) for roundpipe, within 0.6 of the GPU memory; even "
             "for the other schedules, which it knows nothing of; tuned: the best that a search "
             "finds, never worse than these"},
    {"stages", "S", SCHEDULE, RP_OPTION_U32, TO(stages), .most = RP_MAX_STAGES, RECORDED,
     .help = "stages of an even partition (as many as GPUs, or near the layers)"},
    {"tune-budget", "E", SCHEDULE, RP_OPTION_U32, TO(tune_budget), .most = RPSIM_MAX_TUNE_BUDGET,
     RECORDED,
     .help = "simulations that --partition tuned may run (as many as take some seconds; at most "
             "200000)"},
    {"recompute", "none|wait|early|all", SCHEDULE, RP_OPTION_TAKE, .take = take_recompute,
     .valid = "none, wait, early, a list of these, or all (wait and early)", RECORDED,
     .help = "when a recompute may run (as published; wait and early for --schedule all)"},
    {"grain", NULL, SCHEDULE, RP_OPTION_CHOICE, TO(layer_grain), .choices = "stage|layer",
     GIVEN(grain_given), RECORDED,
     .help = "recompute a stage at a time, or layer by layer from saved inputs of each (stage; "
             "data-parallel systems: layer)"},
    {"round", "R|all", SCHEDULE, RP_OPTION_U32, TO(round), .most = RP_MAX_MICROBATCHES, .all = true,
     GIVEN(round_given), RECORDED,
     .help = "microbatches per RoundPipe round (stage: N; hardware: all)"},
    {"round-start", NULL, SCHEDULE, RP_OPTION_CHOICE, TO(round_start),
     .choices = "free-first|rotate", GIVEN(round_start_given), RECORDED,
     .help = "GPU that begins a round (stage: free-first; rotate with --round all and at hardware "
             "fidelity)"},
    {"optimizer", NULL, SCHEDULE, RP_OPTION_CHOICE, TO(asynchronous), .choices = "sync|async",
     GIVEN(optimizer_given), RECORDED, .help = "barrier between iterations or none (sync)"},
    {"piece-mb", "M", SCHEDULE, RP_OPTION_U32, TO(piece_mb), .most = 65536,
     .help = "largest piece of a parameter upload in MiB (hardware; 256, as RoundPipe's library "
             "has them; rpexec: 32)"},

    {"format", NULL, OUTPUT, RP_OPTION_CHOICE, TO(format), .choices = "table|json|csv|kv",
     .help = "output on stdout (table)"},
    {"explain", NULL, OUTPUT, RP_OPTION_FLAG, TO(explain),
     .help = "after the table: where the GPUs' time goes, the first cause of waiting, the critical "
             "path and what would help most; with json the key explain"},
    {"trace-out", "F", OUTPUT, RP_OPTION_TEXT, TO(trace_out), .help = "Chrome/Perfetto trace"},
    {"gantt-out", "F", OUTPUT, RP_OPTION_TEXT, TO(gantt_out),
     .help = "Gantt chart: .svg, .png or .pdf"},
    {"timeline-out", "F", OUTPUT, RP_OPTION_TEXT, TO(timeline_out),
     .help = "start and end of every op as CSV, for rpdiff"},
    {"program-out", "F", OUTPUT, RP_OPTION_TEXT, TO(program_out),
     .help = "the program in text form"},
    {"db", "F", OUTPUT, RP_OPTION_TEXT, TO(db), .help = "add the runs to this SQLite store"},
    {"db-ops", NULL, OUTPUT, RP_OPTION_FLAG, TO(db_ops),
     .help = "with --db: every op of the timeline, too"},

    {"torch-csv-out", "F", EXCHANGE, RP_OPTION_TEXT, TO(torch_csv_out),
     .help = "the order of each GPU's forwards and backwards as a schedule CSV of PyTorch's "
             "pipelining"},
    {"torch-csv-dialect", "compute-only|lowered|lowered-waits|legacy|lowered-legacy", EXCHANGE,
     RP_OPTION_TAKE, .take = take_dialect,
     .help = "of --torch-csv-out: computations alone; with transfers and FSDP's actions; with "
             "PyTorch 2.15's waits besides; the first two as of 2024, B and BW for I and B "
             "(compute-only)"},
    {"recv-placement", NULL, EXCHANGE, RP_OPTION_CHOICE, TO(torch_lowering.receives),
     .choices = "asap|just-in-time",
     .help = "receives of a lowered CSV: where the send is issued, or before their use (asap)"},
    {"torch-sidecar", "F", EXCHANGE, RP_OPTION_TEXT, TO(torch_sidecar),
     .help = "JSON beside a schedule CSV with what that cannot say (schedule, layers of each "
             "stage, recompute): read with --torch-csv-in, otherwise written with --torch-csv-out"},
    {"allow-multi-rank-stages", NULL, EXCHANGE, RP_OPTION_FLAG, TO(multi_rank_stages),
     .help = "with these: stages may run on several ranks and have backward stages apart "
             "(RoundPipe)"},
    {"chakra-out", "PREFIX", EXCHANGE, RP_OPTION_TEXT, TO(chakra_out),
     .help = "the run as Chakra execution traces, PREFIX.RANK.et (rpimport --chakra runs them)"},

    {"list", NULL, OTHER, RP_OPTION_TEXT, TO(list), .choices = "schedules|models|platforms|costs",
     GIVEN(action), .means = RPSIM_ACTION_LIST, .help = "what there is"},
    {"flows", "FILE|-", OTHER, RP_OPTION_TEXT, TO(flows), GIVEN(action),
     .means = RPSIM_ACTION_FLOWS,
     .help = "when each flow of a JSON file of links and flows ends (max-min fair sharing)"},
    {"check", NULL, OTHER, RP_OPTION_FLAG, TO(action), .means = RPSIM_ACTION_CHECK,
     .help = "validate only"},
};

/* ---- combinations ---------------------------------------------------------------------------- */

static bool at_stage(const void *options)
{
    return !((const rpsim_options *)options)->hardware;
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

static bool prints_lines(const void *options)
{
    return prints_kv(options) || ((const rpsim_options *)options)->format == RPSIM_FORMAT_CSV;
}

static bool has_a_length(const void *options)
{
    const rpsim_options *o = options;
    return !o->hardware || o->program_in != NULL || o->seq_len != 0;
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

static const rp_option_rule rules[] = {
    {.when = has_no_single_source,
     .message = "--schedule: give either --schedule or --program-in or --torch-csv-in; valid is "
                "--schedule NAME[,NAME…]|all (rpsim --list schedules)"},
    {.given = "program-in",
     .with = "gpus microbatches partition stages recompute iterations optimizer round round-start "
             "config global-batch accumulate",
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
    {.given = "db-ops", .without = "db", .message = "valid only with --db F"},
    {.given = "max-seqlen",
     .when = has_a_length,
     .message = "valid only with --schedule and --fidelity hardware, without --seq-len"},
    {.given = "grain piece-mb", .when = at_stage, .message = "valid only with --fidelity hardware"},
    {.given = "piece-mb",
     .with = "program-in",
     .message = "a program has its own pieces; valid without --program-in"},
    {.given = "torch-csv-in",
     .with = "gpus microbatches stages round round-start config accumulate",
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
    .example = "rpsim --schedule all --model llama3.1-8b --gpus 8 --gantt-out chart.svg",
    RP_OPTION_TABLES(groups, rows, rules),
};

rp_status rpsim_options_parse(int argc, char **argv, rp_arena *arena, rpsim_options *options_out)
{
    rpsim_options *o = options_out;
    *o = (rpsim_options){.hardware = true};
    RP_TRY(rp_options_parse(&rpsim_command_line, argc, argv, arena, o));
    if (o->common.request == RP_OPTIONS_RUN &&
        (o->action == RPSIM_ACTION_RUN || o->action == RPSIM_ACTION_CHECK)) {
        RP_TRY(rp_options_check(&rpsim_command_line, o));
    }
    if (o->jitter_given && o->replicas == 0) {
        o->replicas = RPSIM_DEFAULT_REPLICAS;
    }
    return RP_OK;
}
