#include "sim/rpadvise/program/page_internal.h"

#include "common/cli/paragraph.h"
#include "sim/rpadvise/program/report.h"
#include "sim/study/columns.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

#define USUAL_COLUMNS 100u

/* ---- the answer ------------------------------------------------------------------------------ */

static void write_question(const rpadvise_page *p)
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
    rpadvise_say(p, 0, "%s on %s, %u GPU%s, sequences of %u tokens, %s, %s%s", o->model,
                 s->bench->work->platform, s->gpus, s->gpus == 1 ? "" : "s", s->seq_len, batch,
                 rp_dtype_text(dtype), added);
    fputc('\n', p->stream);
}

static void write_winner(const rpadvise_page *p)
{
    const rpadvise_row *row = &p->advice->rows[0];
    const rpadvise_options *o = p->advice->search->options;
    const rpadvise_outcome *out = &row->trial->outcome;
    const rpsim_interval *speed = rpadvise_interval_of(row);
    double most = out->tokens_per_s;
    char sizes[RPADVISE_SIZES_TEXT];
    char interval[64] = "";
    char host[64];
    char energy[32] = "";
    char cost[32] = "";
    char price[128] = "";
    if (speed != NULL) {
        (void)snprintf(interval, sizeof interval, " (%.0f to %.0f in 80 %% of the draws)",
                       rpadvise_rounded(speed->p10 * most, most, speed),
                       rpadvise_rounded(speed->p90 * most, most, speed));
    }
    if (out->host_limit_bytes != 0) {
        (void)snprintf(host, sizeof host, "%.1f of %.1f GB", rpadvise_gb(out->host_bytes),
                       rpadvise_gb(out->host_limit_bytes));
    } else {
        (void)snprintf(host, sizeof host, "%.1f GB", rpadvise_gb(out->host_bytes));
    }
    if (!isnan(row->kwh)) {
        (void)snprintf(energy, sizeof energy, ", %.4g kWh", row->kwh);
    }
    if (!isnan(row->usd)) {
        (void)snprintf(cost, sizeof cost, ", %.2f USD", row->usd);
    }
    if (!isnan(row->hours)) {
        (void)snprintf(price, sizeof price, " %.4g billion tokens take %.1f hours%s%s.",
                       1e-9 * o->tokens, row->hours, energy, cost);
    }
    rpadvise_say(p, 0,
                 "Run %s, %s, %s (%u a step): %.0f tokens/s%s, with %.1f of %.1f GB on the fullest "
                 "GPU and %s of host memory.%s",
                 row->trial->candidate.schedule->name, rpadvise_mode_text(&row->trial->candidate),
                 rpadvise_sizes_text(p->advice->search, &row->trial->candidate, sizes), out->batch,
                 rpadvise_rounded(most, most, speed), interval, rpadvise_gb(out->gpu_bytes),
                 rpadvise_gb(out->gpu_limit_bytes), host, price);
    fputc('\n', p->stream);
}

/* Writes a command; lines that go on end with a backslash. */
static void write_command(const rpadvise_page *p, const char *command)
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

/* ---- what can run ---------------------------------------------------------------------------- */

static rp_status add_software(const rpadvise_search *s, const rpadvise_software *software,
                              rp_table *table)
{
    const rpadvise_candidate *c = &software->trial->candidate;
    const rpadvise_outcome *out = &software->trial->outcome;
    const rpsim_interval *speed = rpadvise_interval_of(software->row);
    double most = out->tokens_per_s;
    RP_TRY(rp_table_print(table, "%s", software->names));
    RP_TRY(rp_table_print(table, "%s%s", c->schedule->name, c->run.asynchronous ? ", async" : ""));
    RP_TRY(rpadvise_add_layout(s, c, table));
    RP_TRY(rp_table_print(table, "%.0f", rpadvise_rounded(most, most, speed)));
    RP_TRY(rp_table_print(table, speed != NULL ? "%.0f - %.0f" : "-",
                          speed != NULL ? rpadvise_rounded(speed->p10 * most, most, speed) : 0,
                          speed != NULL ? rpadvise_rounded(speed->p90 * most, most, speed) : 0));
    RP_TRY(rp_table_print(table, "%.1f", rpadvise_gb(out->gpu_bytes)));
    return rp_table_print(table, "%.1f", rpadvise_gb(out->host_bytes));
}

/* Writes the best run of each system, unless none can run anything of the search. */
static rp_status write_software(const rpadvise_page *p)
{
    static const rp_table_column columns[] = {
        RP_TABLE_LEFT("what you can run", 4),
        RP_TABLE_LEFT("schedule", 4),
        RP_TABLE_LEFT("D x T", 3),
        RP_TABLE_RIGHT("tokens/s", 4),
        RP_TABLE_RIGHT("p10 - p90", 2),
        RP_TABLE_RIGHT("GPU GB", 4),
        RP_TABLE_RIGHT("host GB", 1),
    };
    const rpadvise_advice *a = p->advice;
    rp_table *table = NULL;
    if (a->software_count == 0) {
        rpadvise_say(p, 0, "No system known here can run it.");
        return RP_OK;
    }
    RP_TRY(rp_table_create(columns, sizeof columns / sizeof columns[0], a->software_count,
                           a->search->arena, &table));
    for (uint32_t i = 0; i < a->software_count; i++) {
        RP_TRY(add_software(a->search, &a->software[i], table));
    }
    rp_table_write(table, 0, p->columns, p->stream);
    if (!rpadvise_candidate_equal(&a->software[0].trial->candidate, &a->rows[0].trial->candidate)) {
        rpadvise_say(p, 0, "No system known here can run %s.",
                     a->rows[0].trial->candidate.schedule->name);
    }
    fputc('\n', p->stream);
    return RP_OK;
}

/* Writes which schedule is as good as the first, as far as the draws can tell. */
static void write_rival(const rpadvise_page *p)
{
    const rpadvise_row *row = p->advice->rows;
    char helps[RPSIM_DECISION_TEXT];
    if (p->advice->row_count < 2 || row->decided) {
        return;
    }
    rpsim_decision_text(&row->decision, helps, sizeof helps);
    rpadvise_say(p, 0, "Not decided: %s is ahead of %s in %.0f %% of the draws%s.",
                 row[0].trial->candidate.schedule->name, row[1].trial->candidate.schedule->name,
                 100 * row->decision.ahead, helps);
}

/* Writes how many measured runs of the stack there are, what was searched, and what else to ask. */
static void write_end(const rpadvise_page *p)
{
    const rpadvise_search *s = p->advice->search;
    const rpsim_measured measured = rpadvise_measured(p->advice);
    char text[RPSIM_MEASURED_TEXT];
    if (rpsim_software_text(&measured, text)[0] != '\0') {
        rpadvise_say(p, 0, "%c%s.", toupper((unsigned char)text[0]), text + 1);
    }
    if (rpsim_measured_text(&measured, text)[0] != '\0') {
        rpadvise_say(p, 0, "%c%s.", toupper((unsigned char)text[0]), text + 1);
    }
    rpadvise_say(p, 0, "Searched %u configurations%s.%s%s%s", rpadvise_search_size(s),
                 s->cut_short ? ", cut short by --budget" : "",
                 s->options->why ? "" : " --why: the other schedules, and what would change it.",
                 s->options->legend ? "" : " --legend: the columns.",
                 s->options->export_dir != NULL || p->advice->row_count == 0
                     ? ""
                     : " --export DIR: files for the first.");
}

static void write_legend(const rpadvise_page *p)
{
    static const char *const lines[] = {
        "D x T: copies of the model x GPUs that share each layer",
        "microbatches: of a step and a copy x sequences of each",
        "tokens/s: predicted speed, rounded to what its range can tell",
        "p10 - p90: range of 80 % of the draws of all inputs (traces/ranges.csv)",
        "GPU GB: peak of the fullest GPU, in 10^9 bytes; host GB: peak of the server",
        "async: the optimizer of a step runs during the next step, with weights a step old",
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        rpadvise_say(p, 4, "  %s", lines[i]);
    }
}

/* ---- nothing fits ---------------------------------------------------------------------------- */

/* Writes the remedies that were tried, with the fastest of their short runs. */
static void write_remedies(const rpadvise_page *p)
{
    const rpadvise_advice *a = p->advice;
    char what[RPADVISE_CHANGE_TEXT];
    char vain[RPADVISE_MOST_CHANGES * RPADVISE_CHANGE_TEXT] = "";
    size_t length = 0;
    fputs(a->change_count != 0 ? "What would fit:\n" : "", p->stream);
    for (uint32_t i = 0; i < a->change_count; i++) {
        const rpadvise_change *c = &a->changes[i];
        rpadvise_say(p, 4, "  %s: %s, %s, at %.0f tokens/s or more", rpadvise_change_text(c, what),
                     c->candidate.schedule->name, rpadvise_mode_text(&c->candidate),
                     c->outcome.tokens_per_s);
    }
    for (uint32_t i = 0; i < a->vain_count; i++) {
        length += (size_t)snprintf(vain + length, sizeof vain - length, "%s%s", i == 0 ? "" : "; ",
                                   rpadvise_change_text(&a->vain[i], what));
    }
    if (a->vain_count != 0) {
        rpadvise_say(p, 4, "Tried, and nothing fits with it alone: %s.", vain);
    }
    fputc('\n', p->stream);
}

static void write_nothing(const rpadvise_page *p)
{
    const rpadvise_advice *a = p->advice;
    if (a->nearest == NULL) {
        rpadvise_say(p, 0, "Nothing can run: rpsim refuses all schedules.");
        return;
    }
    const rpadvise_outcome *o = &a->nearest->trial->outcome;
    bool host = rpadvise_lacks_host(o);
    uint64_t need = host ? o->host_bytes : o->gpu_bytes;
    uint64_t limit = host ? o->host_limit_bytes : o->gpu_limit_bytes;
    char also[96] = "";
    if (host && rpadvise_lacks_gpu(o)) {
        (void)snprintf(also, sizeof also, ", and %.1f GB of GPU memory, %.1f GB more than the %.1f",
                       rpadvise_gb(o->gpu_bytes), rpadvise_gb(o->gpu_bytes - o->gpu_limit_bytes),
                       rpadvise_gb(o->gpu_limit_bytes));
    }
    rpadvise_say(
        p, 0,
        "Nothing fits. %s comes nearest: it needs %.1f GB of %s memory, %.1f GB more than the %.1f "
        "GB that there are%s.",
        a->nearest->trial->candidate.schedule->name, rpadvise_gb(need), host ? "host" : "GPU",
        rpadvise_gb(need - limit), rpadvise_gb(limit), also);
    fputc('\n', p->stream);
    write_remedies(p);
}

rp_status rpadvise_report_write(const rpadvise_advice *advice, FILE *stream)
{
    const rpadvise_options *o = advice->search->options;
    rpadvise_page p = {advice, rp_paragraph_columns(stream, USUAL_COLUMNS), stream};
    write_question(&p);
    if (advice->exhausted) {
        rpadvise_say(&p, 0, "Not known: the search ended before it found anything that fits.");
        return RP_OK;
    }
    if (advice->row_count == 0) {
        write_nothing(&p);
    } else {
        write_winner(&p);
        write_command(&p, advice->rows[0].command);
        RP_TRY(write_software(&p));
        write_rival(&p);
    }
    write_end(&p);
    if (o->why) {
        fputc('\n', stream);
        RP_TRY(rpadvise_write_why(&p));
    }
    if (o->legend) {
        fputc('\n', stream);
        write_legend(&p);
    }
    return RP_OK;
}
