/** @file fuzz.h  Functions of all harnesses: each takes a single input, and crashes if a promise is
 * broken. */
#pragma once

#include "common/base/mem.h"
#include "common/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Name of the made-up file, at the beginning of every message about it. */
#define FUZZ_FILE "f"

/** libFuzzer's entry point; replay.c calls it as well. @return 0 */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/** Begins to capture messages; fuzz_end reads them. */
void fuzz_begin(void);

/** @return the messages logged since fuzz_begin. */
const char *fuzz_log(void);

/** Prints `why` and aborts if `holds` is false. */
void fuzz_require(bool holds, const char *why);

/**
 * A refusal must be RP_INPUT with a single line "f:LINE: cause". Only a cause that contains
 * `whole_file` may have no line. @param whole_file NULL: no such cause
 */
void fuzz_require_refusal(rp_status status, const char *whole_file);

/** Ends the capture; no memory may be left allocated. @return 0, for LLVMFuzzerTestOneInput */
int fuzz_end(void);
