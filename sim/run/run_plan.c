#include "sim/run/run_plan.h"

#include "common/planner/planner.h"

#define BACKWARD_BYTES 3 /* time of a backward over the forward's if bytes stand for times */

/* Describes a program with a stage for each block and for the head, so that the cost model's stage
 * times are layer times. */
static rp_status describe_layers(uint32_t layers, uint32_t *sequences, rp_arena *arena,
                                 rp_program *program)
{
    *program = (rp_program){.dtype = RP_DTYPE_F16, /* type of a table that does not say its own */
                            .layer_count = layers,
                            .stage_count = layers + 1,
                            .microbatch_count = 1,
                            .sequences = sequences};
    RP_TRY(rp_arena_alloc(arena, layers + 1, sizeof(rp_stage), &program->stages));
    for (uint32_t i = 0; i <= layers; i++) {
        uint32_t block = RP_STAGE_FORWARD_LAYERS | RP_STAGE_BACKWARD_LAYERS;
        program->stages[i] = (rp_stage){.layer_begin = i,
                                        .layer_end = i < layers ? i + 1 : i,
                                        .roles = i < layers ? block : RP_STAGE_HEAD};
    }
    return RP_OK;
}

rp_status rpsim_run_costs(const rp_costs *table, const rp_model *model, const rp_platform *platform,
                          uint32_t sequences, uint32_t seq_len, rp_arena *arena,
                          rp_costs *costs_out, rp_reason *reason)
{
    rp_program program;
    rpsim_compute_costs times;
    rp_machine unused;
    rp_costs costs = *table;
    costs.microbatch_size = sequences;
    costs.seq_len = seq_len;
    RP_TRY(describe_layers(table->layers, &sequences, arena, &program));
    RP_TRY(rpsim_hardware_inputs(&program, table, model, platform, seq_len, arena, &times, &unused,
                                 reason));
    RP_TRY(rp_arena_alloc(arena, table->layers, sizeof(int64_t), &costs.fwd_ps));
    RP_TRY(rp_arena_alloc(arena, table->layers, sizeof(int64_t), &costs.bwd_ps));
    RP_TRY(rp_arena_alloc(arena, table->layers, sizeof(int64_t), &costs.bwd_input_ps));
    for (uint32_t i = 0; i < table->layers; i++) {
        const int64_t *ps = &times.ps[(size_t)i * RP_OP_KIND_COUNT];
        costs.fwd_ps[i] = ps[RP_OP_FORWARD];
        costs.bwd_ps[i] = ps[RP_OP_BACKWARD];
        costs.bwd_input_ps[i] = ps[RP_OP_BACKWARD_INPUT];
    }
    const int64_t *head = &times.ps[(size_t)table->layers * RP_OP_KIND_COUNT];
    costs.head_fwd_ps = head[RP_OP_FORWARD];
    costs.head_bwd_ps = head[RP_OP_BACKWARD];
    *costs_out = costs;
    return RP_OK;
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
    uint32_t microbatches = run->calls * run->microbatches;
    uint32_t largest = (run->global_batch - 1) / microbatches + 1;
    RP_TRY(rpsim_run_costs(run->costs, run->model, platform, largest, run->seq_len, arena, &costs,
                           reason));
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
