/* No op writes a tensor while another op may use it: all other users of a tensor that an op writes
 * come before it or after it in the program's own order, whatever the timing.
 * (A recompute must not write its forward's output again while it is on its way to the next stage.)
 */
#include "common/base/log.h"
#include "tests/support/assertions.h"
#include "tests/support/exec_case.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>

TestSuite(exec_writes, .init = rp_test_arena_begin, .fini = rp_test_arena_end, .timeout = 300);

static void expect_ordered(const rpexec_plan *plan, uint32_t op, uint32_t value, const char *what)
{
    if (value == RPEXEC_NO_TENSOR) {
        return;
    }
    const rpexec_value *v = &plan->values[value];
    for (uint32_t i = v->user_begin; i < v->user_end; i++) {
        uint32_t user = plan->users[i];
        bool apart = user == op || rpexec_order_before(&plan->order, user, op) ||
                     rpexec_order_before(&plan->order, op, user);
        if (!apart) {
            char writer[RP_OP_NAME_SIZE];
            char reader[RP_OP_NAME_SIZE];
            rp_op_name(&plan->program->ops[op], writer);
            rp_op_name(&plan->program->ops[user], reader);
            cr_assert(false, "%s: %s writes %s while %s may use it", plan->program->schedule,
                      writer, what, reader);
        }
    }
}

static bool is_compute(const rpexec_plan *plan, uint32_t op)
{
    return rp_op_kind_class((rp_op_kind)plan->program->ops[op].kind) == RP_CLASS_COMPUTE;
}

/* @return number of forwards and recomputes checked */
static uint32_t check_plan(const rpexec_plan *plan)
{
    uint32_t checked = 0;
    for (uint32_t op = 0; op < plan->program->op_count; op++) {
        const rpexec_task *task = &plan->tasks[op];
        expect_ordered(plan, op, task->output, "its output");
        if (!is_compute(plan, op)) {
            continue;
        }
        bool forward = task->runs_layers;
        expect_ordered(plan, op, forward ? task->body : RPEXEC_NO_TENSOR, "the layers' output");
        expect_ordered(plan, op, forward ? task->tape : RPEXEC_NO_TENSOR, "the tape");
        expect_ordered(plan, op, task->weight_tape, "the tape of the weight part");
        expect_ordered(plan, op, task->scratch, "scratch");
        expect_ordered(plan, op, task->head_gradient, "the head's gradient");
        for (uint32_t s = task->save_begin; s < task->save_end; s++) {
            expect_ordered(plan, op, plan->saves[s].value, "a saved activation");
        }
        checked += forward ? 1 : 0;
    }
    return checked;
}

static uint32_t check_work(const rp_model *config, const rp_resolved *work)
{
    char message[512];
    rpexec_model model;
    rp_costs costs;
    rp_program *program = NULL;
    rpexec_plan plan;
    uint32_t checked = 0;
    cr_assert(eq(int, rpexec_model_create(config, 5, RP_DTYPE_F32, rp_test_arena, &model), RP_OK));
    cr_assert(eq(int, rpexec_work_costs(&model, 1, rp_test_arena, &costs), RP_OK));
    rp_log_capture_begin(message, sizeof message);
    rp_status status = rpexec_work_program(work, &model, &costs, &program, NULL);
    if (status == RP_OK) {
        status = rpexec_plan_create(program, &model, &(rpexec_plan_limits){0}, rp_test_arena, &plan,
                                    NULL);
    }
    rp_log_capture_end();
    if (status == RP_OK) {
        checked = check_plan(&plan);
    } else {
        cr_expect(eq(int, status, RP_USAGE), "%s: %s", work->schedule->name, message);
    }
    rp_program_destroy(program);
    return checked;
}

/* Every schedule that runs, with all recompute modes and grains, sync and async, with peers. */
Test(exec_writes, nobody_writes_what_another_may_use)
{
    static const rp_recompute modes[] = {RP_RECOMPUTE_NONE, RP_RECOMPUTE_WAIT, RP_RECOMPUTE_EARLY};
    rp_model config = rp_test_decoder(6, true, true);
    uint32_t checked = 0;
    for (uint32_t i = 0; i < rp_schedule_count * 24; i++) {
        const rp_schedule_type *schedule = rp_schedules[i / 24];
        rp_resolved work = {.schedule = schedule,
                            .gpus = 2 + i % 2,
                            .decided.accumulate = 1 + i / 2 % 2,
                            .decided.microbatches = 6,
                            .decided.microbatch_size = 1,
                            .decided.iterations = 2,
                            .decided.round = RP_ROUND_ALL,
                            .decided.asynchronous = i / 4 % 2 != 0,
                            .recompute = modes[i / 8 % 3],
                            .decided.layer_grain = i % 2 != 0,
                            .decided.piece_bytes = 20000,
                            .peer_gpus = i / 2 % 2 != 0 ? UINT32_MAX : 0};
        if (rpexec_work_obstacle(&schedule->traits, work.decided.asynchronous) == NULL) {
            checked += check_work(&config, &work);
        }
        rp_test_arena_end();
        rp_test_arena_begin();
    }
    cr_expect(gt(u32, checked, 10000)); /* forwards and recomputes */
}
