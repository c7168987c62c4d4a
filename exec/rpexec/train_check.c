/* --check: takes the same steps in plain loops on a single device, and compares them. */
#include "common/base/log.h"
#include "exec/checkpoint/weights.h"
#include "exec/rpexec/train_internal.h"
#include "exec/run/single.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Limits of --check (executor.md section 3, 1): in fp32 for each element of a gradient, in 16 bits
 * for each tensor's rms. In 16 bits sums are rounded once per microbatch, which is little against
 * the tensor but much against an element whose parts nearly cancel; 2e-2 of the rms also keeps the
 * cosine above 0.999. The limits hold only for the first step: over several steps Adam enlarges
 * differences.
 *
 * A backend with operators of its own also adds up in other orders inside of them, and 16 bits then
 * soon round most stored values differently. On the emulator the CUDA backend's kernels are 1.3e-5
 * away in fp32 with 16 layers, and 1.6 (bf16) or 1.9 (fp16) roundoff sqrt(layers) in 16 bits. A
 * lost microbatch would give a difference of a third or more. */
static const struct {
    double gradient;
    double of_others; /* for operators that are not the host's */
    double loss;
    double roundoff; /* half a unit in the last place of 1, if sums are stored in 16 bits */
} tolerances[RP_DTYPE_COUNT] = {[RP_DTYPE_F32] = {1e-5, 1e-4, 1e-4, 0},
                                [RP_DTYPE_BF16] = {2e-2, 2e-2, 2e-2, 0x1p-8},
                                [RP_DTYPE_F16] = {5e-3, 5e-3, 5e-3, 0x1p-11}};

static bool cuts(const rpexec_trainer *t)
{
    return (rp_cuts_layers(&t->o->schedule->traits) && t->o->run.gpus > 1) ||
           t->o->run.layout.tensor_parallel > 1;
}

/* Refuses experts with 16-bit tensor parallelism: ranks round parts of sums, so that tokens with
 * nearly equal logits of two experts go to another expert than in plain loops, which is more than a
 * rounding error. */
static rp_status check_routing(const rpexec_trainer *t)
{
    if (!cuts(t) || t->config.experts == 1 || t->o->run.dtype == RP_DTYPE_F32) {
        return RP_OK;
    }
    rp_log_error("--check: in %s experts that %s chooses need not be those of plain loops, where "
                 "their logits differ by less than rounding; valid are fp32 and one GPU",
                 rp_dtype_text(t->o->run.dtype), t->o->schedule->name);
    return RP_USAGE;
}

/* Ranks of tensor parallelism cut sums inside of products: in 16 bits that rounds as other
 * operators do. In fp32 the difference is 5e-6 with initial weights; after attention has become
 * even, the gradients of q and k are small differences of large terms, and 1.5e-4 apart (after 8
 * steps on a text; with fsdp's products cut in two 9e-5). A missing sum would be a tenth or
 * more. */
#define CUT_FP32 1e-3

rp_status rpexec_check_begin(rpexec_trainer *t)
{
    RP_TRY(check_routing(t));
    uint64_t values = t->state.trained[t->model.layer_count];
    uint64_t held = t->state.offsets[t->model.layer_count];
    RP_TRY(rpexec_state_create(&t->model, t->arena, &t->reference));
    const struct {
        void *to;
        const void *from;
        uint64_t bytes;
    } arrays[] = {{t->reference.working, t->state.working, held * rp_dtype_bytes(t->model.dtype)},
                  {t->reference.master, t->state.master, values * sizeof(float)},
                  {t->reference.m, t->state.m, values * sizeof(float)},
                  {t->reference.v, t->state.v, values * sizeof(float)}};
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++) {
        memcpy(arrays[i].to, arrays[i].from, arrays[i].bytes);
    }
    for (size_t i = 0; i < 2; i++) {
        RP_TRY(rp_arena_alloc(t->arena, values, sizeof(float), &t->gradients[i]));
    }
    t->reference.step = t->state.step;
    t->reference.scaler = t->state.scaler;
    RP_TRY(rpexec_host_lane_create(
        &t->model, (uint64_t)t->o->run.microbatch_size * t->o->run.seq_len, t->arena, &t->lane));
    RP_TRY(rp_arena_alloc(t->arena, t->outcome->steps, sizeof(double), &t->reference_norms));
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
                       .job_microbatches = t->job_microbatches,
                       .iterations = steps,
                       .batches = batches,
                       .asynchronous = t->work.decided.asynchronous &&
                                       t->work.schedule->traits.placement == RP_PLACEMENT_OFFLOAD,
                       .operators = rpexec_host_operators[t->model.dtype],
                       .lane = &t->lane,
                       .losses = t->reference_losses + done,
                       .norms = t->reference_norms + done,
                       .first_gradients = done == 0 ? t->gradients[1] : NULL};
    return rpexec_single_run(&s);
}

/* The larger error; NaN is larger than everything, and stays. */
static double worse(double worst, double error)
{
    return isnan(worst) || error <= worst ? worst : error;
}

void rpexec_check_tensor(const float *got, const float *expected, uint64_t elements,
                         rpexec_outcome *out)
{
    double squares = 0;
    double error_squares = 0;
    for (uint64_t k = 0; k < elements; k++) {
        squares += (double)expected[k] * (double)expected[k];
    }
    double rms = sqrt(squares / (double)elements);
    for (uint64_t k = 0; k < elements; k++) {
        double value = (double)expected[k];
        double difference = fabs((double)got[k] - value);
        bool same = memcmp(&got[k], &expected[k], sizeof(float)) == 0;
        double error = same || difference == 0 ? 0 : difference / (rms + fabs(value));
        out->max_grad_rel_err = worse(out->max_grad_rel_err, error);
        error_squares += same ? 0 : difference * difference;
    }
    double error_rms = error_squares == 0 ? 0 : sqrt(error_squares / (double)elements) / rms;
    out->max_grad_rms_err = worse(out->max_grad_rms_err, error_rms);
}

static void compare_gradients(rpexec_trainer *t)
{
    rpexec_writable *ours = NULL;
    rpexec_writable *right = NULL;
    uint32_t count = 0;
    rpexec_outcome *out = t->outcome;
    out->max_grad_rel_err = out->max_grad_rms_err = 0;
    if (rpexec_weights_list(&t->state, t->gradients[0], "", t->arena, &ours, &count) != RP_OK ||
        rpexec_weights_list(&t->state, t->gradients[1], "", t->arena, &right, &count) != RP_OK) {
        out->max_grad_rel_err = out->max_grad_rms_err = NAN;
        count = 0;
    }
    for (uint32_t i = 0; i < count; i++) {
        rpexec_check_tensor(ours[i].values, right[i].values, rpexec_writable_elements(&right[i]),
                            out);
    }
    out->same_bits = out->max_grad_rel_err == 0;
}

double rpexec_check_tolerance(rp_dtype dtype, bool others, uint32_t microbatches, uint32_t layers)
{
    /* A sum of M microbatches in another order: M roundings of partial sums on both sides, each of
     * about roundoff / sqrt(3), so roundoff * sqrt(M / 3) while partial sums grow steadily. If they
     * pass through larger values than their end, more is lost: the limit is twice roundoff *
     * sqrt(M). */
    double rounding = 2 * tolerances[dtype].roundoff * sqrt(microbatches);
    double least =
        others ? fmax(tolerances[dtype].of_others, 4 * tolerances[dtype].roundoff * sqrt(layers))
               : tolerances[dtype].gradient;
    return fmax(least, rounding);
}

static double gradient_tolerance(const rpexec_trainer *t)
{
    rp_dtype dtype = t->o->run.dtype;
    bool others =
        t->driver->operators != rpexec_host_operators || (cuts(t) && dtype != RP_DTYPE_F32);
    double allowed =
        rpexec_check_tolerance(dtype, others, rpexec_trainer_microbatches(t), t->model.layer_count);
    return cuts(t) && dtype == RP_DTYPE_F32 ? fmax(allowed, CUT_FP32) : allowed;
}

/* As long as all bits were the same, Adam has had nothing to enlarge: gradients of later steps are
 * as near as the first step's, and so are their norms. */
static void compare_norms(rpexec_trainer *t, uint32_t step)
{
    double right = t->reference_norms[step];
    double ours = t->outcome->norms[step];
    bool same = isnan(right) ? isnan(ours) : ours == right; /* fp16: an overflow in both */
    double error = fabs(ours - right) / right;
    if (t->outcome->same_bits && !same && !(error <= gradient_tolerance(t)) &&
        t->outcome->norm_apart == 0) {
        t->outcome->norm_apart = step + 1;
        t->outcome->norm_rel_err = error;
    }
}

rp_status rpexec_check_segment(rpexec_trainer *t, const rpexec_batch *batches, uint32_t done,
                               uint32_t steps)
{
    RP_TRY(run_reference(t, batches, done, steps));
    if (done == 0) {
        compare_gradients(t);
    }
    for (uint32_t i = done; i < done + steps; i++) {
        double right = t->reference_losses[i];
        double error = fabs(t->outcome->losses[i] - right) / fabs(right);
        double *worst = &t->outcome->max_loss_rel_err;
        *worst = worse(*worst, error);
        if (!(error <= tolerances[t->o->run.dtype].loss) && t->outcome->loss_apart == 0) {
            t->outcome->loss_apart = i + 1;
        }
        compare_norms(t, i);
        t->outcome->same_bits &= t->outcome->losses[i] == right;
    }
    return RP_OK;
}

rp_status rpexec_check_end(const rpexec_trainer *t)
{
    const rpexec_outcome *out = t->outcome;
    double allowed_loss = tolerances[t->o->run.dtype].loss;
    bool is_f32 = t->o->run.dtype == RP_DTYPE_F32;
    double error = is_f32 ? out->max_grad_rel_err : out->max_grad_rms_err;
    if (!t->o->check || out->steps == 0 ||
        (error <= gradient_tolerance(t) && out->max_loss_rel_err <= allowed_loss &&
         out->norm_apart == 0)) {
        return RP_OK;
    }
    if (error <= gradient_tolerance(t) && out->norm_apart != 0) {
        rp_log_error("--check: gradients of step %u differ by %g in their norm from a run on one "
                     "device, where all before was the same bits; valid is %g",
                     out->norm_apart, out->norm_rel_err, gradient_tolerance(t));
        return RP_TOOL;
    }
    /* A wrong step shows in the next loss, or with an asynchronous optimizer in the loss after it.
     * If training is unstable, two runs that round differently part sooner or later. */
    bool rounding = error <= gradient_tolerance(t) && out->loss_apart > 3;
    char where[64] = "";
    if (out->loss_apart != 0) {
        (void)snprintf(where, sizeof where, ", which step %u is the first to exceed",
                       out->loss_apart);
    }
    rp_log_error("--check: gradients differ by %g%s, losses by %g from a run on one device; "
                 "valid are %g and %g%s%s",
                 error, is_f32 ? "" : " of a tensor's rms", out->max_loss_rel_err,
                 gradient_tolerance(t), allowed_loss, where,
                 rounding ? " (so late rounding alone may do it: fewer steps or a lower --lr tell)"
                          : "");
    return RP_TOOL;
}
