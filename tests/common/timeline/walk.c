/* Causes over a copy engine shared by two queues, and a walk over times that no engine gives. */
#include "common/timeline/walk.h"
#include "tests/support/assertions.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>

TestSuite(walk, .init = rp_test_log_begin, .fini = rp_test_log_end, .timeout = 30);

/* Op 0 uploads parameters; op 1 then uploads an activation. */
static rp_op ops[] = {{.kind = RP_OP_UPLOAD_PARAMS, .wait_begin = 0},
                      {.kind = RP_OP_UPLOAD_ACT, .wait_begin = 0},
                      {.wait_begin = 1}};
static rp_queue queues[] = {{0, 1, 0, RP_QUEUE_PARAM_UPLOAD}, {1, 2, 0, RP_QUEUE_ACT_UPLOAD}};
static rp_wait waits[] = {0 | RP_WAIT_CONTROL};
static uint64_t bytes[] = {1, 1};
static int64_t start_ps[2];
static int64_t end_ps[2];
static const rp_program program = {.gpu_count = 1,
                                   .queue_count = 2,
                                   .queues = queues,
                                   .op_count = 2,
                                   .ops = ops,
                                   .op_bytes = bytes,
                                   .wait_count = 1,
                                   .waits = waits};
static const rp_timeline timeline = {.program = &program, .start_ps = start_ps, .end_ps = end_ps};

static void set_times(int64_t start_0, int64_t end_0, int64_t start_1, int64_t end_1)
{
    start_ps[0] = start_0;
    end_ps[0] = end_0;
    start_ps[1] = start_1;
    end_ps[1] = end_1;
}

/* The pieces so far, from last to first. */
typedef struct pieces {
    uint32_t count;
    int64_t begin_ps;
    bool whole; /* each ends as the next begins */
} pieces;

static void add(void *context, const rp_walk_piece *piece)
{
    pieces *p = context;
    p->whole = p->whole && piece->end_ps == p->begin_ps && piece->start_ps < piece->end_ps;
    p->begin_ps = piece->start_ps;
    p->count++;
}

static pieces walk_from_the_end(const rp_walk *walk)
{
    uint32_t last = rp_walk_last(&timeline);
    pieces found = {.begin_ps = end_ps[last], .whole = true};
    rp_walk_back(walk, last, 0, end_ps[last], RP_WALK_PATH, add, &found);
    return found;
}

Test(walk, cause_is_the_wait)
{
    rp_walk walk;
    uint32_t cause = 7;
    set_times(0, 10, 10, 30);
    cr_assert(eq(int, rp_walk_prepare(&timeline, 0, rp_test_arena, &walk), RP_OK));
    cr_expect(eq(int, rp_walk_cause(&walk, 1, &cause), RP_DELAY_CONTROL));
    cr_expect(eq(u32, cause, 0));
    cr_expect(eq(int, rp_walk_cause(&walk, 0, &cause), RP_DELAY_START));
    cr_expect(eq(u32, cause, UINT32_MAX));
    pieces found = walk_from_the_end(&walk);
    cr_expect(eq(u32, found.count, 2));
    cr_expect(eq(i64, found.begin_ps, 0));
    cr_expect(eq(int, found.whole, 1));
}

/* In a file op 1 may run before op 0, for which it waits: op 0 waited for op 1 on the copy engine,
 * and op 1 for op 0. */
Test(walk, circles_end)
{
    rp_walk walk;
    uint32_t cause = 7;
    set_times(20, 30, 5, 10);
    cr_assert(eq(int, rp_walk_prepare(&timeline, 0, rp_test_arena, &walk), RP_OK));
    cr_expect(eq(int, rp_walk_cause(&walk, 0, &cause), RP_DELAY_ENGINE));
    cr_expect(eq(u32, cause, 1));
    pieces found = walk_from_the_end(&walk);
    cr_expect(eq(i64, found.begin_ps, 0));
    cr_expect(eq(int, found.whole, 1));
}
