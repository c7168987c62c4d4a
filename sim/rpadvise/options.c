#include "sim/rpadvise/options.h"

#include "common/base/reason.h"
#include "common/cli/option_values.h"
#include "common/schedule/schedule_type.h"

#include <string.h>

#define DEFAULT_STEP_TOKENS (1u << 20)
#define DEFAULT_TOP 5
#define DEFAULT_BUDGET 5000

static rp_status take_tokens(const rp_option *row, const char *text, rp_arena *arena, void *options,
                             rp_reason *reason)
{
    (void)arena;
    return rp_option_tokens(row->name, text, &((rpadvise_options *)options)->tokens, reason);
}

static rp_status take_changes(const rp_option *row, const char *text, rp_arena *arena,
                              void *options, rp_reason *reason)
{
    return rpsim_take_changes(row, text, arena, &((rpadvise_options *)options)->work, reason);
}

enum { WORK, SERVER, SEARCH, OUTPUT };

static const rp_option_group groups[] = {
    [WORK] = {"Work", true},
    [SERVER] = {"Server", true},
    [SEARCH] = {"Search", true},
    [OUTPUT] = {"Output", false},
};

#define TO(member) .to = RP_OPTION_MEMBER(rpadvise_options, member)
#define COUNT(member) .count = RP_OPTION_MEMBER(rpadvise_options, member)

/* Members of the work and of its run. */
#define TO_WORK(member) TO(work.member)
#define TO_RUN(member) TO(work.run.member)

static const rp_option rows[] = {
#define OPTION(members, ...) {__VA_ARGS__},
#define OPTION_OF_WORK(...) {__VA_ARGS__},
#include "sim/rpadvise/options_rows.inc"
#undef OPTION
#undef OPTION_OF_WORK
};

static bool has_words(const void *options)
{
    return ((const rpadvise_options *)options)->common.word_count > 0;
}

static bool names_no_schedule(const void *options)
{
    const rpadvise_options *o = options;
    for (uint32_t i = 0; i < o->schedule_count; i++) {
        const rp_schedule_type *schedule = NULL;
        if (rp_schedule_require("--schedule", o->schedules[i], false, &schedule, NULL) != RP_OK) {
            return true; /* logged */
        }
    }
    return false;
}

static bool changes_costs(const void *options)
{
    return rp_changes_any(&((const rpadvise_options *)options)->work.changes, &rp_costs_schema);
}

static const rp_option_rule rules[] = {
    {.when = has_words, .message = "valid are options; see rpadvise --help"},
    {.when = names_no_schedule},
    {.given = "max-step-tokens",
     .with = "global-batch",
     .message = "the batch is given; valid without --global-batch"},
    {.given = "set",
     .when = changes_costs,
     .message = "runs of all sizes are tried, and a table has one; valid are changes of platform "
                "and stack"},
    {.given = "usd-per-hour", .without = "tokens", .message = "valid only with --tokens"},
    {.given = "watts", .without = "tokens", .message = "valid only with --tokens"},
    {.given = "usd-per-kwh", .without = "watts", .message = "valid only with --watts"},
};

const rp_options_program rpadvise_command_line = {
    .name = "rpadvise",
    .purpose = "finds the configuration that trains a model fastest on a server",
    .usage = "rpadvise --model M --platform P [options]",
    .description = "Searches schedule, optimizer mode, microbatches, recompute and partition for "
                   "the configuration that trains a model fastest on a server, within the memory "
                   "of its GPUs and of its host. Defaults are in parentheses.",
    .notes = "Each row of the answer is a run of rpsim, and its command prints the same tokens "
             "per second.\n"
             "Counts may end in k, M or B for thousands, millions and billions; lengths of "
             "sequences count 1024s, as models do: --seq-len 4k is 4096.",
    .exit_status = "0 success; 1 nothing fits, or the run failed; 2 bad usage or bad input.",
    .example = "rpadvise --model llama3.1-8b --platform rtx4090x8 --tokens 1B --usd-per-hour 3.2",
    RP_OPTION_TABLES(groups, rows, rules),
};

rp_status rpadvise_options_parse(int argc, char **argv, rp_arena *arena,
                                 rpadvise_options *options_out)
{
    rpadvise_options *o = options_out;
    *o = (rpadvise_options){.model = "qwen3-1.7b",
                            .work = RPSIM_SETUP_INIT,
                            .max_step_tokens = DEFAULT_STEP_TOKENS,
                            .top = DEFAULT_TOP,
                            .budget = DEFAULT_BUDGET};
    o->work.platform = RPSIM_DEFAULT_PLATFORM;
    RP_TRY(rp_options_parse(&rpadvise_command_line, argc, argv, arena, o, NULL));
    return o->common.request == RP_OPTIONS_RUN ? rp_options_check(&rpadvise_command_line, o, NULL)
                                               : RP_OK;
}
