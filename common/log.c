#include "common/log.h"

#include <stdio.h>
#include <string.h>

static const char *program_name = "rp";

/* Captures of this thread, one inside another: a sweep reports why a point has failed, and a point
 * may try what fails. */
#define MOST_CAPTURES 8

typedef struct capture {
    char *bytes; /* NULL: messages are dropped */
    size_t size;
    size_t length;
} capture;

static _Thread_local capture captures[MOST_CAPTURES];
static _Thread_local int capture_count; /* may be larger than what is kept */

static capture *current(void)
{
    int count = capture_count < MOST_CAPTURES ? capture_count : MOST_CAPTURES;
    return count > 0 ? &captures[count - 1] : NULL;
}

RP_PRINTF(1, 0) static void capture_vprint(const char *format, va_list arguments)
{
    capture *c = current();
    size_t room = c->bytes != NULL ? c->size - c->length : 0;
    if (room <= 1) {
        return;
    }
    int length = vsnprintf(c->bytes + c->length, room, format, arguments);
    if (length > 0) {
        c->length += (size_t)length < room ? (size_t)length : room - 1;
    }
}

RP_PRINTF(1, 2) static void capture_print(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    capture_vprint(format, arguments);
    va_end(arguments);
}

RP_PRINTF(2, 0)
static void print_message(const char *severity, const char *format, va_list arguments)
{
    if (current() != NULL) {
        capture_print("%s", severity);
        capture_vprint(format, arguments);
        capture_print("\n");
        return;
    }
    flockfile(stderr); /* messages of several threads stay whole lines */
    fprintf(stderr, "%s: %s", program_name, severity);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    funlockfile(stderr);
}

void rp_log_error(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    print_message("", format, arguments);
    va_end(arguments);
}

void rp_log_warning(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    print_message("warning: ", format, arguments);
    va_end(arguments);
}

RP_PRINTF(3, 0)
static void print_at(const char *file, const char *place, const char *format, va_list arguments)
{
    if (current() != NULL) {
        capture_print("%s%s: ", file, place);
        capture_vprint(format, arguments);
        capture_print("\n");
        return;
    }
    flockfile(stderr);
    fprintf(stderr, "%s%s: ", file, place);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    funlockfile(stderr);
}

void rp_log_error_at(const char *file, size_t line, const char *format, ...)
{
    char place[32] = "";
    if (line != 0) {
        snprintf(place, sizeof place, ":%zu", line);
    }
    va_list arguments;
    va_start(arguments, format);
    print_at(file, place, format, arguments);
    va_end(arguments);
}

void rp_log_set_program(const char *name)
{
    program_name = name;
}

void rp_log_capture_begin(char *buffer, size_t size)
{
    capture *c = current();
    if (c == NULL || c->bytes != buffer) {
        capture_count++;
        c = current(); /* deeper than anybody goes, the innermost one is replaced */
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
