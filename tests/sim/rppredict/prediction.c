/* Predicted against published throughput: the accuracy that has been reached is a gate that can
 * only tighten (tests/golden/prediction_gates.csv; experiments/prediction.md says what it rests
 * on). */
#include "sim/rppredict/prediction.h"
#include "common/base/log.h"
#include "common/base/text.h"
#include "common/formats/csv.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint32_t cells_of(const rpsim_prediction *prediction, const char *group)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < prediction->count; i++) {
        count += strcmp(prediction->cells[i].group, group) == 0 ? 1 : 0;
    }
    return count;
}

Test(prediction, accuracy_gates, .timeout = 300)
{
    rp_arena *arena = NULL;
    rp_text text = {0};
    rp_csv gates;
    rpsim_prediction prediction;
    cr_assert(eq(int, rp_arena_create(&arena), RP_OK));
    const char *path = RP_TEST_ROOT "/golden/prediction_gates.csv";
    cr_assert(eq(int, rp_text_read_file(path, 65536, &text), RP_OK));
    cr_assert(eq(int, rp_csv_parse(path, text.bytes, text.length, ',', arena, &gates), RP_OK));
    cr_assert(eq(int, rpsim_predict(RP_SOURCE_ROOT "/paper-figures/published", arena, &prediction),
                 RP_OK));
    uint32_t covered = 0;
    for (uint32_t row = 0; row < gates.rows; row++) {
        const char *group = rp_csv_cell(&gates, row, 0);
        double most = strtod(rp_csv_cell(&gates, row, 2), NULL);
        double mape = rpsim_prediction_mape(&prediction, group);
        cr_expect(eq(u32, cells_of(&prediction, group),
                     (uint32_t)strtoul(rp_csv_cell(&gates, row, 1), NULL, 10)));
        cr_expect(le(dbl, mape, most), "%s: %.3f %%", group, mape);
        cr_expect(ge(dbl, mape, most - 0.25), "%s is better than its gate (%.3f %%): tighten it",
                  group, mape);
        covered += cells_of(&prediction, group);
    }
    cr_expect(eq(u32, covered, prediction.count));
    rp_text_fini(&text);
    rp_arena_destroy(arena);
    cr_expect(eq(sz, rp_mem_live_bytes(), 0));
}
