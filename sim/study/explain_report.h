/** @file explain_report.h  --explain: what explain.h finds out about a row, in words and as JSON.
 */
#pragma once

#include "common/base/reason.h"
#include "common/formats/json.h"
#include "sim/study/study.h"

#include <stdio.h>

/**
 * Explains a row and sets row->explained.
 * @param row has run; its program and timeline are there
 * @param arena the study's
 * @retval RP_OK, or what rpsim_explain and rpsim_explain_sensitivity return
 */
rp_status rpsim_row_explain(rpsim_row *row, rp_arena *arena, rp_reason *reason);

/** Prints every row's explanation in words, worst things first. */
void rpsim_explain_write(const rpsim_study *study, FILE *stream);

/** Writes a row's attribution, path totals and elasticities as an object (rpsim_write_object).
 * @param row was explained */
void rpsim_explain_write_json(const rpsim_study *study, const rpsim_row *row, rp_json *json);
