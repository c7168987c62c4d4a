#include "sim/study/decided.h"

#include "sim/study/columns.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define RIVALS_TOLD 3u
#define INPUTS_TOLD 5u
/* Share of today's range from which on the needed range prints as the same number. */
#define NEARLY 0.99
/* Least effect, in percent of tokens/s, of an input that is mentioned. */
#define MATTERS_PCT 0.5
/* Standard deviations of a normal distribution from the mean to the share RPSIM_DECIDED. */
#define DECIDED_SIGMAS 1.2815515655446004
/* Variance of an input over the squared distance of its ends (ranges.h): a uniform distribution, of
 * which the ends enclose 80 %. */
#define UNIFORM_VARIANCE (1 / (0.8 * 0.8 * 12))

/* ---- pairs ----------------------------------------------------------------------------------- */

static const rpsim_input *find(const rpsim_intervals *intervals, rpsim_input_id id)
{
    for (uint32_t i = 0; i < intervals->input_count; i++) {
        if (intervals->inputs[i].id == id) {
            return &intervals->inputs[i];
        }
    }
    return NULL;
}

/* Logarithm of the speed at the range's high end over the speed at its low end. */
static double width(const rpsim_input *input)
{
    return input != NULL ? log(input->at_high / input->at_low) : 0;
}

static void measure(const rpsim_intervals *a, double scale_a, const rpsim_intervals *b,
                    double scale_b, double *mean_out, double *variance_out)
{
    double mean = 0;
    double squares = 0;
    for (uint32_t k = 0; k < a->draws; k++) {
        double lead = log(a->speeds[k] * scale_a / (b->speeds[k] * scale_b));
        double step = lead - mean;
        mean += step / (k + 1);
        squares += step * (lead - mean);
    }
    *mean_out = mean;
    *variance_out = squares / a->draws;
}

static void find_what_decides(const rpsim_intervals *a, const rpsim_intervals *b, double mean,
                              double variance, rpsim_decision *decision)
{
    double allowed = mean * mean / (DECIDED_SIGMAS * DECIDED_SIGMAS);
    double best = 0; /* largest factor on a range that decides the pair */
    double most = 0; /* largest part of an input */
    decision->input = RPSIM_INPUT_COUNT;
    for (int id = 0; id < RPSIM_INPUT_COUNT; id++) {
        const rpsim_input *of_a = find(a, (rpsim_input_id)id);
        const rpsim_input *of_b = find(b, (rpsim_input_id)id);
        const rpsim_input *either = of_a != NULL ? of_a : of_b;
        double apart = width(of_a) - width(of_b);
        double part = fmin(UNIFORM_VARIANCE * apart * apart, variance);
        if (!(part > 0)) {
            continue;
        }
        double left = allowed - (variance - part);
        double factor = left > 0 ? fmin(sqrt(left / part), 1) : 0;
        if (factor > best || (best == 0 && part > most)) {
            double half = (either->range.high - either->range.low) / 2;
            decision->input = (rpsim_input_id)id;
            decision->today = half;
            decision->needed = factor * half;
            best = factor;
            most = part;
        }
    }
}

rpsim_decision rpsim_decide(const rpsim_intervals *a, double scale_a, const rpsim_intervals *b,
                            double scale_b)
{
    double mean = 0;
    double variance = 0;
    rpsim_decision decision = {.ahead = rpsim_intervals_beats(a, scale_a, b, scale_b),
                               .input = RPSIM_INPUT_COUNT};
    decision.decided = decision.ahead >= RPSIM_DECIDED || decision.ahead <= 1 - RPSIM_DECIDED;
    if (!decision.decided) {
        measure(a, scale_a, b, scale_b, &mean, &variance);
        find_what_decides(a, b, mean, variance, &decision);
    }
    return decision;
}

/* ---- the table's notes ----------------------------------------------------------------------- */

static int most_first(const void *a, const void *b)
{
    double left = ((const rpsim_input *)a)->matters_pct;
    double right = ((const rpsim_input *)b)->matters_pct;
    return (left < right) - (left > right);
}

static void write_inputs(const rpsim_row *row, FILE *stream)
{
    const rpsim_intervals *i = row->intervals;
    rpsim_input inputs[RPSIM_INPUT_COUNT];
    double tokens = rpsim_row_tokens_per_s(row);
    memcpy(inputs, i->inputs, sizeof inputs);
    qsort(inputs, i->input_count, sizeof *inputs, most_first);
    fprintf(stream, "  %s: %.0f to %.0f tokens/s in 80 %% of %u draws of its inputs",
            row->schedule_name, i->speed.p10 * tokens, i->speed.p90 * tokens, i->draws);
    for (uint32_t k = 0;
         k < i->input_count && k < INPUTS_TOLD && inputs[k].matters_pct >= MATTERS_PCT; k++) {
        fprintf(stream, "%s%s (%s) %.1f %%", k == 0 ? "; alone, from p10 to p90: " : ", ",
                rpsim_input_names[inputs[k].id], rp_provenance_text(inputs[k].kind),
                inputs[k].matters_pct);
    }
    fputc('\n', stream);
}

/* Says so if the row's layer times were not measured. */
static void write_unmeasured(const rpsim_row *row, FILE *stream)
{
    if (row->platform_name != NULL && row->run.costs->kind != RP_MEASURED &&
        row->run.costs->kind != RP_SET) {
        fprintf(stream, "  nobody has measured %s on %s in %s: its layer times are %s (%s)\n",
                row->model_name, row->platform_name, rp_dtype_text(row->run.decided.dtype),
                rp_provenance_text(row->run.costs->kind), row->run.costs->name);
    }
}

/* Prints all inputs that were neither measured nor set, by their origin. */
static void write_origins(const rpsim_intervals *intervals, FILE *stream)
{
    static const struct {
        rp_provenance kind;
        const char *text;
    } origins[] = {{RP_MOVED, "inputs moved from other hardware"}, {RP_ASSUMED, "inputs assumed"}};
    for (size_t k = 0; k < sizeof origins / sizeof origins[0]; k++) {
        uint32_t count = 0;
        for (uint32_t i = 0; i < intervals->input_count; i++) {
            const rpsim_input *input = &intervals->inputs[i];
            if (input->kind == origins[k].kind) {
                fprintf(stream, "%s%s%s", count == 0 ? "  " : ", ",
                        count == 0 ? origins[k].text : "", count == 0 ? ": " : "");
                fputs(rpsim_input_names[input->id], stream);
                count++;
            }
        }
        fputs(count != 0 ? "\n" : "", stream);
    }
}

void rpsim_decision_text(const rpsim_decision *d, char *text, size_t size)
{
    const char *name = d->input != RPSIM_INPUT_COUNT ? rpsim_input_names[d->input] : "";
    if (d->input == RPSIM_INPUT_COUNT) {
        (void)snprintf(text, size, "%s", "");
    } else if (d->needed > NEARLY * d->today) {
        (void)snprintf(text, size, "; knowing %s a little better than to +-%.1f %% would decide it",
                       name, 100 * d->today);
    } else if (d->needed > 0) {
        (void)snprintf(text, size, "; knowing %s to +-%.1f %% instead of +-%.1f %% would decide it",
                       name, 100 * d->needed, 100 * d->today);
    } else {
        (void)snprintf(text, size,
                       "; no single input would decide it, most hangs on %s (+-%.1f %%)", name,
                       100 * d->today);
    }
}

static bool competes(const rpsim_row *row)
{
    return row->intervals != NULL && (!row->memory.known || row->memory.fits);
}

/* Undecided pairs of a ranking. */
typedef struct undecided {
    const char *mode; /* recompute mode, if other modes have rankings of their own; otherwise "" */
    uint32_t count;
    FILE *stream;
} undecided;

/* Prints a line for an undecided pair if it is among the first RIVALS_TOLD. Pairs that tie in all
 * draws are skipped. */
static void write_pair(const rpsim_row *ahead, const rpsim_row *behind, undecided *u)
{
    rpsim_decision d = rpsim_decide(ahead->intervals, rpsim_row_tokens_per_s(ahead),
                                    behind->intervals, rpsim_row_tokens_per_s(behind));
    if (d.decided || d.input == RPSIM_INPUT_COUNT || u->count++ >= RIVALS_TOLD) {
        return;
    }
    bool modes = ahead->run.recompute != behind->run.recompute;
    fprintf(u->stream, "  not decided%s%s: %s%s%s is ahead of %s%s%s in %.0f %% of the draws",
            u->mode[0] != '\0' ? ", recompute " : "", u->mode, ahead->schedule_name,
            modes ? ", recompute " : "", modes ? rp_recompute_text(ahead->run.recompute) : "",
            behind->schedule_name, modes ? ", recompute " : "",
            modes ? rp_recompute_text(behind->run.recompute) : "", 100 * d.ahead);
    char text[RPSIM_DECISION_TEXT];
    rpsim_decision_text(&d, text, sizeof text);
    fprintf(u->stream, "%s\n", text);
}

static void write_more(const undecided *u, const char *of)
{
    uint32_t more = u->count > RIVALS_TOLD ? u->count - RIVALS_TOLD : 0;
    if (more > 0) {
        fprintf(u->stream, "  not decided either%s%s: %u more pair%s %s\n",
                u->mode[0] != '\0' ? ", recompute " : "", u->mode, more, more == 1 ? "" : "s", of);
    }
}

/* Prints the undecided pairs: in a ranking each row and its successor in the same recompute mode,
 * otherwise the best row and each other row. */
static void write_undecided(const rpsim_study *study, uint32_t begin, uint32_t end, uint32_t best,
                            FILE *stream)
{
    bool ranked = study->setup->all_schedules;
    bool modes = false;
    for (uint32_t i = begin + 1; ranked && i < end; i++) {
        modes = modes || study->rows[i].run.recompute != study->rows[begin].run.recompute;
    }
    undecided u = {.mode = "", .stream = stream};
    for (uint32_t i = begin; i < end; i++) {
        const rpsim_row *row = &study->rows[i];
        const rpsim_row *ahead = ranked ? row - 1 : &study->rows[best];
        bool next =
            !ranked || (i > begin && competes(ahead) && ahead->run.recompute == row->run.recompute);
        if (modes && (i == begin || ahead->run.recompute != row->run.recompute)) {
            write_more(&u, "of the ranking");
            u.mode = rp_recompute_text(row->run.recompute);
            u.count = 0;
        }
        if (next && row != ahead && competes(row)) {
            write_pair(ahead, row, &u);
        }
    }
    write_more(&u, ranked ? "of the ranking" : "with the best one");
}

void rpsim_intervals_write(const rpsim_study *study, uint32_t begin, uint32_t end, uint32_t best,
                           FILE *stream)
{
    const rpsim_row *row = &study->rows[best < end ? best : begin];
    write_unmeasured(row, stream);
    if (row->intervals == NULL) {
        return;
    }
    write_inputs(row, stream);
    write_origins(row->intervals, stream);
    if (best < end) {
        write_undecided(study, begin, end, best, stream);
    }
}
