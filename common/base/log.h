/**
 * @file log.h  Diagnostics. Data goes to stdout, everything here to stderr (or a capture).
 *
 * A message is one line: control characters in it, bytes that are not UTF-8 and marks
 * that turn the direction of writing are shown as \\xNN, and of a text of more than 2,000 bytes the
 * middle is left out, with its length. Callers escape and cut nothing.
 *
 * A format names a setting by its key in braces: "{global_batch}: ...". Programs write the option,
 * "--global-batch", the library the key. Braces count in the format only, never in its arguments.
 */
#pragma once

#include "common/base/status.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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

/** Leaves this thread's warnings out: of trials, whose inputs have been warned of before.
 * @return whether they were left out until now */
bool rp_log_mute_warnings(bool mute);

/**
 * Error about a place in a file: "FILE:LINE: message" without a program prefix, the form of cli.md,
 * which editors jump to.
 * @param file NULL: the message begins with its place
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

/** Sets the name printed before messages, whose settings are the program's options from here on;
 * `name` must outlive all logging. NULL, the default: "rp", which has settings and no options. */
void rp_log_set_program(const char *name);

/** @return how many messages this thread has had until now: whether something was said meanwhile.
 */
uint64_t rp_log_said(void);

/**
 * Progress on a terminal, for a person who waits: one line on stderr that is written over, from a
 * second after its begin. Nothing where stderr is no terminal, or the program did not ask for it:
 * libraries and sweeps, which call the same code, do not. Messages and rp_progress_end remove it.
 */
void rp_progress_allow(void);

/** Shows "PROGRAM: WHAT, DONE of TOTAL: NOW, 12 s"; parts that are NULL or 0 are left out. Texts
 * are copied. May be called by several threads. */
void rp_progress(const char *what, uint64_t done, uint64_t total, const char *now);

/** Shows the line again with the time that has passed: of long steps. */
void rp_progress_tick(void);

/** Removes the line; the next one begins anew. */
void rp_progress_end(void);

/** As rp_log_error, with a list of arguments. @param file as rp_log_error_at; NULL: no place */
void rp_log_error_list(const char *file, size_t line, const char *format, va_list arguments)
    RP_PRINTF(3, 0);

/** Writes what rp_log_error_list would log, without a program's name and a line's end, to `buffer`;
 * what it has no room for is cut. */
void rp_log_print(char *buffer, size_t size, const char *file, size_t line, const char *format,
                  va_list arguments) RP_PRINTF(5, 0);

/** A text of ours that goes into a message as an argument, spelled as its format would be. */
typedef struct rp_log_words {
    char text[512];
} rp_log_words;

/** @param words of ours, which name settings by their keys in braces. @return cut after 511 bytes
 */
rp_log_words rp_log_spell(const char *words);

/** @return the key of the first setting that a format names, of `length_out` bytes; NULL: none. */
const char *rp_log_find_setting(const char *format, size_t *length_out);

/**
 * Redirects this thread's messages into `buffer` (always NUL-terminated, overflow dropped) until
 * rp_log_capture_end. Captures nest; one into the same buffer begins anew. Used by tests, by
 * in-process sweeps, which report failures per point; callers that decide take reasons (reason.h).
 */
void rp_log_capture_begin(char *buffer, size_t size);
void rp_log_capture_end(void);

/** @return where this thread's messages go now, for rp_log_follow in the threads that it starts. */
void *rp_log_destination(void);

/**
 * Sends this thread's messages, as long as it has no capture of its own, where those of the thread
 * that started it go. That thread keeps its captures until this one has ended.
 * @param destination of rp_log_destination; NULL: stderr
 */
void rp_log_follow(void *destination);
