#include "common/inputs/stacks/ledger.h"

#include "common/base/log.h"
#include "common/formats/csv.h"
#include "common/inputs/data.h"

#include <math.h>
#include <string.h>

#define LEDGER "ledger.csv"

/* Columns that are read. */
enum { STACK, CLASS, ERROR, ROLE, COLUMNS };

static const char *const headers[COLUMNS] = {"stack", "class", "error_pct", "role"};

static bool is_one_of(const char *text, const char *const *words)
{
    while (*words != NULL && strcmp(text, *words) != 0) {
        words++;
    }
    return *words != NULL;
}

/* Decides whether the row's error counts: rows that have set a constant agree with their runs, and
 * rows without a prediction have no error. */
static rp_status check_role(const rp_csv *csv, uint32_t row, const uint32_t *columns,
                            bool *counts_out)
{
    static const char *const roles[] = {"test", "listed", "sets", NULL};
    const char *role = rp_csv_cell(csv, row, columns[ROLE]);
    if (!is_one_of(role, roles)) {
        char shown[RP_CSV_SHOW_SIZE];
        rp_log_error_at(csv->name, csv->lines[row],
                        "row %u, column %u: role '%s'; valid values are test, listed and sets",
                        row + 2, columns[ROLE] + 1, rp_csv_show(role, shown));
        return RP_INPUT;
    }
    *counts_out = strcmp(role, "sets") != 0 && rp_csv_cell(csv, row, columns[ERROR])[0] != '\0';
    return RP_OK;
}

rp_status rp_ledger_read(rp_arena *arena, rp_ledger *ledger_out)
{
    rp_csv csv;
    uint32_t columns[COLUMNS];
    *ledger_out = (rp_ledger){0};
    RP_TRY(rp_data_read_csv(LEDGER, arena, &csv));
    for (int i = 0; i < COLUMNS; i++) {
        RP_TRY(rp_csv_column(&csv, headers[i], &columns[i]));
    }
    RP_TRY(rp_arena_alloc(arena, csv.rows, sizeof *ledger_out->rows, &ledger_out->rows));
    for (uint32_t i = 0; i < csv.rows; i++) {
        rp_ledger_row row = {.stack = rp_csv_cell(&csv, i, columns[STACK]),
                             .of_class = rp_csv_cell(&csv, i, columns[CLASS])};
        bool counts = false;
        RP_TRY(check_role(&csv, i, columns, &counts));
        if (counts) {
            RP_TRY(rp_csv_double(&csv, i, columns[ERROR], -100, 1e6, &row.error_pct));
            ledger_out->rows[ledger_out->count++] = row;
        }
    }
    return RP_OK;
}

rp_status rp_ledger_class(const char *architecture, bool offloaded, bool adapters, rp_arena *arena,
                          const char **class_out)
{
    *class_out = NULL;
    return architecture == NULL ? RP_OK
                                : rp_arena_print(arena, class_out, "%s/%s/%s", architecture,
                                                 offloaded ? "offloaded" : "resident",
                                                 adapters ? "adapters" : "full");
}

rp_ledger_error rp_ledger_error_of(const rp_ledger *ledger, const char *stack, const char *of_class)
{
    rp_ledger_error all = {0};
    for (uint32_t i = 0; of_class != NULL && i < ledger->count; i++) {
        const rp_ledger_row *row = &ledger->rows[i];
        if (strcmp(row->stack, stack) == 0 && strcmp(row->of_class, of_class) == 0) {
            double error_pct = fabs(row->error_pct);
            all = rp_ledger_error_both(all, (rp_ledger_error){1, error_pct, error_pct});
        }
    }
    return all;
}

rp_ledger_error rp_ledger_error_both(rp_ledger_error a, rp_ledger_error b)
{
    uint32_t rows = a.rows + b.rows;
    double sum_pct = a.rows * a.mean_pct + b.rows * b.mean_pct;
    return (rp_ledger_error){.rows = rows,
                             .mean_pct = rows != 0 ? sum_pct / rows : 0,
                             .worst_pct = fmax(a.worst_pct, b.worst_pct)};
}
