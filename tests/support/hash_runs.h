/** @file hash_runs.h  Hashes of programs and timelines, which must not depend on compiler or
 * optimisation. */
#pragma once

#include "common/base/status.h"

#include <stdio.h>

/** Writes a CSV line per run; tests/golden/hashes.csv has the expected lines. */
rp_status rp_test_hash_runs(FILE *stream);
