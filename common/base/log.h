/**
 * @file log.h  Diagnostics. Data goes to stdout; messages go to stderr or to a capture.
 *
 * A message is a single line. Control characters, bytes that are not UTF-8 and marks that turn the
 * direction of writing are shown as \\xNN. A text of more than 2,000 bytes loses its middle, whose
 * length is shown instead. Callers escape and cut nothing.
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

/** Reports a state that only a defect of this project can cause, with its place in the source.
 * @return RP_BROKEN */
#define rp_broken() rp_broken_at(__FILE__, __LINE__)
rp_status rp_broken_at(const char *file, int line);

/** As rp_log_error, but as a warning: "PROGRAM: warning: message". */
void rp_log_warning(const char *format, ...) RP_PRINTF(1, 2);

/** Drops this thread's warnings: for trials, about whose inputs the user has been warned before.
 * @return whether they were left out until now */
bool rp_log_mute_warnings(bool mute);

/**
 * Logs an error about a place in a file: "FILE:LINE: message" without a program prefix, the form of
 * cli.md, from which editors jump to the place.
 * @param file NULL: the message itself begins with its place
 * @param line one-based; 0 leaves the line out.
 */
void rp_log_error_at(const char *file, size_t line, const char *format, ...) RP_PRINTF(3, 4);

/**
 * Until the next call, this thread's messages begin with "FILE:LINE: " instead of the program's
 * name, unless they name a place of their own: a request in a row of a file may turn out impossible
 * far from the code that reads the file.
 * @param file NULL: no place; must stay valid until the next call
 */
void rp_log_set_place(const char *file, size_t line);

/** Sets the name printed before messages, whose settings are the program's options from here on;
 * `name` must outlive all logging. NULL, the default: "rp", which has settings and no options. */
void rp_log_set_program(const char *name);

/** @return number of messages of this thread until now; two calls tell whether a message came
 * between them.
 */
uint64_t rp_log_said(void);

/**
 * Allows progress on a terminal, for a person who waits: a line on stderr that is rewritten in
 * place and first appears a second after its begin. No line appears if stderr is no terminal or the
 * program has not called this function: libraries and sweeps, which run the same code, do not.
 * Messages and rp_progress_end remove the line.
 */
void rp_progress_allow(void);

/** Shows "PROGRAM: WHAT, DONE of TOTAL: NOW, 12 s"; parts that are NULL or 0 are left out. Texts
 * are copied. May be called by several threads. */
void rp_progress(const char *what, uint64_t done, uint64_t total, const char *now);

/** Shows the line again with the time that has passed: for long steps. */
void rp_progress_tick(void);

/** Removes the line; the next call of rp_progress begins a new line. */
void rp_progress_end(void);

/** As rp_log_error, but takes the arguments as a va_list. @param file as rp_log_error_at; NULL: no
 * place */
void rp_log_error_list(const char *file, size_t line, const char *format, va_list arguments)
    RP_PRINTF(3, 0);

/** Writes the message that rp_log_error_list would log to `buffer`, without the program's name and
 * the line's end; cut to `size`. */
void rp_log_print(char *buffer, size_t size, const char *file, size_t line, const char *format,
                  va_list arguments) RP_PRINTF(5, 0);

/** A text of this project that is an argument of a message, with its settings spelled as in a
 * format. */
typedef struct rp_log_words {
    char text[512];
} rp_log_words;

/** @param words text of this project that names settings by their keys in braces. @return the text,
 * cut after 511 bytes
 */
rp_log_words rp_log_spell(const char *words);

/** @return the key of the first setting that a format names, of `length_out` bytes; NULL: none. */
const char *rp_log_find_setting(const char *format, size_t *length_out);

/**
 * Redirects this thread's messages into `buffer` (always NUL-terminated, overflow dropped) until
 * rp_log_capture_end. Captures nest; a second capture into the same buffer starts it again. For
 * tests and for in-process sweeps, which report failures per point; callers that decide take
 * reasons (reason.h).
 */
void rp_log_capture_begin(char *buffer, size_t size);
void rp_log_capture_end(void);

/** @return the current destination of this thread's messages, for rp_log_follow in threads that it
 * starts. */
void *rp_log_destination(void);

/**
 * Sends this thread's messages to the destination of the thread that started it, as long as it has
 * no capture of its own. The starting thread keeps its captures until this thread has ended.
 * @param destination result of rp_log_destination; NULL: stderr
 */
void rp_log_follow(void *destination);
