/** @file run_tool.h  rpsim as run by a user: arguments in; exit status, output and messages out. */
#pragma once

#include "common/formats/csv.h"

#include <jansson.h>

/** Exit status and texts of a run. The texts live in the arena of rp_test_tool_begin. */
typedef struct rp_test_outcome {
    int status; /**< exit status; -1 after a signal */
    const char *output;
    const char *messages;
} rp_test_outcome;

/** Makes an arena and an empty folder, and points RP_TRACES to the source's traces/; for
 * TestSuite's init.
 */
void rp_test_tool_begin(void);

/** Removes the arena and the folder; no memory may be left allocated. For TestSuite's fini. */
void rp_test_tool_end(void);

/** @return the folder, which is @DIR@ in command lines */
const char *rp_test_tool_folder(void);

/** @return the arena */
rp_arena *rp_test_tool_arena(void);

/** @return `word` with the folder in place of @DIR@ and tests/bad in place of @BAD@; two single
 * quotes are the empty word */
const char *rp_test_tool_expand(const char *word, size_t length);

/** Runs `path` with NULL-terminated arguments, of which the first is the program's name. */
rp_test_outcome rp_test_tool_execute(const char *path, const char *const *arguments);

/** Runs the tool at `path`, called `name`, with the words of `line`, separated by single blanks. */
rp_test_outcome rp_test_tool_run(const char *path, const char *name, const char *line);

/** Runs rpsim with the words of `before` and of `line`, separated by single blanks. */
rp_test_outcome rp_test_rpsim_after(const char *before, const char *line);

/** Like rp_test_rpsim_after, without `before`. */
rp_test_outcome rp_test_rpsim(const char *line);

/** Like rp_test_rpsim; the run must succeed. */
rp_test_outcome rp_test_rpsim_well(const char *line);

/** Like rp_test_rpsim_after; the run must succeed and print JSON. @param before includes --format
 * json @return the array, to be released by json_decref */
json_t *rp_test_rpsim_rows(const char *before, const char *line);

/** Like rp_test_rpsim_rows with --format json and --fidelity stage. */
json_t *rp_test_rpsim_json(const char *line);

/** Parses separated values, which must be well formed. */
rp_csv rp_test_tool_table(const char *name, const char *text, char separator);

/** @return the cell of a row in the column `header`, which must exist */
const char *rp_test_tool_cell(const rp_csv *table, uint32_t row, const char *header);

/** @return the content of a file, which must exist */
const char *rp_test_tool_read(const char *path);

/** @return the number under `key` of a JSON object, 0 if it has none */
double rp_test_json_number(const json_t *row, const char *key);

/** @return the text under `key` of a JSON object, NULL if it has none */
const char *rp_test_json_text(const json_t *row, const char *key);

/**
 * Expects every row of a table of bad command lines to be refused: the row's exit status, nothing
 * on stdout, a single line of messages that contains both texts, and no file left in the folder.
 * @param path tab-separated: arguments, status, message contains, valid values contain
 * @param least least number of rows of the table
 */
void rp_test_refusals(const char *path, uint32_t least, rp_test_outcome (*run)(const char *line));
