/* Copies that share experts: bytes of tokens and gradients, memory, and what is refused. */
#include "tests/support/study_case.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdlib.h>
#include <string.h>

TestSuite(experts, .init = rp_test_tool_begin, .fini = rp_test_tool_end, .timeout = 300);

/* traces/models/tiny-moe.yaml */
#define LAYERS 8.0
#define HIDDEN 64.0
#define EXPERTS 8.0
#define ACTIVE 2.0
#define OF_EXPERT (3 * HIDDEN * 32)
#define TABLE (256 * HIDDEN)

typedef struct expert_case {
    uint32_t experts;
    uint32_t data;
    uint32_t zero;
} expert_case;

static double share(const expert_case *c, uint32_t stage, double copies)
{
    return c->zero >= stage ? copies : 1;
}

static void expect_bytes(const rpsim_row *row, const expert_case *c)
{
    const char *name = row->schedule_name;
    rp_test_run run = rp_test_run_row(row);
    const rp_program *p = run.program;
    cr_assert(eq(int, rp_program_check(p), RP_OK), "%s", name);
    double shares = c->experts;
    double replicas = c->data / shares;
    double data = c->data;
    double microbatches = p->microbatch_count;
    /* Lepikhin et al., GShard (2020), section 3.2: each token goes to k experts, of which
     * (E - 1) / E are elsewhere, and comes back; gradients do the same, and a recompute. */
    double tokens = (double)row->workload.global_batch * row->workload.seq_len;
    double ways = p->recompute == RP_RECOMPUTE_NONE ? 4 : 6;
    double moved = ways * LAYERS * 2 * tokens * HIDDEN * ACTIVE * (shares - 1) / shares;
    cr_expect(eq(dbl, rp_test_queue_bytes(p, RP_QUEUE_EXPERT), moved), "%s", name);
    /* Attention, router and norms; experts; what is not in blocks. */
    double dense =
        LAYERS * (2 * HIDDEN * HIDDEN + 2 * HIDDEN * 32 + EXPERTS * HIDDEN + 2 * HIDDEN + 2 * 16) +
        2 * TABLE + HIDDEN;
    double own = LAYERS * EXPERTS / shares * OF_EXPERT;
    double once = dense - (rp_test_ends_meet(p) ? TABLE : 0);
    double slack = 8.0 * c->data * p->gpu_count;
    cr_expect(epsilon_eq(dbl, rp_test_lasting_bytes(p, RP_BUFFER_WEIGHT),
                         2 * once / share(c, 3, data) + 2 * own / share(c, 3, replicas), slack),
              "%s", name);
    cr_expect(epsilon_eq(dbl, rp_test_lasting_bytes(p, RP_BUFFER_GRADIENT),
                         2 * once / share(c, 2, data) + 2 * own / share(c, 2, replicas), slack),
              "%s", name);
    cr_expect(epsilon_eq(dbl, rp_test_lasting_bytes(p, RP_BUFFER_OPTIMIZER),
                         12 * once / share(c, 1, data) + 12 * own / share(c, 1, replicas), slack),
              "%s", name);
    /* Experts are added up over the copies that have the same ones. */
    double reduced = c->zero >= 2 ? microbatches : 1;
    double gathered = c->zero == 3 ? 2 * microbatches : 1;
    double rounded = 4 * microbatches * (p->forward_count + p->backward_count) * (LAYERS + 2);
    moved = 2 * dense * reduced + 2 * (c->zero == 3 || c->zero == 0 ? dense : once) * gathered;
    cr_expect(
        epsilon_eq(dbl, rp_test_queue_bytes(p, RP_QUEUE_DATA), moved * (data - 1) / data, rounded),
        "%s", name);
    cr_expect(epsilon_eq(dbl, rp_test_queue_bytes(p, RP_QUEUE_REPLICA),
                         2 * own * (reduced + gathered) * (replicas - 1) / replicas, rounded),
              "%s", name);
    rp_test_run_fini(&run);
}

Test(experts, bytes_in_memory_and_on_links)
{
    bool all = getenv("RP_LONG") != NULL;
    uint32_t number = 0;
    for (uint32_t i = 0; i < rp_schedule_count; i++) {
        bool resident = rp_schedules[i]->traits.placement == RP_PLACEMENT_RESIDENT;
        bool endless = rp_schedules[i]->traits.versions != RP_VERSIONS_ONE;
        for (uint32_t k = 0; resident && !endless && k < 24; k++) {
            const expert_case c = {.experts = 2u << k % 3,
                                   .data = 4u << (k % 3 == 2 || k / 3 % 2 == 1),
                                   .zero = k / 6};
            rpsim_options options;
            rpsim_study study;
            char line[320];
            number++;
            if (!all && number % 19 != 0) {
                continue;
            }
            (void)snprintf(line, sizeof line,
                           "--schedule %s --model tiny-moe --platform a100-80x8 --nodes 2 "
                           "--data-parallel %u --expert-parallel %u --zero %u --microbatches 8 "
                           "--microbatch-size 2 --seq-len 512 --iterations 1",
                           rp_schedules[i]->name, c.data, c.experts, c.zero);
            rp_test_study(line, &options, &study);
            expect_bytes(&study.rows[0], &c);
            rpsim_study_fini(&study);
        }
    }
}

/* Two microbatches on one stage, without recompute: an all-to-all of two layers' tokens, each way,
 * behind each forward and each backward; on one server each GPU sends 230 GB/s after 8.4 us and a
 * step of 3.4 us (traces/platforms/a100-80x8.yaml). */
Test(experts, tokens_take_their_time)
{
    const char *line = "--schedule 1f1b --model tiny-moe --platform a100-80x8 --gpus 4 "
                       "--data-parallel 4 --microbatches 2 --microbatch-size 8 --seq-len 2048 "
                       "--recompute none --iterations 1";
    char shared[320];
    (void)snprintf(shared, sizeof shared, "%s --expert-parallel 4", line);
    rp_test_run run = rp_test_run_line(shared);
    const rp_program *p = run.program;
    double bytes = 2 * LAYERS * 2 * 8 * 2048 * HIDDEN * ACTIVE * 3 / 4;
    double expected_ps = 1e12 * bytes / 230e9 + 2 * LAYERS * 1e6 * (8.4 + 3.4);
    uint32_t count = 0;
    for (uint32_t i = 0; i < p->op_count; i++) {
        if (p->ops[i].kind == RP_OP_ALL_TO_ALL) {
            double ps = (double)(run.timeline->end_ps[i] - run.timeline->start_ps[i]);
            cr_expect(epsilon_eq(dbl, ps, expected_ps, 4));
            count++;
        }
    }
    cr_expect(eq(u32, count, 4));
    rp_test_run_fini(&run);
    cr_expect(eq(dbl, rp_test_row_number(shared, "expert_parallel"), 4));
}

Test(experts, what_cannot_be_shared_is_refused)
{
    static const struct {
        const char *line;
        const char *message;
    } cases[] = {
        {"--model qwen3-1.7b --data-parallel 2 --expert-parallel 2", "has no experts"},
        {"--model tiny-moe --data-parallel 2 --expert-parallel 4", "divisors of --data-parallel"},
        {"--model tiny-moe --expert-parallel 2", "divisors of --data-parallel"},
        {"--model tiny-moe --data-parallel 2 --tensor-parallel 2 --expert-parallel 2",
         "valid is --tensor-parallel 1"},
        {"--model tiny-moe --platform a100-80x8 --nodes 2 --data-parallel 16 --expert-parallel 16",
         "valid are divisors of 8"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rp_test_outcome outcome = rp_test_rpsim_after("--schedule 1f1b ", cases[i].line);
        cr_expect(eq(int, outcome.status, 2), "%s", cases[i].line);
        cr_expect(ne(ptr, strstr(outcome.messages, cases[i].message), NULL), "%s: %s",
                  cases[i].line, outcome.messages);
    }
}
