/* Stops a run whose weights are not finite: its losses mean nothing, and no checkpoint may keep
 * them. With fp16 a loss that is not finite is no reason by itself: its step is skipped, until a
 * step overflows that no smaller scale can mend. DeepSpeed ends there as well ("Current loss scale
 * already at minimum"). A run whose every loss is not finite has nothing to save before that. */
#include "common/base/log.h"
#include "exec/checkpoint/weights.h"
#include "exec/rpexec/train_internal.h"

#include <inttypes.h>
#include <math.h>

static rp_status look(const rpexec_trainer *t, uint64_t step, const double *loss)
{
    const char *name = NULL;
    uint32_t count = 0;
    RP_TRY(rpexec_weights_not_finite(&t->state, t->arena, &name, &count));
    if (name == NULL) {
        return RP_OK;
    }
    if (loss == NULL) {
        rp_log_error("step %" PRIu64 ": tensor %s, the first of %" PRIu32 ", is not finite before "
                     "it; valid are weights without NaN and infinities in %s",
                     step, name, count, rp_dtype_text(t->o->run.dtype));
    } else {
        rp_log_error("step %" PRIu64 ": the loss is %g, and tensor %s, the first of %" PRIu32
                     ", is not finite; valid are a lower --lr than %g, and weights whose loss is "
                     "finite",
                     step, fabs(*loss), name, count, t->o->lr);
    }
    return RP_TOOL;
}

static rp_status look_at_scale(const rpexec_trainer *t)
{
    uint64_t step = t->state.exhausted;
    if (step == 0) {
        return RP_OK;
    }
    double loss = t->outcome->losses[step - t->outcome->first_step - 1];
    rp_log_error("step %" PRIu64 ": the loss is %g, and %s overflows fp16 at the smallest loss "
                 "scale, 1; no scale makes a step of it, and nothing is saved; valid are --dtype "
                 "bf16, whose range is that of fp32, and fp32",
                 step, loss, isfinite(loss) ? "a gradient" : "the forward");
    return RP_TOOL;
}

/* @param done number of steps of this run */
static rp_status look_at_all(const rpexec_trainer *t, uint32_t done)
{
    uint32_t i = 0;
    while (i < done && !isfinite(t->outcome->losses[i])) {
        i++;
    }
    if (i < done) {
        return RP_OK;
    }
    rp_log_error("step %" PRIu64 ": the loss is %g, as in all steps of this run, and the forward "
                 "overflows fp16 with every loss scale; nothing is saved; valid are --dtype bf16, "
                 "whose range is that of fp32, and fp32",
                 t->outcome->first_step + done, t->outcome->losses[done - 1]);
    return RP_TOOL;
}

rp_status rpexec_trainer_finite(const rpexec_trainer *t, uint32_t done, uint32_t steps, bool always)
{
    const double *losses = t->outcome->losses;
    uint64_t first = t->outcome->first_step + 1;
    uint32_t last = done + steps - 1;
    bool kept = always;
    if (steps == 0) {
        return look(t, first, NULL);
    }
    for (uint32_t i = done; i < done + steps; i++) {
        if (!isfinite(losses[i])) {
            RP_TRY(look(t, first + i, &losses[i]));
            always = false;
            break;
        }
    }
    RP_TRY(always ? look(t, first + last, &losses[last]) : RP_OK);
    RP_TRY(look_at_scale(t));
    return kept ? look_at_all(t, done + steps) : RP_OK;
}
