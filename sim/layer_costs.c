#include "sim/layer_costs.h"

#include "common/log.h"
#include "common/units.h"

/* One layer's or the head's times for a given number of tokens, in seconds. */
typedef struct scaling {
    double tokens;        /* of the microbatch, relative to the table's */
    double attention_fwd; /* seconds to add for the run's sequence length, at the table's tokens */
    double attention_bwd;
    double fixed_bwd; /* of a layer */
    double fixed_head_bwd;
} scaling;

static double seconds(int64_t ps)
{
    return (double)ps * 1e-12;
}

static double scale(double time_s, double fixed_s, double extra_s, double tokens)
{
    return fixed_s + (time_s - fixed_s + extra_s) * tokens;
}

static scaling make_scaling(const rp_costs *table, const rp_model *model,
                            const rpsim_gpu_rates *rates, uint32_t seq_len, uint32_t sequences)
{
    double reference_tokens = (double)table->microbatch_size * table->seq_len;
    double flops_per_token_and_length = 2.0 * model->heads * model->head_dim;
    double extra_flops =
        flops_per_token_and_length * ((double)seq_len - table->seq_len) * reference_tokens;
    return (scaling){
        .tokens = (double)sequences * seq_len / reference_tokens,
        .attention_fwd = extra_flops / rates->attention_fwd_flops,
        .attention_bwd = 2.5 * extra_flops / rates->attention_bwd_flops,
        .fixed_bwd = 6.0 * (double)model->layer_parameters / rates->memory_bytes_per_s,
        .fixed_head_bwd = 6.0 * (double)model->embedding_parameters / rates->memory_bytes_per_s,
    };
}

static int64_t to_ps(double time_s)
{
    return rp_ms_to_ps(time_s * 1e3);
}

static void add_layers(const rp_costs *table, const rp_stage *stage, const scaling *s,
                       double *fwd_out, double *bwd_out)
{
    for (uint32_t i = stage->layer_begin; i < stage->layer_end; i++) {
        *fwd_out += scale(seconds(table->fwd_ps[i]), 0, s->attention_fwd, s->tokens);
        *bwd_out += scale(seconds(table->bwd_ps[i]), s->fixed_bwd, s->attention_bwd, s->tokens);
    }
}

static rp_status fill_stage(const rp_costs *table, const rp_stage *stage, const scaling *s,
                            int64_t *ps)
{
    double fwd = 0;
    double bwd = 0;
    add_layers(table, stage, s, &fwd, &bwd);
    bool head = (stage->roles & RP_STAGE_HEAD) != 0;
    double head_fwd = head ? scale(seconds(table->head_fwd_ps), 0, 0, s->tokens) : 0;
    double head_bwd =
        head ? scale(seconds(table->head_bwd_ps), s->fixed_head_bwd, 0, s->tokens) : 0;
    if (fwd < 0 || bwd < 0 || head_bwd < 0) {
        rp_log_error("cost table %s: sequences this short would take negative time; valid are "
                     "lengths near the table's %u",
                     table->name, table->seq_len);
        return RP_INPUT;
    }
    bool runs_forward = (stage->roles & RP_STAGE_FORWARD_LAYERS) != 0;
    ps[RP_OP_FORWARD] = to_ps((runs_forward ? fwd : 0) + head_fwd);
    ps[RP_OP_RECOMPUTE] = to_ps(fwd);
    ps[RP_OP_BACKWARD] = to_ps(bwd + head_bwd);
    return RP_OK;
}

/* Classes in the order of their first microbatch. */
static uint32_t classify(const rp_program *program, uint32_t *class_of, uint32_t *first_of)
{
    uint32_t count = 0;
    for (uint32_t m = 0; m < program->microbatch_count; m++) {
        uint32_t k = 0;
        while (k < count && program->sequences[first_of[k]] != program->sequences[m]) {
            k++;
        }
        if (k == count) {
            first_of[count++] = m;
        }
        class_of[m] = k;
    }
    return count;
}

rp_status rpsim_compute_costs_create(const rp_program *program, const rp_costs *table,
                                     const rp_model *model, const rpsim_gpu_rates *rates,
                                     uint32_t seq_len, rp_arena *arena,
                                     rpsim_compute_costs *costs_out)
{
    if (program->layer_count != table->layers || model->layers != table->layers) {
        rp_log_error(
            "cost table %s has %u layers, the program %u, the model %u; valid is a table of "
            "the same model",
            table->name, table->layers, program->layer_count, model->layers);
        return RP_INPUT;
    }
    rpsim_compute_costs costs = {.stage_count = program->stage_count};
    uint32_t *first_of = NULL;
    RP_TRY(rp_arena_alloc(arena, program->microbatch_count, sizeof(uint32_t), &costs.class_of));
    RP_TRY(rp_arena_alloc(arena, program->microbatch_count, sizeof(uint32_t), &first_of));
    uint32_t classes = classify(program, costs.class_of, first_of);
    size_t rows = (size_t)classes * program->stage_count;
    RP_TRY(rp_arena_alloc(arena, rows * RP_OP_KIND_COUNT, sizeof(int64_t), &costs.ps));
    for (uint32_t k = 0; k < classes; k++) {
        scaling s = make_scaling(table, model, rates, seq_len, program->sequences[first_of[k]]);
        for (uint32_t stage = 0; stage < program->stage_count; stage++) {
            size_t row = (size_t)k * program->stage_count + stage;
            RP_TRY(
                fill_stage(table, &program->stages[stage], &s, &costs.ps[row * RP_OP_KIND_COUNT]));
        }
    }
    *costs_out = costs;
    return RP_OK;
}
