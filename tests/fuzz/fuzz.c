#include "tests/fuzz/fuzz.h"

#include "common/base/log.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char messages[16384];

void fuzz_begin(void)
{
    rp_log_capture_begin(messages, sizeof messages);
}

const char *fuzz_log(void)
{
    return messages;
}

void fuzz_require(bool holds, const char *why)
{
    if (!holds) {
        rp_log_capture_end();
        fprintf(stderr, "broken promise: %s\nlog: %s\n", why, messages);
        abort();
    }
}

/* "f:12: " */
static bool names_line(const char *text)
{
    size_t prefix = sizeof FUZZ_FILE - 1;
    if (strncmp(text, FUZZ_FILE ":", prefix + 1) != 0) {
        return false;
    }
    size_t digits = strspn(text + prefix + 1, "0123456789");
    const char *rest = text + prefix + 1 + digits;
    return digits > 0 && text[prefix + 1] != '0' && strncmp(rest, ": ", 2) == 0;
}

void fuzz_require_refusal(rp_status status, const char *whole_file)
{
    fuzz_require(status == RP_INPUT, "bad bytes are bad input");
    const char *newline = strchr(messages, '\n');
    fuzz_require(newline != NULL && newline[1] == '\0', "one message of one line");
    bool whole = whole_file != NULL && strncmp(messages, FUZZ_FILE ": ", 3) == 0 &&
                 strstr(messages, whole_file) != NULL;
    fuzz_require(whole || names_line(messages), "the message begins with the place");
}

int fuzz_end(void)
{
    rp_log_capture_end();
    fuzz_require(rp_mem_live_bytes() == 0, "nothing stays allocated");
    return 0;
}
