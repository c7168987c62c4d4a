#define _GNU_SOURCE /* newlocale, uselocale */
#include "sim/library/library_internal.h"

#include "common/base/log.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

/* Bytes for the messages of a call. A ranking warns of some 30 schedules, with some 200 bytes each.
 */
#define MESSAGES_BYTES (1u << 15)

static _Thread_local char messages[MESSAGES_BYTES];
static _Thread_local char warnings[MESSAGES_BYTES];
static _Thread_local char cause[MESSAGES_BYTES];

/* ---- the host's settings --------------------------------------------------------------------- */

static pthread_once_t locale_once = PTHREAD_ONCE_INIT;
static locale_t plain_locale;

static void make_locale(void)
{
    plain_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

static bool pipe_is_pending(void)
{
    sigset_t pending;
    return sigpending(&pending) == 0 && sigismember(&pending, SIGPIPE) == 1;
}

static void hold_pipe_signal(rp_call *call)
{
    sigset_t pipe;
    (void)sigemptyset(&pipe);
    (void)sigaddset(&pipe, SIGPIPE);
    call->pipe_was_pending = pipe_is_pending();
    (void)pthread_sigmask(SIG_BLOCK, &pipe, &call->signals);
}

/* Takes away a SIGPIPE that came during the call: a pipe of the library has caused it. */
static void release_pipe_signal(const rp_call *call)
{
    const struct timespec now = {0};
    sigset_t pipe;
    (void)sigemptyset(&pipe);
    (void)sigaddset(&pipe, SIGPIPE);
    if (!call->pipe_was_pending && pipe_is_pending()) {
        (void)sigtimedwait(&pipe, NULL, &now);
    }
    (void)pthread_sigmask(SIG_SETMASK, &call->signals, NULL);
}

void rp_call_begin(rp_call *call)
{
    (void)pthread_once(&locale_once, make_locale);
    call->locale = plain_locale != (locale_t)0 ? uselocale(plain_locale) : (locale_t)0;
    hold_pipe_signal(call);
    rp_log_capture_begin(messages, sizeof messages);
}

/* ---- messages -------------------------------------------------------------------------------- */

static void append(char *text, const char *line, size_t length)
{
    size_t end = strlen(text);
    if (end > 0) {
        text[end++] = '\n';
    }
    memcpy(text + end, line, length); /* the lines together are no longer than `messages` */
    text[end + length] = '\0';
}

static void sort_messages(void)
{
    static const char mark[] = "warning: ";
    const size_t marked = sizeof mark - 1;
    warnings[0] = '\0';
    cause[0] = '\0';
    size_t length = 0;
    for (const char *at = messages; *at != '\0'; at += length + (at[length] == '\n')) {
        length = strcspn(at, "\n");
        if (strncmp(at, mark, marked) == 0) {
            append(warnings, at + marked, length - marked);
        } else {
            append(cause, at, length);
        }
    }
}

rp_code rp_call_end(rp_call *call, rp_status status)
{
    rp_log_capture_end();
    release_pipe_signal(call);
    if (call->locale != (locale_t)0) {
        (void)uselocale(call->locale);
    }
    sort_messages();
    if (status == RP_OK) {
        cause[0] = '\0';
    } else if (cause[0] == '\0') {
        strcpy(cause, rp_status_text(status));
    }
    return rp_status_exit(status) == 2 ? RP_CODE_BAD_INPUT
           : status == RP_OK           ? RP_CODE_OK
                                       : RP_CODE_FAILED;
}

const char *rp_last_error(void)
{
    return cause;
}

const char *rp_last_warnings(void)
{
    return warnings;
}

/* ---- a command line -------------------------------------------------------------------------- */

static rp_status answer(const char *function, int count, const char *const *words,
                        rp_status (*write)(void *line, FILE *stream), char **json_out)
{
    rp_line line = {.words = words, .count = count};
    if (json_out == NULL || count < 0 || (count > 0 && words == NULL)) {
        rp_log_error("%s: valid are argc >= 0, argv of that length and a json_out", function);
        return RP_USAGE;
    }
    RP_TRY(rp_arena_create(&line.arena));
    rp_status status = rp_write_text(write, &line, json_out);
    rp_arena_destroy(line.arena);
    return status;
}

rp_code rp_line_answer(const char *function, int count, const char *const *words,
                       rp_status (*write)(void *line, FILE *stream), char **json_out)
{
    rp_call call;
    rp_call_begin(&call);
    if (json_out != NULL) {
        *json_out = NULL;
    }
    return rp_call_end(&call, answer(function, count, words, write, json_out));
}
