/* The report of a fit, and the platform with the constants set. */
#include "common/inputs/platform_write.h"
#include "common/inputs/provenance.h"
#include "sim/rppredict/fit.h"

#include <math.h>

static double error_pct(double predicted, double measured)
{
    return 100 * (predicted / measured - 1);
}

static void write_mean(const rpsim_fit *fit, bool fitted, FILE *stream)
{
    double sums[4] = {0}; /* signed and absolute, before and after */
    uint32_t count = 0;
    for (uint32_t i = 0; i < fit->row_count; i++) {
        const rpsim_fit_row *r = &fit->rows[i];
        double before = error_pct(r->before_tokens_per_s, r->measured_tokens_per_s);
        double after = error_pct(r->predicted_tokens_per_s, r->measured_tokens_per_s);
        if (r->fit == fitted) {
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
                r->question->framework, r->question->model, r->question->gpus,
                r->fit ? "fit" : "predict", r->measured_tokens_per_s, r->predicted_tokens_per_s,
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
