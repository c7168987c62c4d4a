/** @file report.h  Output of a study on stdout: table, JSON, CSV, key=value. */
#pragma once

#include "common/formats/json.h"
#include "common/store/store.h"
#include "sim/rpsim/study.h"

#include <stdio.h>

/** Writes the study in options->format. Write errors stay in the stream. @retval RP_OK,
 * RP_NO_MEMORY */
rp_status rpsim_report_write(const rpsim_study *study, FILE *stream);

/** Writes keys and values of a row's columns into an open object. */
void rpsim_row_write_members(const rpsim_study *study, const rpsim_row *row, rp_json *json);

/** Output of --check: one line per valid program. */
void rpsim_report_check(const rpsim_study *study, FILE *stream);

/** "1.7b_roundpipe.svg": the picture's name in the artifact's log format (formats.md 4). */
rp_status rpsim_row_picture(const rpsim_row *row, rp_arena *arena, const char **name_out);
