/* Tests that must fail, run by tests/checks/test_tests_can_fail.py and not by CTest. Some tests
 * leave something behind, in a suite for each kind of teardown: every test named leaks must fail,
 * and every test named gives_back must pass. The others try every condition that assertions.h
 * knows. */
#include "common/base/text.h"
#include "tests/support/assertions.h"
#include "tests/support/fake/cuda_internal.h"
#include "tests/support/gpu_case.h"
#include "tests/support/run_tool.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>

static rp_arena *arena;

static void begin(void)
{
    cr_assert(eq(int, rp_arena_create(&arena), RP_OK));
}

static void end(void)
{
    rp_test_end(arena);
}

static void end_without_arena(void)
{
    rp_test_end(NULL);
}

static void end_of_gpu(void)
{
    rp_test_gpu_end(arena);
}

static void leave_text(void)
{
    rp_text text = {0};
    cr_assert(eq(int, rp_text_append(&text, "left", 4), RP_OK));
}

static void give_text_back(void)
{
    rp_text text = {0};
    cr_assert(eq(int, rp_text_append(&text, "left", 4), RP_OK));
    rp_text_fini(&text);
}

TestSuite(own_arena, .init = begin, .fini = end);
Test(own_arena, leaks)
{
    leave_text();
}
Test(own_arena, gives_back)
{
    give_text_back();
}

TestSuite(no_arena, .fini = end_without_arena);
Test(no_arena, leaks)
{
    leave_text();
}
Test(no_arena, gives_back)
{
    give_text_back();
}

TestSuite(common_arena, .init = rp_test_arena_begin, .fini = rp_test_arena_end);
Test(common_arena, leaks)
{
    leave_text();
}
Test(common_arena, gives_back)
{
    give_text_back();
}

TestSuite(tool, .init = rp_test_tool_begin, .fini = rp_test_tool_end);
Test(tool, leaks)
{
    leave_text();
}
Test(tool, gives_back)
{
    give_text_back();
}

TestSuite(gpu, .init = begin, .fini = end_of_gpu);
Test(gpu, leaks)
{
    leave_text();
}
Test(gpu, gives_back)
{
    void *event = NULL;
    give_text_back();
    cr_assert(eq(int, emulator_event_create(&event), 0));
    emulator_event_destroy(event);
}

TestSuite(gpu_things, .init = begin, .fini = end_of_gpu);
Test(gpu_things, leaks)
{
    void *event = NULL;
    cr_assert(eq(int, emulator_event_create(&event), 0));
}

/* The test fails in its body, before the teardown. */
TestSuite(failed_before, .init = begin, .fini = end);
Test(failed_before, leaks)
{
    leave_text();
    cr_assert(false, "the first cause");
}

/* ---- assertions.h: tests that must fail, and tests that must not ----------------------------- */

TestSuite(assertions);
Test(assertions, fail)
{
    const double none = nan("");
    char text[] = "abc";
    cr_expect(eq(int, 2, 3), "%s of %d", "the message", 1);
    cr_expect(eq(u64, UINT64_MAX, UINT64_MAX - 1));
    cr_expect(eq(i64, INT64_MIN, INT64_MAX));
    cr_expect(eq(flt, 1.0f, nextafterf(1.0f, 2.0f)));
    cr_expect(eq(str, text, "abd"));
    cr_expect(eq(str, NULL, "abd"));
    cr_expect(ne(str, text, "abc"));
    cr_expect(ne(ptr, text, text));
    cr_expect(lt(sz, 2, 2));
    cr_expect(le(dbl, nextafter(1, 2), 1));
    cr_expect(gt(u32, 2, 2));
    cr_expect(ge(chr, 'a', 'b'));
    cr_expect(eq(dbl, none, none));
    cr_expect(lt(dbl, none, 1));
    cr_expect(le(dbl, none, 1));
    cr_expect(gt(dbl, none, 1));
    cr_expect(ge(dbl, none, 1));
    cr_expect(epsilon_eq(dbl, 1, 1.25, 0.125));
    cr_expect(epsilon_eq(dbl, none, 1, 10));
    cr_expect(ieee_ulp_eq(dbl, 1, 1 + 4 * DBL_EPSILON, 3));
    cr_expect(not(text[0] == 'a'));
    cr_expect(text[0] == ',' || text[1] == ')', "(%s", text);
    cr_assert(eq(u16, 65535, 0), "the last");
    cr_assert_fail("not reached");
}

static char *unwanted_message(void)
{
    abort();
}

Test(assertions, hold)
{
    char text[] = "abc";
    int order = 0;
    cr_assert(eq(int, ++order, 1), "%s", unwanted_message());
    cr_expect(eq(int, order = 5, order)); /* the first value is evaluated first, and only once */
    cr_expect(eq(str, text, "abc"));
    cr_expect(eq(str, NULL, NULL));
    cr_expect(ne(str, text, "abd"));
    cr_expect(ne(dbl, nan(""), nan("")));
    cr_expect(ne(ptr, text, NULL));
    cr_expect(lt(i32, -1, 0));
    cr_expect(le(u8, 255, 255));
    cr_expect(gt(i64, INT64_MAX, INT64_MIN));
    cr_expect(ge(u64, UINT64_MAX, UINT64_MAX));
    cr_expect(epsilon_eq(dbl, INFINITY, INFINITY, 0));
    cr_expect(epsilon_eq(dbl, 1, 1.125, 0.125));
    cr_expect(ieee_ulp_eq(dbl, 1, 1 + 4 * DBL_EPSILON, 4));
    cr_expect(not(text[0] == 'b'));
    cr_assert(text[0] == 'a', "%s", unwanted_message());
}
