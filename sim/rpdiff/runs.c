#include "sim/rpdiff/runs.h"

#include "common/base/median.h"
#include "common/cli/page.h"
#include "common/cli/table.h"
#include "common/formats/csv.h"
#include "common/formats/json.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- comparing ------------------------------------------------------------------------------- */

static bool same_group(const rp_store_prediction *a, const rp_store_prediction *b)
{
    return strcmp(a->model, b->model) == 0 && strcmp(a->backend, b->backend) == 0 &&
           strcmp(a->optimizer, b->optimizer) == 0 && a->gpus == b->gpus &&
           a->microbatches == b->microbatches && a->microbatch_size == b->microbatch_size &&
           a->seq_len == b->seq_len && strcmp(a->settings, b->settings) == 0;
}

static bool same_configuration(const rp_store_prediction *a, const rp_store_prediction *b)
{
    return same_group(a, b) && strcmp(a->schedule, b->schedule) == 0 &&
           strcmp(a->variant, b->variant) == 0;
}

/* @param times [count] scratch */
static rpsim_diff_configuration configuration_of(const rp_store_prediction *runs, uint32_t count,
                                                 double *times)
{
    for (uint32_t i = 0; i < count; i++) {
        times[i] = runs[i].predicted_ms;
    }
    double predicted = rp_median(times, count);
    for (uint32_t i = 0; i < count; i++) {
        times[i] = runs[i].measured_ms;
    }
    double measured = rp_median(times, count); /* sorts */
    return (rpsim_diff_configuration){.first = runs,
                                      .runs = count,
                                      .predicted_ms = predicted,
                                      .measured_ms = measured,
                                      .spread = (times[count - 1] - times[0]) / measured,
                                      .error = predicted / measured - 1};
}

static void count_pairs(rpsim_diff_order *order)
{
    int64_t score = 0;
    for (uint32_t i = 0; i < order->count; i++) {
        for (uint32_t j = 0; j < i; j++) {
            const rpsim_diff_configuration *a = &order->first[i];
            const rpsim_diff_configuration *b = &order->first[j];
            double apart = a->measured_ms - b->measured_ms;
            double spread = fmax(a->spread, b->spread) * fmax(a->measured_ms, b->measured_ms);
            double agrees = (a->predicted_ms - b->predicted_ms) * apart;
            if (fabs(apart) > spread) {
                order->pairs++;
                score += agrees > 0 ? 1 : agrees < 0 ? -1 : 0;
            }
        }
    }
    order->tau = order->pairs > 0 ? (double)score / order->pairs : NAN;
}

rp_status rpsim_diff_runs_compare(const rp_store_prediction *runs, uint32_t count, rp_arena *arena,
                                  rpsim_diff_runs *out)
{
    rpsim_diff_runs r = {0};
    double *times = NULL;
    RP_TRY(rp_arena_alloc(arena, count, sizeof *times, &times));
    RP_TRY(rp_arena_alloc(arena, count, sizeof *r.configurations, &r.configurations));
    RP_TRY(rp_arena_alloc(arena, count, sizeof *r.orders, &r.orders));
    for (uint32_t begin = 0, end = 0; begin < count; begin = end) {
        while (end < count && same_configuration(&runs[begin], &runs[end])) {
            end++;
        }
        rpsim_diff_configuration *c = &r.configurations[r.configuration_count++];
        *c = configuration_of(&runs[begin], end - begin, times);
        r.mean_error += c->error;
        r.mean_absolute_error += fabs(c->error);
        r.worst_error = fmax(r.worst_error, fabs(c->error));
        if (r.order_count == 0 || !same_group(r.orders[r.order_count - 1].first->first, c->first)) {
            r.orders[r.order_count++] = (rpsim_diff_order){.first = c};
        }
        r.orders[r.order_count - 1].count++;
    }
    for (uint32_t i = 0; i < r.order_count; i++) {
        count_pairs(&r.orders[i]);
    }
    r.mean_error /= r.configuration_count;
    r.mean_absolute_error /= r.configuration_count;
    *out = r;
    return RP_OK;
}

/* ---- for people ------------------------------------------------------------------------------ */

static rp_status print_order(const rpsim_diff_order *o, rp_arena *arena, const rp_page *page)
{
    static const rp_table_column columns[] = {
        RP_TABLE_LEFT("schedule", 9),     RP_TABLE_RIGHT("predicted ms", 9),
        RP_TABLE_RIGHT("measured ms", 9), RP_TABLE_RIGHT("error", 9),
        RP_TABLE_RIGHT("spread", 8),      RP_TABLE_RIGHT("runs", 7),
        RP_TABLE_WORDS("variant", 9)};
    const rp_store_prediction *p = o->first->first;
    rp_table *table = NULL;
    RP_TRY(rp_table_create(columns, sizeof columns / sizeof columns[0], o->count, arena, &table));
    for (uint32_t i = 0; i < o->count; i++) {
        const rpsim_diff_configuration *c = &o->first[i];
        RP_TRY(rp_table_print(table, "%s", c->first->schedule));
        RP_TRY(rp_table_number(table, c->predicted_ms, 3));
        RP_TRY(rp_table_number(table, c->measured_ms, 3));
        RP_TRY(rp_table_print(table, "%+.1f%%", 100 * c->error));
        RP_TRY(rp_table_print(table, "%.1f%%", 100 * c->spread));
        RP_TRY(rp_table_print(table, "%" PRIu32, c->runs));
        RP_TRY(rp_table_print(table, "%s", c->first->variant));
    }
    fprintf(page->stream,
            "\n%s on %" PRIu32 " GPUs (%s), %" PRIu32 " microbatches of %" PRIu32 " x %" PRIu32
            " tokens, %s%s%s\n",
            p->model, p->gpus, p->backend, p->microbatches, p->microbatch_size, p->seq_len,
            p->optimizer, p->settings[0] != '\0' ? ", " : "", p->settings);
    rp_table_write(table, 2, page->columns, page->stream);
    if (o->pairs > 0) {
        fprintf(page->stream, "  order: Kendall's tau %.3f over %" PRIu32 " pairs\n", o->tau,
                o->pairs);
    } else {
        fprintf(page->stream, "  order: no two are further apart than their runs\n");
    }
    return RP_OK;
}

rp_status rpsim_diff_runs_print(const rpsim_diff_runs *r, rp_arena *arena, FILE *stream)
{
    rp_page page;
    rp_status status = RP_OK;
    RP_TRY(rp_page_open(stream, arena, &page));
    fprintf(page.stream,
            "%" PRIu32
            " configurations: mean |error| %.2f %%, mean error %+.2f %%, worst %.2f %%\n",
            r->configuration_count, 100 * r->mean_absolute_error, 100 * r->mean_error,
            100 * r->worst_error);
    for (uint32_t i = 0; i < r->order_count && status == RP_OK; i++) {
        status = print_order(&r->orders[i], arena, &page);
    }
    rp_page_close(&page);
    return status;
}

/* ---- CSV ------------------------------------------------------------------------------------- */

static void write_group(const char *kind, const rp_store_prediction *p, FILE *stream)
{
    fprintf(stream, "%s,%s,%s,%s,%" PRIu32 ",%" PRIu32 ",%" PRIu32 ",%" PRIu32 ",", kind, p->model,
            p->backend, p->optimizer, p->microbatch_size, p->seq_len, p->gpus, p->microbatches);
}

void rpsim_diff_runs_write_csv(const rpsim_diff_runs *r, FILE *stream)
{
    const struct {
        const char *kind;
        double value;
    } means[] = {{"mean |error|", r->mean_absolute_error},
                 {"mean error", r->mean_error},
                 {"worst |error|", r->worst_error}};
    fputs("kind,model,backend,optimizer,microbatch_size,seq_len,gpus,microbatches,schedule,count,"
          "predicted_ms,measured_ms,spread_pct,error_pct,tau,pairs,settings,variant\n",
          stream);
    for (uint32_t i = 0; i < r->configuration_count; i++) {
        const rpsim_diff_configuration *c = &r->configurations[i];
        write_group("configuration", c->first, stream);
        fprintf(stream, "%s,%" PRIu32 ",%.3f,%.3f,%.2f,%.2f,,,", c->first->schedule, c->runs,
                c->predicted_ms, c->measured_ms, 100 * c->spread, 100 * c->error);
        rp_csv_write_cell(c->first->settings, stream);
        fputc(',', stream);
        rp_csv_write_cell(c->first->variant, stream);
        fputc('\n', stream);
    }
    for (uint32_t i = 0; i < r->order_count; i++) {
        const rpsim_diff_order *o = &r->orders[i];
        write_group("order", o->first->first, stream);
        fprintf(stream, ",%" PRIu32 ",,,,,", o->count);
        if (o->pairs > 0) {
            fprintf(stream, "%.3f", o->tau);
        }
        fprintf(stream, ",%" PRIu32 ",", o->pairs);
        rp_csv_write_cell(o->first->first->settings, stream);
        fputs(",\n", stream);
    }
    for (size_t i = 0; i < sizeof means / sizeof means[0]; i++) {
        fprintf(stream, "%s,,,,,,,,,%" PRIu32 ",,,,%.2f,,,,\n", means[i].kind,
                r->configuration_count, 100 * means[i].value);
    }
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void write_configuration(const rpsim_diff_configuration *c, rp_json *json)
{
    rp_json_begin_object(json);
    rp_json_member_string(json, "schedule", c->first->schedule);
    rp_json_member_string(json, "variant", c->first->variant);
    rp_json_member_uint(json, "runs", c->runs);
    rp_json_member_double(json, "predicted_ms", c->predicted_ms);
    rp_json_member_double(json, "measured_ms", c->measured_ms);
    rp_json_member_double(json, "spread_pct", 100 * c->spread);
    rp_json_member_double(json, "error_pct", 100 * c->error);
    rp_json_end_object(json);
}

static void write_order(const rpsim_diff_order *o, rp_json *json)
{
    const rp_store_prediction *p = o->first->first;
    rp_json_begin_object(json);
    rp_json_member_string(json, "model", p->model);
    rp_json_member_string(json, "backend", p->backend);
    rp_json_member_string(json, "optimizer", p->optimizer);
    rp_json_member_uint(json, "microbatch_size", p->microbatch_size);
    rp_json_member_uint(json, "seq_len", p->seq_len);
    rp_json_member_uint(json, "gpus", p->gpus);
    rp_json_member_uint(json, "microbatches", p->microbatches);
    rp_json_member_string(json, "settings", p->settings);
    rp_json_member_double(json, "tau", o->tau);
    rp_json_member_uint(json, "pairs", o->pairs);
    rp_json_key(json, "schedules");
    rp_json_begin_array(json);
    for (uint32_t i = 0; i < o->count; i++) {
        write_configuration(&o->first[i], json);
    }
    rp_json_end_array(json);
    rp_json_end_object(json);
}

void rpsim_diff_runs_write_json(const rpsim_diff_runs *r, FILE *stream)
{
    rp_json json;
    rp_json_begin_document(&json, stream, 2);
    rp_json_begin_object(&json);
    rp_json_member_uint(&json, "configurations", r->configuration_count);
    rp_json_member_double(&json, "mean_error_pct", 100 * r->mean_error);
    rp_json_member_double(&json, "mean_absolute_error_pct", 100 * r->mean_absolute_error);
    rp_json_member_double(&json, "worst_error_pct", 100 * r->worst_error);
    rp_json_key(&json, "orders");
    rp_json_begin_array(&json);
    for (uint32_t i = 0; i < r->order_count; i++) {
        write_order(&r->orders[i], &json);
    }
    rp_json_end_array(&json);
    rp_json_end_object(&json);
    rp_json_end_document(&json);
}
