#include "sim/study/setup.h"

#include "common/base/text.h"
#include "common/cli/option_values.h"
#include "sim/run/intervals.h"
#include "sim/study/columns.h"

#include <stdio.h>
#include <string.h>

/* ---- values with rules of their own ---------------------------------------------------------- */

rp_status rpsim_take_schedules(const rp_option *row, const char *text, rp_arena *arena, void *setup,
                               rp_reason *reason)
{
    rpsim_setup *o = setup;
    o->all_schedules = strcmp(text, "all") == 0;
    if (o->all_schedules) {
        RP_TRY(rp_arena_alloc(arena, rp_schedule_count, sizeof *o->schedules, &o->schedules));
        for (uint32_t i = 0; i < rp_schedule_count; i++) {
            o->schedules[i] = rp_schedules[i];
        }
        o->schedule_count = rp_schedule_count;
        return RP_OK;
    }
    const char **names = NULL;
    RP_TRY(rp_option_list(row->name, text, arena, &names, &o->schedule_count, reason));
    RP_TRY(rp_arena_alloc(arena, o->schedule_count, sizeof *o->schedules, &o->schedules));
    for (uint32_t i = 0; i < o->schedule_count; i++) {
        RP_TRY(rp_schedule_require(rp_log_spell("{schedule}").text, names[i], true,
                                   &o->schedules[i], reason));
        for (uint32_t k = 0; k < i; k++) {
            if (o->schedules[k] == o->schedules[i]) {
                return rp_option_bad(row->name, text, "different schedules", reason);
            }
        }
    }
    return RP_OK;
}

rp_status rpsim_text_schedules(const rp_option *row, const void *object, rp_arena *arena,
                               const char **text_out)
{
    (void)row;
    const rpsim_setup *o = object;
    *text_out = o->all_schedules ? "all" : NULL;
    for (uint32_t i = 0; i < o->schedule_count && !o->all_schedules; i++) {
        RP_TRY(rp_arena_print(arena, text_out, "%s%s%s", i != 0 ? *text_out : "", i != 0 ? "," : "",
                              o->schedules[i]->name));
    }
    return RP_OK;
}

rp_status rpsim_take_changes(const rp_option *row, const char *text, rp_arena *arena, void *setup,
                             rp_reason *reason)
{
    rpsim_setup *o = setup;
    return rp_changes_add(row->name, text, arena, &o->changes, reason);
}

rp_status rpsim_text_changes(const rp_option *row, const void *object, rp_arena *arena,
                             const char **text_out)
{
    (void)row;
    const rpsim_setup *o = object;
    return rpsim_setup_changes(o, arena, text_out);
}

rp_status rpsim_take_intervals(const rp_option *row, const char *text, rp_arena *arena, void *setup,
                               rp_reason *reason)
{
    rpsim_setup *o = setup;
    uint64_t draws = 0;
    (void)arena;
    if (strcmp(text, "off") != 0 && !rp_option_count(text, 1000, 1, RPSIM_MAX_DRAWS, &draws)) {
        return rp_option_bad(row->name, text, row->valid, reason);
    }
    o->intervals = (uint32_t)draws;
    o->intervals_given = true;
    return RP_OK;
}

rp_status rpsim_text_intervals(const rp_option *row, const void *object, rp_arena *arena,
                               const char **text_out)
{
    (void)row;
    const rpsim_setup *o = object;
    *text_out = o->intervals_given ? "off" : NULL;
    bool drawn = o->intervals_given && o->intervals != 0;
    return drawn ? rp_arena_print(arena, text_out, "%u", o->intervals) : RP_OK;
}

/* Writes the key only for runs with intervals. */
static void write_intervals(const void *object, rp_json *json)
{
    const rpsim_setup *o = object;
    if (o->intervals_given && o->intervals != 0) {
        rp_json_key(json, "intervals");
        rp_json_uint(json, o->intervals);
    }
}

rp_status rpsim_take_slow_gpu(const rp_option *row, const char *text, rp_arena *arena, void *setup,
                              rp_reason *reason)
{
    rpsim_setup *o = setup;
    (void)arena;
    return rp_option_factor(row->name, text, RP_MAX_GPUS, RPSIM_MAX_SLOW_FACTOR, &o->slow_gpu,
                            &o->slow_factor, reason);
}

rp_status rpsim_text_slow_gpu(const rp_option *row, const void *object, rp_arena *arena,
                              const char **text_out)
{
    (void)row;
    const rpsim_setup *o = object;
    return rp_arena_print(arena, text_out, "%u*%.17g", o->slow_gpu, o->slow_factor);
}

static void write_slow_gpu(const void *object, rp_json *json)
{
    const rpsim_setup *o = object;
    rp_json_key(json, "slow_gpu");
    rp_json_uint(json, o->slow_gpu);
    rp_json_key(json, "slow_factor");
    rp_json_double(json, o->slow_factor);
}

rp_status rpsim_take_columns(const rp_option *row, const char *text, rp_arena *arena, void *setup,
                             rp_reason *reason)
{
    rpsim_setup *o = setup;
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
                "{columns}: there is no column '%s'%s%s; valid are all and the keys of {format} "
                "json",
                o->columns[i], nearest != NULL ? "; did you mean " : "",
                nearest != NULL ? nearest : "");
        }
    }
    return RP_OK;
}

rp_status rpsim_text_columns(const rp_option *row, const void *object, rp_arena *arena,
                             const char **text_out)
{
    (void)row;
    const rpsim_setup *o = object;
    *text_out = o->all_columns ? "all" : NULL;
    for (uint32_t i = 0; i < o->column_count && !o->all_columns; i++) {
        RP_TRY(rp_arena_print(arena, text_out, "%s%s%s", i != 0 ? *text_out : "", i != 0 ? "," : "",
                              o->columns[i]));
    }
    return RP_OK;
}

rp_status rpsim_take_tokens(const rp_option *row, const char *text, rp_arena *arena, void *setup,
                            rp_reason *reason)
{
    (void)arena;
    return rp_option_tokens(row->name, text, &((rpsim_setup *)setup)->tokens, reason);
}

rp_status rpsim_text_tokens(const rp_option *row, const void *object, rp_arena *arena,
                            const char **text_out)
{
    (void)row;
    const rpsim_setup *o = object;
    *text_out = NULL;
    return o->tokens != 0 ? rp_arena_print(arena, text_out, "%.17g", o->tokens) : RP_OK;
}

/* ---- keys ------------------------------------------------------------------------------------ */

enum { WORK, INPUTS, SCHEDULE, NOISE, OUTPUT, EXCHANGE }; /* groups of the help, not used here */

#define WRITE(function) .write = (function)

static const rp_option rows[] = {
#define OPTION(members, ...) {__VA_ARGS__},
#define MORE(...) {__VA_ARGS__},
#define TO(member) .to = RP_OPTION_MEMBER(rpsim_setup, member)
#define COUNT(member) .count = RP_OPTION_MEMBER(rpsim_setup, member)
#define GIVEN(member) .given = RP_OPTION_MEMBER(rpsim_setup, member)
#include "sim/study/setup_rows.inc"
#undef TO
#undef COUNT
#undef GIVEN
#define TO(member) .to = RP_OPTION_MEMBER(rpsim_setup, run.member)
#define GIVEN(member) .given = RP_OPTION_MEMBER(rpsim_setup, run.member)
#include "common/run/run_rows.inc"
#undef TO
#undef GIVEN
#undef MORE
#undef OPTION
};

static const rp_run *run_of(const void *setup)
{
    return &((const rpsim_setup *)setup)->run;
}

static bool at_stage(const void *setup)
{
    return !run_of(setup)->hardware;
}

static bool has_no_groups(const void *setup)
{
    const rp_run *run = run_of(setup);
    return run->layout.tensor_parallel < 2 && run->layout.data_parallel < 2;
}

static bool draws_at_stage(const void *setup)
{
    return at_stage(setup) && ((const rpsim_setup *)setup)->intervals != 0;
}

static bool has_no_single_source(const void *setup)
{
    const rpsim_setup *o = setup;
    return (o->program_in != NULL) + (o->schedule_count != 0) + (o->torch_csv_in != NULL) != 1;
}

static bool has_models(const void *setup)
{
    return ((const rpsim_setup *)setup)->model_count > 1;
}

static const char *models_of(const void *setup)
{
    static _Thread_local char count[16];
    (void)snprintf(count, sizeof count, "%u", ((const rpsim_setup *)setup)->model_count);
    return count;
}

static bool is_uneven(const void *setup)
{
    const char *partition = run_of(setup)->partition;
    return partition != NULL && strcmp(partition, "even") != 0;
}

static bool is_tuned(const void *setup)
{
    return rp_run_is_tuned(run_of(setup));
}

static bool is_not_tuned(const void *setup)
{
    return !rp_run_is_tuned(run_of(setup));
}

static bool has_a_length(const void *setup)
{
    const rp_run *run = run_of(setup);
    return !run->hardware || ((const rpsim_setup *)setup)->program_in != NULL || run->seq_len != 0;
}

static bool reduces_half(const void *setup)
{
    return run_of(setup)->reductions.dtype == RP_DTYPE_F16;
}

static const char *partition_of(const void *setup)
{
    return run_of(setup)->partition;
}

static bool has_a_plan(const void *setup)
{
    return strcmp(partition_of(setup), "paper") == 0 || strcmp(partition_of(setup), "auto") == 0;
}

static bool has_sidecar(const void *setup)
{
    return ((const rpsim_setup *)setup)->torch_sidecar != NULL;
}

static bool adds_up_half(const void *setup)
{
    const rp_run *run = run_of(setup);
    return run->accumulation == RP_ACCUMULATION_F16 && run->dtype_given &&
           run->dtype != RP_DTYPE_F16;
}

static const char *dtype_of(const void *setup)
{
    return rp_dtype_text(run_of(setup)->dtype);
}

static const rp_option_rule rules[] = {
    {.when = has_no_single_source,
     .message = "{schedule}: give either {schedule} or {program_in} or {torch_csv_in}; valid is "
                "{schedule} NAME[,NAME…]|all (rpsim --list schedules), for example: "
                "rpsim --schedule roundpipe --gpus 8"},
    {.given = "program-in",
     .with_mark = RP_RUN_OF_PROGRAM,
     .message = "the program fixes GPUs, microbatches, partition, stages, recompute, iterations, "
                "optimizer, round and all that GPUs keep; valid beside it are {model}, {platform}, "
                "{costs} and outputs, and {stack}, {documents} and {compute}"},
    {.given = "costs",
     .when = has_models,
     .subject = models_of,
     .message = "one table does not fit @ models; valid is one {model}"},
    {.given = "stages", .when = is_uneven, .message = "valid only with {partition} even"},
    {.given_mark = RP_RUN_HARDWARE,
     .when = at_stage,
     .message = "valid only with {fidelity} hardware"},
    {.given = "tune-budget", .when = is_not_tuned, .message = "valid only with {partition} tuned"},
    {.given = "max-seqlen",
     .when = is_tuned,
     .message = "every length would need a search of its own; valid with it are {partition} "
                "paper, even, auto and lists"},
    {.given = "intervals",
     .when = draws_at_stage,
     .message = "valid only with {fidelity} hardware"},
    {.given = "replicas", .without = "jitter", .message = "valid only with {jitter} CV"},
    {.given = "slow-gpu",
     .without = "jitter",
     .message = "valid only with {jitter} CV, 0 without noise"},
    {.given = "usd-per-hour", .without = "tokens", .message = "valid only with {tokens}"},
    {.given = "watts", .without = "tokens", .message = "valid only with {tokens}"},
    {.given = "usd-per-kwh", .without = "watts", .message = "valid only with {watts}"},
    {.given = "max-seqlen",
     .when = has_a_length,
     .message = "valid only with {schedule} and {fidelity} hardware, without {seq_len}"},
    {.given = "collectives",
     .when = has_no_groups,
     .message = "valid only with {tensor_parallel} or {data_parallel} above 1"},
    {.given = "reduce-dtype", .when = reduces_half, .message = "valid values are fp32 and bf16"},
    {.given = "accumulation",
     .when = adds_up_half,
     .subject = dtype_of,
     .message = "products of @ add up in fp32; valid are fp32, and {dtype} fp16"},
    {.given = "dtype",
     .with = "program-in",
     .message = "a program has its own type; valid without {program_in}"},
    {.given = "lora-rank",
     .with = "program-in",
     .message = "a program has its own trained parameters; valid without {program_in}"},
    {.given = "piece-mb",
     .with = "program-in",
     .message = "a program has its own pieces; valid without {program_in}"},
    {.given = "torch-csv-in",
     .with_mark = RP_RUN_OF_CSV,
     .message = "the file fixes GPUs, microbatches, stages and their order; valid beside it are "
                "{partition}, {recompute}, {iterations}, {optimizer}, sizes of a microbatch, "
                "{model}, {platform}, {costs} and outputs"},
    {.given = "partition",
     .with = "torch-csv-in",
     .when = has_a_plan,
     .subject = partition_of,
     .message = "'@' is not valid with {torch_csv_in}; valid values are even and lists such as "
                "3,3,4"},
    {.given = "allow-multi-rank-stages",
     .without = "torch-sidecar",
     .message = "valid only with {torch_sidecar} F, which says which stages these are"},
    {.given_mark = RP_RUN_OF_SIDECAR,
     .with = "torch-csv-in",
     .when = has_sidecar,
     .message = "the side-car fixes partition and recompute; valid without {torch_sidecar}"},
};

const rp_options_program rpsim_setup_keys = {
    .name = "rpsim",
    .rows = rows,
    .row_count = sizeof rows / sizeof rows[0],
    .rules = rules,
    .rule_count = sizeof rules / sizeof rules[0],
};

rp_status rpsim_setup_check(const rp_options_program *rows_of, const rpsim_setup *setup,
                            rp_reason *reason)
{
    rp_options_program keys = *rows_of;
    keys.rules = rpsim_setup_keys.rules;
    keys.rule_count = rpsim_setup_keys.rule_count;
    return rp_options_check(&keys, setup, reason);
}

/* ---- setups ---------------------------------------------------------------------------------- */

void rpsim_setup_complete(rpsim_setup *o)
{
    if (o->run.hardware && !o->intervals_given) {
        o->intervals = RPSIM_DEFAULT_DRAWS;
    }
    if (o->jitter_given && o->replicas == 0) {
        o->replicas = RPSIM_DEFAULT_REPLICAS;
    }
}

rp_status rpsim_setup_schedule(const rp_schedule_type *schedule, rp_arena *arena, rpsim_setup *o)
{
    RP_TRY(rp_arena_alloc(arena, 1, sizeof *o->schedules, &o->schedules));
    o->schedules[0] = schedule;
    o->schedule_count = 1;
    o->all_schedules = false;
    return RP_OK;
}

void rpsim_setup_write(const rpsim_setup *o, rp_json *json)
{
    rp_option_write_members(rows, rpsim_setup_keys.row_count, o, json);
}

rp_status rpsim_setup_changes(const rpsim_setup *o, rp_arena *arena, const char **text_out)
{
    *text_out = NULL;
    for (uint32_t i = 0; i < o->changes.count; i++) {
        const rp_change *c = &o->changes.items[i];
        RP_TRY(rp_arena_print(arena, text_out, "%s%s%s%s", i != 0 ? *text_out : "",
                              i != 0 ? "," : "", c->schema->prefix, c->text));
    }
    return RP_OK;
}

/* Changes of a stack do nothing in a run whose times are a table's, nor does power. */
static rp_status check_stack(const rpsim_setup *o, rp_reason *reason)
{
    bool computed = o->stack != NULL && o->costs == NULL;
    if (!computed && rp_changes_any(&o->changes, &rp_stack_schema)) {
        return rp_refuse(reason, RP_USAGE,
                         "{set}: stack.KEY changes the software of {stack}; valid only with "
                         "{stack} NAME|FILE, without {costs}");
    }
    if (computed && rp_changes_any(&o->changes, &rp_costs_schema)) {
        return rp_refuse(reason, RP_USAGE,
                         "{set}: costs.KEY changes a cost table, and with {stack} times are "
                         "computed; valid are changes of platform and stack, or no {stack}");
    }
    if (!computed && o->power_limit_given) {
        return rp_refuse(reason, RP_USAGE,
                         "{power_limit}: times of cost tables do not depend on power; valid only "
                         "with {stack} NAME|FILE, without {costs}");
    }
    if (o->power_limit_given && o->run.dtype == RP_DTYPE_F32) {
        return rp_refuse(reason, RP_USAGE,
                         "{power_limit}: nobody knows the energy of products in fp32; valid with "
                         "{dtype} fp16 and bf16");
    }
    if (o->power_limit_given && !(o->power_limit_w > 0)) {
        return rp_option_bad("power-limit", "0", "numbers above 0, up to 100000", reason);
    }
    return RP_OK;
}

rp_status rpsim_setup_check_power(const rpsim_setup *o, const rp_platform *platform,
                                  rp_reason *reason)
{
    if (o->power_limit_given && !(platform->product_pj > 0)) {
        return rp_refuse(reason, RP_USAGE,
                         "{power_limit}: nobody knows the energy of a FLOP of %s; valid are "
                         "platforms with product_pj, as {set} platform.product_pj=N says it",
                         platform->name);
    }
    return RP_OK;
}

rp_status rpsim_setup_check_frozen(rp_frozen frozen, const char *model, bool adapters,
                                   rp_reason *reason)
{
    if (frozen == RP_FROZEN_DTYPE || adapters) {
        return RP_OK;
    }
    return rp_refuse(reason, RP_USAGE,
                     "{frozen}: all weights of %s are trained, none are frozen; valid with "
                     "{lora_rank} R, or a model that has adapters",
                     model);
}

rp_status rpsim_setup_check_products(const rpsim_setup *o, const rp_platform *platform,
                                     const rp_stack *stack, rp_reason *reason)
{
    const char *message = NULL;
    const char *name = platform->name;
    if (!o->run.fp8_products) {
        return RP_OK;
    }
    if (!(platform->fp8_tflops > 0)) {
        message = "{compute}: GPUs of %s have no products in fp8; valid is bf16, and fp8 on GPUs "
                  "with fp8_tflops (rpsim --list gpus)";
    } else if (stack == NULL || o->costs != NULL) {
        message = "{compute}: times of cost tables are of 16 bits%.0s; valid with {stack} NAME "
                  "whose software has products in fp8 (llmq, megatron, torch-compile)";
    } else if (!(stack->fp8_share > 0)) {
        name = stack->name;
        message = "{compute}: the software %s has no products in fp8; valid with {stack} llmq, "
                  "megatron and torch-compile, and stacks with fp8_share";
    } else if (o->run.dtype == RP_DTYPE_F32) {
        message = "{compute}: products of fp32 values%.0s are not made in fp8; valid with {dtype} "
                  "bf16 and fp16";
    }
    return message == NULL ? RP_OK : rp_refuse(reason, RP_USAGE, message, name);
}

rp_status rpsim_setup_all_changes(const rpsim_setup *o, rp_arena *arena, rp_changes *changes_out,
                                  rp_reason *reason)
{
    const struct {
        const char *option;
        const char *key;
        double number;
    } numbers[] = {{"gpu-memory", "platform.memory_gb", o->gpu_memory_gb},
                   {"host-memory", "platform.host_memory_gb", o->host_memory_gb},
                   {"power-limit", "platform.power_limit_w", o->power_limit_w}};
    RP_TRY(check_stack(o, reason));
    *changes_out = o->changes;
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        const char *text = NULL;
        if (numbers[i].number > 0) {
            RP_TRY(rp_arena_print(arena, &text, "%s=%.15g", numbers[i].key, numbers[i].number));
            RP_TRY(rp_changes_add(numbers[i].option, text, arena, changes_out, reason));
        }
    }
    return RP_OK;
}
