/** @file in_process.h  Between the library and rpsim's command line in its process: calls that both
 * begin and end, text that goes out, and words of a command line beside settings.
 */
#pragma once

#include "sim/library/rpsim.h"
#include "sim/study/study.h"

#include <locale.h>
#include <signal.h>
#include <stdio.h>

/* ---- calls ------------------------------------------------------------------------------------
 * Between beginning and end the thread has the locale of a program that sets none, messages are
 * kept instead of printed, and a pipe whose reader has gone is an error instead of a death.
 */

typedef struct rp_call {
    locale_t locale; /* of the thread before; (locale_t)0: unchanged */
    sigset_t signals;
    bool pipe_was_pending;
} rp_call;

/** Begins a call of a function that returns an rp_code; rp_call_end follows in every case. */
void rp_call_begin(rp_call *call);

/** Ends a call and sorts its messages. @return what the function returns */
rp_code rp_call_end(rp_call *call, rp_status status);

/**
 * Has `write` fill a stream, and gives what it wrote as a text.
 * @param text_out rp_free_json; NULL after a failure
 * @retval RP_OK, RP_NO_MEMORY, and what `write` gives
 */
rp_status rp_write_text(rp_status (*write)(void *context, FILE *stream), void *context,
                        char **text_out);

/* ---- words of rpsim ---------------------------------------------------------------------------
 * sim/rpsim/in_process.c defines these functions, and rp_run_json.
 */

/** Beginning of the command of a run that the library has made. */
#define RP_WORDS_BEFORE "rpsim --format json"

/** Words that were read, with the files that they name. */
typedef struct rp_words rp_words;

/**
 * Reads words of rpsim's command line that follow what keys have said, and checks and completes the
 * setup. Refused are words that ask for text, or write to standard output.
 * @param words [count], copied
 * @param setup RPSIM_SETUP_INIT and what rp_options_set has given it
 * @param command the keys and values so far, for stores; gets the words, too
 * @param words_out lives in `arena`
 * @retval RP_OK, RP_USAGE (logged), RP_NO_MEMORY
 */
rp_status rp_words_read(const char *const *words, uint32_t count, rp_arena *arena,
                        rpsim_setup *setup, const char **command, rp_words **words_out);

/** Runs a study of that setup and writes the files. @retval as rpsim_study_run, and of files */
rp_status rp_words_run(const rp_words *words, const char *command, rpsim_study *study);
