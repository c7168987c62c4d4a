/* Schedules with split backwards, against schedules.md 8, PyTorch's orders, a slow reference on
 * random sizes and times, and closed forms. */
#include "common/base/log.h"
#include "common/formats/csv.h"
#include "sim/run/explain/explain.h"
#include "tests/support/assertions.h"
#include "tests/support/stage_case.h"
#include "tests/support/synthetic.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

TestSuite(split_schedules, .init = rp_test_arena_begin, .fini = rp_test_arena_end, .timeout = 300);

/* ---- tables ---------------------------------------------------------------------------------- */

static void read_table(const char *path, char separator, rp_csv *table)
{
    rp_text text = {0};
    cr_assert(eq(int, rp_text_read_file(path, RP_CSV_MAX_BYTES, &text), RP_OK), "%s", path);
    cr_assert(eq(int, rp_csv_parse(path, text.bytes, text.length, separator, rp_test_arena, table),
                 RP_OK));
    rp_text_fini(&text);
}

static const char *cell(const rp_csv *table, uint32_t row, const char *column)
{
    uint32_t index = 0;
    cr_assert(eq(int, rp_csv_column(table, column, &index), RP_OK));
    return rp_csv_cell(table, row, index);
}

static double number(const rp_csv *table, uint32_t row, const char *column)
{
    char *after = NULL;
    const char *text = cell(table, row, column);
    double value = strtod(text, &after);
    cr_assert(after != text && *after == '\0', "%s: '%s'", column, text);
    return value;
}

/* ---- programs as rows of cells --------------------------------------------------------------- */

static uint32_t cells_of(const rp_program *program, uint32_t gpu, uint32_t *ops)
{
    const rp_queue *queue = &program->queues[gpu];
    uint32_t count = 0;
    for (uint32_t i = queue->op_begin; i < queue->op_end; i++) {
        if (program->ops[i].kind != RP_OP_RECOMPUTE) {
            ops[count++] = i;
        }
    }
    return count;
}

/* Most live activation buffers on a GPU, and the longest time from a GPU's first start to last end.
 */
static uint32_t peak_of(const rpsim_result *result, int64_t *span_out)
{
    const rp_program *program = result->program;
    const rp_timeline *t = result->timeline;
    uint32_t peak = 0;
    *span_out = 0;
    for (uint32_t a = 0; a < program->buffer_count; a++) {
        const rp_buffer *at = &program->buffers[a];
        int64_t now = t->start_ps[at->alloc_op];
        uint32_t live = 0;
        for (uint32_t b = 0; b < program->buffer_count; b++) {
            const rp_buffer *other = &program->buffers[b];
            bool alive = t->start_ps[other->alloc_op] <= now && t->end_ps[other->free_op] > now;
            live += other->place == at->place && alive ? 1 : 0;
        }
        peak = live > peak ? live : peak;
    }
    for (uint32_t g = 0; g < program->gpu_count; g++) {
        const rp_queue *queue = &program->queues[g];
        int64_t span = t->end_ps[queue->op_end - 1] - t->start_ps[queue->op_begin];
        *span_out = span > *span_out ? span : *span_out;
    }
    return peak;
}

static void run(const char *name, const rp_costs *costs, uint32_t gpus, uint32_t microbatches,
                uint32_t chunks, rp_recompute recompute, rpsim_result *result)
{
    const rp_schedule_type *schedule = rp_schedule_find(name);
    cr_assert(schedule != NULL, "%s", name);
    cr_assert(eq(int,
                 rp_test_run_even(schedule, costs, gpus, microbatches, chunks, recompute,
                                  rp_test_arena, result),
                 RP_OK),
              "%s P%u M%u", name, gpus, microbatches);
}

/* ---- schedules.md 8 -------------------------------------------------------------------------- */

/* The unit of a whole stage, so that half a stage is a whole number. */
#define UNIT 20

static void check_row(const rp_csv *table, uint32_t row)
{
    const char *name = cell(table, row, "schedule");
    const char *source = cell(table, row, "source");
    uint32_t gpus = (uint32_t)number(table, row, "gpus");
    uint32_t microbatches = (uint32_t)number(table, row, "microbatches");
    uint32_t chunks = (uint32_t)number(table, row, "stages_per_gpu");
    rp_costs costs;
    rp_test_equal_costs(rp_test_arena, gpus * chunks, UNIT / chunks, 2 * UNIT / chunks, &costs);
    costs.hop_ps = (int64_t)(UNIT * number(table, row, "hop") + 0.5);
    rpsim_result result;
    run(name, &costs, gpus, microbatches, chunks, RP_RECOMPUTE_NONE, &result);
    int64_t span = 0;
    uint32_t peak = peak_of(&result, &span);
    double makespan = (double)result.metrics.makespan_ps / UNIT;
    cr_expect(ieee_ulp_eq(dbl, makespan, number(table, row, "makespan"), 2), "%s: %g", source,
              makespan);
    if (number(table, row, "peak") > 0) {
        cr_expect(ieee_ulp_eq(dbl, (double)peak / chunks, number(table, row, "peak"), 2), "%s: %g",
                  source, (double)peak / chunks);
    }
    if (number(table, row, "span") > 0) {
        cr_expect(ieee_ulp_eq(dbl, (double)span / UNIT, number(table, row, "span"), 2), "%s",
                  source);
    }
    rpsim_result_fini(&result);
    slow_rows rows;
    if (slow_rows_make(name, (int)gpus, (int)microbatches, (int)chunks, &rows)) {
        slow_split *stages = calloc(gpus * chunks, sizeof *stages);
        for (uint32_t s = 0; s < gpus * chunks; s++) {
            stages[s] = (slow_split){UNIT / chunks, UNIT / chunks, UNIT / chunks};
        }
        slow_span slow = slow_rows_run(&rows, stages, costs.hop_ps, 0);
        cr_expect(ieee_ulp_eq(dbl, (double)slow.makespan / UNIT, number(table, row, "makespan"), 2),
                  "the reference, %s", source);
        slow_rows_free(&rows);
        free(stages);
    }
}

Test(split_schedules, check_values_of_schedules_md)
{
    rp_csv table;
    read_table(RP_TEST_ROOT "/golden/split_schedules.csv", ';', &table);
    cr_assert(ge(u32, table.rows, 40));
    for (uint32_t row = 0; row < table.rows; row++) {
        check_row(&table, row);
    }
}

/* ---- PyTorch 2.15's pipeline_order of the classes named in the schedules' sources ------------ */

static const char *next_cell(const char *at, slow_cell *out, bool *paired_next)
{
    bool opens = *at == '(';
    at += opens ? 1 : 0;
    char *after = NULL;
    out->stage = (int)strtol(at, &after, 10);
    out->type = *after++;
    out->microbatch = (int)strtol(after, &after, 10);
    out->paired = opens;
    cr_assert(strchr("FIWB", out->type) != NULL && out->type != '\0', "%s", at);
    if (opens) {
        cr_assert(eq(chr, *after, ';'));
        *paired_next = true;
        return after + 1;
    }
    if (*paired_next) {
        cr_assert(eq(int, strncmp(after, ")OVERLAP_F_B", 12), 0));
        after += 12;
    }
    *paired_next = false;
    return *after == ',' ? after + 1 : after;
}

static void expect_cells(const rp_program *program, uint32_t gpu, const slow_rows *rows,
                         const char *text, const char *what)
{
    uint32_t *ops = calloc(program->op_count, sizeof *ops);
    uint32_t count = cells_of(program, gpu, ops);
    bool paired_next = false;
    for (uint32_t i = 0; i < count; i++) {
        const rp_op *op = &program->ops[ops[i]];
        slow_cell want = rows->cells[gpu][i < (uint32_t)rows->counts[gpu] ? i : 0];
        if (text != NULL) {
            slow_cell torch;
            text = next_cell(text, &torch, &paired_next);
            cr_assert(eq(chr, torch.type, want.type), "the reference, %s, cell %u", what, i);
            cr_assert(eq(int, torch.stage, want.stage), "the reference, %s, cell %u", what, i);
            cr_assert(eq(int, torch.microbatch, want.microbatch), "the reference, %s, cell %u",
                      what, i);
            cr_assert(eq(int, torch.paired, want.paired), "the reference, %s, cell %u", what, i);
        }
        cr_assert(eq(chr, rp_op_kind_text((rp_op_kind)op->kind)[0], want.type), "%s, cell %u", what,
                  i);
        cr_assert(eq(int, op->stage, want.stage), "%s, cell %u", what, i);
        cr_assert(eq(u32, op->microbatch, (uint32_t)want.microbatch), "%s, cell %u", what, i);
    }
    cr_assert(eq(u32, count, (uint32_t)rows->counts[gpu]), "%s", what);
    cr_assert(text == NULL || *text == '\0', "%s: PyTorch goes on with %s", what, text);
    free(ops);
}

Test(split_schedules, orders_of_pytorch)
{
    rp_csv table;
    read_table(RP_TEST_ROOT "/golden/torch_orders.csv", '|', &table);
    cr_assert(ge(u32, table.rows, 90));
    for (uint32_t row = 0; row < table.rows; row++) {
        const char *name = cell(&table, row, "schedule");
        uint32_t gpus = (uint32_t)number(&table, row, "gpus");
        uint32_t microbatches = (uint32_t)number(&table, row, "microbatches");
        uint32_t chunks = (uint32_t)number(&table, row, "stages_per_gpu");
        uint32_t rank = (uint32_t)number(&table, row, "rank");
        rp_costs costs;
        rp_test_equal_costs(rp_test_arena, gpus * chunks, 10, 20, &costs);
        rpsim_result result;
        slow_rows rows;
        char what[160];
        snprintf(what, sizeof what, "%s P%u M%u V%u rank %u", name, gpus, microbatches, chunks,
                 rank);
        run(name, &costs, gpus, microbatches, chunks, RP_RECOMPUTE_EARLY, &result);
        cr_assert(slow_rows_make(name, (int)gpus, (int)microbatches, (int)chunks, &rows));
        expect_cells(result.program, rank, &rows, cell(&table, row, "cells"), what);
        slow_rows_free(&rows);
        rpsim_result_fini(&result);
    }
}

/* ---- the slow reference on random sizes and times -------------------------------------------- */

static const char *const names[] = {"eager-1f1b", "zb-h1",  "zb-h2", "zb1p",
                                    "zbv",        "v-half", "v-min", "dualpipev"};

/* Every GPU's time is work or a wait for something, also in joined ops. */
static void check_explanation(const rpsim_result *result, const rp_costs *costs, const char *what)
{
    rp_stage_times times;
    rpsim_explanation e;
    cr_assert(eq(int, rp_stage_times_compute(result->program, costs, rp_test_arena, &times, NULL),
                 RP_OK));
    rpsim_explain_case given = {.timeline = result->timeline, .times = &times};
    cr_assert(eq(int, rpsim_explain(&given, rp_test_arena, &e, NULL), RP_OK), "%s", what);
    int64_t sum = 0;
    for (int share = 0; share < RPSIM_SHARE_COUNT; share++) {
        cr_assert(ge(i64, e.share_ps[share], 0), "%s, share %d", what, share);
        sum += e.share_ps[share];
    }
    cr_assert(eq(i64, sum, e.gpus * e.makespan_ps), "%s", what);
    int64_t path = 0;
    for (uint32_t i = 0; i < e.segment_count; i++) {
        path += e.segments[i].end_ps - e.segments[i].start_ps;
    }
    cr_assert(eq(i64, path, e.makespan_ps), "%s", what);
}

/* A layer per stage, which takes the drawn time. */
static void one_random(rp_random *random, uint32_t number, uint32_t *checked)
{
    const char *name = names[number % COUNT(names)];
    const rp_schedule_type *schedule = rp_schedule_find(name);
    uint32_t gpus = rp_random_between(random, 1, rp_random_between(random, 1, 16));
    uint32_t microbatches = rp_random_between(random, 1, 3 * gpus + 5);
    uint32_t chunks = schedule->many_stages           ? rp_random_between(random, 1, 4)
                      : schedule->stages_per_gpu == 0 ? 1
                                                      : 2;
    rp_test_stage_case c;
    rp_test_stage_case_make(gpus, chunks, microbatches, (slow_split){1, 1, 1}, rp_test_arena, &c);
    rp_test_stage_case_draw(random, true, &c);
    c.costs.overlap_saving = 0.25 * rp_random_between(random, 0, 4);
    char what[160];
    char message[512];
    snprintf(what, sizeof what, "%u: %s P%u M%u V%u", number, name, gpus, microbatches, chunks);
    slow_rows rows;
    rpsim_result result;
    rp_log_capture_begin(message, sizeof message);
    rp_status status = rpsim_case_run(schedule, &c.config, &result, NULL);
    rp_log_capture_end();
    bool allowed = slow_rows_make(name, (int)gpus, (int)microbatches, (int)chunks, &rows);
    cr_assert(eq(int, status, allowed ? RP_OK : RP_USAGE), "%s: %s", what, message);
    if (allowed) {
        slow_span slow = slow_rows_run(&rows, c.stages, c.costs.hop_ps, c.costs.overlap_saving);
        uint32_t *ops = calloc(result.program->op_count, sizeof *ops);
        for (uint32_t g = 0; g < gpus; g++) {
            expect_cells(result.program, g, &rows, NULL, what);
            cells_of(result.program, g, ops);
            for (int i = 0; i < rows.counts[g]; i++) {
                const slow_cell *want = &rows.cells[g][i];
                int64_t start_ps = result.timeline->start_ps[ops[i]];
                if (i == 0 || !want[-1].paired) { /* shown after the other of its pair */
                    cr_assert(eq(i64, start_ps, want->start), "%s, GPU %u, cell %d", what, g, i);
                } else {
                    cr_assert(eq(i64, start_ps, result.timeline->end_ps[ops[i] - 1]));
                }
                cr_assert(eq(i64, rp_timeline_result_ps(result.timeline, ops[i]), want->end),
                          "%s, GPU %u, cell %d", what, g, i);
            }
        }
        int64_t span = 0;
        uint32_t peak = peak_of(&result, &span);
        cr_assert(eq(u32, peak, (uint32_t)slow.peak), "%s", what);
        cr_assert(eq(i64, span, slow.longest_span), "%s", what);
        cr_assert(le(i64, result.metrics.lower_bound_ps, result.metrics.makespan_ps), "%s", what);
        check_explanation(&result, &c.costs, what);
        (*checked)++;
        free(ops);
        slow_rows_free(&rows);
        rpsim_result_fini(&result);
    }
}

Test(split_schedules, slow_reference_agrees)
{
    rp_random random = {20261121};
    uint32_t checked = 0;
    for (uint32_t i = 0; i < 2000; i++) {
        one_random(&random, i, &checked);
    }
    cr_expect(ge(u32, checked, 1500));
}

/* ---- closed forms ---------------------------------------------------------------------------- */

/* Qi et al. 2024, table 1, and schedules.md 2, 3: with equal times of the three parts the makespan
 * of ZB-H1 is 3 M + P - 1 and of ZB-V 3 M + (P - 1) / 2; a rank of ZB-H2 and ZB-V never idles
 * inside; all but ZB-H2 keep as much as 1F1B. */
Test(split_schedules, zero_bubble_forms)
{
    for (uint32_t p = 1; p <= 12; p++) {
        for (uint32_t m = 2 * p; m <= 4 * p; m += p + 1) {
            rp_costs costs;
            rpsim_result result;
            int64_t span = 0;
            rp_test_equal_costs(rp_test_arena, p, 2, 4, &costs);
            run("1f1b", &costs, p, m, 1, RP_RECOMPUTE_NONE, &result);
            uint32_t peak = peak_of(&result, &span);
            rpsim_result_fini(&result);
            run("zb-h1", &costs, p, m, 1, RP_RECOMPUTE_NONE, &result);
            cr_expect(eq(i64, result.metrics.makespan_ps, 2 * (3 * (int64_t)m + p - 1)));
            cr_expect(eq(u32, peak_of(&result, &span), peak), "zb-h1 P%u M%u", p, m);
            rpsim_result_fini(&result);
            run("zb-h2", &costs, p, m, 1, RP_RECOMPUTE_NONE, &result);
            cr_expect(eq(i64, result.metrics.makespan_ps, 2 * (3 * (int64_t)m + p - 1)));
            cr_expect(eq(u32, peak_of(&result, &span), 2 * p - 1), "zb-h2 P%u M%u", p, m);
            cr_expect(eq(i64, span, 6 * (int64_t)m), "zb-h2 P%u M%u", p, m);
            rpsim_result_fini(&result);
            rp_test_equal_costs(rp_test_arena, 2 * p, 1, 2, &costs);
            run("zbv", &costs, p, m, 2, RP_RECOMPUTE_NONE, &result);
            cr_expect(eq(i64, result.metrics.makespan_ps, 6 * (int64_t)m + p - 1));
            cr_expect(eq(u32, peak_of(&result, &span), 2 * p), "zbv P%u M%u", p, m);
            cr_expect(eq(i64, span, 6 * (int64_t)m), "zbv P%u M%u", p, m);
            rpsim_result_fini(&result);
        }
    }
}

/* For unequal parts, W not longer than F and I, ZB-H1's bubble is (P - 1)(F + I - W), 1F1B's (P -
 * 1)(F + I + W) (Qi et al. 2024, table 1). */
Test(split_schedules, bubble_of_zb_h1)
{
    static const int64_t times[][3] = {{3, 3, 3}, {5, 4, 3}, {4, 4, 4}, {7, 7, 2}, {4, 5, 4}};
    for (size_t i = 0; i < COUNT(times); i++) {
        int64_t f = times[i][0];
        int64_t in = times[i][1];
        int64_t w = times[i][2];
        for (uint32_t p = 1; p <= 8; p++) {
            rp_costs costs;
            rpsim_result result;
            rp_test_equal_costs(rp_test_arena, p, f, in + w, &costs);
            for (uint32_t s = 0; s < p; s++) {
                costs.bwd_input_ps[s] = in;
            }
            int64_t work = 3 * (int64_t)p * (f + in + w);
            run("zb-h1", &costs, p, 3 * p, 1, RP_RECOMPUTE_NONE, &result);
            cr_expect(eq(i64, result.metrics.makespan_ps - work, (p - 1) * (f + in - w)),
                      "P%u, F %lld I %lld W %lld", p, (long long)f, (long long)in, (long long)w);
            rpsim_result_fini(&result);
        }
    }
}

/* Qi et al., NeurIPS 2024, table 1: about a half and a third of 1F1B's activations. */
Test(split_schedules, memory_of_v_half_and_v_min)
{
    for (uint32_t p = 2; p <= 24; p++) {
        rp_costs costs;
        rpsim_result result;
        int64_t span = 0;
        rp_test_equal_costs(rp_test_arena, 2 * p, 1, 2, &costs);
        run("v-half", &costs, p, 3 * p, 2, RP_RECOMPUTE_NONE, &result);
        uint32_t peak = peak_of(&result, &span); /* chunks of half a stage */
        cr_expect(le(u32, peak, p + 2), "v-half P%u: %u chunks", p, peak);
        rpsim_result_fini(&result);
        run("v-min", &costs, p, 3 * p, 2, RP_RECOMPUTE_NONE, &result);
        peak = peak_of(&result, &span);
        cr_expect(le(u32, 3 * peak, 2 * p + 9), "v-min P%u: %u chunks", p, peak);
        rpsim_result_fini(&result);
    }
}
