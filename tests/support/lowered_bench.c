#include "tests/support/lowered_bench.h"

#include "common/schedule/build.h"
#include "tests/support/assertions.h"
#include "tests/support/run_tool.h"

#include <criterion/criterion.h>
#include <stdlib.h>

void rp_test_bench_sizes(rp_test_bench *b, uint64_t boundary, uint64_t weight)
{
    uint32_t count = b->c->costs.layers + 2;
    b->lower =
        (rp_lower_config){.piece_bytes = 1 << 24, .call_microbatches = b->c->config.microbatches};
    b->lower.sizes = (rp_sizes){.layers = b->c->costs.layers,
                                .boundary_bytes = boundary,
                                .tape_input_bytes = boundary,
                                .input_bytes = boundary / 8};
    uint64_t **const arrays[] = {&b->lower.sizes.weight_bytes, &b->lower.sizes.gradient_bytes,
                                 &b->lower.sizes.parameters};
    for (size_t a = 0; a < 3; a++) {
        cr_assert(eq(int, rp_arena_alloc(rp_test_tool_arena(), count, sizeof(uint64_t), arrays[a]),
                     RP_OK));
        for (uint32_t i = 0; i < count; i++) {
            (*arrays[a])[i] = weight;
        }
    }
}

/* Takes each layer, and the head, as a stage of its own. */
static void set_layer_times(rp_test_bench *b)
{
    uint32_t layers = b->c->costs.layers;
    rp_program single = {.layer_count = layers, .stage_count = layers + 1};
    rp_stage_times times;
    cr_assert(eq(
        int,
        rp_arena_alloc(rp_test_tool_arena(), single.stage_count, sizeof(rp_stage), &single.stages),
        RP_OK));
    for (uint32_t i = 0; i <= layers; i++) {
        uint32_t roles = RP_STAGE_FORWARD_LAYERS | RP_STAGE_BACKWARD_LAYERS;
        single.stages[i] =
            i < layers ? (rp_stage){i, i + 1, roles} : (rp_stage){i, i, roles | RP_STAGE_HEAD};
    }
    cr_assert(eq(int,
                 rp_stage_times_compute(&single, &b->c->costs, rp_test_tool_arena(), &times, NULL),
                 RP_OK));
    b->costs.layer_ps = times.ps;
    b->costs.layer_count = layers + 1;
}

void rp_test_bench_lower(rp_test_bench *b)
{
    rp_program *schedule = NULL;
    uint32_t *sequences = NULL;
    uint32_t microbatches = b->c->config.microbatches;
    cr_assert(eq(int, rp_schedule_build(b->c->schedule, &b->c->config, &schedule, NULL), RP_OK));
    cr_assert(eq(int,
                 rp_arena_alloc(rp_test_tool_arena(), microbatches, sizeof(uint32_t), &sequences),
                 RP_OK));
    for (uint32_t m = 0; m < microbatches; m++) {
        sequences[m] = 1;
    }
    cr_assert(eq(int, rp_lower(schedule, &b->lower, sequences, &b->program, NULL), RP_OK));
    rp_program_destroy(schedule);
    rp_stage_times times;
    cr_assert(eq(
        int, rp_stage_times_compute(b->program, &b->c->costs, rp_test_tool_arena(), &times, NULL),
        RP_OK));
    b->costs = (rpsim_compute_costs){
        .ps = times.ps, .stage_count = b->program->stage_count, .memory_ps_per_byte = 0.1};
    cr_assert(
        eq(int,
           rp_arena_alloc(rp_test_tool_arena(), microbatches, sizeof(uint32_t), &b->costs.class_of),
           RP_OK));
    set_layer_times(b);
}

rpsim_explain_case rp_test_bench_run(rp_test_bench *b)
{
    rp_timeline_destroy(b->timeline);
    cr_assert(eq(int,
                 rpsim_hardware_run_scaled(b->program, &b->costs, &b->machine, b->factors,
                                           &b->timeline, NULL),
                 RP_OK));
    return (rpsim_explain_case){
        .timeline = b->timeline, .costs = &b->costs, .machine = &b->machine, .factors = b->factors};
}

void rp_test_bench_fini(rp_test_bench *b)
{
    rp_timeline_destroy(b->timeline);
    rp_program_destroy(b->program);
    free(b->c);
}

void rp_test_bench_make(rp_test_bench *b, const char *schedule, uint32_t microbatches,
                        uint32_t iterations, bool asynchronous)
{
    *b = (rp_test_bench){.c = calloc(1, sizeof *b->c)};
    rp_random_case *c = b->c;
    c->schedule = rp_schedule_find(schedule);
    for (uint32_t i = 0; i < RP_TEST_BENCH_LAYERS; i++) {
        c->fwd_ps[i] = INT64_C(1000000000);
        c->bwd_ps[i] = INT64_C(2000000000);
    }
    c->costs = (rp_costs){.name = "equal",
                          .layers = RP_TEST_BENCH_LAYERS,
                          .fwd_ps = c->fwd_ps,
                          .bwd_ps = c->bwd_ps,
                          .bwd_input_ps = c->bwd_input_ps,
                          .microbatch_size = 1,
                          .seq_len = 1};
    c->config = (rp_schedule_config){.gpus = RP_TEST_BENCH_GPUS,
                                     .microbatches = microbatches,
                                     .iterations = iterations,
                                     .asynchronous = asynchronous,
                                     .recompute = c->schedule->default_recompute,
                                     .round_start = RP_ROUND_START_ROTATE,
                                     .layers = RP_TEST_BENCH_LAYERS,
                                     .partition = &c->partition,
                                     .costs = &c->costs};
    cr_assert(eq(int,
                 rp_partition_even(c->schedule, &c->costs, RP_TEST_BENCH_GPUS,
                                   c->schedule->separate_backward ? 0 : RP_TEST_BENCH_GPUS,
                                   rp_test_tool_arena(), &c->partition, NULL),
                 RP_OK));
    b->machine = (rp_machine){.upload_Bps = 20e9, .download_Bps = 20e9, .host_Bps = 100e9};
}

rpsim_first_cause rp_test_bench_cause(rp_test_bench *b, rpsim_explanation *e_out,
                                      rpsim_sensitivity *s_out)
{
    rpsim_explain_case given = rp_test_bench_run(b);
    rpsim_explanation e;
    rpsim_sensitivity s;
    cr_assert(eq(int, rpsim_explain(&given, rp_test_tool_arena(), &e, NULL), RP_OK));
    cr_assert(eq(int, rpsim_explain_sensitivity(&given, rp_test_tool_arena(), &s, NULL), RP_OK));
    if (e_out != NULL) {
        *e_out = e;
    }
    if (s_out != NULL) {
        *s_out = s;
    }
    return rpsim_explain_first_cause(&e, &s);
}
