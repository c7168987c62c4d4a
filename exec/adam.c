#include "exec/adam.h"

#include "common/crew.h"

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

/* Parameters that a thread takes at a time: small enough to share fairly, large enough that taking
 * them costs nothing. */
#define PIECE (UINT64_C(1) << 18)

RPEXEC_VECTOR
static void update(const rpexec_adam_factors *factors_here, const rpexec_adam_slice *slice)
{
    const rpexec_adam_factors f = *factors_here;
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
    update(&f, slice);
}

typedef struct shared_step {
    rpexec_adam_factors f;
    const rpexec_adam_slice *slices;
} shared_step;

uint64_t rpexec_adam_pieces(uint64_t count)
{
    return (count + PIECE - 1) / PIECE;
}

static rp_status update_piece(void *context, uint32_t job)
{
    const shared_step *s = context;
    uint64_t piece = job;
    const rpexec_adam_slice *slice = s->slices;
    while (piece >= rpexec_adam_pieces(slice->count)) {
        piece -= rpexec_adam_pieces((slice++)->count);
    }
    uint64_t first = piece * PIECE;
    uint64_t rest = slice->count - first;
    rpexec_adam_slice part = {.parameters = slice->parameters + first,
                              .gradients = slice->gradients + first,
                              .m = slice->m + first,
                              .v = slice->v + first,
                              .count = rest < PIECE ? rest : PIECE};
    update(&s->f, &part);
    return RP_OK;
}

void rpexec_adam_steps(const rpexec_adam *adam, uint64_t step, const rpexec_adam_slice *slices,
                       uint32_t count, uint32_t threads)
{
    shared_step s = {.f = rpexec_adam_factors_of(adam, step), .slices = slices};
    uint64_t pieces = 0;
    for (uint32_t i = 0; i < count; i++) {
        pieces += rpexec_adam_pieces(slices[i].count);
    }
    threads = pieces < RPEXEC_ADAM_LEAST_PIECES ? 1 : threads;
    (void)rp_crew_run(threads, (uint32_t)pieces, update_piece, &s);
}
