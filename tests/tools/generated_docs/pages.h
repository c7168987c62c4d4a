/** @file pages.h  Pages of docs/generated, each made from the rows that the programs themselves
 * read. */
#pragma once

#include <stddef.h>
#include <stdio.h>

/** From docs/generated to the root, for links to other documents. */
#define DOCS_ROOT "../../"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/** Prints the fault of the rows; docs_pages then exits with 1. */
void docs_fail(const char *what, const char *name);

/** A key or a column. In a heading of a table `unit` is NULL and `meaning` is the text. */
typedef struct docs_output {
    const char *place;
    const char *unit;
    const char *meaning;
} docs_output;

/** Rows of an output_rows.inc as docs_output. */
#define OUTPUT(heading, text) {heading, NULL, text},
#define ITEM(place, unit, meaning) {place, unit, meaning},

/** Tables of outputs. */
void docs_write_outputs(const docs_output *rows, size_t count, FILE *stream);
#define WRITE_OUTPUTS(rows, stream) docs_write_outputs(rows, COUNT(rows), stream)

/** Options and outputs of a program. */
void docs_write_rpsim(FILE *stream);
void docs_write_rpadvise(FILE *stream);
void docs_write_rpexec(FILE *stream);
void docs_write_rpdiff(FILE *stream);
void docs_write_rpsweep(FILE *stream);
void docs_write_rpplan(FILE *stream);
void docs_write_rpimport(FILE *stream);
void docs_write_rppredict(FILE *stream);

/** Keys of data files. */
void docs_write_models(FILE *stream);
void docs_write_platforms(FILE *stream);
void docs_write_stacks(FILE *stream);
void docs_write_costs(FILE *stream);

/** Tables, views and columns of a store. */
void docs_write_store(FILE *stream);

/** Kinds of ops, queues and buffers, PyTorch's actions, and the executor's operators. */
void docs_write_ops(FILE *stream);
void docs_write_torch(FILE *stream);
void docs_write_operators(FILE *stream);
