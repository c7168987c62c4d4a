/** @file table.h  Runs for people: the question, a ranked table within the width of the page, and
 * notes on its rows. The columns are those of columns.h in the order of their places, or those that
 * --columns names. */
#pragma once

#include "common/cli/page.h"
#include "sim/study/study.h"

/**
 * Writes a table with notes for each group of comparable rows.
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpsim_table_write(const rpsim_study *study, const rp_page *page);

/** Writes the question and all rows as Markdown. @retval RP_OK, RP_NO_MEMORY */
rp_status rpsim_table_write_markdown(const rpsim_study *study, FILE *stream);
