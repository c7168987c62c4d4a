/** @file report.h  The answer on stdout, for people and as JSON. */
#pragma once

#include "sim/rpadvise/advice.h"

#include <stdio.h>

/** Words and tables of at most COLUMNS columns, where that is set, else those of the terminal, else
 * 100. @retval RP_OK, RP_NO_MEMORY */
rp_status rpadvise_report_write(const rpadvise_advice *advice, FILE *stream);

/** An array of the rows with the keys of rpsim's JSON and those of output_rows.inc. */
void rpadvise_report_write_json(const rpadvise_advice *advice, FILE *stream);
