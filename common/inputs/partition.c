/* The notation of partitions, and the partitions that the paper lists. */
#include "common/inputs/partition.h"
#include "common/base/log.h"
#include "common/base/reason.h"
#include "common/formats/csv.h"
#include "common/inputs/data.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define WANTED                                                                                     \
    "valid values are lists of layer counts like 3,3,4 or, with separate backward stages, "        \
    "7,7|0,7,7"

/* @param place "FILE:LINE" of the partition; NULL: it is the setting's. */
RP_PRINTF(3, 4)
static rp_status refuse(rp_reason *reason, const char *place, const char *format, ...)
{
    char cause[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(cause, sizeof cause, format, arguments);
    va_end(arguments);
    return place == NULL ? rp_refuse(reason, RP_INPUT, "{partition}: %s; " WANTED, cause)
                         : rp_refuse_at(reason, RP_INPUT, place, 0, "%s; " WANTED, cause);
}

static uint32_t count_items(const char *text, size_t length)
{
    uint32_t count = 1;
    for (size_t i = 0; i < length && count <= RP_MAX_STAGES; i++) {
        count += text[i] == ',';
    }
    return count;
}

static rp_status read_item(const char *place, const char *text, size_t length, uint32_t number,
                           uint32_t *layers_out, rp_reason *reason)
{
    char item[RP_CSV_SHOW_SIZE];
    char shown[RP_CSV_SHOW_SIZE];
    uint64_t layers;
    if (length == 0) {
        return refuse(reason, place, "stage %" PRIu32 " is empty", number);
    }
    size_t kept = length < sizeof item ? length : sizeof item - 1;
    memcpy(item, text, kept);
    item[kept] = '\0';
    if (kept == length && rp_parse_u64(item, 0, RP_MAX_LAYERS, &layers)) {
        *layers_out = (uint32_t)layers;
        return RP_OK;
    }
    return refuse(reason, place, "stage %" PRIu32 " is '%s', not a number from 0 to %u", number,
                  rp_csv_show(item, shown), RP_MAX_LAYERS);
}

/* Reads the stages of one direction: `length` bytes of `text` without '|'. */
static rp_status read_stages(const char *place, const char *text, size_t length, rp_arena *arena,
                             uint32_t *count_out, uint32_t **layers_out, rp_reason *reason)
{
    uint64_t total = 0;
    uint32_t count = count_items(text, length);
    if (count > RP_MAX_STAGES) {
        return refuse(reason, place, "more than %u stages", RP_MAX_STAGES);
    }
    RP_TRY(rp_arena_alloc(arena, count, sizeof **layers_out, layers_out));
    const char *end = text + length;
    for (uint32_t i = 0; i < count; i++) {
        const char *comma = memchr(text, ',', (size_t)(end - text));
        const char *item_end = comma ? comma : end;
        RP_TRY(read_item(place, text, (size_t)(item_end - text), i + 1, &(*layers_out)[i], reason));
        total += (*layers_out)[i];
        text = comma ? comma + 1 : end;
    }
    if (total > RP_MAX_LAYERS) {
        return refuse(reason, place, "%" PRIu64 " layers in all, more than %u", total,
                      RP_MAX_LAYERS);
    }
    *count_out = count;
    return RP_OK;
}

rp_status rp_partition_parse(const char *place, const char *text, rp_arena *arena,
                             rp_partition *partition_out, rp_reason *reason)
{
    *partition_out = (rp_partition){0};
    const char *bar = strchr(text, '|');
    size_t length = bar ? (size_t)(bar - text) : strlen(text);
    if (bar && strchr(bar + 1, '|')) {
        return refuse(reason, place, "more than one '|'");
    }
    bool fused = bar == text; /* "|28": the head's backward stage runs all forwards itself */
    if (!fused) {
        RP_TRY(read_stages(place, text, length, arena, &partition_out->forward_count,
                           &partition_out->forward_layers, reason));
    }
    if (!bar) {
        return RP_OK;
    }
    return read_stages(place, bar + 1, strlen(bar + 1), arena, &partition_out->backward_count,
                       &partition_out->backward_layers, reason);
}

static bool are_equal(const uint32_t *a, uint32_t a_count, const uint32_t *b, uint32_t b_count)
{
    return a_count == b_count && (a_count == 0 || memcmp(a, b, a_count * sizeof *a) == 0);
}

bool rp_partition_equal(const rp_partition *a, const rp_partition *b)
{
    return are_equal(a->forward_layers, a->forward_count, b->forward_layers, b->forward_count) &&
           are_equal(a->backward_layers, a->backward_count, b->backward_layers, b->backward_count);
}

static rp_status print_stages(rp_text *text, const uint32_t *layers, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        RP_TRY(rp_text_print(text, "%s%" PRIu32, i ? "," : "", layers[i]));
    }
    return RP_OK;
}

static rp_status print_partition(rp_text *text, const rp_partition *partition)
{
    RP_TRY(print_stages(text, partition->forward_layers, partition->forward_count));
    if (partition->backward_count == 0) {
        return RP_OK;
    }
    RP_TRY(rp_text_append(text, "|", 1));
    return print_stages(text, partition->backward_layers, partition->backward_count);
}

rp_status rp_partition_text(const rp_partition *partition, rp_arena *arena, const char **text_out)
{
    rp_text text = {0};
    rp_status status = print_partition(&text, partition);
    if (status == RP_OK) {
        status = rp_arena_copy_text(arena, text.bytes, text.length, text_out);
    }
    rp_text_fini(&text);
    return status;
}

/* Reads a row, and keeps its partition if its schedule and model are those asked for. */
static rp_status read_row(const rp_csv *table, uint32_t row, const uint32_t *columns,
                          const char *schedule, const char *model, rp_arena *arena,
                          rp_partition *partition_out, bool *found)
{
    const char *place;
    rp_partition partition;
    RP_TRY(rp_arena_print(arena, &place, "%s:%" PRIu32, table->name, table->lines[row]));
    RP_TRY(rp_partition_parse(place, rp_csv_cell(table, row, columns[2]), arena, &partition, NULL));
    if (strcmp(rp_csv_cell(table, row, columns[0]), schedule) != 0 ||
        strcmp(rp_csv_cell(table, row, columns[1]), model) != 0) {
        return RP_OK;
    }
    if (*found) {
        rp_log_error_at(place, 0,
                        "a second partition of %s for %s; valid values are rows with "
                        "unique schedule and model",
                        schedule, model);
        return RP_INPUT;
    }
    *found = true;
    *partition_out = partition;
    return RP_OK;
}

rp_status rp_partition_find(const char *name, const char *bytes, size_t length,
                            const char *schedule, const char *model, rp_arena *arena,
                            rp_partition *partition_out, bool *found_out)
{
    static const char *const headers[] = {"schedule", "model", "layers_per_stage"};
    rp_csv table;
    uint32_t columns[3];
    *found_out = false;
    RP_TRY(rp_csv_parse(name, bytes, length, ';', arena, &table));
    for (size_t i = 0; i < 3; i++) {
        RP_TRY(rp_csv_column(&table, headers[i], &columns[i]));
    }
    for (uint32_t row = 0; row < table.rows; row++) {
        RP_TRY(read_row(&table, row, columns, schedule, model, arena, partition_out, found_out));
    }
    return RP_OK;
}

rp_status rp_partition_published(const char *schedule, const char *model, rp_arena *arena,
                                 rp_partition *partition_out, bool *found_out)
{
    const char *path;
    *found_out = false;
    bool listed = false;
    RP_TRY(rp_data_file("partitions/paper.csv", arena, &path, &listed));
    if (!listed) {
        return RP_OK; /* a user's own data need not have a table of partitions */
    }
    rp_text text = {0};
    rp_status status = rp_text_read_file(path, RP_CSV_MAX_BYTES, &text);
    if (status == RP_OK) {
        status = rp_partition_find(path, text.bytes, text.length, schedule, model, arena,
                                   partition_out, found_out);
    }
    rp_text_fini(&text);
    return status;
}
