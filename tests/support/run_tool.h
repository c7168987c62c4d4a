/** @file run_tool.h  rpsim as a user runs it: arguments in; exit status, output and messages out.
 */
#pragma once

#include "common/formats/csv.h"

#include <jansson.h>

/** Exit status and texts of one run. The texts live in the arena of rp_test_tool_begin. */
typedef struct rp_test_outcome {
    int status; /**< exit status; -1 after a signal */
    const char *output;
    const char *messages;
} rp_test_outcome;

/** Makes an arena and an empty folder and points RP_TRACES to the source's; for TestSuite's init.
 */
void rp_test_tool_begin(void);

/** Removes both; nothing may be left allocated. For TestSuite's fini. */
void rp_test_tool_end(void);

/** @return the folder, @DIR@ in command lines */
const char *rp_test_tool_folder(void);

/** @return the arena */
rp_arena *rp_test_tool_arena(void);

/** @return `word` with the folder for @DIR@ and tests/bad for @BAD@; two single quotes are "". */
const char *rp_test_tool_expand(const char *word, size_t length);

/** Runs `path` with NULL-terminated arguments, the first one being its name. */
rp_test_outcome rp_test_tool_execute(const char *path, const char *const *arguments);

/** Runs the tool at `path`, called `name`, with the words of `line`, separated by single blanks. */
rp_test_outcome rp_test_tool_run(const char *path, const char *name, const char *line);

/** Runs rpsim with the words of `before` and of `line`, separated by single blanks. */
rp_test_outcome rp_test_rpsim_after(const char *before, const char *line);

/** As rp_test_rpsim_after, without `before`. */
rp_test_outcome rp_test_rpsim(const char *line);

/** As rp_test_rpsim; the run must succeed. */
rp_test_outcome rp_test_rpsim_well(const char *line);

/** As rp_test_rpsim_after; the run must succeed and print JSON. @param before with --format json
 * @return the array, json_decref is the caller's */
json_t *rp_test_rpsim_rows(const char *before, const char *line);

/** As rp_test_rpsim_rows with --format json and --fidelity stage. */
json_t *rp_test_rpsim_json(const char *line);

/** Parses separated values, which must be well formed. */
rp_csv rp_test_tool_table(const char *name, const char *text, char separator);

/** @return the cell of a row under `header`, which must exist */
const char *rp_test_tool_cell(const rp_csv *table, uint32_t row, const char *header);

/** @return the content of a file, which must exist */
const char *rp_test_tool_read(const char *path);

/** @return the number under `key` of a JSON object, 0 where it is none */
double rp_test_json_number(const json_t *row, const char *key);

/** @return the text under `key` of a JSON object, NULL where it is none */
const char *rp_test_json_text(const json_t *row, const char *key);

/**
 * Expects every row of a table of bad command lines to be refused: its exit status, nothing on
 * stdout, one line of messages that has both texts, and nothing left in the folder.
 * @param path tab-separated: arguments, status, message contains, valid values contain
 * @param least rows that the table must have
 */
void rp_test_refusals(const char *path, uint32_t least, rp_test_outcome (*run)(const char *line));
