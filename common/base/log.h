/**
 * @file log.h  Diagnostics. Data goes to stdout, everything here to stderr (or a capture).
 *
 * A message is one line: control characters in it, bytes that are not UTF-8 and marks
 * that turn the direction of writing are shown as \\xNN, and of a text of more than 2,000 bytes the
 * middle is left out, with its length. Callers escape and cut nothing.
 */
#pragma once

#include "common/base/status.h"

#include <stdarg.h>
#include <stddef.h>

#if defined(__GNUC__)
#define RP_PRINTF(format_index, first) __attribute__((format(printf, format_index, first)))
#else
#define RP_PRINTF(format_index, first)
#endif

/** Prints "PROGRAM: message\n" to stderr, or appends "message\n" to this thread's capture. */
void rp_log_error(const char *format, ...) RP_PRINTF(1, 2);

/** @return RP_BROKEN, after a message with the place in the source: of what only a defect of this
 * project can cause. */
#define rp_broken() rp_broken_at(__FILE__, __LINE__)
rp_status rp_broken_at(const char *file, int line);

/** As rp_log_error, "PROGRAM: warning: message". */
void rp_log_warning(const char *format, ...) RP_PRINTF(1, 2);

/**
 * Error about a place in a file: "FILE:LINE: message" without a program prefix, the form of cli.md,
 * which editors jump to.
 * @param line one-based; 0 leaves the line out.
 */
void rp_log_error_at(const char *file, size_t line, const char *format, ...) RP_PRINTF(3, 4);

/**
 * Until the next call, this thread's messages begin with "FILE:LINE: " instead of the program's
 * name, but for those that name a place of their own: what a row asks for may be found impossible
 * far from its file.
 * @param file NULL: none; must live as long
 */
void rp_log_set_place(const char *file, size_t line);

/** Sets the name printed before messages; `name` must outlive all logging. Default "rp". */
void rp_log_set_program(const char *name);

/**
 * Redirects this thread's messages into `buffer` (always NUL-terminated, overflow dropped) until
 * rp_log_capture_end. Captures nest; one into the same buffer begins anew. Used by tests, by
 * in-process sweeps, which report failures per point, and by callers that try what may fail.
 */
void rp_log_capture_begin(char *buffer, size_t size);
void rp_log_capture_end(void);
