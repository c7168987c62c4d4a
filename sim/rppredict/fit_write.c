/* The report of a fit, and the platform with the constants set. */
#include "common/base/log.h"
#include "common/inputs/provenance.h"
#include "common/inputs/published.h"
#include "common/inputs/write/platform_write.h"
#include "sim/rppredict/fit.h"

#include <math.h>
#include <string.h>

static double error_pct(double predicted, double measured)
{
    return 100 * (predicted / measured - 1);
}

/* Sets the words for a constant: its state for the table, and the reason for warnings and the
 * platform's file. */
static rp_status say_constant(rpsim_fit_constant *c, rp_arena *arena)
{
    static const char *const words[][2] = {
        [RPSIM_FIT_UNSEEN] = {"left: not shown", "the runs do not show it"},
        [RPSIM_FIT_AGREES] = {"left: the runs agree", "the runs agree with it"},
        [RPSIM_FIT_RIVALS] = {"left: others explain the runs",
                              "the runs are explained as well by "},
        [RPSIM_FIT_AT_END] = {"left: at the end of its range", "the runs ask for more than it can"},
        [RPSIM_FIT_UNEXPLAINED] = {"left: does not explain the runs",
                                   "with it the runs are not explained"},
        [RPSIM_FIT_SET] = {"set", "set on runs"}};
    const char *rivals = *c->rivals != '\0' ? c->rivals : "what the platform has";
    c->said = words[c->state][0];
    RP_TRY(rp_arena_print(arena, &c->why, "%s%s", words[c->state][1],
                          c->state == RPSIM_FIT_RIVALS ? rivals : ""));
    if (c->state == RPSIM_FIT_RIVALS) {
        rp_log_warning("%s: the runs to fit do not determine it; it stays at %.4g: %s", c->key,
                       c->value, c->why);
    } else if (c->state == RPSIM_FIT_AT_END) {
        rp_log_warning("%s: the runs ask for the end of its physical range, %.4g to %.4g; it stays "
                       "at %.4g, and something else is wrong",
                       c->key, c->low, c->high, c->value);
    }
    return RP_OK;
}

/* Warns if all runs to fit are of the same system, whose software may be the cause of slow layers.
 */
static void warn_of_one_system(const rpsim_fit *fit, const rpsim_fit_constant *layers)
{
    const char *first = NULL;
    for (uint32_t i = 0; i < fit->row_count; i++) {
        const char *system = rp_published_schedule(fit->rows[i].question->framework);
        if (rpsim_fit_uses(&fit->rows[i]) && first != NULL && strcmp(first, system) != 0) {
            return;
        }
        first = rpsim_fit_uses(&fit->rows[i]) ? system : first;
    }
    rp_log_warning(
        "%s is set on runs of %s alone: what it stands for may be that system's software "
        "and then is wrong for others; runs of a second system to fit would tell",
        layers->key, first);
}

/* @return the logarithm by which a row to predict is further off than before */
static double worsened(const rpsim_fit_row *r)
{
    return r->fit || r->left_out ? 0
                                 : fabs(log(r->predicted_tokens_per_s / r->measured_tokens_per_s)) -
                                       fabs(log(r->before_tokens_per_s / r->measured_tokens_per_s));
}

static void warn_of_worse(const rpsim_fit *fit)
{
    const rpsim_fit_row *worst = NULL;
    uint32_t count = 0;
    for (uint32_t i = 0; i < fit->row_count; i++) {
        double worse = worsened(&fit->rows[i]);
        if (worse > RPSIM_FIT_RUN_SIGMA) {
            worst = worst == NULL || worse > worsened(worst) ? &fit->rows[i] : worst;
            count++;
        }
    }
    if (worst != NULL) {
        const rpsim_question *q = worst->question;
        rp_log_warning(
            "the fit makes %u of the runs to predict worse, most %s:%zu (%s, %s): %+.1f %% "
            "before, %+.1f %% now",
            count, q->file, q->line, q->framework, q->model,
            error_pct(worst->before_tokens_per_s, worst->measured_tokens_per_s),
            error_pct(worst->predicted_tokens_per_s, worst->measured_tokens_per_s));
    }
}

rp_status rpsim_fit_warn(rpsim_fit *fit, rp_arena *arena)
{
    const char *unseen = "";
    for (uint32_t i = 0; i < fit->constant_count; i++) {
        rpsim_fit_constant *c = &fit->constants[i];
        RP_TRY(say_constant(c, arena));
        if (c->state == RPSIM_FIT_UNSEEN) {
            RP_TRY(rp_arena_print(arena, &unseen, "%s%s%s", unseen, *unseen != '\0' ? ", " : "",
                                  c->key));
        } else if (c->state == RPSIM_FIT_SET && strcmp(c->key, "layer_time_factor") == 0) {
            warn_of_one_system(fit, c);
        }
    }
    if (*unseen != '\0') {
        rp_log_warning("the runs to fit do not show, so that the platform's stay: %s", unseen);
    }
    warn_of_worse(fit);
    return RP_OK;
}

static void write_mean(const rpsim_fit *fit, bool fitted, FILE *stream)
{
    double sums[4] = {0}; /* sums of signed and absolute errors, before and after */
    uint32_t count = 0;
    for (uint32_t i = 0; i < fit->row_count; i++) {
        const rpsim_fit_row *r = &fit->rows[i];
        double before = error_pct(r->before_tokens_per_s, r->measured_tokens_per_s);
        double after = error_pct(r->predicted_tokens_per_s, r->measured_tokens_per_s);
        if (r->fit == fitted && !r->left_out) {
            sums[0] += before;
            sums[1] += fabs(before);
            sums[2] += after;
            sums[3] += fabs(after);
            count++;
        }
    }
    if (count > 0) {
        fprintf(stream, "| %s | %u | %+.2f | %.2f | %+.2f | %.2f |\n", fitted ? "fit" : "predict",
                count, sums[0] / count, sums[1] / count, sums[2] / count, sums[3] / count);
    }
}

void rpsim_fit_write(const rpsim_fit *fit, FILE *stream)
{
    fputs("| constant | before | now | ± % | physical range | |\n|---|---|---|---|---|---|\n",
          stream);
    for (uint32_t i = 0; i < fit->constant_count; i++) {
        const rpsim_fit_constant *c = &fit->constants[i];
        char spread[32] = "";
        if (c->state == RPSIM_FIT_SET) {
            snprintf(spread, sizeof spread, "%.1f", c->spread_pct);
        }
        fprintf(stream, "| %s | %.4g | %.4g | %s | %.4g to %.4g | %s |\n", c->key, c->before,
                c->value, spread, c->low, c->high, c->said);
    }
    fputs("\n| system | model | GPUs | use | measured tokens/s | predicted | error % | before % |\n"
          "|---|---|---|---|---|---|---|---|\n",
          stream);
    for (uint32_t i = 0; i < fit->row_count; i++) {
        const rpsim_fit_row *r = &fit->rows[i];
        fprintf(stream, "| %s | %s | %u | %s | %.0f | %.0f | %+.2f | %+.2f |\n",
                r->question->framework, r->question->model, r->question->run.gpus,
                r->left_out ? "left out"
                : r->fit    ? "fit"
                            : "predict",
                r->measured_tokens_per_s, r->predicted_tokens_per_s,
                error_pct(r->predicted_tokens_per_s, r->measured_tokens_per_s),
                error_pct(r->before_tokens_per_s, r->measured_tokens_per_s));
    }
    fputs("\n| use | runs | before: mean error % | mean absolute % | now: mean error % | mean "
          "absolute % |\n|---|---|---|---|---|---|\n",
          stream);
    write_mean(fit, true, stream);
    write_mean(fit, false, stream);
}

rp_status rpsim_fit_write_platform(const rpsim_fit *fit, const char *name, const char *runs,
                                   rp_arena *arena, FILE *stream)
{
    rp_platform_note notes[RPSIM_FIT_MOST];
    rp_platform platform = fit->platform;
    platform.name = name;
    for (uint32_t i = 0; i < fit->constant_count; i++) {
        const rpsim_fit_constant *c = &fit->constants[i];
        notes[i] = (rp_platform_note){c->key, c->why};
        if (c->state != RPSIM_FIT_SET) {
            const char *kind = rp_provenance_text(rp_platform_provenance(&platform, c->key));
            RP_TRY(rp_arena_print(arena, &notes[i].text, "%s: left, %s", kind, c->why));
        }
    }
    fprintf(stream, "# %s with constants that rppredict --fit %s has set.\n", fit->platform.name,
            runs);
    rp_platform_write(&platform, "", notes, fit->constant_count, stream);
    return RP_OK;
}
