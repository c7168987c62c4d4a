#include "common/base/log.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <string.h>

/* A broken invariant names its place from the root of the sources, wherever the build folder is. */
Test(log, broken_invariants_say_where)
{
    char messages[256];
    char expected[64];
    rp_log_capture_begin(messages, sizeof messages);
    rp_status status = rp_broken();
    rp_log_capture_end();
    (void)snprintf(expected, sizeof expected, "at tests/common/base/log.c:%d; ", __LINE__ - 2);
    cr_expect(eq(int, status, RP_BROKEN));
    cr_expect(strstr(messages, expected) != NULL, "%s", messages);
}
