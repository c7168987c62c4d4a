#include "sim/rpadvise/program/page_internal.h"

#include "common/cli/paragraph.h"
#include "sim/rpadvise/program/report.h"
#include "sim/study/columns.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define NAME_COLUMNS 19
#define NO_CHANGE_PCT 0.2

/* ---- rows ------------------------------------------------------------------------------------ */

enum { KEEP_SOMETIMES = 1, KEEP_OFTEN, KEEP_USUALLY, KEEP };

static rp_status add_row(const rpadvise_advice *a, uint32_t index, rp_table *table)
{
    const rpadvise_options *o = a->search->options;
    const rpadvise_row *row = &a->rows[index];
    const rpadvise_candidate *c = &row->trial->candidate;
    const rpadvise_outcome *out = &row->trial->outcome;
    const rpsim_interval *speed = rpadvise_interval_of(row);
    double share = speed != NULL ? out->tokens_per_s : 0;
    RP_TRY(rp_table_print(table, "%u", index + 1));
    RP_TRY(rp_table_print(table, "%s", c->schedule->name));
    RP_TRY(rpadvise_add_layout(a->search, c, table));
    RP_TRY(rp_table_print(table, "%s", c->run.asynchronous ? "async" : "sync"));
    RP_TRY(rp_table_print(table, "%u x %u", c->run.microbatches * c->run.accumulate,
                          c->run.microbatch_size));
    RP_TRY(rp_table_print(table, "%.0f", out->tokens_per_s));
    RP_TRY(rp_table_print(table, share > 0 ? "%.0f - %.0f" : "-",
                          share > 0 ? speed->p10 * share : 0, share > 0 ? speed->p90 * share : 0));
    RP_TRY(rp_table_print(table, "%.1f", rpadvise_gb(out->gpu_bytes)));
    RP_TRY(rp_table_print(table, "%.1f", rpadvise_gb(out->host_bytes)));
    RP_TRY(rp_table_print(table, o->tokens > 0 ? "%.1f" : "", row->hours));
    RP_TRY(rp_table_print(table, isnan(row->kwh) ? "" : "%.1f", row->kwh));
    RP_TRY(rp_table_print(table, isnan(row->usd) ? "" : "%.2f", row->usd));
    RP_TRY(rp_table_print(table, "%s", rp_recompute_text(c->run.recomputes[0])));
    return rp_table_print(table, "%s", c->run.layer_grain ? "layer" : "stage");
}

static rp_status write_rows(const rpadvise_page *p)
{
    static const rp_table_column columns[] = {
        RP_TABLE_RIGHT("", KEEP),
        RP_TABLE_LEFT("schedule", KEEP),
        RP_TABLE_LEFT("D x T", KEEP),
        RP_TABLE_LEFT("optim", KEEP),
        RP_TABLE_RIGHT("microbatches", KEEP),
        RP_TABLE_RIGHT("tokens/s", KEEP),
        RP_TABLE_RIGHT("p10 - p90", KEEP_OFTEN),
        RP_TABLE_RIGHT("GPU GB", KEEP),
        RP_TABLE_RIGHT("host GB", KEEP_USUALLY),
        RP_TABLE_RIGHT("hours", KEEP),
        RP_TABLE_RIGHT("kWh", KEEP),
        RP_TABLE_RIGHT("USD", KEEP),
        RP_TABLE_LEFT("recompute", 0),
        RP_TABLE_LEFT("grain", 0),
    };
    const rpadvise_advice *a = p->advice;
    rp_table *table = NULL;
    RP_TRY(rp_table_create(columns, sizeof columns / sizeof columns[0], a->row_count,
                           a->search->arena, &table));
    for (uint32_t i = 0; i < a->row_count; i++) {
        RP_TRY(add_row(a, i, table));
    }
    rp_table_write(table, 1, p->columns, p->stream);
    fputc('\n', p->stream);
    return RP_OK;
}

static void write_undecided(const rpadvise_page *p)
{
    const rpadvise_advice *a = p->advice;
    bool any = false;
    for (uint32_t i = 0; i + 1 < a->row_count; i++) {
        const rpsim_decision *d = &a->rows[i].decision;
        char helps[RPSIM_DECISION_TEXT];
        if (a->rows[i].decided) {
            continue;
        }
        rpsim_decision_text(d, helps, sizeof helps);
        rpadvise_say(p, 2, "Not decided: %u is ahead of %u in %.0f %% of the draws%s.", i + 1,
                     i + 2, 100 * d->ahead, helps);
        any = true;
    }
    fputs(any ? "\n" : "", p->stream);
}

/* ---- trades ---------------------------------------------------------------------------------- */

static rp_status add_point(const rpadvise_trial *point, double best, rp_table *table)
{
    const rpadvise_outcome *o = &point->outcome;
    const rpadvise_candidate *c = &point->candidate;
    RP_TRY(rp_table_print(table, "%.0f", o->tokens_per_s));
    RP_TRY(rp_table_print(table, "%.0f %%", 100 * o->tokens_per_s / best));
    RP_TRY(rp_table_print(table, "%.1f", rpadvise_gb(o->gpu_bytes)));
    RP_TRY(rp_table_print(table, "%.1f", rpadvise_gb(o->host_bytes)));
    RP_TRY(rp_table_print(table, "%s", c->schedule->name));
    RP_TRY(rp_table_print(table, "%s", c->run.asynchronous ? "async" : "sync"));
    return rp_table_print(table, "%u x %u", c->run.microbatches * c->run.accumulate,
                          c->run.microbatch_size);
}

static rp_status write_points(const rpadvise_page *p, const char *title,
                              const rpadvise_trial *const *points, uint32_t count)
{
    static const rp_table_column columns[] = {
        RP_TABLE_RIGHT("tokens/s", KEEP),
        RP_TABLE_RIGHT("", KEEP_OFTEN),
        RP_TABLE_RIGHT("GPU GB", KEEP),
        RP_TABLE_RIGHT("host GB", KEEP),
        RP_TABLE_LEFT("schedule", KEEP),
        RP_TABLE_LEFT("optim", KEEP_USUALLY),
        RP_TABLE_RIGHT("microbatches", KEEP_SOMETIMES),
    };
    rp_table *table = NULL;
    if (count < 2) {
        return RP_OK;
    }
    RP_TRY(rp_table_create(columns, sizeof columns / sizeof columns[0], count,
                           p->advice->search->arena, &table));
    for (uint32_t i = 0; i < count; i++) {
        RP_TRY(add_point(points[i], p->advice->rows[0].trial->outcome.tokens_per_s, table));
    }
    rpadvise_say(p, 0, "%s", title);
    rp_table_write(table, 2, p->columns, p->stream);
    fputc('\n', p->stream);
    return RP_OK;
}

static rp_status write_trades(const rpadvise_page *p)
{
    const rpadvise_advice *a = p->advice;
    RP_TRY(write_points(p, "Less GPU memory, in exchange for speed:", a->memory_front,
                        a->memory_count));
    if (a->fresh != NULL && a->late != NULL) {
        double best = a->rows[0].trial->outcome.tokens_per_s;
        bool equal = a->fresh->outcome.tokens_per_s >= a->late->outcome.tokens_per_s;
        rpadvise_say(
            p, 2,
            equal
                ? "Staleness buys nothing: %s with gradients of the newest weights runs at %.0f "
                  "tokens/s (%.0f %%)."
                : "Staleness: weights that are up to a step old make this speed. Never stale: %s, "
                  "%.0f tokens/s (%.0f %%).",
            a->fresh->candidate.schedule->name, a->fresh->outcome.tokens_per_s,
            100 * a->fresh->outcome.tokens_per_s / best);
        fputc('\n', p->stream);
    }
    const rpadvise_trial *points[RPADVISE_MOST_POINTS + 1] = {a->rows[0].trial};
    memcpy(&points[1], a->batch_front, a->batch_count * sizeof(points[0]));
    return write_points(p, "Smaller batches of the same configuration:", points,
                        a->batch_count + 1);
}

/* ---- the others ------------------------------------------------------------------------------ */

/* Writes all missing memory, because more host memory alone is no remedy if GPU memory does not
 * suffice either. */
static void write_need(const rpadvise_page *p, const char *name, const rpadvise_outcome *o)
{
    bool gpu = rpadvise_lacks_gpu(o);
    char host[64] = "";
    char need[64] = "";
    if (rpadvise_lacks_host(o)) {
        (void)snprintf(host, sizeof host, "%.1f of %.1f GB of host memory",
                       rpadvise_gb(o->host_bytes), rpadvise_gb(o->host_limit_bytes));
    }
    if (gpu) {
        (void)snprintf(need, sizeof need, "%.1f of %.1f GB of GPU memory",
                       rpadvise_gb(o->gpu_bytes), rpadvise_gb(o->gpu_limit_bytes));
    }
    const char *least =
        o->batch == 1 ? ", even with one sequence a step" : ", even with one sequence a microbatch";
    rpadvise_say(p, NAME_COLUMNS + 3, "  %-*s needs %s%s%s%s", NAME_COLUMNS, name, need,
                 gpu && host[0] != '\0' ? ", and " : "", host, gpu ? least : "");
}

/* Writes rpsim's message without its first words and its advice. A message about several schedules
 * is written once, with their names. */
static void write_refusal(const rpadvise_page *p, const rpadvise_note *note)
{
    const rpadvise_advice *a = p->advice;
    const char *cause = note->best.cause;
    const char *begin = strstr(cause, ": ");
    begin = begin != NULL && cause[0] == '-' ? begin + 2 : cause;
    int said = (int)strcspn(begin, ";\n");
    char names[1024] = "";
    size_t length = 0;
    uint32_t count = 0;
    for (const rpadvise_note *n = a->notes; n < a->notes + a->note_count; n++) {
        if (n->reason == note->reason && strcmp(n->best.cause, cause) == 0) {
            if (n < note) {
                return;
            }
            length += (size_t)snprintf(names + length, sizeof names - length, "%s%s",
                                       count++ == 0 ? "" : ", ", n->schedule->name);
        }
    }
    if (count == 1) {
        rpadvise_say(p, NAME_COLUMNS + 3, "  %-*s %.*s", NAME_COLUMNS, names, said, begin);
    } else {
        rpadvise_say(p, 4, "  %.*s: %s", said, begin, names);
    }
}

static void write_notes(const rpadvise_page *p)
{
    const rpadvise_advice *a = p->advice;
    double best = a->row_count != 0 ? a->rows[0].trial->outcome.tokens_per_s : 0;
    if (a->note_count != 0) {
        fputs("Not the others:\n", p->stream);
    }
    for (uint32_t i = 0; i < a->note_count; i++) {
        const rpadvise_note *note = &a->notes[i];
        const char *name = note->schedule->name;
        switch (note->reason) {
        case RPADVISE_REASON_SLOWER:
            rpadvise_say(p, NAME_COLUMNS + 3, "  %-*s %.*f x slower (%.0f tokens/s): %s",
                         NAME_COLUMNS, name, best / note->tokens_per_s < 1.1 ? 2 : 1,
                         best / note->tokens_per_s, note->tokens_per_s, note->best.cause);
            break;
        case RPADVISE_REASON_MEMORY:
            write_need(p, name, &note->best);
            break;
        case RPADVISE_REASON_REFUSED:
            write_refusal(p, note);
            break;
        case RPADVISE_REASON_UNTRIED:
            rpadvise_say(p, 0, "  %-*s not tried within --budget", NAME_COLUMNS, name);
            break;
        }
    }
    fputs(a->note_count != 0 ? "\n" : "", p->stream);
}

/* ---- changes --------------------------------------------------------------------------------- */

static void write_change(const rpadvise_page *p, const rpadvise_change *change)
{
    const rpadvise_advice *a = p->advice;
    const rpadvise_outcome *o = &change->outcome;
    double gain = 100 * (o->tokens_per_s / a->rows[0].trial->outcome.tokens_per_s - 1);
    char what[RPADVISE_CHANGE_TEXT];
    (void)rpadvise_change_text(change, what);
    if (fabs(gain) < NO_CHANGE_PCT) {
        rpadvise_say(p, 4, "  %s: nothing (%+.1f %%)", what, gain);
        return;
    }
    rpadvise_say(p, 4, "  %s: %s, %s, at %.0f tokens/s (%+.1f %%)", what,
                 change->candidate.schedule->name, rpadvise_mode_text(&change->candidate),
                 o->tokens_per_s, gain);
}

static void write_changes(const rpadvise_page *p)
{
    const rpadvise_advice *a = p->advice;
    if (a->change_count == 0) {
        return;
    }
    fputs("What would change the answer:\n", p->stream);
    for (uint32_t i = 0; i < a->change_count; i++) {
        write_change(p, &a->changes[i]);
    }
    fputc('\n', p->stream);
}

static void write_cost(const rpadvise_page *p)
{
    const rpadvise_search *s = p->advice->search;
    rpadvise_say(
        p, 0, "%u configurations in %" PRIu64 " simulations; %u ruled out by a lower bound.%s",
        rpadvise_search_size(s), s->bench->spent, s->pruned,
        s->cut_short ? " The search was cut short: a larger --budget may find something faster."
                     : "");
}

rp_status rpadvise_write_why(const rpadvise_page *p)
{
    const rpadvise_advice *a = p->advice;
    if (a->row_count != 0) {
        fputs("The fastest of each schedule:\n", p->stream);
        RP_TRY(write_rows(p));
        write_undecided(p);
        RP_TRY(write_trades(p));
    }
    write_notes(p);
    if (a->row_count != 0) {
        write_changes(p);
    }
    write_cost(p);
    return RP_OK;
}
