/** @file study_case.h  rpsim's own way from a command line to rows, programs and timelines. For
 * tests that begin with rp_test_tool_begin. */
#pragma once

#include "sim/study/study.h"
#include "tests/support/run_tool.h"

/** A row of a study: its lowered program and the times of its ops. */
typedef struct rp_test_run {
    rp_program *program;
    rp_timeline *timeline;
    rpsim_compute_costs costs;
    rp_machine machine;
} rp_test_run;

/**
 * Prepares the study of a command line, the program's name first.
 * @param study_out to be ended by rpsim_study_fini, also after a failure; rows and options live in
 * `arena`
 * @return the status of rpsim_options_parse or rpsim_study_prepare
 */
rp_status rp_test_study_of(int argc, char **argv, rp_arena *arena, rpsim_study *study_out);

/** Prepares a study from the words of `line`, which must be accepted. To be ended by
 * rpsim_study_fini. */
void rp_test_study(const char *line, rpsim_study *study);

/** Lowers and simulates a row. To be ended by rp_test_run_fini. */
rp_test_run rp_test_run_row(const rpsim_row *row);

/** Like rp_test_run_row, for the first row of a command line. */
rp_test_run rp_test_run_line(const char *line);

void rp_test_run_fini(rp_test_run *run);

/** @return the number under `key` of the first row that rpsim prints. */
double rp_test_row_number(const char *line, const char *key);

/** @return true if a single GPU has the first and the last stage */
bool rp_test_ends_meet(const rp_program *program);

/** @return the bytes of a kind of buffer that stay on GPUs from their first to their last op */
double rp_test_lasting_bytes(const rp_program *program, rp_buffer_kind kind);

/** @return the bytes of all ops on the queues of a kind */
double rp_test_queue_bytes(const rp_program *program, rp_queue_kind kind);
