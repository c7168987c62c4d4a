/** @file report.h  Output of a study on stdout: table, JSON, CSV, key=value. */
#pragma once

#include "common/formats/json.h"
#include "common/store/store.h"
#include "sim/rpsim/options_internal.h"
#include "sim/study/study.h"

#include <stdio.h>

/** Writes the study. Write errors stay in the stream. @retval RP_OK,
 * RP_NO_MEMORY */
rp_status rpsim_report_write(const rpsim_study *study, rpsim_format format, FILE *stream);

/** Output of --check: one line per valid program. */
void rpsim_report_check(const rpsim_study *study, FILE *stream);

/** "1.7b_roundpipe.svg": the picture's name in the artifact's log format (formats.md 4). */
rp_status rpsim_row_picture(const rpsim_row *row, rp_arena *arena, const char **name_out);
