/** @file report.h  Output of rpexec. */
#pragma once

#include "exec/rpexec/train.h"

#include <stdio.h>

/** Writes a JSON object with the keys of docs/generated, or a few lines of text. */
void rpexec_report(const rpexec_options *options, const rpexec_outcome *outcome, FILE *stream);

/** Name of the device that stands for a GPU. */
typedef struct rpexec_device_name {
    char text[128]; /**< "host threads", "NVIDIA H100, split into 4" */
} rpexec_device_name;

/** @return the device of a run: the first device of its backend, or threads */
rpexec_device_name rpexec_report_device(const rpexec_options *options);

/** Writes every setting of a run with the defaults, as a JSON object, which the store keeps. */
void rpexec_report_settings(const rpexec_options *options, FILE *stream);
