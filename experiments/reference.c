#include "experiments/reference.h"

#include "common/base/log.h"
#include "common/base/text.h"
#include "common/cli/option_values.h"
#include "common/formats/csv.h"
#include "common/inputs/published.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define NAMES                                                                                      \
    "kind, source, schedule, framework, model, platform, fidelity, recompute, optimizer, gpus, "   \
    "microbatches, microbatch_size and seq_len"

/* Place of a column's text, or of its number. */
typedef struct slot {
    const char **text;
    uint32_t *number;
} slot;

static bool find_slot(rp_store_reference *r, const char *name, slot *slot_out)
{
    const struct {
        const char *name;
        slot slot;
    } slots[] = {
        {"kind", {.text = &r->kind}},
        {"source", {.text = &r->source}},
        {"schedule", {.text = &r->schedule}},
        {"framework", {.text = &r->schedule}},
        {"model", {.text = &r->model}},
        {"platform", {.text = &r->platform}},
        {"fidelity", {.text = &r->fidelity}},
        {"recompute", {.text = &r->recompute}},
        {"optimizer", {.text = &r->optimizer}},
        {"gpus", {.number = &r->gpus}},
        {"microbatches", {.number = &r->microbatches}},
        {"microbatch_size", {.number = &r->microbatch_size}},
        {"seq_len", {.number = &r->seq_len}},
    };
    for (size_t i = 0; i < sizeof slots / sizeof slots[0]; i++) {
        if (strcmp(slots[i].name, name) == 0) {
            *slot_out = slots[i].slot;
            return true;
        }
    }
    return false;
}

static bool is_quantity(const char *name)
{
    for (const char *const *at = rp_store_quantities; *at != NULL; at++) {
        if (strcmp(*at, name) == 0) {
            return true;
        }
    }
    return false;
}

/* The published tables have names of their own: plain "RoundPipe" is asynchronous there. */
static void name_framework(rp_store_reference *r, const char *framework)
{
    r->schedule = rp_published_schedule(framework);
    if (strcmp(framework, "roundpipe") == 0) {
        r->optimizer = "async";
    } else if (strcmp(framework, "roundpipe-sync") == 0) {
        r->optimizer = "sync";
    }
}

static bool set_column(rp_store_reference *r, const char *name, const char *value)
{
    slot place = {0};
    uint64_t number = 0;
    if (!find_slot(r, name, &place)) {
        return false;
    }
    if (place.number != NULL) {
        bool valid = rp_parse_u64(value, 1, UINT32_MAX, &number);
        *place.number = (uint32_t)number;
        return valid;
    }
    if (strcmp(name, "kind") == 0 && strcmp(value, "published") != 0 &&
        strcmp(value, "measured") != 0) {
        return false;
    }
    *place.text = value;
    if (strcmp(name, "framework") == 0) {
        name_framework(r, value);
    }
    return value[0] != '\0';
}

/* Reads the values that are the same in every row. */
static rp_status read_cell(const char *cell, rp_arena *arena, rp_store_reference *r)
{
    const char **items = NULL;
    uint32_t count = 0;
    if (cell == NULL) {
        return RP_OK;
    }
    RP_TRY(rp_option_list("cell", cell, arena, &items, &count, NULL));
    for (uint32_t i = 0; i < count; i++) {
        const char *equals = strchr(items[i], '=');
        const char *name = items[i];
        if (equals != NULL) {
            RP_TRY(rp_arena_copy_text(arena, items[i], (size_t)(equals - items[i]), &name));
        }
        if (equals == NULL || !set_column(r, name, equals + 1)) {
            return rp_option_bad("cell", items[i],
                                 "NAME=VALUE with the names " NAMES
                                 "; kinds are published and measured, sizes whole numbers from 1",
                                 NULL);
        }
    }
    return RP_OK;
}

static rp_status check_columns(const rp_csv *csv, const rp_store_reference *constant)
{
    rp_store_reference any = *constant;
    uint32_t quantities = 0;
    slot place;
    for (uint32_t c = 0; c < csv->columns; c++) {
        const char *name = csv->header[c];
        quantities += is_quantity(name) ? 1 : 0;
        if (!is_quantity(name) && !find_slot(&any, name, &place)) {
            rp_log_error_at(csv->name, 1,
                            "column '%s' is neither a quantity nor says where a value belongs; "
                            "valid are " NAMES ", and the quantities of the table reference "
                            "(common/store/README.md), such as tokens_per_s",
                            name);
            return RP_INPUT;
        }
        if (!is_quantity(name) && place.text != NULL) {
            *place.text = name;
        }
    }
    if (any.schedule == NULL || any.model == NULL || quantities == 0) {
        rp_log_error_at(csv->name, 1, "no %s; valid is a column of that name%s",
                        any.schedule == NULL ? "schedule"
                        : any.model == NULL  ? "model"
                                             : "quantity, such as tokens_per_s",
                        quantities == 0 ? "" : ", or --cell");
        return RP_INPUT;
    }
    return RP_OK;
}

/* @return true if nothing is published in the cell */
static bool is_blank(const char *value)
{
    return value[0] == '\0' || strcmp(value, "N/A") == 0;
}

static rp_status read_value(const rp_csv *csv, uint32_t row, uint32_t column, double *value_out)
{
    *value_out = NAN;
    return strcmp(rp_csv_cell(csv, row, column), "OOM") == 0
               ? RP_OK
               : rp_csv_double(csv, row, column, -1e300, 1e300, value_out);
}

/* Adds a row to the store; without a store the row is only checked. */
static rp_status add_row(rp_store *store, const rp_csv *csv, uint32_t row,
                         const rp_store_reference *constant, uint64_t *added)
{
    rp_store_reference r = *constant;
    for (uint32_t c = 0; c < csv->columns; c++) {
        const char *value = rp_csv_cell(csv, row, c);
        if (!is_quantity(csv->header[c]) && value[0] != '\0' &&
            !set_column(&r, csv->header[c], value)) {
            char shown[RP_CSV_SHOW_SIZE];
            rp_log_error_at(csv->name, csv->lines[row],
                            "%s: '%s' is not valid; kinds are published and measured, sizes whole "
                            "numbers from 1",
                            csv->header[c], rp_csv_show(value, shown));
            return RP_INPUT;
        }
    }
    if (r.schedule == NULL || r.model == NULL) {
        rp_log_error_at(csv->name, csv->lines[row], "no schedule, or no model; both are needed");
        return RP_INPUT;
    }
    for (uint32_t c = 0; c < csv->columns; c++) {
        if (is_quantity(csv->header[c]) && !is_blank(rp_csv_cell(csv, row, c))) {
            r.quantity = csv->header[c];
            RP_TRY(read_value(csv, row, c, &r.value));
            RP_TRY(store != NULL ? rp_store_add_reference(store, &r) : RP_OK);
            *added += store != NULL ? 1 : 0;
        }
    }
    return RP_OK;
}

static rp_status add_rows(rp_store *store, const rp_csv *csv, const rp_store_reference *constant,
                          uint64_t *added)
{
    rp_status status = RP_OK;
    for (uint32_t row = 0; row < csv->rows && status == RP_OK; row++) {
        status = add_row(store, csv, row, constant, added);
    }
    return status;
}

/* Stores all rows of a table that has been checked, so that a bad table leaves no new store. */
static rp_status store_rows(const char *db, const rp_csv *csv, const rp_store_reference *constant,
                            uint64_t *added)
{
    rp_store *store = NULL;
    RP_TRY(rp_store_open(db, &store));
    rp_status status = rp_store_begin(store);
    if (status == RP_OK) {
        status = rp_store_end(store, add_rows(store, csv, constant, added));
    }
    rp_store_close(store);
    return status;
}

rp_status rpsweep_reference_import(const char *db, const char *path, const char *cell_or_null,
                                   rp_arena *arena, uint64_t *added_out)
{
    const char *slash = strrchr(path, '/');
    rp_store_reference constant = {.kind = "published", .source = slash != NULL ? slash + 1 : path};
    rp_csv csv = {0};
    *added_out = 0;
    RP_TRY(read_cell(cell_or_null, arena, &constant));
    RP_TRY(rp_csv_read_file(path, arena, &csv));
    RP_TRY(check_columns(&csv, &constant));
    RP_TRY(add_rows(NULL, &csv, &constant, added_out));
    return store_rows(db, &csv, &constant, added_out);
}
