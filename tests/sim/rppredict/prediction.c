/* Counts of intervals, on made up cells. The accuracy that has been reached is a gate of
 * checks.figures_10, which has rppredict's report. */
#include "sim/rppredict/prediction.h"
#include "tests/support/assertions.h"

#include <criterion/criterion.h>
#include <stdlib.h>

/* Ten cells at their p50, of which some are moved out, in a group that counts or not. */
Test(prediction, calibration_counts)
{
    rp_arena *arena = NULL;
    rpsim_cell cells[12];
    rpsim_prediction prediction = {.cells = cells, .count = 12};
    rpsim_calibration c;
    setenv("RP_TRACES", RP_SOURCE_ROOT "/traces", 1);
    cr_assert(eq(int, rp_arena_create(&arena), RP_OK));
    for (uint32_t i = 0; i < 12; i++) {
        cells[i] = (rpsim_cell){.group = i == 10   ? "baselines-set"
                                         : i == 11 ? "async"
                                                   : "baselines",
                                .framework = "zero2",
                                .model = "llama3.1-8b",
                                .known = true,
                                .measured_tokens_per_s = i == 0   ? 80
                                                         : i == 1 ? 130
                                                         : i == 2 ? 131
                                                                  : 100,
                                .range = {.p10 = 90, .p50 = 100, .p90 = 110}};
    }
    cr_assert(eq(int, rpsim_prediction_calibrate(&prediction, arena, &c), RP_OK));
    cr_expect(eq(u32, c.cells, 10));
    cr_expect(eq(u32, c.inside, 7));
    cr_expect(eq(u32, c.below, 1));
    cr_expect(epsilon_eq(dbl, c.dense_width_pct, 20, 1e-9));
    rp_arena_destroy(arena);
}
