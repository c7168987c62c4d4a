/* Stops a run whose weights are not finite: its losses mean nothing, and no checkpoint may keep
 * them. With fp16 a loss that is not finite is no reason by itself: such a step is skipped. */
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
                     step, name, count, rp_dtype_text(t->o->dtype));
    } else {
        rp_log_error("step %" PRIu64 ": the loss is %g, and tensor %s, the first of %" PRIu32
                     ", is not finite; valid are a lower --lr than %g, and weights whose loss is "
                     "finite",
                     step, fabs(*loss), name, count, t->o->lr);
    }
    return RP_TOOL;
}

rp_status rpexec_trainer_finite(const rpexec_trainer *t, uint32_t done, uint32_t steps, bool always)
{
    const double *losses = t->outcome->losses;
    uint64_t first = t->outcome->first_step + 1;
    if (steps == 0) {
        return look(t, first, NULL);
    }
    for (uint32_t i = done; i < done + steps; i++) {
        if (!isfinite(losses[i])) {
            return look(t, first + i, &losses[i]);
        }
    }
    return always ? look(t, first + done + steps - 1, &losses[done + steps - 1]) : RP_OK;
}
