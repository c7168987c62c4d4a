/** @file options_internal.h  Walking over the rows of a program (options*.c). Not for others. */
#pragma once

#include "common/cli/options.h"

/** @return row `index`, --help and --version behind the program's own; NULL behind the last. */
const rp_option *rp_options_row(const rp_options_program *program, uint32_t index);

/** @return index of the row with this name; RP_OPTIONS_MAX: there is none. */
uint32_t rp_options_find(const rp_options_program *program, const char *name, size_t length);

/**
 * Sorts the rows by their groups, --help and --version last.
 * @param rows_out [RP_OPTIONS_MAX]
 * @param titles_out [RP_OPTIONS_MAX] title of the group that the row begins; NULL: of the one
 * before
 * @return number of rows
 */
uint32_t rp_options_by_group(const rp_options_program *program, const rp_option **rows_out,
                             const char **titles_out);

/** @return meanings of the exit statuses, one paragraph. */
const char *rp_options_exit_status(const rp_options_program *program);

/** @return placeholder of the row's argument; NULL: it takes none. */
const char *rp_options_argument(const rp_option *row);

/** Takes the next piece of `text` up to one of `separators`. @return its length; 0: the end */
size_t rp_options_piece(const char **text, const char *separators);

/**
 * The word that stands for a value: an enum, or a bool for the second of two.
 * @param member of the row; of a row without one, the first choice
 * @return length of the word that *choice_out begins with
 */
size_t rp_options_choice(const rp_option *row, const char *member, const char **choice_out);

/** Man page in roff. */
void rp_options_man(const rp_options_program *program, FILE *stream);

/** Completion functions. */
void rp_options_bash(const rp_options_program *program, FILE *stream);
void rp_options_zsh(const rp_options_program *program, FILE *stream);

/** --help, `columns` wide. */
void rp_options_help(const rp_options_program *program, uint32_t columns, FILE *stream);
