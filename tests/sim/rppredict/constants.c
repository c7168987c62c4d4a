/* Constants of the predictions: as many as the gate allows, each within its range, and each that is
 * set on a cell named there (traces/configs, paper-figures/published). */
#include "sim/rppredict/constants.h"
#include "common/base/text.h"
#include "common/formats/csv.h"
#include "common/inputs/platform_write.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdlib.h>
#include <string.h>

#define MOST_ROUNDPIPE 11
#define MOST_FSDP 3

static rp_arena *arena;
static rpsim_constants constants;

static void begin(void)
{
    cr_assert(eq(int, rp_arena_create(&arena), RP_OK));
    cr_assert(eq(int, rpsim_constants_load(arena, &constants), RP_OK));
}

static void end(void)
{
    rp_arena_destroy(arena);
}

TestSuite(constants, .init = begin, .fini = end, .timeout = 60);

Test(constants, number)
{
    cr_expect(le(u32, rpsim_constants_count(&constants, "roundpipe", NULL), MOST_ROUNDPIPE));
    cr_expect(le(u32, rpsim_constants_count(&constants, "fsdp-a100", NULL), MOST_FSDP));
    cr_expect(eq(u32, rpsim_constants_count(&constants, "no such group", NULL), 0));
}

Test(constants, lie_in_their_ranges)
{
    uint32_t checked = 0;
    for (uint32_t i = 0; i < constants.count; i++) {
        const rpsim_constant *c = &constants.items[i];
        double low = strtod(c->low, NULL);
        double high = strtod(c->high, NULL);
        rp_platform platform;
        cr_expect(gt(dbl, low, 0), "%s", c->name);
        cr_expect(gt(dbl, high, low), "%s", c->name);
        if (c->platform[0] == '\0') {
            continue;
        }
        cr_assert(eq(int, rp_platform_load(c->platform, arena, &platform), RP_OK));
        const double *rate = rp_platform_rate(&platform, c->key);
        double value = rate != NULL ? *rate : platform.launch_queue_depth; /* the only count */
        cr_expect(ge(dbl, value, low), "%s: %g", c->name, value);
        cr_expect(le(dbl, value, high), "%s: %g", c->name, value);
        checked++;
    }
    cr_expect(gt(u32, checked, 10));
}

static bool is_set(const char *key)
{
    for (uint32_t i = 0; i < constants.count; i++) {
        const rpsim_constant *c = &constants.items[i];
        if (strcmp(c->key, key) == 0 && strcmp(c->kind, "set") == 0) {
            return c->cell[0] != '\0';
        }
    }
    return false;
}

/* The column `sets` of a table names KEY or KEY@GPUS. */
static uint32_t expect_sets(const char *path)
{
    rp_text text = {0};
    rp_csv csv;
    uint32_t column = 0;
    uint32_t found = 0;
    cr_assert(eq(int, rp_text_read_file(path, 1 << 20, &text), RP_OK));
    cr_assert(eq(int, rp_csv_parse(path, text.bytes, text.length, ',', arena, &csv), RP_OK));
    cr_assert(eq(int, rp_csv_column(&csv, "sets", &column), RP_OK));
    for (uint32_t row = 0; row < csv.rows; row++) {
        char key[64];
        const char *cell = rp_csv_cell(&csv, row, column);
        snprintf(key, sizeof key, "%.*s", (int)strcspn(cell, "@"), cell);
        if (key[0] != '\0') {
            cr_expect(is_set(key), "%s: %s", path, cell);
            found++;
        }
    }
    rp_text_fini(&text);
    return found;
}

/* No cell sets what is not declared, and nothing that is declared as set is set nowhere. */
Test(constants, are_set_on_named_cells)
{
    uint32_t roundpipe = 0;
    uint32_t fsdp = 0;
    rpsim_constants_count(&constants, "roundpipe", &roundpipe);
    rpsim_constants_count(&constants, "fsdp-a100", &fsdp);
    uint32_t found = expect_sets(RP_SOURCE_ROOT "/traces/configs/paper.csv");
    found += expect_sets(RP_SOURCE_ROOT "/traces/configs/paper_seqlen.csv");
    cr_expect(eq(u32, found, roundpipe));
    cr_expect(
        eq(u32, expect_sets(RP_SOURCE_ROOT "/paper-figures/published/fsdp_mpt_a100.csv"), fsdp));
}
