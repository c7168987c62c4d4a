#include "common/inputs/load/documents.h"

#include "common/base/log.h"
#include "common/cli/option_values.h"
#include "common/formats/csv.h"

#include <string.h>

#define MOST_DOCUMENTS 1e15

static rp_status allocate(uint32_t count, rp_arena *arena, rp_documents *documents,
                          double **tokens_out, double **number_out)
{
    RP_TRY(rp_arena_alloc(arena, count, sizeof(double), tokens_out));
    RP_TRY(rp_arena_alloc(arena, count, sizeof(double), number_out));
    documents->count = count;
    documents->tokens = *tokens_out;
    documents->number = *number_out;
    return RP_OK;
}

static rp_status read_histogram(const char *path, rp_arena *arena, rp_documents *documents)
{
    rp_csv table;
    uint32_t length = 0;
    uint32_t number = 0;
    double *tokens = NULL;
    double *numbers = NULL;
    double sum = 0;
    RP_TRY(rp_csv_read_file(path, arena, &table));
    RP_TRY(rp_csv_column(&table, "tokens", &length));
    RP_TRY(rp_csv_column(&table, "documents", &number));
    RP_TRY(allocate(table.rows, arena, documents, &tokens, &numbers));
    for (uint32_t i = 0; i < table.rows; i++) {
        RP_TRY(rp_csv_double(&table, i, length, 1, RP_MAX_DOCUMENT, &tokens[i]));
        RP_TRY(rp_csv_double(&table, i, number, 0, MOST_DOCUMENTS, &numbers[i]));
        sum += numbers[i];
    }
    if (!(sum > 0)) {
        rp_log_error_at(path, 0, "no documents; valid are rows with a length and a number above 0");
        return RP_INPUT;
    }
    return RP_OK;
}

/* @return whether the text was meant as a number. */
static bool is_number(const char *text)
{
    return text[strspn(text, "-.0123456789kM")] == '\0';
}

rp_status rp_documents_load(const char *text, double padding, rp_arena *arena,
                            const rp_documents **documents_out, rp_reason *reason)
{
    uint64_t each = 0;
    rp_documents *documents = NULL;
    RP_TRY(rp_arena_alloc(arena, 1, sizeof *documents, &documents));
    documents->padding = padding;
    if (text == NULL) {
        *documents_out = documents;
        return RP_OK;
    }
    if (rp_option_count(text, 1024, 1, (uint64_t)RP_MAX_DOCUMENT, &each)) {
        double *tokens = NULL;
        double *number = NULL;
        RP_TRY(allocate(1, arena, documents, &tokens, &number));
        tokens[0] = (double)each;
        number[0] = 1;
    } else if (is_number(text)) {
        return rp_refuse(reason, RP_USAGE,
                         "{documents}: '%s' is not valid; valid are whole numbers of tokens from 1 "
                         "to %.0f, and CSV files",
                         text, RP_MAX_DOCUMENT);
    } else {
        RP_TRY(read_histogram(text, arena, documents));
    }
    *documents_out = documents;
    return RP_OK;
}
