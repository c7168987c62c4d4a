#define _DEFAULT_SOURCE /* isatty */
#include "common/base/reason.h"

#include "common/base/mem.h"
#include "common/base/text.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *program_name = "rp";
static bool has_options; /* of a command line */
static _Thread_local uint64_t said;
static _Thread_local bool muted;

/* rp_log_set_place */
static _Thread_local const char *place_file;
static _Thread_local size_t place_line;

/* Nested captures of this thread: a sweep captures the reason for which a point has failed, and a
 * point may try steps that fail. */
#define MOST_CAPTURES 8

typedef struct capture {
    char *bytes; /* NULL: messages are dropped */
    size_t size;
    size_t length;
} capture;

static _Thread_local capture captures[MOST_CAPTURES];
static _Thread_local int capture_count; /* may be larger than MOST_CAPTURES */
/* Capture of another thread, or NULL; below this thread's own captures. */
static _Thread_local capture *followed;

static capture *current(void)
{
    int count = capture_count < MOST_CAPTURES ? capture_count : MOST_CAPTURES;
    return count > 0 ? &captures[count - 1] : followed;
}

static void put(const char *bytes, size_t length)
{
    capture *c = current();
    if (c == NULL) {
        fwrite(bytes, 1, length, stderr);
    } else if (c->bytes != NULL) {
        size_t room = c->size - c->length - 1;
        length = length < room ? length : room;
        memcpy(c->bytes + c->length, bytes, length);
        c->length += length;
        c->bytes[c->length] = '\0';
    }
}

/* ---- one message is one line ------------------------------------------------------------------
 * Names, cells and arguments in a message come from outside: characters that could end the line, or
 * drive or deceive a terminal, are shown as \xNN. A text longer than any of this project loses its
 * middle.
 */

#define LONGEST_TEXT 2000u /* bytes */
#define KEPT_AT_AN_END 500u

static void put_escaped(const char *text, size_t length)
{
    size_t plain = 0; /* bytes before `at` that need no escape */
    for (size_t at = 0; at < length;) {
        uint32_t code = 0;
        size_t size = rp_utf8_decode(text + at, length - at, &code);
        if (size > 0 && !rp_is_control(code)) {
            plain += size;
            at += size;
            continue;
        }
        put(text + at - plain, plain);
        plain = 0;
        for (size_t end = at + (size > 0 ? size : 1); at < end; at++) {
            char escaped[8];
            snprintf(escaped, sizeof escaped, "\\x%02x", (unsigned char)text[at]);
            put(escaped, 4);
        }
    }
    put(text + length - plain, plain);
}

static bool inside_sequence(char byte)
{
    return ((unsigned char)byte & 0xC0u) == 0x80;
}

static void put_text(const char *text, size_t length)
{
    if (length <= LONGEST_TEXT) {
        put_escaped(text, length);
        return;
    }
    size_t head = KEPT_AT_AN_END;
    size_t tail = length - KEPT_AT_AN_END;
    while (head > 0 && inside_sequence(text[head])) {
        head--;
    }
    while (tail < length && inside_sequence(text[tail])) {
        tail++;
    }
    char note[64];
    snprintf(note, sizeof note, "… (%zu bytes) …", tail - head);
    put_escaped(text, head);
    put(note, strlen(note));
    put_escaped(text + tail, length - tail);
}

/* The length of a message without the newline with which other libraries and programs end it. */
static size_t without_line_end(const char *text, size_t length)
{
    while (length > 0 && (text[length - 1] == '\n' || text[length - 1] == '\r')) {
        length--;
    }
    return length;
}

/* ---- settings -------------------------------------------------------------------------------- */

#define FORMAT_BYTES 2048u

const char *rp_log_find_setting(const char *format, size_t *length_out)
{
    while ((format = strchr(format, '{')) != NULL) {
        size_t length = strspn(++format, "abcdefghijklmnopqrstuvwxyz0123456789_");
        if (length > 0 && format[length] == '}') {
            *length_out = length;
            return format;
        }
    }
    return NULL;
}

/* Writes `format` with its settings spelled as the program's user knows them; cut after
 * FORMAT_BYTES. */
static const char *spell_settings(const char *format, char spelled[static FORMAT_BYTES])
{
    size_t length = 0;
    size_t at = 0;
    const char *key;
    while (at < FORMAT_BYTES && (key = rp_log_find_setting(format, &length)) != NULL) {
        at +=
            (size_t)snprintf(spelled + at, FORMAT_BYTES - at, "%.*s%s%.*s", (int)(key - 1 - format),
                             format, has_options ? "--" : "", (int)length, key);
        for (size_t i = 1; has_options && i <= length && at <= FORMAT_BYTES; i++) {
            char *letter = &spelled[at - i];
            *letter = (char)(*letter == '_' ? '-' : *letter);
        }
        format = key + length + 1;
    }
    if (at == 0) {
        return format; /* names none */
    }
    if (at < FORMAT_BYTES) {
        (void)snprintf(spelled + at, FORMAT_BYTES - at, "%s", format);
    }
    return spelled;
}

rp_log_words rp_log_spell(const char *words)
{
    char spelled[FORMAT_BYTES];
    rp_log_words out;
    (void)snprintf(out.text, sizeof out.text, "%s", spell_settings(words, spelled));
    return out;
}

RP_PRINTF(1, 0) static void put_formatted(const char *format, va_list arguments)
{
    char spelled[FORMAT_BYTES];
    format = spell_settings(format, spelled);
    char few[LONGEST_TEXT + 1];
    char *many = NULL;
    va_list again;
    va_copy(again, arguments);
    int needed = vsnprintf(few, sizeof few, format, arguments);
    size_t length = needed > 0 ? (size_t)needed : 0;
    if (length < sizeof few) {
        put_text(few, without_line_end(few, length));
    } else if (rp_mem_resize(&many, length + 1) == RP_OK) {
        vsnprintf(many, length + 1, format, again);
        put_text(many, without_line_end(many, length));
    } else { /* rp_mem_resize has logged the failure */
        put_text(few, sizeof few - 1);
    }
    va_end(again);
    rp_mem_release(&many);
}

static void put_place(const char *file, size_t line)
{
    char place[32] = ": ";
    if (file == NULL) {
        return;
    }
    if (line != 0) {
        snprintf(place, sizeof place, ":%zu: ", line);
    }
    put_text(file, strlen(file));
    put(place, strlen(place));
}

/* ---- progress -------------------------------------------------------------------------------- */

#define PROGRESS_FROM_S 1.0
#define PROGRESS_EVERY_S 0.1
#define PROGRESS_COLUMNS 79

/* State of the whole process, guarded by the lock of stderr. */
static struct {
    bool allowed;
    bool visible;
    bool begun;
    double begin_s;
    double shown_s;
    char text[PROGRESS_COLUMNS + 1];
} progress;

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void clear_progress(void)
{
    if (progress.visible) {
        fputs("\r\033[K", stderr);
        progress.visible = false;
    }
}

/* Under the lock. */
static void show_progress(void)
{
    double time_s = now_s();
    if (!progress.begun) {
        progress.begun = true;
        progress.begin_s = time_s;
        progress.shown_s = 0;
    }
    if (time_s - progress.begin_s >= PROGRESS_FROM_S &&
        time_s - progress.shown_s >= PROGRESS_EVERY_S) {
        fprintf(stderr, "\r%.*s, %.0f s\033[K", PROGRESS_COLUMNS - 8, progress.text,
                time_s - progress.begin_s);
        fflush(stderr);
        progress.shown_s = time_s;
        progress.visible = true;
    }
}

void rp_progress_allow(void)
{
    const char *terminal = getenv("TERM");
    progress.allowed = isatty(STDERR_FILENO) == 1 && terminal != NULL && *terminal != '\0' &&
                       strcmp(terminal, "dumb") != 0;
}

void rp_progress(const char *what, uint64_t done, uint64_t total, const char *now)
{
    char count[64] = "";
    if (!progress.allowed) {
        return;
    }
    if (total != 0) {
        snprintf(count, sizeof count, ", %llu of %llu", (unsigned long long)done,
                 (unsigned long long)total);
    }
    flockfile(stderr);
    snprintf(progress.text, sizeof progress.text, "%s: %s%s%s%s", program_name,
             what != NULL ? what : "running", count, now != NULL ? ": " : "",
             now != NULL ? now : "");
    show_progress();
    funlockfile(stderr);
}

void rp_progress_tick(void)
{
    if (progress.allowed) {
        flockfile(stderr);
        if (progress.text[0] != '\0') {
            show_progress();
        }
        funlockfile(stderr);
    }
}

void rp_progress_end(void)
{
    if (progress.allowed) {
        flockfile(stderr);
        clear_progress();
        progress.begun = false;
        progress.text[0] = '\0';
        funlockfile(stderr);
    }
}

/* ---- messages -------------------------------------------------------------------------------- */

/* @param placed the message begins with a place of its own */
static void begin_message(bool placed)
{
    flockfile(stderr); /* keeps the lines of several threads whole */
    said++;
    if (current() == NULL) {
        clear_progress();
    }
    if (!placed && place_file != NULL) {
        put_place(place_file, place_line);
    } else if (!placed && current() == NULL) {
        put(program_name, strlen(program_name));
        put(": ", 2);
    }
}

static void end_message(void)
{
    put("\n", 1);
    funlockfile(stderr);
}

RP_PRINTF(2, 0)
static void print_message(const char *severity, const char *format, va_list arguments)
{
    begin_message(false);
    put(severity, strlen(severity));
    put_formatted(format, arguments);
    end_message();
}

void rp_log_error(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    print_message("", format, arguments);
    va_end(arguments);
}

rp_status rp_broken_at(const char *file, int line)
{
    /* The compiler gets all paths in the same form: relative to a build folder, or absolute. */
    size_t root = sizeof __FILE__ - sizeof "common/base/log.c";
    file += strncmp(file, __FILE__, root) == 0 ? root : 0;
    rp_log_error(
        "internal error at %s:%d; this is a defect of RoundPipe's testbed, please report it", file,
        line);
    return RP_BROKEN;
}

bool rp_log_mute_warnings(bool mute)
{
    bool before = muted;
    muted = mute;
    return before;
}

void rp_log_warning(const char *format, ...)
{
    va_list arguments;
    if (muted) {
        said++;
        return;
    }
    va_start(arguments, format);
    print_message("warning: ", format, arguments);
    va_end(arguments);
}

RP_PRINTF(3, 0)
static void print_placed(const char *file, size_t line, const char *format, va_list arguments)
{
    begin_message(true);
    put_place(file, line);
    put_formatted(format, arguments);
    end_message();
}

void rp_log_error_at(const char *file, size_t line, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    print_placed(file, line, format, arguments);
    va_end(arguments);
}

void rp_log_error_list(const char *file, size_t line, const char *format, va_list arguments)
{
    if (file != NULL) {
        print_placed(file, line, format, arguments);
    } else {
        print_message("", format, arguments);
    }
}

void rp_log_print(char *buffer, size_t size, const char *file, size_t line, const char *format,
                  va_list arguments)
{
    rp_log_capture_begin(buffer, size);
    put_place(file, line);
    put_formatted(format, arguments);
    rp_log_capture_end();
}

uint64_t rp_log_said(void)
{
    return said;
}

void rp_log_set_place(const char *file, size_t line)
{
    place_file = file;
    place_line = line;
}

void rp_log_set_program(const char *name)
{
    program_name = name != NULL ? name : "rp";
    has_options = name != NULL;
}

void rp_log_capture_begin(char *buffer, size_t size)
{
    capture *c = current();
    if (c == NULL || c == followed || c->bytes != buffer) {
        capture_count++;
        c = current(); /* beyond MOST_CAPTURES, the innermost capture is replaced */
    }
    *c = (capture){.bytes = size > 0 ? buffer : NULL, .size = size};
    if (size > 0) {
        buffer[0] = '\0';
    }
}

void rp_log_capture_end(void)
{
    capture_count -= capture_count > 0 ? 1 : 0;
}

void *rp_log_destination(void)
{
    return current();
}

void rp_log_follow(void *destination)
{
    followed = destination;
}

/* ---- reasons --------------------------------------------------------------------------------- */

/* @param file NULL: without a place */
RP_PRINTF(5, 0)
static rp_status refuse(rp_reason *reason, rp_status status, const char *file, size_t line,
                        const char *format, va_list arguments)
{
    if (reason == NULL) {
        rp_log_error_list(file, line, format, arguments);
        return status;
    }
    size_t length = 0;
    const char *key = rp_log_find_setting(format, &length);
    *reason = (rp_reason){.status = status, .placed = file != NULL};
    if (key != NULL && length < sizeof reason->subject) {
        memcpy(reason->subject, key, length);
    }
    rp_log_print(reason->text, sizeof reason->text, file, line, format, arguments);
    return status;
}

rp_status rp_refuse(rp_reason *reason, rp_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    refuse(reason, status, NULL, 0, format, arguments);
    va_end(arguments);
    return status;
}

rp_status rp_refuse_at(rp_reason *reason, rp_status status, const char *file, size_t line,
                       const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    refuse(reason, status, file, line, format, arguments);
    va_end(arguments);
    return status;
}

rp_status rp_refuse_setting(rp_reason *reason, rp_status status, const char *key,
                            const char *format, ...)
{
    char whole[FORMAT_BYTES];
    va_list arguments;
    (void)snprintf(whole, sizeof whole, "{%s}: %s", key, format);
    va_start(arguments, format);
    refuse(reason, status, NULL, 0, whole, arguments);
    va_end(arguments);
    return status;
}

rp_status rp_reason_log(const rp_reason *reason)
{
    begin_message(reason->placed);
    put(reason->text, strlen(reason->text)); /* already escaped and shortened, as messages are */
    end_message();
    return reason->status;
}

/* The rest of `text` after "HEAD: " if it begins so; otherwise all of it. */
static const char *behind(const char *text, const char *head, size_t length)
{
    bool begins = strncmp(text, head, length) == 0 && strncmp(text + length, ": ", 2) == 0;
    return begins ? text + length + 2 : text;
}

const char *rp_reason_cause(const rp_reason *reason, const char *name, size_t *length_out)
{
    const char *cause = behind(reason->text, reason->text, strcspn(reason->text, ": "));
    if (reason->subject[0] == '\0' && !reason->placed) {
        cause = reason->text;
    }
    if (name != NULL) {
        cause = behind(cause, name, strlen(name));
    }
    *length_out = strcspn(cause, ";");
    return cause;
}

rp_status rp_reason_give(const rp_reason *own, rp_status status, rp_reason *reason)
{
    if (status == RP_OK || own->status != status) {
        return status;
    }
    if (reason == NULL) {
        return rp_reason_log(own);
    }
    *reason = *own;
    return status;
}
