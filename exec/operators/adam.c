#include "exec/operators/adam.h"

#include <math.h>

#define PI 3.14159265358979323846
/* PyTorch adds this to a norm before it divides by it. */
#define CLIP_EPS 1e-6

rpexec_adam rpexec_adam_defaults(void)
{
    return (rpexec_adam){.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};
}

double rpexec_adam_rate(const rpexec_adam *a, uint64_t step)
{
    uint64_t before = step - 1; /* schedulers count from 0 */
    uint64_t falls = a->steps > a->warmup ? a->steps - a->warmup : 1;
    if (before < a->warmup) {
        return a->lr * (double)before / (double)a->warmup;
    }
    if (a->course == RPEXEC_RATE_CONSTANT) {
        return a->lr;
    }
    double part = (double)(before - a->warmup) / (double)falls;
    part = part < 1 ? part : 1;
    return a->lr * (a->course == RPEXEC_RATE_LINEAR ? 1 - part : 0.5 * (1 + cos(PI * part)));
}

double rpexec_adam_clip(const rpexec_adam *a, double norm)
{
    double factor = a->clip_norm > 0 ? a->clip_norm / (norm + CLIP_EPS) : 1;
    return factor > 1 ? 1 : factor; /* NaN stays */
}

rpexec_adam_factors rpexec_adam_factors_of(const rpexec_adam *a, uint64_t step)
{
    double t = (double)step;
    double lr = rpexec_adam_rate(a, step);
    return (rpexec_adam_factors){
        .clip = a->clip != 0 ? (float)a->clip : 1.0f,
        .beta1 = (float)a->beta1,
        .one_minus_beta1 = (float)(1 - a->beta1),
        .beta2 = (float)a->beta2,
        .one_minus_beta2 = (float)(1 - a->beta2),
        .rate = (float)(lr / (1 - pow(a->beta1, t))),
        .unbias = (float)(1 / sqrt(1 - pow(a->beta2, t))),
        .eps = (float)a->eps,
        .decay = a->decoupled ? 0.0f : (float)a->weight_decay,
        .shrink = a->decoupled ? (float)(lr * a->weight_decay) : 0.0f,
    };
}

RPEXEC_VECTOR
void rpexec_adam_update(const rpexec_adam_factors *factors, const rpexec_adam_slice *slice)
{
    const rpexec_adam_factors f = *factors;
    float *restrict p = slice->parameters;
    const float *restrict gradients = slice->gradients;
    float *restrict m = slice->m;
    float *restrict v = slice->v;
    for (uint64_t i = 0; i < slice->count; i++) {
        float g = gradients[i] * f.clip + f.decay * p[i];
        float first = f.beta1 * m[i] + f.one_minus_beta1 * g;
        float second = f.beta2 * v[i] + f.one_minus_beta2 * (g * g);
        m[i] = first;
        v[i] = second;
        p[i] -= p[i] * f.shrink + f.rate * first / (sqrtf(second) * f.unbias + f.eps);
    }
}

void rpexec_adam_step(const rpexec_adam *adam, uint64_t step, const rpexec_adam_slice *slice)
{
    const rpexec_adam_factors f = rpexec_adam_factors_of(adam, step);
    rpexec_adam_update(&f, slice);
}
