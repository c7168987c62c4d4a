/* --check: the same steps in plain loops on one device, and how far apart they are. */
#include "common/log.h"
#include "exec/checkpoint/weights.h"
#include "exec/single.h"
#include "exec/train_inside.h"

#include <math.h>
#include <string.h>

/* What --check allows: accumulating microbatches in another order costs a few roundings
 * (executor.md section 3, 1); over several steps Adam enlarges them. */
static const struct {
    double gradient;
    double loss;
} tolerances[RPEXEC_DTYPE_COUNT] = {[RPEXEC_DTYPE_F32] = {1e-5, 1e-4},
                                    [RPEXEC_DTYPE_BF16] = {2e-2, 2e-2},
                                    [RPEXEC_DTYPE_F16] = {5e-3, 5e-3}};

/* A second state that begins as the first, for plain loops. */
rp_status rpexec_check_begin(rpexec_trainer *t)
{
    uint64_t values = t->state.trained[t->model.layer_count];
    uint64_t held = t->state.offsets[t->model.layer_count];
    RP_TRY(rpexec_state_create(&t->model, t->arena, &t->reference));
    const struct {
        void *to;
        const void *from;
        uint64_t bytes;
    } arrays[] = {
        {t->reference.working, t->state.working, held * rpexec_dtype_bytes(t->model.dtype)},
        {t->reference.master, t->state.master, values * sizeof(float)},
        {t->reference.m, t->state.m, values * sizeof(float)},
        {t->reference.v, t->state.v, values * sizeof(float)}};
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) {
        memcpy(arrays[i].to, arrays[i].from, arrays[i].bytes);
    }
    t->reference.step = t->state.step;
    t->reference.scaler = t->state.scaler;
    RP_TRY(rpexec_host_lane_create(&t->model, (uint64_t)t->o->microbatch_size * t->o->seq_len,
                                   t->arena, &t->lane));
    return rp_arena_alloc(t->arena, t->outcome->steps, sizeof(double), &t->reference_losses);
}

/* The same steps in plain loops. */
static rp_status run_reference(rpexec_trainer *t, const rpexec_batch *batches, uint32_t done,
                               uint32_t steps)
{
    rpexec_single s = {.model = &t->model,
                       .state = &t->reference,
                       .adam = t->adam,
                       .microbatches = rpexec_trainer_microbatches(t),
                       .sequences = t->sequences,
                       .slot_microbatches = t->slot_microbatches,
                       .iterations = steps,
                       .batches = batches,
                       .asynchronous = t->work.asynchronous &&
                                       t->work.schedule->placement == RP_PLACEMENT_OFFLOAD,
                       .operators = rpexec_host_operators[t->model.dtype],
                       .lane = &t->lane,
                       .losses = t->reference_losses + done};
    return rpexec_single_run(&s);
}

/* The larger one; a NaN is larger than everything, and stays. */
static double worse(double worst, double error)
{
    return isnan(worst) || error <= worst ? worst : error;
}

static void compare_gradients(rpexec_trainer *t)
{
    rpexec_writable *ours = NULL;
    rpexec_writable *right = NULL;
    uint32_t count = 0;
    double worst = 0;
    if (rpexec_weights_list(&t->state, t->state.gradients, "", t->arena, &ours, &count) != RP_OK ||
        rpexec_weights_list(&t->reference, t->reference.gradients, "", t->arena, &right, &count) !=
            RP_OK) {
        worst = NAN;
        count = 0;
    }
    for (uint32_t i = 0; i < count; i++) {
        double squares = 0;
        const float *got = ours[i].values;
        const float *expected = right[i].values;
        uint64_t elements = rpexec_writable_elements(&right[i]);
        for (uint64_t k = 0; k < elements; k++) {
            squares += (double)expected[k] * (double)expected[k];
        }
        double rms = sqrt(squares / (double)elements);
        for (uint64_t k = 0; k < elements; k++) {
            double value = (double)expected[k];
            double difference = fabs((double)got[k] - value);
            bool same = memcmp(&got[k], &expected[k], sizeof(float)) == 0;
            double error = same || difference == 0 ? 0 : difference / (rms + fabs(value));
            worst = worse(worst, error);
        }
    }
    t->outcome->max_grad_rel_err = worst;
    t->outcome->same_bits = worst == 0;
}

rp_status rpexec_check_segment(rpexec_trainer *t, const rpexec_batch *batches, uint32_t done,
                               uint32_t steps)
{
    RP_TRY(run_reference(t, batches, done, steps));
    for (uint32_t i = done; i < done + steps; i++) {
        double right = t->reference_losses[i];
        double error = fabs(t->outcome->losses[i] - right) / fabs(right);
        double *worst = &t->outcome->max_loss_rel_err;
        *worst = worse(*worst, error);
        t->outcome->same_bits &= t->outcome->losses[i] == right;
    }
    if (done == 0) {
        compare_gradients(t);
        t->outcome->same_bits &= t->outcome->losses[0] == t->reference_losses[0];
    }
    return RP_OK;
}

/* A given program of several iterations compares the gradients of its last one, to which each step
 * before has added. */
static double gradient_tolerance(const rpexec_trainer *t)
{
    bool several = t->program != NULL && t->program->iteration_count > 1;
    double allowed = several ? tolerances[t->o->dtype].loss * t->program->iteration_count
                             : tolerances[t->o->dtype].gradient;
    if (t->o->dtype != RPEXEC_DTYPE_F32 && rpexec_trainer_microbatches(t) > 2) {
        /* Sums are rounded to 16 bits once per microbatch: their errors grow with the root. */
        allowed *= sqrt(rpexec_trainer_microbatches(t) / 2.0);
    }
    return allowed;
}

rp_status rpexec_check_end(const rpexec_trainer *t)
{
    const rpexec_outcome *out = t->outcome;
    double allowed_loss = tolerances[t->o->dtype].loss;
    if (!t->o->check || out->steps == 0 ||
        (out->max_grad_rel_err <= gradient_tolerance(t) && out->max_loss_rel_err <= allowed_loss)) {
        return RP_OK;
    }
    rp_log_error("--check: gradients differ by %g, losses by %g from a run on one device; valid "
                 "are %g and %g",
                 out->max_grad_rel_err, out->max_loss_rel_err, gradient_tolerance(t), allowed_loss);
    return RP_TOOL;
}
