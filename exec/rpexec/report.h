/** @file report.h  Output of rpexec. */
#pragma once

#include "exec/rpexec/train.h"

#include <stdio.h>

/** One JSON object with the keys of cli.md, or a few lines of text. */
void rpexec_report(const rpexec_options *options, const rpexec_outcome *outcome, FILE *stream);

#define RPEXEC_SIZE_TEXT 32

/** Writes "3.2 GiB", or "0.4 MiB" of models for tests. @return text */
const char *rpexec_report_size(uint64_t bytes, char text[static RPEXEC_SIZE_TEXT]);

/** Every setting of a run with the defaults, as one JSON object: what the store keeps. */
void rpexec_report_settings(const rpexec_options *options, FILE *stream);
