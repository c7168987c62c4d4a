/* Tests that leave something behind, one suite for each kind of teardown: every test named leaks
 * must fail, every test named gives_back must pass (tests/checks/tests_can_fail.sh). Not run by
 * CTest. */
#include "common/base/text.h"
#include "tests/support/assertions.h"
#include "tests/support/fake/cuda_internal.h"
#include "tests/support/gpu_case.h"
#include "tests/support/run_tool.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>

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

/* Fails in its body: the teardown comes second. */
TestSuite(failed_before, .init = begin, .fini = end);
Test(failed_before, leaks)
{
    leave_text();
    cr_assert(false, "the first cause");
}
