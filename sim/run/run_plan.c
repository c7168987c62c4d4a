#include "sim/run/run_plan.h"

#include "common/planner/planner.h"

#define BACKWARD_BYTES 3 /* time of a backward over the forward's if bytes stand for times */

rp_status rpsim_run_costs(const rp_costs *table, const rp_model *model, const rp_platform *platform,
                          uint32_t sequences, uint32_t seq_len, rp_arena *arena,
                          rp_costs *costs_out, rp_reason *reason)
{
    const rp_program program = {.dtype = RP_DTYPE_F16, /* of a table that does not say its own */
                                .layer_count = table->layers,
                                .microbatch_count = 1,
                                .sequences = &sequences};
    rpsim_compute_costs times;
    rp_machine unused;
    *costs_out = *table;
    costs_out->microbatch_size = sequences;
    costs_out->seq_len = seq_len;
    RP_TRY(rpsim_hardware_inputs(&program, table, model, platform, seq_len, arena, &times, &unused,
                                 reason));
    return rpsim_layer_table(&times, 0, true, arena, costs_out);
}

rp_status rpsim_table_plan(const rp_costs *costs, const rp_model *model, uint64_t memory_limit,
                           uint32_t gpus, rp_arena *arena, rp_partition *partition_out,
                           uint64_t *raised_out, rp_reason *reason)
{
    rp_plan_input input;
    rp_plan plan;
    RP_TRY(rp_plan_input_from_costs(costs, model, arena, &input));
    input.min_stages = gpus;
    input.memory_limit = memory_limit;
    RP_TRY(rp_plan_make(&input, arena, &plan, reason));
    if (raised_out != NULL) {
        *raised_out = plan.limit_raised ? plan.effective_memory_limit : 0;
    }
    return rp_plan_partition(&plan, costs->layers, arena, partition_out);
}

rp_status rpsim_run_plan(const rp_resolved *run, const rp_platform *platform, rp_arena *arena,
                         rp_partition *partition_out, uint64_t *raised_out, rp_reason *reason)
{
    rp_costs costs;
    uint32_t microbatches = run->decided.accumulate * run->decided.microbatches;
    uint32_t largest = (run->global_batch - 1) / microbatches + 1;
    RP_TRY(rpsim_run_costs(run->costs, run->model, platform, largest, run->decided.seq_len, arena,
                           &costs, reason));
    return rpsim_table_plan(&costs, run->model, rp_plan_default_limit(platform), run->gpus, arena,
                            partition_out, raised_out, reason);
}

rp_status rpsim_first_plan(const rp_costs *table, const rp_model *model, uint64_t memory_limit,
                           uint32_t gpus, rp_arena *arena, rp_partition *partition_out,
                           rp_reason *reason)
{
    rp_plan_input input;
    rp_plan plan;
    int64_t *times[2] = {0};
    RP_TRY(rp_plan_input_from_costs(table, model, arena, &input));
    for (int i = 0; i < 2; i++) {
        RP_TRY(rp_arena_alloc(arena, input.layers, sizeof(int64_t), &times[i]));
    }
    for (uint32_t i = 0; i < input.layers; i++) {
        times[0][i] = (int64_t)input.fwd_bytes[i];
        times[1][i] = BACKWARD_BYTES * times[0][i];
    }
    input.fwd_time = times[0];
    input.bwd_time = times[1];
    input.min_stages = gpus;
    input.memory_limit = memory_limit;
    RP_TRY(rp_plan_make(&input, arena, &plan, reason));
    return rp_plan_partition(&plan, table->layers, arena, partition_out);
}
