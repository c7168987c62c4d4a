/* The readers of separated values. The first byte picks a table (of partitions, a timeline of the
 * small program below, or any table) and one of three separators; the rest is the file. */
#include "common/formats/csv.h"
#include "common/inputs/partition.h"
#include "common/timeline/timeline_csv.h"
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char program_text[] = "rp-program 2\nschedule gpipe\ngpus 2\nmicrobatches 1\n"
                                   "iterations 2\nlayers 2\nrecompute none\nasynchronous "
                                   "no\nplacement resident\nversions one\ntraits\n"
                                   "stage 0..1 forward backward\nstage 1..2 forward backward head\n"
                                   "forward-chain 0 1\nbackward-chain 1 0\nqueue compute 0\n0F0\n"
                                   "0B0 after 5\n0F0@1 order 8\n0B0@1 after 7\nqueue compute 1\n"
                                   "1F0 after 0\n1B0\n1F0@1 after 2 order 8\n1B0@1\n"
                                   "queue optimizer\nOPTIMIZER order 1 5\nend\n";

static void check_partition(const rp_partition *partition, rp_arena *arena)
{
    const char *first = NULL;
    const char *second = NULL;
    rp_partition again;
    fuzz_require(rp_partition_text(partition, arena, &first) == RP_OK, "a partition has a text");
    fuzz_require(rp_partition_parse(NULL, first, arena, &again, NULL) == RP_OK,
                 "the text can be read");
    fuzz_require(rp_partition_text(&again, arena, &second) == RP_OK, "the second has a text");
    fuzz_require(strcmp(first, second) == 0, "the partition survives");
}

static rp_status read_partition(const char *bytes, size_t length, rp_arena *arena)
{
    rp_partition partition;
    bool found = false;
    RP_TRY(rp_partition_find(FUZZ_FILE, bytes, length, "1f1b", "tiny", arena, &partition, &found));
    if (found) {
        check_partition(&partition, arena);
    }
    return RP_OK;
}

static char *write_timeline(const rp_timeline *timeline, size_t *length_out)
{
    char *bytes = NULL;
    FILE *stream = open_memstream(&bytes, length_out);
    fuzz_require(stream != NULL, "a stream in memory");
    rp_timeline_write_csv(timeline, stream);
    fclose(stream);
    return bytes;
}

static void check_timeline(const rp_timeline *timeline)
{
    rp_timeline *again = NULL;
    size_t length = 0;
    char *bytes = write_timeline(timeline, &length);
    rp_status status = rp_timeline_read_csv("written", bytes, length, timeline->program, &again);
    fuzz_require(status == RP_OK, "what was written can be read");
    fuzz_require(rp_timeline_hash(timeline) == rp_timeline_hash(again), "the timeline survives");
    rp_timeline_destroy(again);
    free(bytes);
}

static rp_status read_timeline(const char *bytes, size_t length)
{
    rp_program *program = NULL;
    rp_timeline *timeline = NULL;
    rp_status status = rp_program_read("program", program_text, sizeof program_text - 1, &program);
    fuzz_require(status == RP_OK, "the program is valid");
    status = rp_timeline_read_csv(FUZZ_FILE, bytes, length, program, &timeline);
    if (status == RP_OK) {
        check_timeline(timeline);
    }
    rp_timeline_destroy(timeline);
    rp_program_destroy(program);
    return status;
}

/* Reads every cell as a number, up to the first cell that is no number. */
static rp_status read_numbers(const rp_csv *table)
{
    for (uint32_t i = 0; i < table->rows; i++) {
        for (uint32_t k = 0; k < table->columns; k++) {
            uint64_t whole = 0;
            double real = 0;
            RP_TRY(rp_csv_u64(table, i, k, 0, UINT64_MAX, &whole));
            RP_TRY(rp_csv_double(table, i, k, 0, 2e19, &real));
        }
    }
    return RP_OK;
}

static rp_status read_any(char separator, const char *bytes, size_t length, rp_arena *arena)
{
    rp_csv table;
    RP_TRY(rp_csv_parse(FUZZ_FILE, bytes, length, separator, arena, &table));
    size_t content = 0;
    uint32_t line = 0;
    for (uint32_t i = 0; i < table.rows; i++) {
        fuzz_require(table.lines[i] > line, "rows begin in later lines");
        line = table.lines[i];
        for (uint32_t k = 0; k < table.columns; k++) {
            content += strlen(rp_csv_cell(&table, i, k));
        }
    }
    fuzz_require(content <= length, "no text is made up");
    uint32_t column = 0;
    RP_TRY(rp_csv_column(&table, table.header[table.columns - 1], &column));
    fuzz_require(column + 1 == table.columns, "names of columns are unique");
    return read_numbers(&table);
}

static rp_status read_table(uint8_t kind, const char *bytes, size_t length, rp_arena *arena)
{
    switch (kind % 3) {
    case 0:
        return read_partition(bytes, length, arena);
    case 1:
        return read_timeline(bytes, length);
    default:
        return read_any(",;\t"[kind / 3 % 3], bytes, length, arena);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    fuzz_begin();
    rp_arena *arena = NULL;
    fuzz_require(rp_arena_create(&arena) == RP_OK, "an arena");
    rp_status status = read_table(data[0], (const char *)data + 1, size - 1, arena);
    if (status != RP_OK) {
        fuzz_require_refusal(status, " rows; the program has ");
    }
    rp_arena_destroy(arena);
    return fuzz_end();
}
