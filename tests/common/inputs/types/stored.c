/* Bytes of quantised matrices and optimizer states against tensors that bitsandbytes and torchao
 * made (tests/golden/stored.csv). */
#include "common/inputs/types/stored.h"
#include "common/formats/csv.h"
#include "tests/support/assertions.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

enum { PACKAGE, VERSION, TYPE, ROWS, COLUMNS, VALUES, SCALES, TABLES };

static rp_arena *arena;

static void begin(void)
{
    cr_assert(eq(int, rp_arena_create(&arena), RP_OK));
}

static void end(void)
{
    rp_arena_destroy(arena);
}

TestSuite(stored, .init = begin, .fini = end);

static uint64_t number(const rp_csv *csv, uint32_t row, uint32_t column)
{
    return strtoull(rp_csv_cell(csv, row, column), NULL, 10);
}

static rp_frozen frozen_called(const char *word)
{
    uint32_t i = 0;
    while (i < RP_FROZEN_COUNT && strcmp(rp_frozen_text((rp_frozen)i), word) != 0) {
        i++;
    }
    return (rp_frozen)i;
}

/* torchao gives small and odd tensors the parameter's type, and each tensor tables of its own; the
 * rules here are bitsandbytes', which are the same for all other tensors. */
static bool is_alike(const char *package, uint64_t elements)
{
    return strcmp(package, "torchao") != 0 || (elements >= 4096 && elements % 256 == 0);
}

Test(stored, tensors_are_the_packages)
{
    rp_csv csv;
    const char *path = RP_TEST_ROOT "/golden/stored.csv";
    cr_assert(eq(int, rp_csv_read_file(path, arena, &csv), RP_OK));
    uint32_t seen[RP_FROZEN_COUNT + 1] = {0};
    for (uint32_t i = 0; i < csv.rows; i++) {
        const char *type = rp_csv_cell(&csv, i, TYPE);
        uint64_t rows = number(&csv, i, ROWS);
        uint64_t columns = number(&csv, i, COLUMNS);
        rp_frozen frozen = frozen_called(type);
        if (frozen != RP_FROZEN_COUNT) {
            rp_stored stored = rp_stored_matrix(frozen, rows, columns, 2);
            cr_expect(eq(u64, stored.values, number(&csv, i, VALUES)), "row %u", i);
            cr_expect(eq(u64, stored.scales, number(&csv, i, SCALES)), "row %u", i);
            seen[frozen]++;
        } else if (is_alike(rp_csv_cell(&csv, i, PACKAGE), rows)) {
            cr_expect(eq(u64, rp_states_bytes(RP_STATES_8BIT, rows), number(&csv, i, VALUES)),
                      "row %u", i);
            seen[RP_FROZEN_COUNT]++;
        }
    }
    for (uint32_t i = RP_FROZEN_FP8; i < RP_FROZEN_COUNT; i++) {
        cr_expect(eq(u32, seen[i], 8), "%s", rp_frozen_text((rp_frozen)i));
    }
    cr_expect(eq(u32, seen[RP_FROZEN_COUNT], 15));
}

Test(stored, types_of_torch_have_its_item_sizes)
{
    cr_expect(eq(u64, rp_stored_matrix(RP_FROZEN_DTYPE, 3, 5, 4).values, 60));
    cr_expect(eq(u64, rp_stored_matrix(RP_FROZEN_BF16, 3, 5, 4).values, 30));
    cr_expect(eq(u64, rp_states_bytes(RP_STATES_F32, 5), 40));
    cr_expect(eq(u64, rp_states_bytes(RP_STATES_BF16, 5), 20));
    cr_expect(eq(u64, rp_master_bytes(RP_MASTER_F32) + rp_master_bytes(RP_MASTER_BF16), 6));
    cr_expect(eq(u64, rp_master_bytes(RP_MASTER_NONE), 0));
}
