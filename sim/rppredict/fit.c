#include "sim/rppredict/fit.h"

#include "common/base/log.h"
#include "common/inputs/platform_write.h"

#include <gsl/gsl_blas.h>
#include <gsl/gsl_errno.h>
#include <gsl/gsl_multifit_nlinear.h>
#include <math.h>
#include <string.h>

#define STEP 0.05      /* of a logarithm: larger than the whole picoseconds of a run show */
#define MOST_STEPS 30u /* of Levenberg and Marquardt */
#define TOLERANCE 1e-4 /* of a logarithm */
#define DETERMINED 0.5 /* of the deviation that a constant has without runs */
#define EVALUATE 4.0   /* a constant's range is left by this factor while it is looked for */

/* Where a constant can be: of what the platform says, or by itself. */
typedef struct declared {
    const char *key;
    double low, high;
    const char *of; /* low and high are parts of this key's value; NULL: values */
    bool usual;     /* set where no list is given */
} declared;

/* Sources. Host: one channel of DDR4 up to 24 of DDR5-6400. Link and memory: no copy is below 0.3
 * of the nominal rate unless something is broken. Collectives: staged through the host up to all of
 * an NVLink switch. Host work for each module and tensor: C++ to a slow Python. Launch: empty
 * kernels, 1.5 to 10 us apart. */
static const declared list[] = {
    {"host_optimizer_gb_per_s", 5, 1200, NULL, true},
    {"host_adam_gb_per_s", 5, 1200, NULL, false},
    {"host_refresh_gb_per_s", 5, 1200, NULL, false},
    {"host_collect_gb_per_s", 5, 1200, NULL, false},
    {"link_effective_gb_per_s", 0.3, 1, "link_gb_per_s", true},
    {"link_efficiency", 0.3, 1, NULL, true},
    {"collective_gb_per_s", 0.3, 900, NULL, true},
    {"zero_gradient_gb_per_s", 1, 500, NULL, true},
    {"dispatch_us_per_module", 5, 500, NULL, true},
    {"optimizer_us_per_object", 0.5, 500, NULL, true},
    {"memory_effective_gb_per_s", 0.5, 1, "memory_gb_per_s", false},
    {"launch_overhead_us", 1, 10, NULL, false},
    {"gemm_efficiency", 0.3, 1, NULL, false},
};

#define DECLARED (sizeof list / sizeof list[0])

typedef struct fitter {
    rpsim_fit *out;
    rp_platform platform;      /* as given */
    rpsim_question *questions; /* [fit_count], then those that are only predicted */
    uint32_t *rows;            /* [row_count] of the question */
    uint32_t fit_count;
    rpsim_answer *answers;
    uint32_t active[RPSIM_FIT_MOST]; /* constants that are looked for */
    uint32_t active_count;
    rp_status status; /* of the last run that failed */
} fitter;

/* ---- constants --------------------------------------------------------------------------------
 */

/* Rates that stand for several: a link that was measured each way, a host's parts of a step. */
static const struct {
    const char *whole;
    const char *part;
    const char *most; /* that the part can be; NULL: any rate */
} parts[] = {{"link_effective_gb_per_s", "upload_gb_per_s", "link_gb_per_s"},
             {"link_effective_gb_per_s", "download_gb_per_s", "link_gb_per_s"},
             {"host_optimizer_gb_per_s", "host_adam_gb_per_s", NULL},
             {"host_optimizer_gb_per_s", "host_refresh_gb_per_s", NULL},
             {"host_optimizer_gb_per_s", "host_collect_gb_per_s", NULL}};

void rpsim_fit_set(rp_platform *platform, const char *key, double value)
{
    double *member = rp_platform_rate(platform, key);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        double *part = rp_platform_rate(platform, parts[i].part);
        if (part != NULL && strcmp(parts[i].whole, key) == 0 && *member > 0) {
            const double *most =
                parts[i].most != NULL ? rp_platform_rate(platform, parts[i].most) : NULL;
            *part *= value / *member;
            *part = most != NULL ? fmin(*part, *most) : *part;
        }
    }
    *member = value;
}

static bool wanted(const declared *d, const char *const *keys, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (strcmp(keys[i], d->key) == 0) {
            return true;
        }
    }
    return count == 0 && d->usual;
}

static rp_status refuse_key(const char *key, const char *cause)
{
    char known[512] = "";
    size_t used = 0;
    for (size_t i = 0; i < DECLARED; i++) {
        used += (size_t)snprintf(known + used, sizeof known - used, "%s, ", list[i].key);
    }
    rp_log_error("--fit-constants: '%.64s' %s; valid are %swhere the platform file has them", key,
                 cause, known);
    return RP_USAGE;
}

static rp_status check_keys(const char *const *keys, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        bool known = false;
        for (size_t d = 0; d < DECLARED; d++) {
            known = known || (strcmp(keys[i], list[d].key) == 0);
        }
        if (!known) {
            return refuse_key(keys[i], "is no constant that can be set");
        }
    }
    return RP_OK;
}

static rp_status choose_constants(const char *const *keys, uint32_t count, rpsim_fit *fit)
{
    RP_TRY(check_keys(keys, count));
    for (size_t i = 0; i < DECLARED; i++) {
        const double *value = rp_platform_rate(&fit->platform, list[i].key);
        if (value == NULL) {
            return rp_broken(); /* the list names what is no key */
        }
        if (!wanted(&list[i], keys, count)) {
            continue;
        }
        if (!(*value > 0)) {
            if (count > 0) {
                return refuse_key(list[i].key, "is not in the platform file");
            }
            continue;
        }
        const double *of = list[i].of != NULL ? rp_platform_rate(&fit->platform, list[i].of) : NULL;
        double unit = of != NULL ? *of : 1;
        fit->constants[fit->constant_count++] = (rpsim_fit_constant){.key = list[i].key,
                                                                     .low = list[i].low * unit,
                                                                     .high = list[i].high * unit,
                                                                     .before = *value,
                                                                     .value = *value,
                                                                     .spread_pct = NAN};
    }
    return RP_OK;
}

/* Of the logarithm, without runs. */
static double prior_sigma(const rpsim_fit_constant *c)
{
    return log(c->high / c->low) / 4;
}

/* ---- least squares ----------------------------------------------------------------------------
 */

static rp_status answer(fitter *f, const gsl_vector *x, uint32_t count)
{
    rp_platform platform = f->platform;
    for (uint32_t i = 0; i < f->out->constant_count; i++) {
        rpsim_fit_set(&platform, f->out->constants[i].key, f->out->constants[i].value);
    }
    for (uint32_t i = 0; x != NULL && i < f->active_count; i++) {
        const rpsim_fit_constant *c = &f->out->constants[f->active[i]];
        double value = c->before * exp(gsl_vector_get(x, i));
        value = fmin(fmax(value, c->low / EVALUATE), c->high * EVALUATE);
        rpsim_fit_set(&platform, c->key, value);
    }
    return rpsim_answer_all(&platform, f->questions, count, f->answers);
}

/* Runs in units of their deviation, then the constants' own values. */
static int residuals(const gsl_vector *x, void *context, gsl_vector *r)
{
    fitter *f = context;
    f->status = answer(f, x, f->fit_count);
    if (f->status != RP_OK) {
        return GSL_EFAILED;
    }
    for (uint32_t i = 0; i < f->fit_count; i++) {
        double measured = f->out->rows[f->rows[i]].measured_tokens_per_s;
        gsl_vector_set(r, i, log(f->answers[i].tokens_per_s / measured) / RPSIM_FIT_RUN_SIGMA);
    }
    for (uint32_t i = 0; i < f->active_count; i++) {
        double sigma = prior_sigma(&f->out->constants[f->active[i]]);
        gsl_vector_set(r, f->fit_count + i, gsl_vector_get(x, i) / sigma);
    }
    return GSL_SUCCESS;
}

static int derivatives(const gsl_vector *x, void *context, gsl_matrix *jacobian)
{
    gsl_vector *at = gsl_vector_alloc(x->size);
    gsl_vector *above = gsl_vector_alloc(jacobian->size1);
    gsl_vector *below = gsl_vector_alloc(jacobian->size1);
    int code = at != NULL && above != NULL && below != NULL ? GSL_SUCCESS : GSL_ENOMEM;
    for (size_t i = 0; i < x->size && code == GSL_SUCCESS; i++) {
        gsl_vector_memcpy(at, x);
        gsl_vector_set(at, i, gsl_vector_get(x, i) + STEP);
        code = residuals(at, context, above);
        gsl_vector_set(at, i, gsl_vector_get(x, i) - STEP);
        code = code == GSL_SUCCESS ? residuals(at, context, below) : code;
        for (size_t row = 0; row < jacobian->size1 && code == GSL_SUCCESS; row++) {
            double slope = (gsl_vector_get(above, row) - gsl_vector_get(below, row)) / (2 * STEP);
            gsl_matrix_set(jacobian, row, i, slope);
        }
    }
    gsl_vector_free(below);
    gsl_vector_free(above);
    gsl_vector_free(at);
    return code;
}

static rp_status solve(fitter *f, gsl_multifit_nlinear_workspace *w, gsl_matrix *covariance)
{
    int info = 0;
    gsl_multifit_nlinear_fdf system = {.f = residuals,
                                       .df = derivatives,
                                       .n = f->fit_count + f->active_count,
                                       .p = f->active_count,
                                       .params = f};
    gsl_vector *start = gsl_vector_alloc(f->active_count);
    if (start == NULL) {
        return RP_NO_MEMORY;
    }
    for (uint32_t i = 0; i < f->active_count; i++) {
        const rpsim_fit_constant *c = &f->out->constants[f->active[i]];
        gsl_vector_set(start, i, log(c->value / c->before));
    }
    int code = gsl_multifit_nlinear_init(start, &system, w);
    gsl_vector_free(start);
    code = code == GSL_SUCCESS ? gsl_multifit_nlinear_driver(MOST_STEPS, TOLERANCE, TOLERANCE, 0,
                                                             NULL, NULL, &info, w)
                               : code;
    if (f->status != RP_OK) {
        return f->status;
    }
    if (code == GSL_ENOMEM) {
        return RP_NO_MEMORY;
    }
    (void)gsl_multifit_nlinear_covar(gsl_multifit_nlinear_jac(w), 0, covariance);
    const gsl_vector *found = gsl_multifit_nlinear_position(w);
    for (uint32_t i = 0; i < f->active_count; i++) {
        rpsim_fit_constant *c = &f->out->constants[f->active[i]];
        c->value = c->before * exp(gsl_vector_get(found, i));
        c->spread_pct = 100 * sqrt(gsl_matrix_get(covariance, i, i));
    }
    return RP_OK;
}

/* Six digits, as files and tables have them. */
static double rounded(double value)
{
    double scale = pow(10, 5 - floor(log10(value)));
    return round(value * scale) / scale;
}

static rp_status fit_active(fitter *f)
{
    const gsl_multifit_nlinear_parameters parameters = gsl_multifit_nlinear_default_parameters();
    gsl_multifit_nlinear_workspace *w = gsl_multifit_nlinear_alloc(
        gsl_multifit_nlinear_trust, &parameters, f->fit_count + f->active_count, f->active_count);
    gsl_matrix *covariance = gsl_matrix_alloc(f->active_count, f->active_count);
    rp_status status = w != NULL && covariance != NULL ? solve(f, w, covariance) : RP_NO_MEMORY;
    gsl_matrix_free(covariance);
    gsl_multifit_nlinear_free(w);
    return status;
}

/* ---- which constants --------------------------------------------------------------------------
 */

static void drop(fitter *f, uint32_t at)
{
    f->active_count--;
    memmove(&f->active[at], &f->active[at + 1], (f->active_count - at) * sizeof f->active[0]);
}

/* The constant that the runs tell the least about. @return UINT32_MAX: they tell enough about all
 */
static uint32_t find_undetermined(const fitter *f)
{
    uint32_t worst = UINT32_MAX;
    double most = DETERMINED;
    for (uint32_t i = 0; i < f->active_count; i++) {
        const rpsim_fit_constant *c = &f->out->constants[f->active[i]];
        double left = c->spread_pct / 100 / prior_sigma(c);
        worst = left > most ? i : worst;
        most = fmax(left, most);
    }
    return worst;
}

static bool drop_undetermined(fitter *f)
{
    uint32_t worst = find_undetermined(f);
    if (worst == UINT32_MAX) {
        return false;
    }
    rpsim_fit_constant *c = &f->out->constants[f->active[worst]];
    c->undetermined = true;
    c->value = c->before;
    c->spread_pct = NAN;
    drop(f, worst);
    return true;
}

/* Before anything is looked for: where all constants have their own values. */
static rp_status screen(fitter *f)
{
    uint32_t count = f->active_count;
    gsl_matrix *jacobian = gsl_matrix_calloc(f->fit_count + count, count);
    gsl_matrix *covariance = gsl_matrix_alloc(count, count);
    gsl_vector *start = gsl_vector_calloc(count);
    rp_status status = RP_NO_MEMORY;
    if (jacobian != NULL && covariance != NULL && start != NULL) {
        (void)derivatives(start, f, jacobian);
        status = f->status;
    }
    while (status == RP_OK && f->active_count > 0) {
        gsl_matrix_const_view j =
            gsl_matrix_const_submatrix(jacobian, 0, 0, jacobian->size1, f->active_count);
        gsl_matrix_view c =
            gsl_matrix_submatrix(covariance, 0, 0, f->active_count, f->active_count);
        (void)gsl_multifit_nlinear_covar(&j.matrix, 0, &c.matrix);
        for (uint32_t i = 0; i < f->active_count; i++) {
            f->out->constants[f->active[i]].spread_pct =
                100 * sqrt(gsl_matrix_get(&c.matrix, i, i));
        }
        uint32_t worst = find_undetermined(f);
        if (!drop_undetermined(f)) {
            break;
        }
        for (size_t i = worst; i < f->active_count; i++) { /* its column goes */
            gsl_matrix_swap_columns(jacobian, i, i + 1);
        }
    }
    gsl_vector_free(start);
    gsl_matrix_free(covariance);
    gsl_matrix_free(jacobian);
    return status;
}

/* Holds a constant that has left its range at its end. @return false: none has */
static bool hold_at_end(fitter *f)
{
    for (uint32_t i = 0; i < f->active_count; i++) {
        rpsim_fit_constant *c = &f->out->constants[f->active[i]];
        if (c->value < c->low || c->value > c->high) {
            c->at_end = true;
            c->asked = c->value;
            c->value = c->value < c->low ? c->low : c->high;
            drop(f, i);
            return true;
        }
    }
    return false;
}

static void report_doubts(const rpsim_fit *fit)
{
    for (uint32_t i = 0; i < fit->constant_count; i++) {
        const rpsim_fit_constant *c = &fit->constants[i];
        if (c->undetermined) {
            rp_log_warning("%s: the runs to fit do not determine it; it stays at %.4g", c->key,
                           c->value);
        }
        if (c->at_end) {
            rp_log_warning("%s: the runs ask for %.4g, outside of its physical range, %.4g to "
                           "%.4g; it is held at %.4g, and something else is wrong",
                           c->key, c->asked, c->low, c->high, c->value);
        }
    }
}

static rp_status fit_constants(fitter *f)
{
    f->active_count = f->out->constant_count;
    for (uint32_t i = 0; i < f->active_count; i++) {
        f->active[i] = i;
    }
    if (f->active_count > 0) {
        RP_TRY(screen(f));
    }
    while (f->active_count > 0) {
        RP_TRY(fit_active(f));
        if (!drop_undetermined(f) && !hold_at_end(f)) {
            break;
        }
    }
    for (uint32_t i = 0; i < f->active_count; i++) {
        rpsim_fit_constant *c = &f->out->constants[f->active[i]];
        c->value = rounded(c->value);
    }
    report_doubts(f->out);
    return RP_OK;
}

/* ---- rows -------------------------------------------------------------------------------------
 */

static rp_status refuse_row(const rp_csv *csv, uint32_t row, const char *what)
{
    rp_log_error_at(csv->name, csv->lines[row], "%s", what);
    return RP_INPUT;
}

static rp_status read_row(const rp_csv *csv, uint32_t row, uint32_t tokens, uint32_t use,
                          rpsim_question *question, rpsim_fit_row *out)
{
    const char *word = rp_csv_cell(csv, row, use);
    *out = (rpsim_fit_row){.question = question, .fit = strcmp(word, "fit") == 0};
    if (!out->fit && strcmp(word, "predict") != 0) {
        return refuse_row(csv, row, "column use; valid values are fit and predict");
    }
    if (question->longest) {
        return refuse_row(csv, row, "column seq_len; valid are numbers of tokens");
    }
    return rp_csv_double(csv, row, tokens, 1e-3, 1e12, &out->measured_tokens_per_s);
}

static rp_status read_rows(const rpsim_cells *cells, rp_arena *arena, fitter *f)
{
    const rp_csv *csv = &cells->csv;
    rpsim_fit *fit = f->out;
    uint32_t tokens = 0;
    uint32_t use = 0;
    RP_TRY(rp_csv_column(csv, "tokens_per_s", &tokens));
    RP_TRY(rp_csv_column(csv, "use", &use));
    RP_TRY(rp_arena_alloc(arena, csv->rows, sizeof *fit->rows, &fit->rows));
    RP_TRY(rp_arena_alloc(arena, csv->rows, sizeof *f->questions, &f->questions));
    RP_TRY(rp_arena_alloc(arena, csv->rows, sizeof *f->rows, &f->rows));
    RP_TRY(rp_arena_alloc(arena, csv->rows, sizeof *f->answers, &f->answers));
    fit->row_count = csv->rows;
    for (uint32_t row = 0; row < csv->rows; row++) {
        RP_TRY(read_row(csv, row, tokens, use, &cells->questions[row], &fit->rows[row]));
        f->fit_count += fit->rows[row].fit ? 1 : 0;
    }
    if (f->fit_count == 0) {
        rp_log_error_at(csv->name, 1, "no row to fit; valid is a column use with fit in some rows");
        return RP_INPUT;
    }
    uint32_t next[] = {f->fit_count, 0}; /* of rows to predict, and to fit */
    for (uint32_t row = 0; row < csv->rows; row++) {
        uint32_t at = next[fit->rows[row].fit]++;
        f->rows[at] = row;
        f->questions[at] = cells->questions[row];
    }
    return RP_OK;
}

rp_status rpsim_fit_run(const char *path, const rpsim_cells_inputs *inputs, const char *const *keys,
                        uint32_t key_count, rp_arena *arena, rpsim_fit *fit_out)
{
    rpsim_cells cells;
    fitter f = {.out = fit_out, .platform = inputs->platform};
    *fit_out = (rpsim_fit){.platform = inputs->platform};
    RP_TRY(choose_constants(keys, key_count, fit_out));
    RP_TRY(rpsim_cells_read(path, inputs, arena, &cells));
    RP_TRY(read_rows(&cells, arena, &f));
    RP_TRY(answer(&f, NULL, fit_out->row_count));
    for (uint32_t i = 0; i < fit_out->row_count; i++) {
        fit_out->rows[f.rows[i]].before_tokens_per_s = f.answers[i].tokens_per_s;
    }
    gsl_error_handler_t *handler = gsl_set_error_handler_off();
    rp_status status = fit_constants(&f);
    gsl_set_error_handler(handler);
    RP_TRY(status);
    RP_TRY(answer(&f, NULL, fit_out->row_count));
    for (uint32_t i = 0; i < fit_out->row_count; i++) {
        fit_out->rows[f.rows[i]].predicted_tokens_per_s = f.answers[i].tokens_per_s;
    }
    for (uint32_t i = 0; i < fit_out->constant_count; i++) {
        rpsim_fit_set(&fit_out->platform, fit_out->constants[i].key, fit_out->constants[i].value);
    }
    return RP_OK;
}

/* ---- writing ----------------------------------------------------------------------------------
 */

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

static const char *state_of(const rpsim_fit_constant *c)
{
    return c->undetermined ? "not determined by these runs"
           : c->at_end     ? "held at the end of its range"
                           : "set";
}

void rpsim_fit_write(const rpsim_fit *fit, FILE *stream)
{
    fputs("| constant | before | now | ± % | physical range | |\n|---|---|---|---|---|---|\n",
          stream);
    for (uint32_t i = 0; i < fit->constant_count; i++) {
        const rpsim_fit_constant *c = &fit->constants[i];
        char spread[32] = "";
        if (!c->undetermined && !c->at_end) {
            snprintf(spread, sizeof spread, "%.1f", c->spread_pct);
        }
        fprintf(stream, "| %s | %.4g | %.4g | %s | %.4g to %.4g | %s |\n", c->key, c->before,
                c->value, spread, c->low, c->high, state_of(c));
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

void rpsim_fit_write_platform(const rpsim_fit *fit, const char *name, const char *runs,
                              FILE *stream)
{
    rp_platform_note notes[RPSIM_FIT_MOST];
    uint32_t count = 0;
    rp_platform platform = fit->platform;
    platform.name = name;
    for (uint32_t i = 0; i < fit->constant_count; i++) {
        if (!fit->constants[i].undetermined) {
            notes[count++] = (rp_platform_note){fit->constants[i].key, "set on runs"};
        }
    }
    fprintf(stream, "# %s with constants that rppredict --fit %s has set.\n", fit->platform.name,
            runs);
    rp_platform_write(&platform, "", notes, count, stream);
}
