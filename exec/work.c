#include "exec/work.h"

#include "common/log.h"

/* So that a nanosecond is ten floating-point operations. */
#define PS_PER_FLOP 100

/* Executor.md section 5, one microbatch: a linear costs 2 per token, input and output; causal
 * attention half of the whole square. */
rp_status rpexec_work_costs(const rpexec_model *model, uint32_t sequences, rp_arena *arena,
                            rp_costs *costs_out)
{
    const rp_model *m = model->config;
    int64_t tokens = (int64_t)sequences * model->seq_len;
    int64_t linear = 2 * tokens * (int64_t)(m->attention_parameters + m->mlp_parameters);
    int64_t attention = 2 * tokens * model->seq_len * m->heads * m->head_dim;
    int64_t head = 2 * tokens * m->hidden * m->vocab;
    rp_costs costs = {.name = "from FLOP counts",
                      .source = "",
                      .layers = m->layers,
                      .head_fwd_ps = head * PS_PER_FLOP,
                      .head_bwd_ps = 2 * head * PS_PER_FLOP,
                      .microbatch_size = sequences,
                      .seq_len = model->seq_len};
    RP_TRY(rp_arena_alloc(arena, m->layers, sizeof(int64_t), &costs.fwd_ps));
    RP_TRY(rp_arena_alloc(arena, m->layers, sizeof(int64_t), &costs.bwd_ps));
    RP_TRY(rp_arena_alloc(arena, m->layers, sizeof(int64_t), &costs.bwd_input_ps));
    for (uint32_t i = 0; i < m->layers; i++) {
        costs.fwd_ps[i] = (linear + attention) * PS_PER_FLOP;
        costs.bwd_input_ps[i] = (linear + attention * 5 / 2) * PS_PER_FLOP;
        costs.bwd_ps[i] = costs.bwd_input_ps[i] + linear * PS_PER_FLOP;
    }
    *costs_out = costs;
    return RP_OK;
}

rp_status rpexec_work_lower(const rpexec_work *work, const rpexec_model *model,
                            const rp_program *schedule, rp_arena *arena, rp_program **program_out)
{
    uint32_t *sequences = NULL;
    uint32_t microbatches = work->calls * work->microbatches;
    rp_lower_config config = {.placement = work->schedule->placement,
                              .sharding = work->schedule->sharding,
                              .call_microbatches = work->microbatches,
                              .piece_bytes = work->piece_bytes,
                              .grain = work->layer_grain ? RP_GRAIN_LAYER : RP_GRAIN_STAGE,
                              .overlapping_calls = work->schedule->overlapping_rounds,
                              .gather_updates = true};
    RP_TRY(rpexec_model_sizes(model, arena, &config.sizes));
    RP_TRY(rp_arena_alloc(arena, microbatches, sizeof *sequences, &sequences));
    for (uint32_t i = 0; i < microbatches; i++) {
        sequences[i] = work->microbatch_size;
    }
    return rp_lower(schedule, &config, sequences, program_out);
}

static rp_status build(const rpexec_work *work, const rpexec_model *model, const rp_costs *costs,
                       rp_arena *arena, rp_program **program_out)
{
    rp_partition even;
    rp_program *schedule = NULL;
    rp_schedule_config config = {.gpus = work->gpus,
                                 .microbatches = work->calls * work->microbatches,
                                 .iterations = work->iterations,
                                 .round = work->round,
                                 .asynchronous = work->asynchronous,
                                 .recompute = work->recompute,
                                 .layers = model->config->layers,
                                 .partition = work->partition,
                                 .costs = costs};
    if (config.partition == NULL) {
        RP_TRY(rp_partition_even(work->schedule, costs, work->gpus, 0, arena, &even));
        config.partition = &even;
    }
    RP_TRY(rp_schedule_build(work->schedule, &config, &schedule));
    rp_status status = rpexec_work_lower(work, model, schedule, arena, program_out);
    rp_program_destroy(schedule);
    return status;
}

const char *rpexec_work_obstacle(const rp_schedule_type *schedule, bool asynchronous)
{
    if (asynchronous && schedule->versions != RP_VERSIONS_ONE) {
        return "microbatches of one step use several versions of the weights, and the executor "
               "keeps one";
    }
    if (schedule->sharding != NULL && schedule->sharding->forward_reduces != 0) {
        return "layers are cut between GPUs (tensor parallel), and the executor runs whole ones";
    }
    return NULL;
}

rp_status rpexec_work_program(const rpexec_work *work, const rpexec_model *model,
                              const rp_costs *costs, rp_program **program_out)
{
    rp_arena *arena = NULL;
    const char *obstacle = rpexec_work_obstacle(work->schedule, work->asynchronous);
    if (obstacle != NULL) {
        bool helps = rpexec_work_obstacle(work->schedule, false) == NULL;
        rp_log_error("--schedule: %s: %s; valid %s", work->schedule->name, obstacle,
                     helps ? "is --optimizer sync" : "are pipelines of whole layers");
        return RP_USAGE;
    }
    if (work->schedule->overlapping_rounds && work->calls > 1) {
        rp_log_error(
            "--accumulate: the calls of %s overlap, with gradients of their own, which the "
            "executor does not add up yet; valid is 1",
            work->schedule->name);
        return RP_USAGE;
    }
    RP_TRY(rp_arena_create(&arena));
    rp_status status = build(work, model, costs, arena, program_out);
    rp_arena_destroy(arena);
    return status;
}
