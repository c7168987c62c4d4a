#include "exec/run/work.h"

#include "common/base/host_limits.h"
#include "common/base/log.h"
#include "common/schedule/build.h"
#include "common/schedule/even.h"

/* Values of a block's matrices that a token meets: of the experts' only those it goes to. */
static int64_t values_per_token(const rpexec_model *model, bool adapters)
{
    const rp_model *m = model->config;
    int64_t values = !adapters && m->experts > 1 ? (int64_t)m->experts * m->hidden : 0;
    for (int i = RPEXEC_Q; i <= RPEXEC_DOWN; i++) {
        const rpexec_linear *l = &model->linears[i]; /* zeroes for the norm between them */
        int64_t one = adapters ? model->rank * ((int64_t)l->in + l->out) : (int64_t)l->in * l->out;
        values += one * (l->experts > 1 ? m->active_experts : 1);
    }
    return values;
}

/* By executor.md section 5, one microbatch: a linear costs 2 per token, input and output; causal
 * attention half of the whole square. */
rp_status rpexec_work_costs(const rpexec_model *model, uint32_t sequences, rp_arena *arena,
                            rp_costs *costs_out)
{
    const rp_model *m = model->config;
    int64_t tokens = (int64_t)sequences * model->seq_len;
    int64_t matrices = 2 * tokens * values_per_token(model, false);
    int64_t adapters = 2 * tokens * values_per_token(model, true);
    int64_t linear = matrices + adapters;
    int64_t trained = model->rank != 0 ? adapters : matrices;
    int64_t attention = 2 * tokens * model->seq_len * m->heads * m->head_dim;
    int64_t head = 2 * tokens * m->hidden * m->vocab;
    rp_costs costs = {.name = "from FLOP counts",
                      .source = "",
                      .layers = m->layers,
                      .head_fwd_ps = head * RPEXEC_PS_PER_FLOP,
                      .head_bwd_ps = 2 * head * RPEXEC_PS_PER_FLOP,
                      .microbatch_size = sequences,
                      .seq_len = model->seq_len};
    RP_TRY(rp_arena_alloc(arena, m->layers, sizeof(int64_t), &costs.fwd_ps));
    RP_TRY(rp_arena_alloc(arena, m->layers, sizeof(int64_t), &costs.bwd_ps));
    RP_TRY(rp_arena_alloc(arena, m->layers, sizeof(int64_t), &costs.bwd_input_ps));
    for (uint32_t i = 0; i < m->layers; i++) {
        costs.fwd_ps[i] = (linear + attention) * RPEXEC_PS_PER_FLOP;
        costs.bwd_input_ps[i] = (linear + attention * 5 / 2) * RPEXEC_PS_PER_FLOP;
        costs.bwd_ps[i] = costs.bwd_input_ps[i] + trained * RPEXEC_PS_PER_FLOP;
    }
    *costs_out = costs;
    return RP_OK;
}

/* Of schedules that have none a whole call. */
static uint32_t round_of(const rpexec_work *work)
{
    bool all = work->round == RP_ROUND_ALL || work->round >= work->microbatches;
    return all ? work->microbatches : work->round;
}

static rp_status check_rounds(const rpexec_work *work)
{
    const char *name = work->schedule->name;
    uint32_t all = rpexec_work_microbatches(work);
    uint32_t round = round_of(work);
    if (round < work->microbatches && !work->schedule->rounds) {
        rp_log_error("--round: %s has no rounds; valid with schedules that have them (roundpipe)",
                     name);
        return RP_USAGE;
    }
    if (work->calls > 1 && work->microbatches % round != 0) {
        rp_log_error("--round: calls of %u microbatches are no whole rounds of %u; valid with "
                     "--accumulate are divisors of --microbatches, and all",
                     work->microbatches, round);
        return RP_USAGE;
    }
    if (work->schedule->traits.overlapping_rounds && all % round != 0) {
        rp_log_error("--round: %u microbatches of a step are no whole rounds of %u, and %s makes "
                     "all rounds equal; valid are divisors of that number, and all",
                     all, round, name);
        return RP_USAGE;
    }
    return RP_OK;
}

rp_status rpexec_work_lower(const rpexec_work *work, const rpexec_model *model,
                            const rp_program *schedule, rp_arena *arena, rp_program **program_out)
{
    uint32_t *sequences = NULL;
    uint32_t microbatches = rpexec_work_microbatches(work);
    uint32_t round = round_of(work);
    rp_lower_config config = {.call_microbatches = round,
                              .call_rounds = (work->microbatches - 1) / round + 1,
                              .piece_bytes = work->piece_bytes,
                              .grain = work->layer_grain ? RP_GRAIN_LAYER : RP_GRAIN_STAGE,
                              .peer_gpus = work->peer_gpus};
    RP_TRY(rpexec_model_sizes(model, arena, &config.sizes));
    RP_TRY(rp_arena_alloc(arena, microbatches, sizeof *sequences, &sequences));
    for (uint32_t i = 0; i < microbatches; i++) {
        sequences[i] = rpexec_work_sequences(work, i);
    }
    return rp_lower(schedule, &config, sequences, program_out);
}

static rp_status build(const rpexec_work *work, const rpexec_model *model, const rp_costs *costs,
                       rp_arena *arena, rp_program **program_out)
{
    rp_partition even;
    rp_program *schedule = NULL;
    rp_schedule_config config = {.gpus = work->gpus,
                                 .microbatches = rpexec_work_microbatches(work),
                                 .iterations = work->iterations,
                                 .round = round_of(work),
                                 .call_microbatches = work->microbatches,
                                 .round_start = round_of(work) < work->microbatches
                                                    ? RP_ROUND_START_FREE_FIRST
                                                    : RP_ROUND_START_ROTATE,
                                 .asynchronous = work->asynchronous,
                                 .recompute = work->recompute,
                                 .layers = model->config->layers,
                                 .partition = work->partition,
                                 .costs = costs};
    if (config.partition == NULL) {
        RP_TRY(rp_partition_even(work->schedule, costs, work->gpus, 0, arena, &even));
        config.partition = &even;
    }
    RP_TRY(rp_host_memory_allow(rp_schedule_footprint(&config, true, work->layer_grain),
                                work->schedule->name, RP_FOOTPRINT_VALID));
    RP_TRY(rp_schedule_build(work->schedule, &config, &schedule));
    rp_status status = rpexec_work_lower(work, model, schedule, arena, program_out);
    rp_program_destroy(schedule);
    return status;
}

const char *rpexec_work_obstacle(const rp_schedule_type *schedule, bool asynchronous)
{
    if (asynchronous && schedule->traits.versions != RP_VERSIONS_ONE) {
        return "microbatches of one step use several versions of the weights, and the executor "
               "keeps one";
    }
    return asynchronous ? rp_traits_only_synchronous(&schedule->traits) : NULL;
}

rp_status rpexec_work_program(const rpexec_work *work, const rpexec_model *model,
                              const rp_costs *costs, rp_program **program_out)
{
    rp_arena *arena = NULL;
    const char *obstacle = rpexec_work_obstacle(work->schedule, work->asynchronous);
    if (obstacle != NULL) {
        rp_log_error("--schedule: %s: %s; valid is --optimizer sync", work->schedule->name,
                     obstacle);
        return RP_USAGE;
    }
    RP_TRY(check_rounds(work));
    RP_TRY(rp_arena_create(&arena));
    rp_status status = build(work, model, costs, arena, program_out);
    rp_arena_destroy(arena);
    return status;
}
