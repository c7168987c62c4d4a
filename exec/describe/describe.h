/** @file describe.h  This machine as a platform of rpsim, without a run.
 *
 * Read: sockets, PCI tree and GPUs (common/inputs/detect/detect.h). Measured: the host's part of a
 * step (host_bench.h), copies of the first GPU if its driver is there, and without a GPU the rates
 * of threads (host/rates.h). All other values of a GPU come from a shipped platform with the same
 * GPU, or are assumed. Each line of the file names its source.
 */
#pragma once

#include "common/base/mem.h"

#include <stdio.h>

/**
 * Writes a platform file that rp_platform_load reads. Takes some 10 s, and wants an idle machine:
 * on a busy machine the file is marked like a record (load.h).
 * @param name name of the platform
 * @retval RP_OK, RP_INPUT (traces cannot be read), RP_IO, RP_NO_MEMORY
 */
rp_status rpexec_describe(const char *name, rp_arena *arena, FILE *stream);

/** Writes only the host's rates: comments, and keys that go into a platform file. @retval as above
 */
rp_status rpexec_describe_host(FILE *stream);
