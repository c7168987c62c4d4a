#include "exec/run/work.h"

#include "common/base/reason.h"

/* Values of a block's matrices that a token meets: with experts only those of the token's
 * experts. */
static int64_t values_per_token(const rpexec_model *model, bool adapters)
{
    const rp_model *m = model->config;
    int64_t values = !adapters && m->experts > 1 ? (int64_t)m->experts * m->hidden : 0;
    for (int i = RPEXEC_Q; i <= RPEXEC_DOWN; i++) {
        const rpexec_linear *l = &model->linears[i]; /* zeroes for the norm between them */
        int64_t one = adapters ? l->rank * ((int64_t)l->in + l->out) : (int64_t)l->in * l->out;
        values += one * (l->experts > 1 ? m->active_experts : 1);
    }
    return values;
}

/* FLOP of a microbatch by executor.md section 5: a linear costs 2 per token, input and output;
 * causal attention costs half of the whole square. */
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

const char *rpexec_work_obstacle(const rp_traits *traits, bool asynchronous)
{
    if (asynchronous && traits->versions != RP_VERSIONS_ONE) {
        return "microbatches of one step use several versions of the weights, and the executor "
               "keeps one";
    }
    return asynchronous ? rp_traits_only_synchronous(traits) : NULL;
}

const char *rpexec_types_obstacle(const rp_traits *traits)
{
    const rp_types *types = &traits->types;
    return types->frozen != RP_FROZEN_DTYPE
               ? "the executor stores frozen weights in the type of the others"
           : types->states != RP_STATES_F32 || types->master != RP_MASTER_F32
               ? "the executor's masters and moments are fp32"
               : NULL;
}

/* @param counted gets the model with its numbers of parameters; lives as long as the result is
 *        used */
static rp_resolved of_model(const rp_resolved *work, const rpexec_model *model, rp_model *counted)
{
    rp_resolved config = *work;
    *counted = *model->config;
    rp_model_count(counted);
    config.model = counted;
    config.decided.seq_len = model->seq_len;
    config.decided.dtype = model->dtype;
    return config;
}

rp_status rpexec_work_lower(const rp_resolved *work, const rpexec_model *model,
                            const rp_program *schedule, rp_program **program_out)
{
    rp_model counted;
    const rp_resolved config = of_model(work, model, &counted);
    return rp_compile_lower(&config, schedule, program_out);
}

rp_status rpexec_work_program(const rp_resolved *work, const rpexec_model *model,
                              const rp_costs *costs, rp_program **program_out, rp_reason *reason)
{
    const char *obstacle =
        rpexec_work_obstacle(&work->schedule->traits, work->decided.asynchronous);
    if (obstacle != NULL) {
        return rp_refuse(reason, RP_USAGE, "{schedule}: %s: %s; valid is {optimizer} sync",
                         work->schedule->name, obstacle);
    }
    rp_model counted;
    rp_resolved config = of_model(work, model, &counted);
    config.costs = costs;
    return rp_compile(&config, program_out, reason);
}
