/** @file table_notes.h  Lines below the table of runs: notes on its rows, and the meaning of its
 * columns. */
#pragma once

#include "common/cli/page.h"
#include "sim/study/study.h"

/** Writes the notes of a row: a tuned partition, an estimated period, memory that does not suffice.
 */
void rpsim_row_notes_write(const rpsim_study *study, const rpsim_row *row, const rp_page *page);

/** Writes the host memory of the servers that a group of rows runs on. */
void rpsim_host_note_write(const rpsim_row *row, FILE *stream);

/** Writes that rows [begin, end) differ in software, how many runs of their stacks were measured,
 * and the errors of these predictions; nothing if no row has a stack. */
void rpsim_measured_note_write(const rpsim_study *study, uint32_t begin, uint32_t end,
                               FILE *stream);

/** @return the bits of the legend's sentences that a column with this heading needs. */
uint32_t rpsim_legend_of(const char *heading);

/** Writes the meaning of columns, and a pointer to the other columns. @param sentences the bits of
 * rpsim_legend_of for all columns */
void rpsim_legend_write(const rpsim_study *study, uint32_t sentences, FILE *stream);
