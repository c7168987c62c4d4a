/** @file options_internal.h  Walks over the rows of a program; private to options*.c. */
#pragma once

#include "common/cli/options.h"

/** @return row `index`; --help and --version follow the program's own rows; NULL after the last
 * row. */
const rp_option *rp_options_row(const rp_options_program *program, uint32_t index);

/** @return index of the row with this name; RP_OPTIONS_MAX: no row has it. */
uint32_t rp_options_find(const rp_options_program *program, const char *name, size_t length);

/**
 * Sorts the rows by their groups, --help and --version last.
 * @param rows_out [RP_OPTIONS_MAX]
 * @param titles_out [RP_OPTIONS_MAX] title of the group that the row begins; NULL: the row
 * continues the group before it
 * @return number of rows
 */
uint32_t rp_options_by_group(const rp_options_program *program, const rp_option **rows_out,
                             const char **titles_out);

/** @return meanings of the exit statuses, as a single paragraph. */
const char *rp_options_exit_status(const rp_options_program *program);

/** @return placeholder of the row's argument; NULL: it takes none. */
const char *rp_options_argument(const rp_option *row);

/** Takes the next piece of `text`, which ends at any of `separators`. @return its length; 0: the
 * end */
size_t rp_options_piece(const char **text, const char *separators);

/**
 * Finds the word for a value of an enum, or of a bool that is true for the second of two choices.
 * @param member member of the row; a row without a member gives the first choice
 * @return length of the word at the beginning of *choice_out
 */
size_t rp_options_choice(const rp_option *row, const char *member, const char **choice_out);

/** Man page in roff. */
void rp_options_man(const rp_options_program *program, FILE *stream);

/** Completion functions. */
void rp_options_bash(const rp_options_program *program, FILE *stream);
void rp_options_zsh(const rp_options_program *program, FILE *stream);

/** --help, `columns` wide. */
void rp_options_help(const rp_options_program *program, uint32_t columns, FILE *stream);
