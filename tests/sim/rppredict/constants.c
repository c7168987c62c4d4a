/* The predictions' constants: as many as the gate allows, each in its range, and set only on cells
 * named there (traces/configs, paper-figures/published). */
#include "sim/rppredict/constants.h"
#include "common/formats/csv.h"
#include "common/inputs/data.h"
#include "common/inputs/load/models.h"
#include "common/inputs/load/platforms.h"
#include "common/inputs/model.h"
#include "common/inputs/write/platform_write.h"
#include "sim/run/hardware_case.h"
#include "tests/support/assertions.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define MOST_ROUNDPIPE 11
#define MOST_FSDP 3
#define MOST_MEGATRON 2

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
    cr_expect(le(u32, rpsim_constants_count(&constants, "megatron-a100", NULL), MOST_MEGATRON));
    cr_expect(eq(u32, rpsim_constants_count(&constants, "no such group", NULL), 0));
}

static double of_platform(const rpsim_constant *c)
{
    rp_platform platform;
    cr_assert(eq(int, rp_platform_load(c->platform, arena, &platform), RP_OK));
    const double *rate = rp_platform_rate(&platform, c->key);
    return rate != NULL ? *rate : platform.launch_queue_depth; /* the only integer */
}

static double of_model(const char *name, const rpsim_constant *c)
{
    rp_model model;
    cr_assert(eq(int, rp_model_load(name, arena, &model), RP_OK));
    bool step = strcmp(c->key, "step_host_ms") == 0;
    cr_assert(step || strcmp(c->key, "host_launch_us") == 0, "%s", c->key);
    return step ? model.step_host_ms : model.host_launch_us;
}

/* Each model of a family, mpt-125m to mpt-70b, has its own key. */
static void expect_family(const rpsim_constant *c)
{
    const char **names = NULL;
    uint32_t count = 0;
    size_t family = strcspn(c->model, "-:") + 1;
    double value = of_model(c->model, c);
    cr_assert(eq(int, rp_data_list("models", arena, &names, &count), RP_OK));
    for (uint32_t i = 0; i < count; i++) {
        if (strncmp(names[i], c->model, family) == 0) {
            cr_expect(eq(dbl, of_model(names[i], c), value), "%s: %s", names[i], c->key);
        }
    }
}

Test(constants, lie_in_their_ranges)
{
    uint32_t in_code = 0;
    for (uint32_t i = 0; i < constants.count; i++) {
        const rpsim_constant *c = &constants.items[i];
        double low = strtod(c->low, NULL);
        double high = strtod(c->high, NULL);
        cr_expect(gt(dbl, low, 0), "%s", c->name);
        cr_expect(gt(dbl, high, low), "%s", c->name);
        double value = RPSIM_UNFUSED_LOSS_BYTES; /* the only constant in code */
        if (c->platform[0] != '\0') {
            value = of_platform(c);
        } else if (c->model[0] != '\0') {
            value = of_model(c->model, c);
            expect_family(c);
        } else {
            cr_expect(ne(ptr, strstr(c->name, "unfused loss"), NULL), "%s", c->name);
            in_code++;
        }
        cr_expect(ge(dbl, value, low), "%s: %g", c->name, value);
        cr_expect(le(dbl, value, high), "%s: %g", c->name, value);
    }
    cr_expect(eq(u32, in_code, 1));
    cr_expect(gt(u32, constants.count, 15));
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

/* A table's column `sets` names KEY or KEY@GPUS. */
static uint32_t expect_sets(const char *path)
{
    rp_csv csv;
    uint32_t column = 0;
    uint32_t found = 0;
    cr_assert(eq(int, rp_csv_read_file(path, arena, &csv), RP_OK));
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
    return found;
}

/* Cells set only declared constants, and every constant declared as set is set somewhere. */
Test(constants, are_set_on_named_cells)
{
    uint32_t roundpipe = 0;
    uint32_t fsdp = 0;
    uint32_t megatron = 0;
    rpsim_constants_count(&constants, "roundpipe", &roundpipe);
    rpsim_constants_count(&constants, "fsdp-a100", &fsdp);
    rpsim_constants_count(&constants, "megatron-a100", &megatron);
    uint32_t found = expect_sets(RP_SOURCE_ROOT "/traces/configs/paper.csv");
    found += expect_sets(RP_SOURCE_ROOT "/traces/configs/paper_seqlen.csv");
    cr_expect(eq(u32, found, roundpipe));
    cr_expect(
        eq(u32, expect_sets(RP_SOURCE_ROOT "/paper-figures/published/fsdp_mpt_a100.csv"), fsdp));
    cr_expect(eq(u32, expect_sets(RP_SOURCE_ROOT "/paper-figures/published/megatron_a100.csv"),
                 megatron));
}
