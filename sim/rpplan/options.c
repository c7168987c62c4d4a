#include "sim/rpplan/options.h"

#include "common/base/log.h"
#include "common/base/reason.h"
#include "common/base/text.h"
#include "common/cli/option_values.h"

#include <string.h>

#define BILLION UINT64_C(1000000000)

/* Reads a decimal number with at most 9 decimals, as a whole and a fraction in 10^-9. Returns the
 * text that follows the number, or NULL. */
static const char *scan_decimal(const char *text, uint64_t *whole_out, uint64_t *fraction_out)
{
    char whole[20] = "";
    size_t digits = strspn(text, "0123456789");
    const char *rest = text + digits;
    *fraction_out = 0;
    if (digits >= sizeof whole) {
        return NULL;
    }
    memcpy(whole, text, digits);
    if (*rest == '.') {
        size_t decimals = strspn(++rest, "0123456789");
        if (decimals < 1 || decimals > 9) {
            return NULL;
        }
        for (size_t i = 0; i < 9; i++) {
            *fraction_out = 10 * *fraction_out + (i < decimals ? (uint64_t)(rest[i] - '0') : 0);
        }
        rest += decimals;
    }
    return rp_parse_u64(whole, 0, INT64_MAX, whole_out) ? rest : NULL;
}

static rp_status take_tolerance(const rp_option *row, const char *text, rp_arena *arena,
                                void *options, rp_reason *reason)
{
    rpplan_options *o = options;
    (void)arena;
    uint64_t whole = 0;
    uint64_t fraction = 0;
    const char *rest = scan_decimal(text, &whole, &fraction);
    if (rest == NULL || *rest != '\0' || whole < 1 || whole > 1000 || fraction % 1000 != 0) {
        return rp_option_bad(row->name, text,
                             "decimal numbers from 1 to 1000 with at most 6 decimals, such as 1.1",
                             reason);
    }
    o->tolerance_num = (uint32_t)(whole * 1000000 + fraction / 1000);
    o->tolerance_den = 1000000;
    return RP_OK;
}

/* @return the bytes of a unit; 0: there is no such unit */
static uint64_t unit_bytes(const char *unit)
{
    static const struct {
        const char *unit;
        uint64_t bytes;
    } units[] = {{"", 1},
                 {"B", 1},
                 {"MB", UINT64_C(1000000)},
                 {"GB", UINT64_C(1000000000)},
                 {"TB", UINT64_C(1000000000000)},
                 {"MiB", UINT64_C(1) << 20},
                 {"GiB", UINT64_C(1) << 30},
                 {"TiB", UINT64_C(1) << 40}};
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (strcmp(unit, units[i].unit) == 0) {
            return units[i].bytes;
        }
    }
    return 0;
}

static rp_status take_limit(const rp_option *row, const char *text, rp_arena *arena, void *options,
                            rp_reason *reason)
{
    rpplan_options *o = options;
    (void)arena;
    o->limit_given = true;
    if (strcmp(text, "none") == 0) {
        o->memory_limit = RP_PLAN_UNLIMITED;
        return RP_OK;
    }
    uint64_t whole = 0;
    uint64_t fraction = 0;
    const char *unit = scan_decimal(text, &whole, &fraction);
    uint64_t size = unit != NULL ? unit_bytes(unit) : 0;
    if (size == 0 || whole > (uint64_t)INT64_MAX / size || (size == 1 && fraction != 0)) {
        return rp_option_bad(
            row->name, text,
            "none, bytes, and numbers with at most 9 decimals and one of B, MB, GB, "
            "TB, MiB, GiB, TiB, such as 14.1GB",
            reason);
    }
    /* size * fraction / BILLION, without overflow */
    o->memory_limit =
        whole * size + size / BILLION * fraction + size % BILLION * fraction / BILLION;
    return RP_OK;
}

/* ---- rows ------------------------------------------------------------------------------------ */

enum { PLAN, OUTPUT };

static const rp_option_group groups[] = {
    [PLAN] = {"Model, machine and limits", true},
    [OUTPUT] = {"Instances and output", false},
};

#define TO(member) .to = RP_OPTION_MEMBER(rpplan_options, member)
#define CHOICE(name, text, meaning) "|" text

static const rp_option rows[] = {
#define OPTION(members, ...) {__VA_ARGS__},
#include "sim/rpplan/options_rows.inc"
#undef OPTION
};

/* @return true if other options are given with an instance, which holds all inputs itself */
static bool has_more_than_an_instance(const void *options)
{
    const rpplan_options *o = options;
    return o->instance != NULL && o->common.given_count > (o->json ? 2 : 1);
}

static const rp_option_rule rules[] = {
    {.when = has_more_than_an_instance,
     .message = "--instance: the file says what to plan, once, and the output is JSON; valid "
                "beside it is --format json only"},
};

const rp_options_program rpplan_command_line = {
    .name = "rpplan",
    .purpose = "cuts the layers of a model into RoundPipe's stages",
    .usage = "rpplan [options]\nrpplan FILE|-      as rpplan --instance FILE|-",
    .words = "FILE|-",
    .description = "Cuts the layers of a model into RoundPipe's forward and backward stages. "
                   "Defaults are in parentheses.",
    .notes = "Layer 0 is the embedding, the last one norm, LM head and loss. Times are those of "
             "the cost table, the backward's with its recompute; sizes are fp16 weights and "
             "gradients of all parameters. --memory-limit 0 is a limit like any other: it is "
             "raised to what the largest layer needs.",
    .example = "rpplan --model llama3.1-8b --gpus 8 --format json",
    RP_OPTION_TABLES(groups, rows, rules),
};

rp_status rpplan_options_parse(int argc, char **argv, rp_arena *arena, rpplan_options *options_out)
{
    rpplan_options *o = options_out;
    *o = (rpplan_options){.mode = RP_PLAN_FUSED, .tolerance_num = 11, .tolerance_den = 10};
    RP_TRY(rp_options_parse(&rpplan_command_line, argc, argv, arena, o, NULL));
    uint32_t taken = o->common.word_count > 0 && o->instance == NULL ? 1 : 0;
    if (taken == 1) {
        o->instance = o->common.words[0];
        o->common.given_count++;
    }
    if (o->common.word_count > taken) {
        rp_log_error("'%s': valid are options and one instance; see rpplan --help",
                     o->common.words[taken]);
        return RP_USAGE;
    }
    return o->common.request == RP_OPTIONS_RUN ? rp_options_check(&rpplan_command_line, o, NULL)
                                               : RP_OK;
}
