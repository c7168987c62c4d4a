/** @file report.h  Output of rpexec. */
#pragma once

#include "exec/rpexec/train.h"

#include <stdio.h>

/** One JSON object with the keys of cli.md, or a few lines of text. */
void rpexec_report(const rpexec_options *options, const rpexec_outcome *outcome, FILE *stream);

/** Every setting of a run with the defaults, as one JSON object: what the store keeps. */
void rpexec_report_settings(const rpexec_options *options, FILE *stream);
