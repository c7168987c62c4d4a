/* GPT models under Megatron-LM on A100 servers: gates that can only tighten
 * (tests/golden/megatron_gates.csv). */
#include "sim/rppredict/megatron.h"
#include "common/formats/csv.h"
#include "tests/support/assertions.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static rp_arena *arena;
static rpsim_megatron megatron;

static void begin(void)
{
    cr_assert(eq(int, rp_arena_create(&arena), RP_OK));
    cr_assert(
        eq(int, rpsim_predict_megatron(RP_SOURCE_ROOT "/paper-figures/published", arena, &megatron),
           RP_OK));
}

static void end(void)
{
    rp_arena_destroy(arena);
}

TestSuite(megatron, .init = begin, .fini = end, .timeout = 300);

Test(megatron, accuracy_gates)
{
    rp_csv gates;
    uint32_t covered = 0;
    const char *path = RP_TEST_ROOT "/golden/megatron_gates.csv";
    cr_assert(eq(int, rp_csv_read_file(path, arena, &gates), RP_OK));
    for (uint32_t row = 0; row < gates.rows; row++) {
        const char *group = rp_csv_cell(&gates, row, 0);
        double most = strtod(rp_csv_cell(&gates, row, 2), NULL);
        rpsim_megatron_errors e = rpsim_megatron_group(&megatron, group, 0);
        cr_expect(eq(u32, e.count, (uint32_t)strtoul(rp_csv_cell(&gates, row, 1), NULL, 10)));
        cr_expect(le(dbl, e.absolute_pct, most), "%s: %.3f %%", group, e.absolute_pct);
        cr_expect(ge(dbl, e.absolute_pct, most - 0.25),
                  "%s is better than its gate (%.3f %%): tighten it", group, e.absolute_pct);
        covered += e.count;
    }
    cr_expect(eq(u32, covered, megatron.count));
}

/* Kendall's tau over layouts of a model with the same GPUs and batch (experiments/prediction.md).
 */
Test(megatron, layouts_have_the_measured_order)
{
    double agree = 0;
    double pairs = 0;
    for (uint32_t i = 0; i < megatron.count; i++) {
        for (uint32_t k = 0; k < i; k++) {
            const rpsim_megatron_row *a = &megatron.rows[i];
            const rpsim_megatron_row *b = &megatron.rows[k];
            bool same = strcmp(a->model, b->model) == 0 && a->run.gpus == b->run.gpus &&
                        a->run.global_batch == b->run.global_batch &&
                        a->measured_ms != b->measured_ms;
            double order = (a->measured_ms - b->measured_ms) * (a->predicted_ms - b->predicted_ms);
            pairs += same ? 1 : 0;
            agree += same && order > 0 ? 1 : 0;
        }
    }
    cr_assert(gt(dbl, pairs, 300));
    cr_expect(ge(dbl, 2 * agree / pairs - 1, 0.8), "%.4f of %g", 2 * agree / pairs - 1, pairs);
}
