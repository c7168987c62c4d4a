/** @file table.h  Runs for people: what was asked, a ranked table within the width of the page, and
 * notes on its rows. The columns are those of columns.h, by their places, or those of --columns. */
#pragma once

#include "common/cli/page.h"
#include "sim/study/study.h"

/**
 * Writes a table with its notes for each group of rows that can be compared.
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpsim_table_write(const rpsim_study *study, const rp_page *page);

/** Writes what was asked and all rows as Markdown. @retval RP_OK, RP_NO_MEMORY */
rp_status rpsim_table_write_markdown(const rpsim_study *study, FILE *stream);
