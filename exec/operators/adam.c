#include "exec/operators/adam.h"

#include <math.h>

rpexec_adam rpexec_adam_defaults(void)
{
    return (rpexec_adam){.lr = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8};
}

rpexec_adam_factors rpexec_adam_factors_of(const rpexec_adam *a, uint64_t step)
{
    double t = (double)step;
    return (rpexec_adam_factors){
        .beta1 = (float)a->beta1,
        .one_minus_beta1 = (float)(1 - a->beta1),
        .beta2 = (float)a->beta2,
        .one_minus_beta2 = (float)(1 - a->beta2),
        .rate = (float)(a->lr / (1 - pow(a->beta1, t))),
        .unbias = (float)(1 / sqrt(1 - pow(a->beta2, t))),
        .eps = (float)a->eps,
        .decay = a->decoupled ? 0.0f : (float)a->weight_decay,
        .shrink = a->decoupled ? (float)(1 - a->lr * a->weight_decay) : 1.0f,
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
        float g = gradients[i] + f.decay * p[i];
        float first = f.beta1 * m[i] + f.one_minus_beta1 * g;
        float second = f.beta2 * v[i] + f.one_minus_beta2 * (g * g);
        m[i] = first;
        v[i] = second;
        p[i] = p[i] * f.shrink - f.rate * first / (sqrtf(second) * f.unbias + f.eps);
    }
}

void rpexec_adam_step(const rpexec_adam *adam, uint64_t step, const rpexec_adam_slice *slice)
{
    const rpexec_adam_factors f = rpexec_adam_factors_of(adam, step);
    rpexec_adam_update(&f, slice);
}
