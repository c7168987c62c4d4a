/** @file hash_runs.h  Hashes of programs and timelines, which no compiler or optimisation may
 * change. */
#pragma once

#include "common/base/status.h"

#include <stdio.h>

/** Writes one CSV line per run: tests/golden/hashes.csv holds the expected ones. */
rp_status rp_test_hash_runs(FILE *stream);
