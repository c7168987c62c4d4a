#include "sim/rpadvise/report/report.h"

#include "common/base/text.h"
#include "common/cli/paragraph.h"
#include "common/cli/table.h"
#include "sim/study/columns.h"

#include <math.h>
#include <stdarg.h>
#include <string.h>

#define USUAL_COLUMNS 100u
#define NAME_COLUMNS 19
#define NO_CHANGE_PCT 0.2

typedef struct page {
    const rpadvise_advice *advice;
    uint32_t columns;
    FILE *stream;
} page;

/* ---- words ----------------------------------------------------------------------------------- */

/* Writes a paragraph, with all lines after the first indented. */
RP_PRINTF(3, 4) static void say(const page *p, uint32_t indent, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    rp_paragraph_write(text, 0, indent, p->columns, p->stream);
}

static double gb(uint64_t bytes)
{
    return 1e-9 * (double)bytes;
}

#define SIZES 160u

/* "4 copies x 2 GPUs per layer on 2 servers, each with 32 microbatches of 16 sequences in 2 calls"
 */
static const char *sizes_of(const rpadvise_search *s, const rpadvise_candidate *c,
                            char text[static SIZES])
{
    uint32_t copies = rpadvise_copies(c);
    uint32_t tensor = rpadvise_alike(c) / copies;
    uint32_t nodes = rpadvise_fewer_nodes(s, c);
    char layout[64] = "";
    char servers[32] = "";
    char calls[24] = "";
    if (copies * tensor > 1) {
        (void)snprintf(layout, sizeof layout, "%u cop%s x %u GPU%s per layer, each with ", copies,
                       copies == 1 ? "y" : "ies", tensor, tensor == 1 ? "" : "s");
    }
    if (nodes != 0) {
        (void)snprintf(servers, sizeof servers, "%u server%s, ", nodes, nodes == 1 ? "" : "s");
    }
    if (c->run.accumulate > 1) {
        (void)snprintf(calls, sizeof calls, " in %u calls", c->run.accumulate);
    }
    (void)snprintf(text, SIZES, "%s%s%u microbatches of %u sequence%s%s", servers, layout,
                   c->run.microbatches * c->run.accumulate, c->run.microbatch_size,
                   c->run.microbatch_size == 1 ? "" : "s", calls);
    return text;
}

/* Adds copies x GPUs per layer, and the servers if not all are used; adds nothing without a layout.
 */
static rp_status add_layout(const rpadvise_search *s, const rpadvise_candidate *c, rp_table *table)
{
    uint32_t nodes = rpadvise_fewer_nodes(s, c);
    uint32_t copies = rpadvise_copies(c);
    uint32_t tensor = rpadvise_alike(c) / copies;
    if (nodes != 0) {
        return rp_table_print(table, "%u x %u on %u", copies, tensor, nodes);
    }
    return rp_table_print(table, copies * tensor > 1 ? "%u x %u" : "", copies, tensor);
}

static const char *mode_of(const rpadvise_candidate *c)
{
    return c->run.asynchronous ? "asynchronous" : "synchronous";
}

static const rpsim_interval *interval_of(const rpadvise_row *row)
{
    const rpsim_intervals *intervals = row->study.rows[0].intervals;
    return intervals != NULL ? &intervals->speed : NULL;
}

/* ---- the answer ------------------------------------------------------------------------------ */

static void write_question(const page *p)
{
    const rpadvise_search *s = p->advice->search;
    const rpadvise_options *o = s->options;
    rp_dtype dtype = s->given->dtype;
    char batch[64];
    char added[32] = ""; /* each row has a cost table of its own, all of the same kind */
    if (s->given->global_batch != 0) {
        (void)snprintf(batch, sizeof batch, "%u sequences a step", s->given->global_batch);
    } else {
        (void)snprintf(batch, sizeof batch, "any batch up to %u tokens a step", o->max_step_tokens);
    }
    if (p->advice->row_count != 0) {
        rp_arithmetic a = p->advice->rows[0].study.rows[0].run.costs->arithmetic;
        (void)snprintf(added, sizeof added, " accumulated in %s",
                       rp_accumulation_text(a.accumulation));
    }
    say(p, 0, "%s on %s, %u GPU%s, sequences of %u tokens, %s, %s%s", o->model,
        s->bench->work->platform, s->gpus, s->gpus == 1 ? "" : "s", s->seq_len, batch,
        rp_dtype_text(dtype), added);
    fputc('\n', p->stream);
}

static void write_winner(const page *p)
{
    const rpadvise_row *row = &p->advice->rows[0];
    const rpadvise_options *o = p->advice->search->options;
    const rpadvise_outcome *out = &row->trial->outcome;
    const rpsim_interval *speed = interval_of(row);
    char sizes[SIZES];
    char interval[64] = "";
    char host[64];
    char price[96] = "";
    char peak[64] = "";
    double share = rpsim_row_peak_share(&row->study.rows[0]);
    if (!isnan(share)) {
        (void)snprintf(peak, sizeof peak, ", %.0f %% of the GPUs' peak, recompute included",
                       100 * share);
    }
    if (speed != NULL) {
        (void)snprintf(interval, sizeof interval, " (%.0f to %.0f in 80 %% of the draws)",
                       speed->p10 * out->tokens_per_s, speed->p90 * out->tokens_per_s);
    }
    if (out->host_limit_bytes != 0) {
        (void)snprintf(host, sizeof host, "%.1f of %.1f GB", gb(out->host_bytes),
                       gb(out->host_limit_bytes));
    } else {
        (void)snprintf(host, sizeof host, "%.1f GB", gb(out->host_bytes));
    }
    if (!isnan(row->usd)) {
        (void)snprintf(price, sizeof price, " %.4g billion tokens take %.1f hours and %.2f USD.",
                       1e-9 * o->tokens, row->hours, row->usd);
    } else if (!isnan(row->hours)) {
        (void)snprintf(price, sizeof price, " %.4g billion tokens take %.1f hours.",
                       1e-9 * o->tokens, row->hours);
    }
    say(p, 0,
        "Run %s, %s, %s (%u a step): %.0f tokens/s%s%s, with %.1f of %.1f GB on the fullest GPU "
        "and %s of host memory.%s",
        row->trial->candidate.schedule->name, mode_of(&row->trial->candidate),
        sizes_of(p->advice->search, &row->trial->candidate, sizes), out->batch, out->tokens_per_s,
        interval, peak, gb(out->gpu_bytes), gb(out->gpu_limit_bytes), host, price);
    fputc('\n', p->stream);
}

/* Writes a command; lines that go on end with a backslash. */
static void write_command(const page *p, const char *command)
{
    uint32_t at = 2;
    fputs("  ", p->stream);
    while (*command != '\0') {
        size_t length = strcspn(command, " ");
        /* an option stays with its value */
        size_t value = command[length] == ' ' && strncmp(command, "--", 2) == 0 &&
                               strncmp(command + length + 1, "--", 2) != 0
                           ? 1 + strcspn(command + length + 1, " ")
                           : 0;
        uint32_t width = rp_paragraph_width(command, length + value);
        if (at > 4 && at + width + 3 > p->columns) {
            fputs("\\\n    ", p->stream);
            at = 4;
        }
        fprintf(p->stream, "%.*s", (int)(length + value), command);
        at += width + 1;
        command += length + value;
        bool more = *command == ' ';
        fputs(more ? " " : "", p->stream);
        command += more ? 1 : 0;
    }
    fputs("\n\n", p->stream);
}

/* ---- rows ------------------------------------------------------------------------------------ */

enum { KEEP_SOMETIMES = 1, KEEP_OFTEN, KEEP_USUALLY, KEEP };

static rp_status add_row(const rpadvise_advice *a, uint32_t index, rp_table *table)
{
    const rpadvise_options *o = a->search->options;
    const rpadvise_row *row = &a->rows[index];
    const rpadvise_candidate *c = &row->trial->candidate;
    const rpadvise_outcome *out = &row->trial->outcome;
    const rpsim_interval *speed = interval_of(row);
    double share = speed != NULL ? out->tokens_per_s : 0;
    RP_TRY(rp_table_print(table, "%u", index + 1));
    RP_TRY(rp_table_print(table, "%s", c->schedule->name));
    RP_TRY(add_layout(a->search, c, table));
    RP_TRY(rp_table_print(table, "%s", c->run.asynchronous ? "async" : "sync"));
    RP_TRY(rp_table_print(table, "%u x %u", c->run.microbatches * c->run.accumulate,
                          c->run.microbatch_size));
    RP_TRY(rp_table_print(table, "%.0f", out->tokens_per_s));
    RP_TRY(rp_table_print(table, share > 0 ? "%.0f - %.0f" : "-",
                          share > 0 ? speed->p10 * share : 0, share > 0 ? speed->p90 * share : 0));
    RP_TRY(rp_table_print(table, "%.1f", gb(out->gpu_bytes)));
    RP_TRY(rp_table_print(table, "%.1f", gb(out->host_bytes)));
    RP_TRY(rp_table_print(table, o->tokens > 0 ? "%.1f" : "", row->hours));
    bool priced = o->tokens > 0 && o->usd_per_hour > 0;
    RP_TRY(rp_table_print(table, priced ? "%.2f" : "", row->usd));
    RP_TRY(rp_table_print(table, "%s", rp_recompute_text(c->run.recomputes[0])));
    return rp_table_print(table, "%s", c->run.layer_grain ? "layer" : "stage");
}

static rp_status write_rows(const page *p)
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

static void write_systems(const page *p)
{
    const rpadvise_row *row = &p->advice->rows[0];
    char names[256] = "";
    size_t length = 0;
    for (uint32_t i = 0; i < row->system_count && length < sizeof names; i++) {
        length += (size_t)snprintf(names + length, sizeof names - length, "%s%s",
                                   i == 0 ? "" : ", ", row->systems[i]);
    }
    say(p, 2, "%s can run the first%s%s.", row->system_count != 0 ? names : "No system known here",
        row->system_count == 0   ? ""
        : row->system_count == 1 ? "; --export DIR writes what it needs"
                                 : "; --export DIR writes what they need",
        p->advice->search->options->runnable == NULL ? ", --runnable SYSTEM asks for one" : "");
    fputc('\n', p->stream);
}

static void write_undecided(const page *p)
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
        say(p, 2, "Not decided: %u is ahead of %u in %.0f %% of the draws%s.", i + 1, i + 2,
            100 * d->ahead, helps);
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
    RP_TRY(rp_table_print(table, "%.1f", gb(o->gpu_bytes)));
    RP_TRY(rp_table_print(table, "%.1f", gb(o->host_bytes)));
    RP_TRY(rp_table_print(table, "%s", c->schedule->name));
    RP_TRY(rp_table_print(table, "%s", c->run.asynchronous ? "async" : "sync"));
    return rp_table_print(table, "%u x %u", c->run.microbatches * c->run.accumulate,
                          c->run.microbatch_size);
}

static rp_status write_points(const page *p, const char *title, const rpadvise_trial *const *points,
                              uint32_t count)
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
    say(p, 0, "%s", title);
    rp_table_write(table, 2, p->columns, p->stream);
    fputc('\n', p->stream);
    return RP_OK;
}

static rp_status write_trades(const page *p)
{
    const rpadvise_advice *a = p->advice;
    RP_TRY(write_points(p, "Less GPU memory, in exchange for speed:", a->memory_front,
                        a->memory_count));
    if (a->fresh != NULL && a->late != NULL) {
        double best = a->rows[0].trial->outcome.tokens_per_s;
        bool equal = a->fresh->outcome.tokens_per_s >= a->late->outcome.tokens_per_s;
        say(p, 2,
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

static bool lacks_gpu(const rpadvise_outcome *o)
{
    return o->gpu_bytes > o->gpu_limit_bytes || o->short_of == RPADVISE_SHORT_OF_GPU;
}

static bool lacks_host(const rpadvise_outcome *o)
{
    return o->host_limit_bytes != 0 && o->host_bytes > o->host_limit_bytes;
}

/* Writes all missing memory, because more host memory alone is no remedy if GPU memory does not
 * suffice either. */
static void write_need(const page *p, const char *name, const rpadvise_outcome *o)
{
    bool gpu = lacks_gpu(o);
    char host[64] = "";
    char need[64] = "";
    if (lacks_host(o)) {
        (void)snprintf(host, sizeof host, "%.1f of %.1f GB of host memory", gb(o->host_bytes),
                       gb(o->host_limit_bytes));
    }
    if (gpu) {
        (void)snprintf(need, sizeof need, "%.1f of %.1f GB of GPU memory", gb(o->gpu_bytes),
                       gb(o->gpu_limit_bytes));
    }
    const char *least =
        o->batch == 1 ? ", even with one sequence a step" : ", even with one sequence a microbatch";
    say(p, NAME_COLUMNS + 3, "  %-*s needs %s%s%s%s", NAME_COLUMNS, name, need,
        gpu && host[0] != '\0' ? ", and " : "", host, gpu ? least : "");
}

/* Writes rpsim's message without its first words and its advice. A message about several schedules
 * is written once, with their names. */
static void write_refusal(const page *p, const rpadvise_note *note)
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
        say(p, NAME_COLUMNS + 3, "  %-*s %.*s", NAME_COLUMNS, names, said, begin);
    } else {
        say(p, 4, "  %.*s: %s", said, begin, names);
    }
}

static void write_notes(const page *p)
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
            say(p, NAME_COLUMNS + 3, "  %-*s %.*f x slower (%.0f tokens/s): %s", NAME_COLUMNS, name,
                best / note->tokens_per_s < 1.1 ? 2 : 1, best / note->tokens_per_s,
                note->tokens_per_s, note->best.cause);
            break;
        case RPADVISE_REASON_MEMORY:
            write_need(p, name, &note->best);
            break;
        case RPADVISE_REASON_REFUSED:
            write_refusal(p, note);
            break;
        case RPADVISE_REASON_UNTRIED:
            say(p, 0, "  %-*s not tried within --budget", NAME_COLUMNS, name);
            break;
        }
    }
    fputs(a->note_count != 0 ? "\n" : "", p->stream);
}

/* ---- changes --------------------------------------------------------------------------------- */

#define CHANGE_SIZE 96u

static const char *change_text(const rpadvise_change *change, char text[static CHANGE_SIZE])
{
    const rpadvise_outcome *o = &change->outcome;
    switch (change->kind) {
    case RPADVISE_CHANGE_GPU_MEMORY:
        (void)snprintf(text, CHANGE_SIZE, "%.1f GB of usable memory per GPU instead of %.1f",
                       gb(o->gpu_bytes), gb(o->gpu_limit_bytes));
        break;
    case RPADVISE_CHANGE_HOST_MEMORY:
        (void)snprintf(text, CHANGE_SIZE, "%.1f GB of host memory instead of %.1f",
                       gb(o->host_bytes), gb(o->host_limit_bytes));
        break;
    case RPADVISE_CHANGE_LINK:
        (void)snprintf(text, CHANGE_SIZE, "host links twice as fast");
        break;
    case RPADVISE_CHANGE_GPU:
        (void)snprintf(text, CHANGE_SIZE, "one GPU more");
        break;
    case RPADVISE_CHANGE_SERVER:
        (void)snprintf(text, CHANGE_SIZE, "one server more");
        break;
    case RPADVISE_CHANGE_ADAPTERS:
        (void)snprintf(text, CHANGE_SIZE, "adapters alone, --lora-rank %u", change->value);
        break;
    case RPADVISE_CHANGE_SEQ_LEN:
        (void)snprintf(text, CHANGE_SIZE, "shorter sequences, --seq-len %u", change->value);
        break;
    case RPADVISE_CHANGE_GPUS:
        (void)snprintf(text, CHANGE_SIZE, "%u such GPUs in the server", change->value);
        break;
    case RPADVISE_CHANGE_SERVERS:
        (void)snprintf(text, CHANGE_SIZE, "%u such servers, --nodes %u", change->value,
                       change->value);
        break;
    }
    return text;
}

static void write_change(const page *p, const rpadvise_change *change)
{
    const rpadvise_advice *a = p->advice;
    const rpadvise_outcome *o = &change->outcome;
    double gain = 100 * (o->tokens_per_s / a->rows[0].trial->outcome.tokens_per_s - 1);
    char what[CHANGE_SIZE];
    (void)change_text(change, what);
    if (fabs(gain) < NO_CHANGE_PCT) {
        say(p, 4, "  %s: nothing (%+.1f %%)", what, gain);
        return;
    }
    say(p, 4, "  %s: %s, %s, at %.0f tokens/s (%+.1f %%)", what, change->candidate.schedule->name,
        mode_of(&change->candidate), o->tokens_per_s, gain);
}

static void write_changes(const page *p)
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

/* ---- nothing fits ---------------------------------------------------------------------------- */

/* Writes the remedies that were tried, with the fastest of their short runs. */
static void write_remedies(const page *p)
{
    const rpadvise_advice *a = p->advice;
    char what[CHANGE_SIZE];
    char vain[RPADVISE_MOST_CHANGES * CHANGE_SIZE] = "";
    size_t length = 0;
    fputs(a->change_count != 0 ? "What would fit:\n" : "", p->stream);
    for (uint32_t i = 0; i < a->change_count; i++) {
        const rpadvise_change *c = &a->changes[i];
        say(p, 4, "  %s: %s, %s, at %.0f tokens/s or more", change_text(c, what),
            c->candidate.schedule->name, mode_of(&c->candidate), c->outcome.tokens_per_s);
    }
    for (uint32_t i = 0; i < a->vain_count; i++) {
        length += (size_t)snprintf(vain + length, sizeof vain - length, "%s%s", i == 0 ? "" : "; ",
                                   change_text(&a->vain[i], what));
    }
    if (a->vain_count != 0) {
        say(p, 4, "Tried, and nothing fits with it alone: %s.", vain);
    }
    fputc('\n', p->stream);
}

static void write_nothing(const page *p)
{
    const rpadvise_advice *a = p->advice;
    if (a->nearest == NULL) {
        say(p, 0, "Nothing can run: rpsim refuses all schedules.");
        return;
    }
    const rpadvise_outcome *o = &a->nearest->trial->outcome;
    bool host = lacks_host(o);
    uint64_t need = host ? o->host_bytes : o->gpu_bytes;
    uint64_t limit = host ? o->host_limit_bytes : o->gpu_limit_bytes;
    char also[96] = "";
    if (host && lacks_gpu(o)) {
        (void)snprintf(also, sizeof also, ", and %.1f GB of GPU memory, %.1f GB more than the %.1f",
                       gb(o->gpu_bytes), gb(o->gpu_bytes - o->gpu_limit_bytes),
                       gb(o->gpu_limit_bytes));
    }
    say(p, 0,
        "Nothing fits. %s comes nearest: it needs %.1f GB of %s memory, %.1f GB more than the %.1f "
        "GB that there are%s.",
        a->nearest->trial->candidate.schedule->name, gb(need), host ? "host" : "GPU",
        gb(need - limit), gb(limit), also);
    fputc('\n', p->stream);
    write_remedies(p);
}

static void write_cost(const page *p)
{
    const rpadvise_search *s = p->advice->search;
    char measured[RPSIM_MEASURED_TEXT];
    (void)rpadvise_measured_text(p->advice, measured);
    say(p, 0,
        "%u configurations in %llu simulations; %u ruled out by a lower bound. Speeds are "
        "predictions: draws vary all inputs within their ranges (traces/ranges.csv)%s%s.%s",
        s->family_count + s->screened_count + s->found_count, (unsigned long long)s->bench->spent,
        s->pruned, measured[0] != '\0' ? "; " : "", measured,
        s->cut_short ? " The search was cut short: a larger --budget may find something faster."
                     : "");
}

rp_status rpadvise_report_write(const rpadvise_advice *advice, FILE *stream)
{
    page p = {advice, rp_paragraph_columns(stream, USUAL_COLUMNS), stream};
    write_question(&p);
    if (advice->exhausted) {
        say(&p, 0, "Not known: the search ended before it found anything that fits.");
        return RP_OK;
    }
    if (advice->row_count == 0) {
        write_nothing(&p);
        write_notes(&p);
        return RP_OK;
    }
    write_winner(&p);
    write_command(&p, advice->rows[0].command);
    RP_TRY(write_rows(&p));
    write_undecided(&p);
    write_systems(&p);
    RP_TRY(write_trades(&p));
    write_notes(&p);
    write_changes(&p);
    write_cost(&p);
    return RP_OK;
}
