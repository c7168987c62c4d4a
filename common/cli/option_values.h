/** @file option_values.h  Values of options that several programs read. */
#pragma once

#include "common/base/mem.h"
#include "common/base/reason.h"
#include "common/base/status.h"

#include <stdbool.h>
#include <stdint.h>

/** @return the key of an option's setting: its name with _ for -. */
rp_log_words rp_option_key(const char *option);

/** Logs "--OPTION: 'VALUE' is not valid; valid values are VALID". @return RP_USAGE */
rp_status rp_option_bad(const char *option, const char *value, const char *valid,
                        rp_reason *reason);

/**
 * Reads "3*1.5": a number and its factor, in the form of --set.
 * @param count the number is 0 to count - 1
 * @param high the factor is 1 to high
 * @retval RP_OK, RP_USAGE (refused)
 */
rp_status rp_option_factor(const char *option, const char *text, uint32_t count, double high,
                           uint32_t *index_out, double *factor_out, rp_reason *reason);

/**
 * Reads a count: an integer, or a number with k, M, B or T (or K, m, b, t) after it whose value is
 * an integer: 1.5k.
 * @param thousand value of k: 1000, or 1024 for lengths of sequences; M is its square, and so on
 * @return false: not a count, or outside [low, high]
 */
bool rp_option_count(const char *text, double thousand, uint64_t low, uint64_t high,
                     uint64_t *count_out);

/** Splits "a,b,c" into the arena. @retval RP_OK, RP_USAGE (an empty item), RP_NO_MEMORY */
rp_status rp_option_list(const char *option, const char *text, rp_arena *arena,
                         const char ***names_out, uint32_t *count_out, rp_reason *reason);

/**
 * Reads the tokens to train on, a number with the letters of rp_option_count as powers of 1000:
 * 300M.
 * @param tokens_out at least 1
 * @retval RP_OK, RP_USAGE (refused)
 */
rp_status rp_option_tokens(const char *option, const char *text, double *tokens_out,
                           rp_reason *reason);

/** Joins the command line to a text, with `program` as its name. @retval RP_OK, RP_NO_MEMORY */
rp_status rp_option_command(const char *program, int argc, char **argv, rp_arena *arena,
                            const char **command_out);
