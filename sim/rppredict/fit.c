#include "sim/rppredict/fit.h"

#include "common/base/log.h"
#include "common/inputs/write/platform_write.h"
#include "sim/rppredict/least_squares.h"
#include "sim/run/ranges.h"

#include <math.h>
#include <string.h>

#define STEP 0.05   /* step of a logarithm: large against the rounding of times to picoseconds */
#define PULL 0.01   /* weight of a logarithm's square: holds constants that the runs leave open */
#define SHOWN 0.01  /* change of a run's speed over a constant's range that the runs show */
#define AS_WELL 4.0 /* increase of the sum of squares that is as good: two deviations of a run */
#define EDGE 1e-9   /* probability of a draw beyond the end of a range */
#define KNOWN 0.15  /* deviation of a logarithm up to which the runs determine a constant */

/* Servers that a range applies to. */
typedef enum joined { ANY, BY_NVLINK, THROUGH_HOST } joined;

/* Range of a constant: as parts of a value of the data sheet, or as values. */
typedef struct declared {
    const char *key;
    double low, high;
    const char *of; /* low and high are parts of this key's value; NULL: they are values */
    joined by;
    bool usual; /* the constant is set if no list is given */
} declared;

/* Sources. Layers: tables have 0.5 to 0.82 of the peak, torch.mm reaches 0.87 (Bekman, Machine
 * Learning Engineering); trainings reach down to 0.21 (Chowdhery et al., PaLM, 2022, table 3),
 * which includes time without compute. Link, NVLink and memory: no copy or collective is below 0.3
 * of the nominal rate unless something is broken (nccl-tests and BabelStream: traces/ranges.csv).
 * Collectives through the host: constants.csv has 0.06 to 0.11 of the link. Host: half of two
 * channels of DDR4-2400 up to 24 of DDR5-6400. DeepSpeed's gradients, Python's work for each module
 * and tensor: constants.csv, times the 3 by which processors differ (pyperformance). Launch: empty
 * kernels, 1.5 to 10 us apart. */
static const declared list[] = {
    {"layer_time_factor", 0.8, 3, NULL, ANY, true},
    {"host_optimizer_gb_per_s", 15, 1200, NULL, ANY, true},
    {"host_adam_gb_per_s", 15, 1200, NULL, ANY, false},
    {"host_refresh_gb_per_s", 8, 1200, NULL, ANY, false},
    {"host_collect_gb_per_s", 8, 1200, NULL, ANY, false},
    {"link_effective_gb_per_s", 0.3, 1, "link_gb_per_s", ANY, true},
    {"link_efficiency", 0.3, 1, NULL, ANY, true},
    {"collective_gb_per_s", 0.3, 1, "peer_gb_per_s", BY_NVLINK, true},
    {"collective_gb_per_s", 0.03, 1, "link_gb_per_s", THROUGH_HOST, true},
    {"zero_gradient_gb_per_s", 3, 50, NULL, ANY, true},
    {"dispatch_us_per_module", 6, 240, NULL, ANY, true},
    {"optimizer_us_per_object", 1, 35, NULL, ANY, true},
    {"memory_effective_gb_per_s", 0.5, 1, "memory_gb_per_s", ANY, false},
    {"launch_overhead_us", 1, 10, NULL, ANY, false},
    {"gemm_efficiency", 0.3, 1, NULL, ANY, false},
};

#define DECLARED (sizeof list / sizeof list[0])
#define MOST RPSIM_FIT_MOST
#define NONE UINT32_MAX

_Static_assert(MOST <= RPSIM_LEAST_SQUARES_MOST && DECLARED <= MOST, "constants have a place");

/* Logarithms of constants over the platform's values, and the sum of squares at this point. */
typedef struct point {
    double x[MOST];
    double sum;
} point;

typedef struct fitter {
    rpsim_fit *out;
    rp_platform platform;      /* the platform as given */
    rpsim_question *questions; /* [fit_count] to fit, then those that are only predicted */
    uint32_t *rows;            /* [row_count] the row of each question */
    uint32_t fit_count;
    rpsim_answer *answers;
    rp_arena *arena;
    bool shown[MOST];    /* the runs change over the constant's range */
    point ends[MOST][2]; /* a single constant is at an end of its range */
    point all;           /* all shown constants are free */
    point without[MOST]; /* all shown constants except this one are free */
    bool needed[MOST];   /* without this constant the runs cannot be explained as well */
} fitter;

/* ---- constants ------------------------------------------------------------------------------- */

/* Rates that stand for several parts: a link that was measured in each direction, a host's parts of
 * a step. */
static const struct {
    const char *whole;
    const char *part;
    const char *most; /* key of the part's largest rate; NULL: no limit */
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
        if (list[i].by != THROUGH_HOST) { /* an earlier row of the list has the same key */
            used += (size_t)snprintf(known + used, sizeof known - used, "%s, ", list[i].key);
        }
    }
    rp_log_error("{fit_constants}: '%.64s' %s; valid are %swhere the platform file has them", key,
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

/* Gives the range of a constant on this platform. @return false if the range applies to other
 * servers */
static bool find_range(const declared *d, rp_platform *platform, rpsim_fit_constant *c)
{
    bool nvlink = platform->peer_access == RP_PEER_NVLINK && rp_platform_joins_all(platform);
    const double *of = d->of != NULL ? rp_platform_rate(platform, d->of) : NULL;
    double unit = of != NULL ? *of : 1;
    c->low = fmin(d->low * unit, c->before);
    c->high = fmax(d->high * unit, c->before);
    return d->by == ANY || (d->by == BY_NVLINK) == nvlink;
}

static rp_status choose_constants(const char *const *keys, uint32_t count, rpsim_fit *fit)
{
    RP_TRY(check_keys(keys, count));
    for (size_t i = 0; i < DECLARED; i++) {
        const double *value = rp_platform_rate(&fit->platform, list[i].key);
        if (value == NULL) {
            return rp_broken(); /* the list names a key that does not exist */
        }
        rpsim_fit_constant c = {
            .key = list[i].key, .before = *value, .value = *value, .rivals = ""};
        if (!wanted(&list[i], keys, count) || !find_range(&list[i], &fit->platform, &c)) {
            continue;
        }
        if (*value > 0) {
            fit->constants[fit->constant_count++] = c;
        } else if (count > 0) {
            return refuse_key(list[i].key, "is not in the platform file");
        }
    }
    return RP_OK;
}

static double log_low(const rpsim_fit_constant *c)
{
    return log(c->low / c->before);
}

static double log_high(const rpsim_fit_constant *c)
{
    return log(c->high / c->before);
}

/* ---- runs ------------------------------------------------------------------------------------ */

/* @param x [constant_count] logarithms over the platform's values; NULL: uses the constants' values
 */
static rp_status answer(fitter *f, const double *x, uint32_t count)
{
    rp_platform platform = f->platform;
    for (uint32_t i = 0; i < f->out->constant_count; i++) {
        const rpsim_fit_constant *c = &f->out->constants[i];
        double value = x == NULL ? c->value : x[i] == 0 ? c->before : c->before * exp(x[i]);
        rpsim_fit_set(&platform, c->key, value);
    }
    return rpsim_answer_all(&platform, f->questions, count, f->answers);
}

/* Residuals of the runs to fit, in units of their deviation. */
static rp_status residuals(void *context, const double *x, double *r)
{
    fitter *f = context;
    RP_TRY(answer(f, x, f->fit_count));
    for (uint32_t i = 0; i < f->fit_count; i++) {
        double measured = f->out->rows[f->rows[i]].measured_tokens_per_s;
        r[i] = log(f->answers[i].tokens_per_s / measured) / RPSIM_FIT_RUN_SIGMA;
    }
    return RP_OK;
}

/* ---- results of the runs --------------------------------------------------------------------- */

/* Bounds of a search. */
typedef struct bounds {
    double low[MOST];
    double high[MOST];
} bounds;

static rpsim_least_squares problem_of(fitter *f, const bool *free, bounds *b)
{
    for (uint32_t i = 0; i < f->out->constant_count; i++) {
        b->low[i] = free[i] ? log_low(&f->out->constants[i]) : 0;
        b->high[i] = free[i] ? log_high(&f->out->constants[i]) : 0;
    }
    return (rpsim_least_squares){.rows = f->fit_count,
                                 .count = f->out->constant_count,
                                 .low = b->low,
                                 .high = b->high,
                                 .step = STEP,
                                 .pull = PULL,
                                 .residuals = residuals,
                                 .context = f};
}

/* Takes the best of two searches: from the platform's values, and from the end of the range of the
 * constant that comes nearest to the runs. The second search is needed for a constant that limits a
 * run only far from the platform's value, where the first search sees no change. */
static rp_status search(fitter *f, const bool *free, double enough, point *best)
{
    bounds b;
    rpsim_least_squares problem = problem_of(f, free, &b);
    point starts[2] = {0};
    starts[1].sum = INFINITY;
    for (uint32_t i = 0; i < f->out->constant_count; i++) {
        for (int end = 0; free[i] && end < 2; end++) {
            starts[1] = f->ends[i][end].sum < starts[1].sum ? f->ends[i][end] : starts[1];
        }
    }
    problem.enough = enough;
    best->sum = INFINITY;
    for (int i = 0; i < 2 && best->sum > enough; i++) {
        RP_TRY(rpsim_least_squares_run(&problem, starts[i].x, &starts[i].sum));
        *best = starts[i].sum < best->sum ? starts[i] : *best;
    }
    return RP_OK;
}

static double squares(const double *r, uint32_t count)
{
    double sum = 0;
    for (uint32_t i = 0; i < count; i++) {
        sum += r[i] * r[i];
    }
    return sum;
}

/* Finds the constants that the runs show: each is moved to the ends of its range while all others
 * keep the platform's values. */
static rp_status find_shown(fitter *f, double *here, double *there)
{
    const double none[MOST] = {0};
    RP_TRY(residuals(f, none, here));
    for (uint32_t i = 0; i < f->out->constant_count; i++) {
        const rpsim_fit_constant *c = &f->out->constants[i];
        for (int end = 0; end < 2; end++) {
            point *at = &f->ends[i][end];
            *at = (point){.sum = INFINITY};
            at->x[i] = end == 0 ? log_low(c) : log_high(c);
            RP_TRY(residuals(f, at->x, there));
            at->sum = squares(there, f->fit_count);
            for (uint32_t row = 0; row < f->fit_count; row++) {
                double change = fabs(there[row] - here[row]) * RPSIM_FIT_RUN_SIGMA;
                f->shown[i] = f->shown[i] || change > SHOWN;
            }
        }
    }
    return RP_OK;
}

/* Searches with all constants, then without each. A constant that the others make up for is not
 * needed. */
static rp_status find_needed(fitter *f)
{
    uint32_t count = f->out->constant_count;
    RP_TRY(search(f, f->shown, AS_WELL / 8, &f->all));
    for (uint32_t i = 0; i < count; i++) {
        if (!f->shown[i]) {
            continue;
        }
        bool free[MOST];
        memcpy(free, f->shown, sizeof free);
        free[i] = false;
        RP_TRY(search(f, free, f->all.sum + AS_WELL, &f->without[i]));
        f->needed[i] = f->without[i].sum > f->all.sum + AS_WELL;
        if (f->without[i].sum < f->all.sum - AS_WELL / 8) {
            f->all = f->without[i]; /* the first search had missed this better point: start again */
            i = NONE;
        }
    }
    return RP_OK;
}

/* Names the constants that would have to change in its place, or gives "". */
static rp_status name_rivals(const fitter *f, uint32_t of, const char **text_out)
{
    *text_out = "";
    for (uint32_t i = 0; i < f->out->constant_count; i++) {
        if (i != of && fabs(f->without[of].x[i]) > STEP) {
            RP_TRY(rp_arena_print(f->arena, text_out, "%s%s%s", *text_out,
                                  **text_out != '\0' ? " and " : "", f->out->constants[i].key));
        }
    }
    return RP_OK;
}

/* Rounds to six digits, as in files and tables. */
static double rounded(double value)
{
    double scale = pow(10, 5 - floor(log10(value)));
    return round(value * scale) / scale;
}

static void set_constant(const point *found, double deviation, uint32_t i, rpsim_fit_constant *c)
{
    if (found->x[i] <= log_low(c) + STEP / 10 || found->x[i] >= log_high(c) - STEP / 10) {
        c->state = RPSIM_FIT_AT_END;
        return;
    }
    c->state = RPSIM_FIT_SET;
    c->value = rounded(c->before * exp(found->x[i]));
    c->spread_pct = 100 * deviation;
}

/* Finds the deviations of the constants. The errors that are left count as deviations of the runs.
 */
static rp_status find_deviation(fitter *f, const bool *free, const point *found, double *deviation)
{
    bounds b;
    rpsim_least_squares problem = problem_of(f, free, &b);
    RP_TRY(rpsim_least_squares_deviation(&problem, found->x, deviation));
    uint32_t used = 0;
    for (uint32_t i = 0; i < f->out->constant_count; i++) {
        used += free[i] ? 1 : 0;
    }
    double left = f->fit_count > used ? found->sum / (f->fit_count - used) : 1;
    for (uint32_t i = 0; i < f->out->constant_count; i++) {
        deviation[i] *= sqrt(fmax(1, left));
    }
    return RP_OK;
}

/* Sets the needed constants. If they alone explain the runs as well as all constants together, only
 * they are free; otherwise all shown constants stay free, because the others hide a part of the
 * needed constants. */
static rp_status settle(fitter *f)
{
    point found;
    double alone[MOST];
    double beside[MOST];
    const bool *free = f->needed;
    RP_TRY(search(f, free, 0, &found));
    if (found.sum > f->all.sum + AS_WELL) {
        found = f->all;
        free = f->shown;
    }
    RP_TRY(find_deviation(f, free, &found, alone));
    RP_TRY(find_deviation(f, f->shown, &found, beside));
    for (uint32_t i = 0; i < f->out->constant_count; i++) {
        rpsim_fit_constant *c = &f->out->constants[i];
        if (f->needed[i]) {
            set_constant(&found, alone[i], i, c);
        } else if (f->shown[i]) {
            c->state = beside[i] < KNOWN ? RPSIM_FIT_AGREES : RPSIM_FIT_RIVALS;
            RP_TRY(name_rivals(f, i, &c->rivals));
        }
    }
    return RP_OK;
}

/* Sets nothing if a fitted run stays too far off: further than a single run, predicted with times
 * of layers from elsewhere, may be from the mean of many runs (traces/ranges.csv, run). */
static rp_status refuse_unexplained(fitter *f)
{
    rpsim_ranges ranges;
    RP_TRY(rpsim_ranges_load(&ranges));
    const rpsim_range *run = &ranges.of[RPSIM_INPUT_RUN][RP_MOVED];
    double low = 1 / rpsim_range_factor(run, 1 - EDGE);
    double high = 1 / rpsim_range_factor(run, EDGE);
    uint32_t worst = NONE;
    double off = 0;
    bool any_set = false;
    for (uint32_t i = 0; i < f->out->constant_count; i++) {
        any_set = any_set || f->out->constants[i].state == RPSIM_FIT_SET;
    }
    RP_TRY(answer(f, any_set ? NULL : f->all.x, f->fit_count));
    for (uint32_t i = 0; i < f->fit_count; i++) {
        double ratio = f->answers[i].tokens_per_s / f->out->rows[f->rows[i]].measured_tokens_per_s;
        if ((ratio < low || ratio > high) && fabs(log(ratio)) > fabs(off)) {
            worst = f->rows[i];
            off = log(ratio);
        }
    }
    for (uint32_t i = 0; worst != NONE && i < f->out->constant_count; i++) {
        rpsim_fit_constant *c = &f->out->constants[i];
        if (c->state == RPSIM_FIT_SET) {
            c->state = RPSIM_FIT_UNEXPLAINED;
            c->value = c->before;
        }
    }
    if (worst != NONE) {
        const rpsim_question *q = f->out->rows[worst].question;
        rp_log_warning(
            "nothing is set: the best constants leave %s:%zu (%s, %s) at %+.0f %%, beyond "
            "the %+.0f to %+.0f %% of one run and the model, so that runs to fit "
            "contradict each other or something else is wrong",
            q->file, q->line, q->framework, q->model, 100 * (exp(off) - 1), 100 * (low - 1),
            100 * (high - 1));
    }
    return RP_OK;
}

static rp_status fit_constants(fitter *f)
{
    double *r = NULL;
    RP_TRY(rp_arena_alloc(f->arena, 2 * (size_t)f->fit_count, sizeof *r, &r));
    RP_TRY(find_shown(f, r, r + f->fit_count));
    RP_TRY(find_needed(f));
    RP_TRY(settle(f));
    return refuse_unexplained(f);
}

/* ---- rows ------------------------------------------------------------------------------------ */

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
        f->questions[row] = cells->questions[row];
    }
    if (f->fit_count == 0) {
        rp_log_error_at(csv->name, 1, "no row to fit; valid is a column use with fit in some rows");
        return RP_INPUT;
    }
    return RP_OK;
}

/* Predicts with the platform as it is, and leaves out runs that do not fit: they say nothing about
 * rates. */
static rp_status leave_out_unfit(const rp_csv *csv, fitter *f)
{
    rpsim_fit *fit = f->out;
    RP_TRY(answer(f, NULL, fit->row_count));
    f->fit_count = 0;
    for (uint32_t row = 0; row < fit->row_count; row++) {
        const rpsim_question *q = fit->rows[row].question;
        fit->rows[row].before_tokens_per_s = f->answers[row].tokens_per_s;
        fit->rows[row].left_out = f->answers[row].need[0] != '\0';
        if (fit->rows[row].left_out) {
            rp_log_warning(
                "%s:%zu: left out, for %s, %s on %u GPUs does not fit into memory: it %s", q->file,
                q->line, q->framework, q->model, q->run.gpus, f->answers[row].need);
        }
        f->fit_count += rpsim_fit_uses(&fit->rows[row]) ? 1 : 0;
    }
    if (f->fit_count == 0) {
        rp_log_error_at(csv->name, 1, "no row to fit fits into memory; valid are runs that do");
        return RP_INPUT;
    }
    return RP_OK;
}

/* Orders the rows: the rows to fit come first. */
static void order_rows(fitter *f)
{
    uint32_t next[] = {f->fit_count, 0}; /* next place of the other rows, and of the rows to fit */
    for (uint32_t row = 0; row < f->out->row_count; row++) {
        uint32_t at = next[rpsim_fit_uses(&f->out->rows[row])]++;
        f->rows[at] = row;
        f->questions[at] = *f->out->rows[row].question;
    }
}

/* Leaves out the times of layers if they were measured on this platform, unless they are asked for.
 */
static void leave_known_layers(fitter *f, uint32_t key_count)
{
    rpsim_fit *fit = f->out;
    bool known = key_count == 0 && fit->constant_count > 0 &&
                 strcmp(fit->constants[0].key, list[0].key) == 0;
    for (uint32_t i = 0; i < f->fit_count; i++) {
        known = known && f->questions[i].run.costs != NULL;
    }
    if (known) {
        fit->constant_count--;
        memmove(&fit->constants[0], &fit->constants[1],
                fit->constant_count * sizeof fit->constants[0]);
    }
}

rp_status rpsim_fit_run(const char *path, const rpsim_cells_inputs *inputs, const char *const *keys,
                        uint32_t key_count, rp_arena *arena, rpsim_fit *fit_out)
{
    rpsim_cells cells;
    fitter f = {.out = fit_out, .platform = inputs->platform, .arena = arena};
    *fit_out = (rpsim_fit){.platform = inputs->platform};
    RP_TRY(choose_constants(keys, key_count, fit_out));
    RP_TRY(rpsim_cells_read(path, inputs, arena, &cells));
    RP_TRY(read_rows(&cells, arena, &f));
    RP_TRY(leave_out_unfit(&cells.csv, &f));
    order_rows(&f);
    leave_known_layers(&f, key_count);
    RP_TRY(fit_constants(&f));
    RP_TRY(answer(&f, NULL, fit_out->row_count));
    for (uint32_t i = 0; i < fit_out->row_count; i++) {
        fit_out->rows[f.rows[i]].predicted_tokens_per_s = f.answers[i].tokens_per_s;
    }
    for (uint32_t i = 0; i < fit_out->constant_count; i++) {
        rpsim_fit_set(&fit_out->platform, fit_out->constants[i].key, fit_out->constants[i].value);
    }
    return rpsim_fit_warn(fit_out, arena);
}
