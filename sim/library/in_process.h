/** @file in_process.h  Functions that the library and rpsim's command line share in a process:
 * beginning and end of a call, output as text, and words of a command line that follow settings.
 */
#pragma once

#include "sim/library/rpsim.h"
#include "sim/study/study.h"

#include <locale.h>
#include <signal.h>
#include <stdio.h>

/* ---- calls ------------------------------------------------------------------------------------
 * During a call the thread has the plain "C" locale, messages are kept instead of printed, and
 * writing to a pipe without a reader is an error that does not end the process.
 */

typedef struct rp_call {
    locale_t locale; /* the thread's locale before the call; (locale_t)0: unchanged */
    sigset_t signals;
    bool pipe_was_pending;
} rp_call;

/** Begins a call of a function that returns an rp_code. rp_call_end must follow in every case. */
void rp_call_begin(rp_call *call);

/** Ends a call and sorts its messages. @return the code that the function returns */
rp_code rp_call_end(rp_call *call, rp_status status);

/**
 * Lets `write` write into a stream, and gives the written bytes as a text.
 * @param text_out to be freed by rp_free_json; NULL after a failure
 * @retval RP_OK, RP_NO_MEMORY, and the status of `write`
 */
rp_status rp_write_text(rp_status (*write)(void *context, FILE *stream), void *context,
                        char **text_out);

/** A command line that a function of the library takes. */
typedef struct rp_line {
    int count;
    const char *const *words;
    rp_arena *arena; /**< lives as long as the call */
} rp_line;

/**
 * Does a call of a function that answers a command line with JSON.
 * @param function its name, for messages
 * @param write acts on the line (its context, an rp_line) and writes the answer
 * @param json_out to be freed by rp_free_json; NULL after a failure
 * @return the code that the function returns
 */
rp_code rp_line_answer(const char *function, int count, const char *const *words,
                       rp_status (*write)(void *line, FILE *stream), char **json_out);

/* ---- words of rpsim ---------------------------------------------------------------------------
 * sim/rpsim/in_process.c defines these functions and rp_run_json, sim/rpadvise/program/in_process.c
 * rp_advise_json.
 */

/** Beginning of the command line that stands for a run of the library. */
#define RP_WORDS_BEFORE "rpsim --format json"

/**
 * Copies words of a command line after the words that stand before them.
 * @param function name of the function that takes the words, for messages
 * @param before [before_count], the program's name first
 * @param words [count]
 * @param words_out [*count_out]
 * @retval RP_OK, RP_USAGE (a word is NULL; logged), RP_NO_MEMORY
 */
rp_status rp_words_copy(const char *function, const char *const *before, int before_count,
                        const char *const *words, int count, rp_arena *arena, int *count_out,
                        char ***words_out);

/** Words that were read, and the files that they name. */
typedef struct rp_words rp_words;

/**
 * Reads words of rpsim's command line into a setup that has the values of keys already, then checks
 * and completes the setup. Words that ask for text or write to standard output are refused.
 * @param words [count], copied
 * @param setup RPSIM_SETUP_INIT with the values that rp_options_set has given it
 * @param command the keys and values so far as a command line, for stores; the words are appended
 * @param words_out lives in `arena`
 * @retval RP_OK, RP_USAGE (logged), RP_NO_MEMORY
 */
rp_status rp_words_read(const char *const *words, uint32_t count, rp_arena *arena,
                        rpsim_setup *setup, const char **command, rp_words **words_out);

/** Runs a study of that setup and writes the files. @retval as rpsim_study_run, and failures of
 * files */
rp_status rp_words_run(const rp_words *words, const char *command, rpsim_study *study);
