/** @file option_values.h  Options that the command lines of all programs have in common. */
#pragma once

#include "common/base/mem.h"
#include "common/base/status.h"

#include <getopt.h>
#include <stdint.h>

/** One line of --help. */
typedef struct rp_option_help {
    const char *option;
    const char *argument; /**< NULL: none */
    const char *help;
} rp_option_help;

/**
 * From a program's list LIST(X) of options, X(enumerator, "option", argument or NULL, help): the
 * enumerators OPTION_…, `long_options` for getopt_long and `option_helps` for rp_option_print.
 */
#define RP_OPTION_TABLES(LIST)                                                                     \
    enum { OPTION_BASE = 256, LIST(RP_OPTION_ENUM) };                                              \
    static const struct option long_options[] = {LIST(RP_OPTION_ENTRY){NULL, 0, NULL, 0}};         \
    static const rp_option_help option_helps[] = {LIST(RP_OPTION_HELP)};
#define RP_OPTION_ENUM(name, option, argument, help) OPTION_##name,
#define RP_OPTION_ENTRY(name, option, argument, help)                                              \
    {option, (argument) != NULL ? required_argument : no_argument, NULL, OPTION_##name},
#define RP_OPTION_HELP(name, option, argument, help) {option, argument, help},

/** Prints the options to stdout, two lines each. */
void rp_option_print(const rp_option_help *entries, size_t count);

/** Logs "--OPTION: 'VALUE' is not valid; valid values are VALID". @return RP_USAGE */
rp_status rp_option_bad(const char *option, const char *value, const char *valid);

/** Reads `text` as an integer from 1 to `high`. @retval RP_OK, RP_USAGE (logged) */
rp_status rp_option_u32(const char *option, const char *text, uint32_t high, uint32_t *value_out);

/**
 * "3*1.5": a number and a factor of it, written as --set writes one.
 * @param count the number is 0 to count - 1
 * @param high the factor is 1 to high
 * @retval RP_OK, RP_USAGE (logged)
 */
rp_status rp_option_factor(const char *option, const char *text, uint32_t count, double high,
                           uint32_t *index_out, double *factor_out);

/** Splits "a,b,c" into the arena. @retval RP_OK, RP_USAGE (an empty item; logged), RP_NO_MEMORY */
rp_status rp_option_list(const char *option, const char *text, rp_arena *arena,
                         const char ***names_out, uint32_t *count_out);

/**
 * Finds `text` among `names`, which are separated by '|'.
 * @param index_out counted from 0
 * @retval RP_OK, RP_USAGE (logged)
 */
rp_status rp_option_choice(const char *option, const char *text, const char *names,
                           uint32_t *index_out);

/**
 * Logs what getopt_long did not understand, with the nearest option there is.
 * @param program named in the hint to --help
 * @param text the word as given
 * @param result of getopt_long: ':' for a missing value, '?' otherwise
 * @param options of getopt_long, ended by a NULL name
 * @return RP_USAGE
 */
rp_status rp_option_unknown(const char *program, const char *text, int result,
                            const struct option *options);

/** The command line as one text, `program` for its name. @retval RP_OK, RP_NO_MEMORY */
rp_status rp_option_command(const char *program, int argc, char **argv, rp_arena *arena,
                            const char **command_out);
