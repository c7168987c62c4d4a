/** @file report.h  Output of rpexec. */
#pragma once

#include "exec/rpexec/train.h"

#include <stdio.h>

/** One JSON object with the keys of docs/generated, or a few lines of text. */
void rpexec_report(const rpexec_options *options, const rpexec_outcome *outcome, FILE *stream);

/** Name of what stands for a GPU. */
typedef struct rpexec_device_name {
    char text[128]; /**< "host threads", "NVIDIA H100, split into 4" */
} rpexec_device_name;

/** @return the device of a run: the first one of its backend, or threads */
rpexec_device_name rpexec_report_device(const rpexec_options *options);

/** Every setting of a run with the defaults, as one JSON object: what the store keeps. */
void rpexec_report_settings(const rpexec_options *options, FILE *stream);
