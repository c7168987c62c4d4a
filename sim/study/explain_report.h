/** @file explain_report.h  --explain: the results of explain.h for a row, in words and as JSON. */
#pragma once

#include "common/base/reason.h"
#include "common/formats/json.h"
#include "sim/study/study.h"

#include <stdio.h>

/**
 * Explains a row and sets row->explained.
 * @param row has run, and its program and timeline are kept
 * @param arena the study's
 * @retval RP_OK, or a failure of rpsim_explain or rpsim_explain_sensitivity
 */
rp_status rpsim_row_explain(rpsim_row *row, rp_arena *arena, rp_reason *reason);

/** Prints every row's explanation in words, the largest causes first. */
void rpsim_explain_write(const rpsim_study *study, FILE *stream);

/** Writes a row's attribution, path totals and elasticities as an object (rpsim_write_object).
 * @param row was explained */
void rpsim_explain_write_json(const rpsim_study *study, const rpsim_row *row, rp_json *json);
