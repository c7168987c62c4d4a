#include "tests/support/test_arena.h"

#include "common/base/log.h"
#include "tests/support/assertions.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>

rp_arena *rp_test_arena;
char rp_test_messages[8192];

void rp_test_arena_begin(void)
{
    cr_assert(eq(int, rp_arena_create(&rp_test_arena), RP_OK));
}

void rp_test_arena_end(void)
{
    rp_test_end(rp_test_arena);
}

void rp_test_arena_again(void)
{
    rp_test_arena_end();
    rp_test_arena_begin();
}

void rp_test_log_begin(void)
{
    rp_test_arena_begin();
    rp_log_capture_begin(rp_test_messages, sizeof rp_test_messages);
}

void rp_test_log_end(void)
{
    rp_log_capture_end();
    rp_test_arena_end();
}

void rp_test_log_again(void)
{
    rp_log_capture_end();
    rp_log_capture_begin(rp_test_messages, sizeof rp_test_messages);
}

void rp_test_end(rp_arena *arena)
{
    rp_arena_destroy(arena);
    rp_test_none_left(rp_mem_live_bytes(), "bytes");
}

void rp_test_none_left(size_t count, const char *what)
{
    if (count == 0) {
        return;
    }
    fprintf(stderr, "left by %s/%s: %zu %s (not a leak where an assertion of it failed above)\n",
            criterion_current_suite->name, criterion_current_test->name, count, what);
    abort();
}
