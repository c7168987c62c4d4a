/** @file report.h  The answer on stdout, for people and as JSON. */
#pragma once

#include "sim/rpadvise/advice.h"

#include <stdio.h>

/** Writes the answer in at most 24 lines of 80 columns, and what --why and --legend ask for, of at
 * most as many columns as environment variable COLUMNS says, else as the terminal has, else 100.
 * @retval RP_OK, RP_NO_MEMORY */
rp_status rpadvise_report_write(const rpadvise_advice *advice, FILE *stream);

/** Writes an array of the rows with the keys of rpsim's JSON and the keys of output_rows.inc. */
void rpadvise_report_write_json(const rpadvise_advice *advice, FILE *stream);
