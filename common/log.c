#include "common/log.h"

#include <stdio.h>
#include <string.h>

static const char *program_name = "rp";

/* One capture per thread: sweeps run many points in one process and report each one's failure. */
static _Thread_local char *capture_bytes;
static _Thread_local size_t capture_size;
static _Thread_local size_t capture_length;

RP_PRINTF(1, 0) static void capture_vprint(const char *format, va_list arguments)
{
    size_t room = capture_size - capture_length;
    if (room <= 1) {
        return;
    }
    int length = vsnprintf(capture_bytes + capture_length, room, format, arguments);
    if (length > 0) {
        capture_length += (size_t)length < room ? (size_t)length : room - 1;
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
    if (capture_bytes) {
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
    if (capture_bytes) {
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
    capture_bytes = size > 0 ? buffer : NULL;
    capture_size = size;
    capture_length = 0;
    if (capture_bytes) {
        buffer[0] = '\0';
    }
}

void rp_log_capture_end(void)
{
    capture_bytes = NULL;
    capture_size = 0;
    capture_length = 0;
}
