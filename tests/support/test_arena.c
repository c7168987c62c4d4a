#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>

rp_arena *rp_test_arena;

void rp_test_arena_begin(void)
{
    cr_assert(eq(int, rp_arena_create(&rp_test_arena), RP_OK));
}

void rp_test_arena_end(void)
{
    rp_arena_destroy(rp_test_arena);
    cr_expect(eq(sz, rp_mem_live_bytes(), 0));
}
