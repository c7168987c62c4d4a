/** @file report.h  Output of a study on stdout: table, JSON, CSV, key=value. */
#pragma once

#include "common/formats/json.h"
#include "common/store/store.h"
#include "sim/study/study.h"

#include <stdio.h>

/** Forms of --format. */
typedef enum rpsim_format {
    RPSIM_FORMAT_TABLE,
    RPSIM_FORMAT_JSON,
    RPSIM_FORMAT_CSV,
    RPSIM_FORMAT_KV,
    RPSIM_FORMAT_MD,
} rpsim_format;

/** Writes the study. Write errors stay in the stream. @retval RP_OK,
 * RP_NO_MEMORY */
rp_status rpsim_report_write(const rpsim_study *study, rpsim_format format, FILE *stream);

/** Writes the output of --check: a line for each valid program. */
void rpsim_report_check(const rpsim_study *study, FILE *stream);

/** Gives the picture's name in the artifact's log format, such as "1.7b_roundpipe.svg" (formats.md
 * 4). */
rp_status rpsim_row_picture(const rpsim_row *row, rp_arena *arena, const char **name_out);
