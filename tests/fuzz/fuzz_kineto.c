/* The reader of Kineto traces. An accepted trace becomes a cost table. If it has all stages, the
 * reader of cost tables reads back the table as it was written. */
#include "sim/interchange/kineto.h"
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void write_and_read(rp_costs *costs, const rpsim_ranges *ranges,
                           const rpsim_range_summary *summaries, uint32_t count, rp_arena *arena)
{
    char *bytes = NULL;
    size_t length = 0;
    rp_costs again;
    costs->name = "fuzz";
    costs->source = "fuzz";
    costs->microbatch_size = 1;
    costs->seq_len = 1;
    FILE *stream = open_memstream(&bytes, &length);
    fuzz_require(stream != NULL, "a stream in memory");
    rpsim_kineto_write(costs, ranges, summaries, count, stream);
    fclose(stream);
    fuzz_require(rp_costs_parse("written", bytes, length, arena, &again) == RP_OK,
                 "what was written can be read");
    free(bytes);
    size_t size = costs->layers * sizeof(int64_t);
    fuzz_require(again.layers == costs->layers && memcmp(again.fwd_ps, costs->fwd_ps, size) == 0 &&
                     memcmp(again.bwd_ps, costs->bwd_ps, size) == 0 &&
                     memcmp(again.bwd_input_ps, costs->bwd_input_ps, size) == 0 &&
                     again.overlap_saving == costs->overlap_saving,
                 "the times survive");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_begin();
    rp_arena *arena = NULL;
    rpsim_ranges ranges = {0};
    rpsim_range_summary *summaries = NULL;
    uint32_t count = 0;
    rp_costs costs;
    fuzz_require(rp_arena_create(&arena) == RP_OK, "an arena");
    rp_status status = rpsim_kineto_read(FUZZ_FILE, (const char *)data, size, &ranges);
    if (status == RP_OK) {
        fuzz_require(rpsim_ranges_summarise(&ranges, arena, &summaries, &count) == RP_OK,
                     "ranges can be summed up");
        status = rpsim_kineto_costs(&ranges, summaries, count, (rpsim_statistic)(size % 2), NULL,
                                    arena, &costs);
    }
    if (status == RP_OK) {
        write_and_read(&costs, &ranges, summaries, count, arena);
    } else {
        fuzz_require_refusal(status, ": ");
    }
    rpsim_ranges_fini(&ranges);
    rp_arena_destroy(arena);
    return fuzz_end();
}
