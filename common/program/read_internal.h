/** @file read_internal.h  The program text as lines and words. Not for other modules. */
#pragma once

#include "common/base/log.h"
#include "common/program/program.h"

#define RP_READ_MAX_WORD 64

typedef struct rp_reader {
    const char *name;   /* the file's, for messages */
    const char *cursor; /* rest of the text */
    const char *end;
    size_t line;
    const char *word_begin; /* rest of the current line, without its comment */
    const char *line_end;
    char word[RP_READ_MAX_WORD]; /* the current word; a longer word is cut and ends in "...", which
                                    is never valid */
    rp_program *program;
    uint32_t op_capacity; /* number of lines: an upper bound for every list but the waits */
    uint64_t wait_capacity;
    uint64_t last_wait; /* the highest op that is waited for, and the line of that wait */
    size_t last_wait_line;
    uint64_t op_total; /* bytes of all ops so far */
    uint64_t buffer_total;
    bool saw_end;
} rp_reader;

#define RP_READ_FAIL(r, ...)                                                                       \
    do {                                                                                           \
        rp_log_error_at((r)->name, (r)->line, __VA_ARGS__);                                        \
        return RP_INPUT;                                                                           \
    } while (0)

/** Moves to the next line that holds a word. @return false at the end of the text */
bool rp_read_line(rp_reader *r);

/** Takes the next word of the line into r->word. Valid words are plain ASCII; other characters are
 * shown as '?' in messages.
 * @return false at the end of the line, with an empty word */
bool rp_read_word(rp_reader *r);

/** Takes a number of the line.
 * @param what name of the number, for messages
 * @retval RP_OK, RP_INPUT (logged) */
rp_status rp_read_number(rp_reader *r, const char *what, uint64_t low, uint64_t high,
                         uint64_t *value_out);

/** @retval RP_OK, RP_INPUT (a word is left; logged) */
rp_status rp_read_line_end(rp_reader *r);

/** Moves to the next line and takes its first word. @retval RP_OK, RP_INPUT (it is not `key`;
 * logged)
 */
rp_status rp_read_key(rp_reader *r, const char *key);

/** Reads the lines `rp-program` to `traits`. @retval RP_OK, RP_INPUT (logged), RP_NO_MEMORY */
rp_status rp_read_header(rp_reader *r);
