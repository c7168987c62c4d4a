/* MPT models under FSDP on A100 servers: gates that can only tighten (tests/golden/fsdp_gates.csv),
 * and rules for any numbers. A plain run has four draws, RP_LONG eight. */
#include "sim/rppredict/fsdp.h"
#include "common/formats/csv.h"
#include "tests/support/assertions.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define PUBLISHED RP_SOURCE_ROOT "/paper-figures/published"

static rp_arena *arena;
static rpsim_fsdp fsdp;

static void begin(void)
{
    uint32_t draws = getenv("RP_LONG") != NULL ? 8 : 4;
    cr_assert(eq(int, rp_arena_create(&arena), RP_OK));
    cr_assert(eq(int, rpsim_predict_fsdp(PUBLISHED, draws, arena, &fsdp), RP_OK));
}

static void end(void)
{
    rp_arena_destroy(arena);
}

TestSuite(fsdp, .init = begin, .fini = end, .timeout = 300);

static rp_csv read(const char *path)
{
    rp_csv csv;
    cr_assert(eq(int, rp_csv_read_file(path, arena, &csv), RP_OK));
    return csv;
}

static bool sets(const rpsim_fsdp_row *row)
{
    return strstr(row->group, "-set") != NULL;
}

static uint32_t rows_of(const char *group)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < fsdp.count; i++) {
        count += strcmp(fsdp.rows[i].group, group) == 0 ? 1 : 0;
    }
    return count;
}

static void hold_gates(void)
{
    rp_csv gates = read(RP_TEST_ROOT "/golden/fsdp_gates.csv");
    uint32_t covered = 0;
    for (uint32_t row = 0; row < gates.rows; row++) {
        const char *group = rp_csv_cell(&gates, row, 0);
        double most = strtod(rp_csv_cell(&gates, row, 2), NULL);
        double mape = rpsim_fsdp_mape(&fsdp, group);
        cr_expect(
            eq(u32, rows_of(group), (uint32_t)strtoul(rp_csv_cell(&gates, row, 1), NULL, 10)));
        cr_expect(le(dbl, mape, most), "%s: %.3f %%", group, mape);
        cr_expect(ge(dbl, mape, most - 0.25), "%s is better than its gate (%.3f %%): tighten it",
                  group, mape);
        covered += rows_of(group);
    }
    cr_expect(eq(u32, covered, fsdp.count));
}

/* Rows that set no constant are off by at most 6 % on a single server and 8 % on several, on
 * average. */
static void hold_errors_by_servers(void)
{
    double sums[2] = {0, 0};
    uint32_t counts[2] = {0, 0};
    for (uint32_t i = 0; i < fsdp.count; i++) {
        const rpsim_fsdp_row *row = &fsdp.rows[i];
        if (!sets(row)) {
            sums[row->gpus > 8] += fabs(row->error_pct);
            counts[row->gpus > 8]++;
        }
    }
    cr_assert(counts[0] > 0 && counts[1] > 0);
    cr_expect(le(dbl, sums[0] / counts[0], 6));
    cr_expect(le(dbl, sums[1] / counts[1], 8));
}

/* All rows have run, so all fit. More servers are faster, as measured. */
static void expect_rows_fit_and_scale(void)
{
    uint32_t pairs = 0;
    for (uint32_t i = 0; i < fsdp.count; i++) {
        const rpsim_fsdp_row *a = &fsdp.rows[i];
        cr_expect(a->fits, "row %u", i);
        for (uint32_t k = 0; k < fsdp.count; k++) {
            const rpsim_fsdp_row *b = &fsdp.rows[k];
            bool series = strcmp(a->group, b->group) == 0 && strcmp(a->model, b->model) == 0 &&
                          a->seq_len == b->seq_len && a->gpus < b->gpus;
            bool scales = a->predicted_tokens_per_s < b->predicted_tokens_per_s;
            cr_expect(scales || !series, "%u, %u", i, k);
            pairs += series ? 1 : 0;
        }
    }
    cr_expect(eq(u32, pairs, 20)); /* 8, 16, 32, 64 and 128 GPUs, two models */
}

/* At most three constants, each set on a single row. */
static void expect_few_constants(void)
{
    rp_csv csv;
    uint32_t column = 0;
    uint32_t count = 0;
    csv = read(PUBLISHED "/fsdp_mpt_a100.csv");
    cr_assert(eq(int, rp_csv_column(&csv, "sets", &column), RP_OK));
    for (uint32_t row = 0; row < csv.rows; row++) {
        bool constant = rp_csv_cell(&csv, row, column)[0] != '\0';
        cr_expect(eq(int, constant ? 1 : 0, sets(&fsdp.rows[row]) ? 1 : 0));
        count += constant ? 1 : 0;
    }
    cr_expect(le(u32, count, 3));
}

/* Each interval contains its prediction; rows that set no constant count. */
static void expect_intervals(void)
{
    rpsim_calibration c = {.cells = 50, .inside = 40, .below = 7};
    uint32_t inside = 0;
    uint32_t below = 0;
    for (uint32_t i = 0; i < fsdp.count; i++) {
        const rpsim_fsdp_row *row = &fsdp.rows[i];
        cr_expect(row->range.p10 < row->predicted_tokens_per_s, "row %u", i);
        cr_expect(row->range.p90 > row->predicted_tokens_per_s, "row %u", i);
        bool low = row->measured_tokens_per_s < row->range.p10;
        below += !sets(row) && low ? 1 : 0;
        inside += !sets(row) && !low && row->measured_tokens_per_s <= row->range.p90 ? 1 : 0;
    }
    rpsim_fsdp_calibrate(&fsdp, &c);
    cr_expect(eq(u32, c.cells, 75));
    cr_expect(eq(u32, c.inside, 40 + inside));
    cr_expect(eq(u32, c.below, 7 + below));
    cr_expect(ge(dbl, (double)inside, 0.65 * 25));
}

/* A single test, since each would simulate all rows again. */
Test(fsdp, published_rows)
{
    hold_gates();
    hold_errors_by_servers();
    expect_rows_fit_and_scale();
    expect_few_constants();
    expect_intervals();
}
