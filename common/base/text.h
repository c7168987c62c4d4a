/** @file text.h  Growable text, checked number parsing and whole-file reading and writing. */
#pragma once

#include "common/base/log.h"
#include "common/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/** A growable, NUL-terminated byte string; zero-initialise, then rp_text_fini. */
typedef struct rp_text {
    char *bytes;
    size_t length;
    size_t capacity;
} rp_text;

/** Appends `length` bytes. @retval RP_OK, RP_NO_MEMORY (logged; the text is as before) */
rp_status rp_text_append(rp_text *text, const char *bytes, size_t length);

/** Appends printf's output. @retval RP_OK, RP_NO_MEMORY (logged; the text is as before) */
rp_status rp_text_print(rp_text *text, const char *format, ...) RP_PRINTF(2, 3);

/**
 * Reads the UTF-8 sequence that begins at `bytes`.
 * @param length bytes that can be read, at least 1
 * @return length of the sequence in bytes; 0: the bytes are not UTF-8, and *code_out is undefined
 */
size_t rp_utf8_decode(const char *bytes, size_t length, uint32_t *code_out);

/** @return whether the code point is a C0 or C1 control, DEL, a line separator, or a mark that is
 * invisible or turns the direction of text (U+202E). */
bool rp_is_control(uint32_t code);

/** Gives the memory back and zeroes the text. */
void rp_text_fini(rp_text *text);

/**
 * Reads a whole regular file (or "-" for stdin).
 * @param limit_bytes files longer than this are refused with RP_INPUT.
 * @retval RP_OK, RP_INPUT (cannot be opened, not a regular file, or too long; logged), RP_IO,
 * RP_NO_MEMORY
 */
rp_status rp_text_read_file(const char *path, size_t limit_bytes, rp_text *text_out);

/**
 * Strict numbers: the whole of `text` must be a number; no sign for unsigned, no NaN or infinity,
 * no leading or trailing blanks, no hexadecimal, independent of the locale.
 * @return true and the value, false otherwise (also when outside [low, high]).
 */
bool rp_parse_u64(const char *text, uint64_t low, uint64_t high, uint64_t *value_out);
bool rp_parse_double(const char *text, double low, double high, double *value_out);

/** A file that appears under its name only when it is complete (temporary file, fsync, rename). */
typedef struct rp_output {
    FILE *stream;         /**< write here */
    char *path;           /**< final name; "-" is stdout, written directly */
    char *temporary_path; /**< NULL for stdout */
} rp_output;

/**
 * Opens `path` for atomic writing.
 * @retval RP_OK, RP_INPUT (the folder does not exist or is not writable: known before the run
 * starts, exit 2; logged), RP_NO_MEMORY
 */
rp_status rp_output_open(const char *path, rp_output *output_out);

/**
 * Flushes, checks for errors, renames. On failure the temporary file is removed.
 * @retval RP_OK, RP_IO (logged)
 */
rp_status rp_output_commit(rp_output *output);

/** @return whether a file's name is the temporary name of an unfinished output of any process. */
bool rp_output_is_temporary(const char *name);

/** @return whether a file's name is the temporary name of an output that a process of this machine
 * left unfinished when it ended, for example when it was killed. */
bool rp_output_is_abandoned(const char *name);

/** Removes the temporary files of this process's outputs that are open; for a signal's handler. */
void rp_output_remove_temporaries(void);

/** Drops an output that was not committed; harmless after a commit and on zeroes. */
void rp_output_discard(rp_output *output);

/** Nearest registered name to `text` by edit distance, or NULL when none is close; for messages. */
const char *rp_text_nearest(const char *text, const char *const *names, size_t count);
