#include "sim/rpplan/options.h"

#include "common/base/log.h"
#include "common/base/text.h"
#include "common/cli/option_values.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

/* X(enumerator, option, argument (NULL: none), help). The long options, --help and the parser. */
#define OPTION_LIST(X)                                                                             \
    X(MODEL, "model", "NAME|FILE", "model, for the sizes of the layers (qwen3-1.7b)")              \
    X(PLATFORM, "platform", "NAME|FILE", "server, for costs and memory limit (rtx4090x8)")         \
    X(COSTS, "costs", "NAME|FILE",                                                                 \
      "cost table (MODEL@GPU, computed where nobody has measured it); without --model no sizes "   \
      "are known")                                                                                 \
    X(GPUS, "gpus", "N", "GPUs: fewer stages than these do not help (the platform's)")             \
    X(MODE, "mode", "fused|train|infer",                                                           \
      "the last layers run forward and backward in one stage; or all are in stages of both "       \
      "directions; or there is no backward (fused)")                                               \
    X(TOLERANCE, "tolerance", "T", "how much longer than the longest layer a stage may be (1.1)")  \
    X(MEMORY_LIMIT, "memory-limit", "BYTES|…GB|none",                                              \
      "GPU memory for weights and gradients, of which a stage may use half (0.6 of the "           \
      "platform's; none where no sizes are known); raised where one layer needs more")             \
    X(INSTANCE, "instance", "FILE|-",                                                              \
      "plan what this JSON file describes: mode, fwd_time, bwd_time, fwd_bytes, bwd_bytes, "       \
      "memory_limit, min_stages, threshold_num, threshold_den; also a list of these, or an "       \
      "object with \"examples\". Prints JSON")                                                     \
    X(FORMAT, "format", "table|json", "output on stdout (table; json with --instance)")            \
    X(HELP, "help", NULL, "this text")                                                             \
    X(VERSION, "version", NULL, "the version")

RP_OPTION_TABLES(OPTION_LIST)

void rpplan_options_help(void)
{
    puts("Usage: rpplan [options]\n"
         "       rpplan FILE|-      as rpplan --instance FILE|-\n\n"
         "Cuts the layers of a model into RoundPipe's forward and backward stages.\n\n"
         "Options (default):");
    rp_option_print(option_helps, sizeof option_helps / sizeof option_helps[0]);
    puts("\nLayer 0 is the embedding, the last one norm, LM head and loss. Times are those of the "
         "cost\ntable, the backward's with its recompute; sizes are fp16 weights and gradients of "
         "all\nparameters. --memory-limit 0 is a limit like any other: it is raised to what the "
         "largest\nlayer needs.\n\n"
         "Exit status: 0 success, 1 the run failed, 2 bad usage or bad input.\n"
         "Example: rpplan --model llama3.1-8b --gpus 8 --format json");
}

#define BILLION UINT64_C(1000000000)

/* A decimal number with at most 9 decimals, as a whole and a fraction in 10^-9. Returns what
 * follows it, or NULL. */
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

static rp_status take_tolerance(rpplan_options *o)
{
    uint64_t whole = 0;
    uint64_t fraction = 0;
    const char *rest = scan_decimal(optarg, &whole, &fraction);
    if (rest == NULL || *rest != '\0' || whole < 1 || whole > 1000 || fraction % 1000 != 0) {
        return rp_option_bad("tolerance", optarg,
                             "decimal numbers from 1 to 1000 with at most 6 decimals, such as 1.1");
    }
    o->tolerance_num = (uint32_t)(whole * 1000000 + fraction / 1000);
    o->tolerance_den = 1000000;
    return RP_OK;
}

/* Bytes of one unit; 0: there is no such unit. */
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

static rp_status take_limit(rpplan_options *o)
{
    o->limit_given = true;
    if (strcmp(optarg, "none") == 0) {
        o->memory_limit = RP_PLAN_UNLIMITED;
        return RP_OK;
    }
    uint64_t whole = 0;
    uint64_t fraction = 0;
    const char *unit = scan_decimal(optarg, &whole, &fraction);
    uint64_t size = unit != NULL ? unit_bytes(unit) : 0;
    if (size == 0 || whole > (uint64_t)INT64_MAX / size || (size == 1 && fraction != 0)) {
        return rp_option_bad(
            "memory-limit", optarg,
            "none, bytes, and numbers with at most 9 decimals and one of B, MB, GB, "
            "TB, MiB, GiB, TiB, such as 14.1GB");
    }
    /* size * fraction / BILLION without its overflow */
    o->memory_limit =
        whole * size + size / BILLION * fraction + size % BILLION * fraction / BILLION;
    return RP_OK;
}

static rp_status take_format(rpplan_options *o)
{
    o->json = strcmp(optarg, "json") == 0;
    if (!o->json && strcmp(optarg, "table") != 0) {
        return rp_option_bad("format", optarg, "table, json");
    }
    return RP_OK;
}

static rp_status take_option(int option, rpplan_options *o)
{
    switch (option) {
    case OPTION_MODEL:
        o->model = optarg;
        return RP_OK;
    case OPTION_PLATFORM:
        o->platform = optarg;
        return RP_OK;
    case OPTION_COSTS:
        o->costs = optarg;
        return RP_OK;
    case OPTION_GPUS:
        return rp_option_u32("gpus", optarg, RP_MAX_GPUS, &o->gpus);
    case OPTION_MODE:
        return rp_plan_mode_parse(optarg, &o->mode)
                   ? RP_OK
                   : rp_option_bad("mode", optarg, "fused, train, infer");
    case OPTION_TOLERANCE:
        return take_tolerance(o);
    case OPTION_MEMORY_LIMIT:
        return take_limit(o);
    case OPTION_INSTANCE:
        o->instance = optarg;
        return RP_OK;
    case OPTION_FORMAT:
        return take_format(o);
    case OPTION_HELP:
        o->action = RPPLAN_ACTION_HELP;
        return RP_OK;
    default: /* OPTION_VERSION */
        o->action = RPPLAN_ACTION_VERSION;
        return RP_OK;
    }
}

/* At most one argument, and an instance has everything itself. `given` counts the options. */
static rp_status check_combination(int argc, char **argv, int given, rpplan_options *o)
{
    if (optind < argc && o->instance == NULL) {
        o->instance = argv[optind++];
        given++;
    }
    if (optind < argc) {
        rp_log_error("'%s': valid are options and one instance; see rpplan --help", argv[optind]);
        return RP_USAGE;
    }
    if (o->action == RPPLAN_ACTION_PLAN && o->instance != NULL && given > (o->json ? 2 : 1)) {
        rp_log_error("--instance: the file says what to plan, once, and the output is JSON; valid "
                     "beside it is --format json only");
        return RP_USAGE;
    }
    return RP_OK;
}

rp_status rpplan_options_parse(int argc, char **argv, rpplan_options *options_out)
{
    *options_out =
        (rpplan_options){.mode = RP_PLAN_FUSED, .tolerance_num = 11, .tolerance_den = 10};
    optind = 0; /* GNU: start anew, also when called again in the same process */
    opterr = 0;
    int given = 0;
    for (;; given++) {
        int option = getopt_long(argc, argv, ":", long_options, NULL);
        if (option == -1) {
            break;
        }
        if (option == '?' || option == ':') {
            return rp_option_unknown("rpplan", argv[optind - 1], option, long_options);
        }
        RP_TRY(take_option(option, options_out));
    }
    return check_combination(argc, argv, given, options_out);
}
