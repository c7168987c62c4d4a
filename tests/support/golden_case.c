#include "tests/support/golden_case.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

void rp_test_golden_load(const char *name, rp_test_golden *golden_out)
{
    char path[512];
    snprintf(path, sizeof path, RP_TEST_ROOT "/golden/decoders/reference/%s.bin", name);
    *golden_out = (rp_test_golden){.name = name};
    const char *wrong = slow_golden_read(path, &golden_out->file);
    cr_assert(wrong == NULL, "%s: %s", path, wrong);
    const slow_decoder *d = &golden_out->file.decoder;
    rp_model *m = &golden_out->config;
    *m = rp_test_decoder((uint32_t)d->layers, d->tied, d->qk_norm);
    m->hidden = (uint32_t)d->hidden;
    m->heads = (uint32_t)d->heads;
    m->kv_heads = (uint32_t)d->kv_heads;
    m->head_dim = (uint32_t)d->head_dim;
    m->intermediate = (uint32_t)d->intermediate;
    m->vocab = (uint32_t)d->vocab;
    m->rope_theta = d->theta;
    m->norm_eps = d->eps;
    m->rope_scaling = d->llama ? "llama3" : "none";
    m->rope = RP_ROPE_LLAMA_3_1;
}

static void make_batch(const slow_golden *file, rp_arena *arena, const rp_test_run *run,
                       uint64_t sequences, rpexec_batch *batch)
{
    int32_t *ids = NULL;
    int32_t *labels = NULL;
    uint64_t tokens = sequences * run->model.seq_len;
    uint64_t given = (uint64_t)(file->sequences * file->seq_len);
    cr_assert(tokens >= given && run->model.seq_len == (uint32_t)file->seq_len);
    (void)rp_arena_alloc(arena, tokens, sizeof *ids, &ids);
    (void)rp_arena_alloc(arena, tokens, sizeof *labels, &labels);
    *batch = (rpexec_batch){.ids = ids, .labels = labels};
    for (uint64_t t = 0; t < tokens; t++) {
        ids[t] = t < given ? file->ids[t] : file->ids[t % given];
        labels[t] = t < given ? file->labels[t] : RPEXEC_IGNORED;
        batch->valid_tokens += labels[t] == RPEXEC_IGNORED ? 0 : 1;
    }
}

void rp_test_golden_prepare(void *context, rp_arena *arena, rp_test_run *run)
{
    const slow_golden *file = &((const rp_test_golden *)context)->file;
    for (int i = 0; i < file->count; i++) {
        const slow_golden_tensor *t = &file->tensors[i];
        size_t bytes = (size_t)(t->shape.rows * t->shape.columns) * sizeof(float);
        memcpy(run->state.master + rp_test_offset_of(run, t->shape.name), t->weights, bytes);
    }
    for (uint32_t layer = 0; layer < run->model.layer_count; layer++) {
        rpexec_state_refresh(&run->state, layer);
    }
    for (uint32_t i = 0; i < run->iterations; i++) {
        make_batch(file, arena, run, run->sequences, &run->batches[i]);
    }
}

double rp_test_golden_error(const rp_test_golden *golden, const rp_test_run *run, double tolerance,
                            char *report, size_t size)
{
    const slow_golden *file = &golden->file;
    double loss = run->losses[run->iterations - 1];
    double worst = fabs(loss / file->loss - 1) / tolerance;
    snprintf(report, size, "loss %.9g, %.9g is right", loss, file->loss);
    for (int i = 0; i < file->count; i++) {
        const slow_golden_tensor *t = &file->tensors[i];
        const float *got = run->state.gradients + rp_test_offset_of(run, t->shape.name);
        int count = t->shape.rows * t->shape.columns;
        double squares = 0;
        for (int k = 0; k < count; k++) {
            squares += (double)t->gradients[k] * (double)t->gradients[k];
        }
        double rms = sqrt(squares / count);
        for (int k = 0; k < count; k++) {
            double right = (double)t->gradients[k];
            double error = fabs((double)got[k] - right) / (tolerance * (rms + fabs(right)));
            if (!isnan(worst) && !(error <= worst)) { /* the first NaN stays */
                worst = error;
                snprintf(report, size, "%s, element %d: %.9g, %.9g is right", t->shape.name, k,
                         (double)got[k], right);
            }
        }
    }
    return worst;
}

double rp_test_golden_cosine(const rp_test_golden *golden, const rp_test_run *run)
{
    double least = 1;
    for (int i = 0; i < golden->file.count; i++) {
        const slow_golden_tensor *t = &golden->file.tensors[i];
        const float *got = run->state.gradients + rp_test_offset_of(run, t->shape.name);
        double product = 0;
        double squares[2] = {0, 0};
        for (int k = 0; k < t->shape.rows * t->shape.columns; k++) {
            product += (double)got[k] * (double)t->gradients[k];
            squares[0] += (double)got[k] * (double)got[k];
            squares[1] += (double)t->gradients[k] * (double)t->gradients[k];
        }
        double cosine = product / sqrt(squares[0] * squares[1]);
        least = isnan(cosine) ? -1 : fmin(cosine, least);
    }
    return least;
}
