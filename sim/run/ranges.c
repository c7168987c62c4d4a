#include "sim/run/ranges.h"

#include "common/base/log.h"
#include "common/formats/csv.h"
#include "common/inputs/data.h"

#include <math.h>
#include <string.h>

/* Largest factor: an input that is off by more is another value. */
#define MOST 100.0
/* Probability between the median and the range's ends. */
#define TAIL 0.4

const char *const rpsim_input_names[RPSIM_INPUT_COUNT] = {
#define NAME(name, text) [RPSIM_INPUT_##name] = text,
    RPSIM_INPUTS(NAME)
#undef NAME
};

double rpsim_range_factor(const rpsim_range *range, double probability)
{
    return probability < 0.5 ? pow(range->low, (0.5 - probability) / TAIL)
                             : pow(range->high, (probability - 0.5) / TAIL);
}

static rp_status find_input(const rp_csv *csv, uint32_t row, const char *name, uint32_t *input_out)
{
    for (uint32_t i = 0; i < RPSIM_INPUT_COUNT; i++) {
        if (strcmp(rpsim_input_names[i], name) == 0) {
            *input_out = i;
            return RP_OK;
        }
    }
    rp_log_error_at(csv->name, csv->lines[row],
                    "'%s' is no input; valid values are layer_times, head_times, run and the "
                    "others that sim/run/ranges.h lists",
                    name);
    return RP_INPUT;
}

/* Adds a row's range for each of its kinds. */
static rp_status add_kinds(const rp_csv *csv, uint32_t row, const char *kinds,
                           const rpsim_range *range, rpsim_range *of_input)
{
    for (const char *at = kinds; *(at += strspn(at, " ")) != '\0';) {
        size_t length = strcspn(at, " ");
        rp_provenance kind;
        if (!rp_provenance_parse(at, length, &kind) || of_input[kind].low > 0) {
            rp_log_error_at(csv->name, csv->lines[row],
                            "kind '%.*s'; valid values are measured, moved, assumed and set, each "
                            "once for an input",
                            (int)length, at);
            return RP_INPUT;
        }
        of_input[kind] = *range;
        at += length;
    }
    return RP_OK;
}

static rp_status read_rows(const rp_csv *csv, rpsim_ranges *ranges)
{
    enum { INPUT, KIND, LOW, HIGH, COLUMNS };
    static const char *const headers[COLUMNS] = {"input", "kind", "low", "high"};
    uint32_t columns[COLUMNS];
    for (int i = 0; i < COLUMNS; i++) {
        RP_TRY(rp_csv_column(csv, headers[i], &columns[i]));
    }
    for (uint32_t row = 0; row < csv->rows; row++) {
        uint32_t input = 0;
        rpsim_range range;
        RP_TRY(find_input(csv, row, rp_csv_cell(csv, row, columns[INPUT]), &input));
        RP_TRY(rp_csv_double(csv, row, columns[LOW], 1 / MOST, 1, &range.low));
        RP_TRY(rp_csv_double(csv, row, columns[HIGH], 1, MOST, &range.high));
        RP_TRY(
            add_kinds(csv, row, rp_csv_cell(csv, row, columns[KIND]), &range, ranges->of[input]));
    }
    return RP_OK;
}

rp_status rpsim_ranges_parse(const char *name, const char *bytes, size_t length,
                             rpsim_ranges *ranges_out)
{
    rp_arena *arena = NULL;
    rp_csv csv;
    *ranges_out = (rpsim_ranges){0};
    RP_TRY(rp_arena_create(&arena));
    rp_status status = rp_csv_parse(name, bytes, length, ',', arena, &csv);
    if (status == RP_OK) {
        status = read_rows(&csv, ranges_out);
    }
    rp_arena_destroy(arena);
    return status;
}

rp_status rpsim_ranges_load(rpsim_ranges *ranges_out)
{
    rp_arena *arena = NULL;
    rp_text text = {0};
    const char *path = NULL;
    RP_TRY(rp_arena_create(&arena));
    rp_status status = rp_data_read_file("ranges.csv", RP_CSV_MAX_BYTES, arena, &path, &text);
    if (status == RP_OK) {
        status =
            rpsim_ranges_parse(path, text.bytes != NULL ? text.bytes : "", text.length, ranges_out);
    }
    rp_text_fini(&text);
    rp_arena_destroy(arena);
    return status;
}
