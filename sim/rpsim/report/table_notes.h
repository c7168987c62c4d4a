/** @file table_notes.h  Lines below the table of runs, on its rows and on what its columns mean. */
#pragma once

#include "common/cli/page.h"
#include "sim/study/study.h"

/** On one row: a tuned partition, an estimated period, memory that does not suffice. */
void rpsim_row_notes_write(const rpsim_study *study, const rpsim_row *row, const rp_page *page);

/** Host memory that there is, of the servers that a group of rows runs on. */
void rpsim_host_note_write(const rpsim_row *row, FILE *stream);

/** @return bits of the legend's sentences that a column of this heading needs. */
uint32_t rpsim_legend_of(const char *heading);

/** Meaning of columns, and where the others are. @param sentences rpsim_legend_of all of them */
void rpsim_legend_write(const rpsim_study *study, uint32_t sentences, FILE *stream);
