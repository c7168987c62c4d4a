#include "sim/rppredict/constants.h"

#include "common/inputs/data.h"

#include <string.h>

static rp_status read_rows(const rp_csv *csv, rp_arena *arena, rpsim_constants *out)
{
    static const char *const columns[] = {"group", "constant", "platform", "model", "key",
                                          "low",   "high",     "kind",     "cell"};
    uint32_t index[sizeof columns / sizeof columns[0]];
    for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++) {
        RP_TRY(rp_csv_column(csv, columns[i], &index[i]));
    }
    *out = (rpsim_constants){.count = csv->rows};
    RP_TRY(rp_arena_alloc(arena, csv->rows, sizeof *out->items, &out->items));
    for (uint32_t row = 0; row < csv->rows; row++) {
        out->items[row] = (rpsim_constant){.group = rp_csv_cell(csv, row, index[0]),
                                           .name = rp_csv_cell(csv, row, index[1]),
                                           .platform = rp_csv_cell(csv, row, index[2]),
                                           .model = rp_csv_cell(csv, row, index[3]),
                                           .key = rp_csv_cell(csv, row, index[4]),
                                           .low = rp_csv_cell(csv, row, index[5]),
                                           .high = rp_csv_cell(csv, row, index[6]),
                                           .kind = rp_csv_cell(csv, row, index[7]),
                                           .cell = rp_csv_cell(csv, row, index[8])};
    }
    return RP_OK;
}

rp_status rpsim_constants_load(rp_arena *arena, rpsim_constants *constants_out)
{
    rp_csv csv;
    RP_TRY(rp_data_read_csv("configs/constants.csv", arena, &csv));
    return read_rows(&csv, arena, constants_out);
}

uint32_t rpsim_constants_count(const rpsim_constants *constants, const char *group, uint32_t *set)
{
    uint32_t count = 0;
    uint32_t on_cells = 0;
    for (uint32_t i = 0; i < constants->count; i++) {
        const rpsim_constant *c = &constants->items[i];
        bool counts = strcmp(c->group, group) == 0 && strcmp(c->kind, "measured") != 0;
        count += counts ? 1 : 0;
        on_cells += counts && strcmp(c->kind, "set") == 0 ? 1 : 0;
    }
    if (set != NULL) {
        *set = on_cells;
    }
    return count;
}

void rpsim_constants_write(const rpsim_constants *constants, FILE *stream)
{
    static const char *const groups[][2] = {{"roundpipe", "RoundPipe and its baselines"},
                                            {"fsdp-a100", "FSDP on A100"},
                                            {"megatron-a100", "Megatron-LM on A100"}};
    fputs("\nConstants (traces/configs/constants.csv):\n", stream);
    for (size_t g = 0; g < sizeof groups / sizeof groups[0]; g++) {
        uint32_t set = 0;
        uint32_t count = rpsim_constants_count(constants, groups[g][0], &set);
        fprintf(stream, "- %s: %u, of these %u set on a cell\n", groups[g][1], count, set);
    }
}
