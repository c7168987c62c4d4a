/** @file fuzz.h  Functions of all harnesses: one input in, a crash where a promise is broken. */
#pragma once

#include "common/base/mem.h"
#include "common/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Name of the made-up file, the beginning of every message about it. */
#define FUZZ_FILE "f"

/** libFuzzer's entry point; replay.c calls it, too. @return 0 */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/** Begins to capture messages; fuzz_end reads them. */
void fuzz_begin(void);

/** @return the messages logged since fuzz_begin. */
const char *fuzz_log(void);

/** Says why and aborts where `holds` is false. */
void fuzz_require(bool holds, const char *why);

/**
 * A refusal must be RP_INPUT with a single line "f:LINE: cause". Some causes have no line: those
 * contain `whole_file` (NULL: there are none).
 */
void fuzz_require_refusal(rp_status status, const char *whole_file);

/** Ends the capture; nothing may be left allocated. @return 0, for LLVMFuzzerTestOneInput */
int fuzz_end(void);
