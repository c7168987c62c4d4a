#include "sim/rpsim/options.h"

#include "common/base/log.h"
#include "common/base/text.h"
#include "common/cli/option_values.h"
#include "sim/rpsim/options_internal.h"
#include "sim/run/noise.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

RP_OPTION_TABLES(OPTION_LIST)

void rpsim_options_help(void)
{
    puts("Usage: rpsim --schedule NAME[,NAME…]|all [options]\n\n"
         "Simulates pipeline schedules on GPUs and compares them.\n\nOptions (default):");
    rp_option_print(option_helps, sizeof option_helps / sizeof option_helps[0]);
    puts("\nExit status: 0 success, 1 the run failed, 2 bad usage or bad input.\n"
         "Example: rpsim --schedule all --model llama3.1-8b --gpus 8 --gantt-out chart.svg");
}

bool rpsim_options_tuned(const rpsim_options *o)
{
    return o->partition != NULL && strcmp(o->partition, "tuned") == 0;
}

static rp_status take_schedules(rp_arena *arena, rpsim_options *o)
{
    o->all_schedules = strcmp(optarg, "all") == 0;
    if (o->all_schedules) {
        RP_TRY(rp_arena_alloc(arena, rp_schedule_count, sizeof *o->schedules, &o->schedules));
        for (uint32_t i = 0; i < rp_schedule_count; i++) {
            o->schedules[i] = rp_schedules[i]->name;
        }
        o->schedule_count = rp_schedule_count;
        return RP_OK;
    }
    RP_TRY(rp_option_list("schedule", optarg, arena, &o->schedules, &o->schedule_count));
    for (uint32_t i = 0; i < o->schedule_count; i++) {
        const rp_schedule_type *schedule = NULL;
        RP_TRY(rp_schedule_require("--schedule", o->schedules[i], true, &schedule));
        for (uint32_t k = 0; k < i; k++) {
            if (strcmp(o->schedules[k], o->schedules[i]) == 0) {
                return rp_option_bad("schedule", optarg, "different schedules");
            }
        }
    }
    return RP_OK;
}

static rp_status take_recompute(rp_arena *arena, rpsim_options *o)
{
    const char *valid = "none, wait, early, a list of these, or all (wait and early)";
    if (strcmp(optarg, "all") == 0) {
        o->recomputes[0] = RP_RECOMPUTE_WAIT;
        o->recomputes[1] = RP_RECOMPUTE_EARLY;
        o->recompute_count = 2;
        return RP_OK;
    }
    const char **names = NULL;
    uint32_t count = 0;
    RP_TRY(rp_option_list("recompute", optarg, arena, &names, &count));
    o->recompute_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        rp_recompute recompute;
        if (i == RP_RECOMPUTE_COUNT || !rp_recompute_parse(names[i], &recompute)) {
            return rp_option_bad("recompute", optarg, valid);
        }
        for (uint32_t k = 0; k < i; k++) {
            if (o->recomputes[k] == recompute) {
                return rp_option_bad("recompute", optarg, valid);
            }
        }
        o->recomputes[o->recompute_count++] = recompute;
    }
    return RP_OK;
}

static rp_status take_round(rpsim_options *o)
{
    o->round_given = true;
    if (strcmp(optarg, "all") == 0) {
        o->round = RP_ROUND_ALL;
        return RP_OK;
    }
    uint64_t value = 0;
    if (!rp_parse_u64(optarg, 1, RP_MAX_MICROBATCHES, &value)) {
        rp_log_error("--round: '%s' is not valid; valid values are all and integers from 1 to %u",
                     optarg, RP_MAX_MICROBATCHES);
        return RP_USAGE;
    }
    o->round = (uint32_t)value;
    return RP_OK;
}

static rp_status take_inputs(int option, rp_arena *arena, rpsim_options *o)
{
    switch (option) {
    case OPTION_SCHEDULE:
        return take_schedules(arena, o);
    case OPTION_MODEL:
        return rp_option_list("model", optarg, arena, &o->models, &o->model_count);
    case OPTION_PLATFORM:
        o->platform = optarg;
        return RP_OK;
    case OPTION_COSTS:
        o->costs = optarg;
        return RP_OK;
    case OPTION_SET:
        return rp_changes_add("set", optarg, arena, &o->changes);
    case OPTION_PARTITION:
        o->partition = optarg;
        return RP_OK;
    case OPTION_RECOMPUTE:
        return take_recompute(arena, o);
    case OPTION_ROUND:
        return take_round(o);
    case OPTION_PROGRAM_IN:
        o->program_in = optarg;
        return RP_OK;
    case OPTION_TORCH_CSV_IN:
        o->torch_csv_in = optarg;
        return RP_OK;
    default:
        return rp_broken();
    }
}

static rp_status take_number(int option, rpsim_options *o)
{
    switch (option) {
    case OPTION_GPUS:
        return rp_option_u32("gpus", optarg, RP_MAX_GPUS, &o->gpus);
    case OPTION_MICROBATCHES:
        return rp_option_u32("microbatches", optarg, RP_MAX_MICROBATCHES, &o->microbatches);
    case OPTION_MICROBATCH_SIZE:
        return rp_option_u32("microbatch-size", optarg, 1u << 20, &o->microbatch_size);
    case OPTION_SEQ_LEN:
        return rp_option_u32("seq-len", optarg, 1u << 30, &o->seq_len);
    case OPTION_STAGES:
        return rp_option_u32("stages", optarg, RP_MAX_STAGES, &o->stages);
    case OPTION_ITERATIONS:
        return rp_option_u32("iterations", optarg, RP_MAX_ITERATIONS, &o->iterations);
    case OPTION_GLOBAL_BATCH:
        return rp_option_u32("global-batch", optarg, 1u << 24, &o->global_batch);
    case OPTION_ACCUMULATE:
        return rp_option_u32("accumulate", optarg, RP_MAX_MICROBATCHES, &o->accumulate);
    case OPTION_PIECE_MB:
        return rp_option_u32("piece-mb", optarg, 65536, &o->piece_mb);
    case OPTION_TUNE_BUDGET:
        return rp_option_u32("tune-budget", optarg, RPSIM_MAX_TUNE_BUDGET, &o->tune_budget);
    case OPTION_REPLICAS:
        return rp_option_u32("replicas", optarg, RPSIM_MAX_REPLICAS, &o->replicas);
    case OPTION_JITTER:
        o->jitter_given = true;
        if (!rp_parse_double(optarg, 0, RPSIM_MAX_JITTER, &o->jitter)) {
            return rp_option_bad("jitter", optarg, "numbers from 0 to 2");
        }
        return RP_OK;
    case OPTION_SLOW_GPU:
        return rp_option_factor("slow-gpu", optarg, RP_MAX_GPUS, RPSIM_MAX_SLOW_FACTOR,
                                &o->slow_gpu, &o->slow_factor);
    case OPTION_SEED:
        if (!rp_parse_u64(optarg, 0, UINT64_MAX, &o->seed)) {
            return rp_option_bad("seed", optarg, "integers from 0 to 18446744073709551615");
        }
        return RP_OK;
    default:
        return rp_broken();
    }
}

static rp_status take_mode(int option, rpsim_options *o)
{
    uint32_t index = 0;
    switch (option) {
    case OPTION_FIDELITY:
        RP_TRY(rp_option_choice("fidelity", optarg, "stage|hardware", &index));
        o->hardware = index == 1;
        return RP_OK;
    case OPTION_CONFIG:
        o->config_paper = true;
        return rp_option_choice("config", optarg, "paper", &index);
    case OPTION_GRAIN:
        RP_TRY(rp_option_choice("grain", optarg, "stage|layer", &index));
        o->grain_given = true;
        o->layer_grain = index == 1;
        return RP_OK;
    case OPTION_OPTIMIZER:
        RP_TRY(rp_option_choice("optimizer", optarg, "sync|async", &index));
        o->optimizer_given = true;
        o->asynchronous = index == 1;
        return RP_OK;
    case OPTION_ROUND_START:
        RP_TRY(rp_option_choice("round-start", optarg, "free-first|rotate", &index));
        o->round_start_given = true;
        o->round_start = (rp_round_start)index;
        return RP_OK;
    case OPTION_FORMAT:
        RP_TRY(rp_option_choice("format", optarg, "table|json|csv|kv", &index));
        o->format = (rpsim_format)index;
        return RP_OK;
    case OPTION_TORCH_CSV_DIALECT:
        RP_TRY(rp_option_choice("torch-csv-dialect", optarg,
                                "compute-only|lowered|lowered-waits|legacy|lowered-legacy",
                                &index));
        o->torch_dialect_given = true;
        o->torch_lowered = index != 0 && index != 3;
        o->torch_legacy = index > 2;
        o->torch_lowering.waits = index == 2;
        return RP_OK;
    case OPTION_RECV_PLACEMENT:
        RP_TRY(rp_option_choice("recv-placement", optarg, "asap|just-in-time", &index));
        o->recv_placement_given = true;
        o->torch_lowering.receives = (rp_torch_receives)index;
        return RP_OK;
    case OPTION_LIST:
        RP_TRY(rp_option_choice("list", optarg, "schedules|models|platforms|costs", &index));
        o->action = RPSIM_ACTION_LIST;
        o->list = optarg;
        return RP_OK;
    default:
        return rp_broken();
    }
}

static void take_artefact(int option, rpsim_options *o)
{
    switch (option) {
    case OPTION_TRACE_OUT:
        o->trace_out = optarg;
        break;
    case OPTION_GANTT_OUT:
        o->gantt_out = optarg;
        break;
    case OPTION_PROGRAM_OUT:
        o->program_out = optarg;
        break;
    case OPTION_TIMELINE_OUT:
        o->timeline_out = optarg;
        break;
    case OPTION_TORCH_CSV_OUT:
        o->torch_csv_out = optarg;
        break;
    case OPTION_CHAKRA_OUT:
        o->chakra_out = optarg;
        break;
    case OPTION_TORCH_SIDECAR:
        o->torch_sidecar = optarg;
        break;
    case OPTION_ALLOW_MULTI_RANK_STAGES:
        o->multi_rank_stages = true;
        break;
    case OPTION_DB:
        o->db = optarg;
        break;
    case OPTION_EXPLAIN:
        o->explain = true;
        break;
    case OPTION_DB_OPS:
        o->db_ops = true;
        break;
    case OPTION_FLOWS:
        o->action = RPSIM_ACTION_FLOWS;
        o->flows = optarg;
        break;
    case OPTION_MAX_SEQLEN:
        o->max_seqlen = true;
        break;
    case OPTION_CHECK:
        o->action = RPSIM_ACTION_CHECK;
        break;
    case OPTION_HELP:
        o->action = RPSIM_ACTION_HELP;
        break;
    default: /* OPTION_VERSION */
        o->action = RPSIM_ACTION_VERSION;
        break;
    }
}

static rp_status take_option(int option, rp_arena *arena, rpsim_options *o)
{
    switch (option) {
    case OPTION_SCHEDULE:
    case OPTION_MODEL:
    case OPTION_PLATFORM:
    case OPTION_COSTS:
    case OPTION_SET:
    case OPTION_PARTITION:
    case OPTION_RECOMPUTE:
    case OPTION_ROUND:
    case OPTION_PROGRAM_IN:
    case OPTION_TORCH_CSV_IN:
        return take_inputs(option, arena, o);
    case OPTION_GPUS:
    case OPTION_MICROBATCHES:
    case OPTION_MICROBATCH_SIZE:
    case OPTION_SEQ_LEN:
    case OPTION_STAGES:
    case OPTION_ITERATIONS:
    case OPTION_GLOBAL_BATCH:
    case OPTION_ACCUMULATE:
    case OPTION_SEED:
    case OPTION_JITTER:
    case OPTION_REPLICAS:
    case OPTION_SLOW_GPU:
    case OPTION_PIECE_MB:
    case OPTION_TUNE_BUDGET:
        return take_number(option, o);
    case OPTION_FIDELITY:
    case OPTION_CONFIG:
    case OPTION_GRAIN:
    case OPTION_OPTIMIZER:
    case OPTION_ROUND_START:
    case OPTION_FORMAT:
    case OPTION_TORCH_CSV_DIALECT:
    case OPTION_RECV_PLACEMENT:
    case OPTION_LIST:
        return take_mode(option, o);
    default:
        take_artefact(option, o);
        return RP_OK;
    }
}

static rp_status check_memory(const rpsim_options *o)
{
    if (o->max_seqlen && (!o->hardware || o->program_in != NULL || o->seq_len != 0)) {
        rp_log_error("--max-seqlen: valid only with --schedule and --fidelity hardware, without "
                     "--seq-len");
        return RP_USAGE;
    }
    if ((o->grain_given || o->piece_mb != 0) && !o->hardware) {
        rp_log_error("%s: valid only with --fidelity hardware",
                     o->grain_given ? "--grain" : "--piece-mb");
        return RP_USAGE;
    }
    if (o->piece_mb != 0 && o->program_in != NULL) {
        rp_log_error("--piece-mb: a program has its own pieces; valid without --program-in");
        return RP_USAGE;
    }
    return RP_OK;
}

static rp_status check_torch(const rpsim_options *o)
{
    bool shaped = o->gpus != 0 || o->microbatches != 0 || o->stages != 0 || o->round_given ||
                  o->round_start_given || o->config_paper || o->accumulate != 0;
    if (o->torch_csv_in != NULL && shaped) {
        rp_log_error("--torch-csv-in: the file fixes GPUs, microbatches, stages and their order; "
                     "valid beside it are --partition, --recompute, --iterations, --optimizer, "
                     "sizes of a microbatch, --model, --platform, --costs and outputs");
        return RP_USAGE;
    }
    bool planned = o->partition != NULL &&
                   (strcmp(o->partition, "paper") == 0 || strcmp(o->partition, "auto") == 0);
    if (o->torch_csv_in != NULL && planned) {
        rp_log_error("--partition: '%s' is not valid with --torch-csv-in; valid values are even "
                     "and lists such as 3,3,4",
                     o->partition);
        return RP_USAGE;
    }
    if (o->torch_sidecar != NULL && o->torch_csv_in == NULL && o->torch_csv_out == NULL) {
        rp_log_error("--torch-sidecar: valid only with --torch-csv-in F or --torch-csv-out F");
        return RP_USAGE;
    }
    if (o->multi_rank_stages && o->torch_sidecar == NULL) {
        rp_log_error("--allow-multi-rank-stages: valid only with --torch-sidecar F, which says "
                     "which stages these are");
        return RP_USAGE;
    }
    bool fixed = o->torch_csv_in != NULL && o->torch_sidecar != NULL;
    if (fixed && (o->partition != NULL || o->recompute_count != 0)) {
        rp_log_error("%s: the side-car fixes partition and recompute; valid without "
                     "--torch-sidecar",
                     o->partition != NULL ? "--partition" : "--recompute");
        return RP_USAGE;
    }
    if (o->torch_dialect_given && o->torch_csv_out == NULL) {
        rp_log_error("--torch-csv-dialect: valid only with --torch-csv-out F");
        return RP_USAGE;
    }
    if (o->recv_placement_given && !o->torch_lowered) {
        rp_log_error(
            "--recv-placement: only lowered files have receives; valid only with "
            "--torch-csv-out F and --torch-csv-dialect lowered, lowered-waits or lowered-legacy");
        return RP_USAGE;
    }
    return RP_OK;
}

/* Options that contradict each other. */
static rp_status check_combination(const rpsim_options *o)
{
    if (o->action != RPSIM_ACTION_RUN && o->action != RPSIM_ACTION_CHECK) {
        return RP_OK;
    }
    int sources = (o->program_in != NULL) + (o->schedule_count != 0) + (o->torch_csv_in != NULL);
    if (sources != 1) {
        rp_log_error("--schedule: give either --schedule or --program-in or --torch-csv-in; valid "
                     "is --schedule NAME[,NAME…]|all (rpsim --list schedules)");
        return RP_USAGE;
    }
    bool shaped = o->gpus != 0 || o->microbatches != 0 || o->partition != NULL || o->stages != 0 ||
                  o->recompute_count != 0 || o->iterations != 0 || o->optimizer_given ||
                  o->round_given || o->round_start_given || o->config_paper ||
                  o->global_batch != 0 || o->accumulate != 0;
    if (o->program_in != NULL && shaped) {
        rp_log_error(
            "--program-in: the program fixes GPUs, microbatches, partition, stages, "
            "recompute, iterations, optimizer and round; valid beside it are --model, --platform, "
            "--costs and outputs");
        return RP_USAGE;
    }
    if (o->costs != NULL && o->model_count > 1) {
        rp_log_error("--costs: one table does not fit %u models; valid is one --model",
                     o->model_count);
        return RP_USAGE;
    }
    if (o->stages != 0 && o->partition != NULL && strcmp(o->partition, "even") != 0) {
        rp_log_error("--stages: valid only with --partition even");
        return RP_USAGE;
    }
    if (!o->hardware && (o->config_paper || o->global_batch != 0 || o->accumulate != 0)) {
        rp_log_error("%s: valid only with --fidelity hardware", o->config_paper ? "--config"
                                                                : o->global_batch != 0
                                                                    ? "--global-batch"
                                                                    : "--accumulate");
        return RP_USAGE;
    }
    if (o->hardware && o->format == RPSIM_FORMAT_KV) {
        rp_log_error("--format: kv is the log of the paper's stage-level study; valid at hardware "
                     "fidelity are table, json, csv");
        return RP_USAGE;
    }
    if (o->tune_budget != 0 && !rpsim_options_tuned(o)) {
        rp_log_error("--tune-budget: valid only with --partition tuned");
        return RP_USAGE;
    }
    if (o->max_seqlen && rpsim_options_tuned(o)) {
        rp_log_error("--max-seqlen: every length would need a search of its own; valid with it are "
                     "--partition paper, even, auto and lists");
        return RP_USAGE;
    }
    if (o->replicas != 0 && !o->jitter_given) {
        rp_log_error("--replicas: valid only with --jitter CV");
        return RP_USAGE;
    }
    if (o->slow_factor != 0 && !o->jitter_given) {
        rp_log_error("--slow-gpu: valid only with --jitter CV, 0 without noise");
        return RP_USAGE;
    }
    if (o->jitter_given && o->format == RPSIM_FORMAT_KV) {
        rp_log_error("--format: kv has no place for percentiles; valid with --jitter are table, "
                     "json, csv");
        return RP_USAGE;
    }
    if (o->explain && (o->format == RPSIM_FORMAT_CSV || o->format == RPSIM_FORMAT_KV)) {
        rp_log_error("--explain: one line per run has no place for it; valid with it are --format "
                     "table and json");
        return RP_USAGE;
    }
    if (o->db_ops && o->db == NULL) {
        rp_log_error("--db-ops: valid only with --db F");
        return RP_USAGE;
    }
    return RP_OK;
}

rp_status rpsim_options_parse(int argc, char **argv, rp_arena *arena, rpsim_options *options_out)
{
    *options_out = (rpsim_options){.hardware = true};
    optind = 0; /* GNU: start anew, also when called again in the same process */
    opterr = 0;
    for (;;) {
        int option = getopt_long(argc, argv, "+:", long_options, NULL);
        if (option == -1) {
            break;
        }
        if (option == '?' || option == ':') {
            return rp_option_unknown("rpsim", argv[optind - 1], option, long_options);
        }
        RP_TRY(take_option(option, arena, options_out));
    }
    if (optind < argc) {
        rp_log_error("'%s': valid are options only; see rpsim --help", argv[optind]);
        return RP_USAGE;
    }
    RP_TRY(check_combination(options_out));
    RP_TRY(check_memory(options_out));
    RP_TRY(check_torch(options_out));
    if (options_out->jitter_given && options_out->replicas == 0) {
        options_out->replicas = RPSIM_DEFAULT_REPLICAS;
    }
    return RP_OK;
}
