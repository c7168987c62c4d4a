/* The reader of PyTorch's schedule CSVs. If the input begins with "|" and a digit, the rest is a
 * file with that number of forward stages and with separate backward stages. An accepted schedule
 * is lowered and written in every dialect, and read back with the same actions; a small schedule
 * also becomes a program that runs to its end. */
#include "common/torch/torch_csv.h"
#include "sim/run/case.h"
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_STAGES = 64, MOST_OPS = 4096, MOST_RANKS = 256 };

static bool same_action(const rp_torch_action *a, const rp_torch_action *b)
{
    return a->stage == b->stage && a->microbatch == b->microbatch && a->type == b->type &&
           a->overlaps_next == b->overlaps_next;
}

static void require_same(const rp_torch_csv *a, const rp_torch_csv *b)
{
    fuzz_require(a->rank_count == b->rank_count, "the ranks survive");
    fuzz_require(memcmp(a->row_begin, b->row_begin, (a->rank_count + 1) * sizeof *a->row_begin) ==
                     0,
                 "the rows survive");
    for (uint32_t i = 0; i < a->row_begin[a->rank_count]; i++) {
        fuzz_require(same_action(&a->actions[i], &b->actions[i]), "the actions survive");
    }
}

static void write_and_read(const rp_torch_csv *csv, rp_arena *arena)
{
    char *bytes = NULL;
    size_t length = 0;
    rp_torch_csv again;
    FILE *stream = open_memstream(&bytes, &length);
    fuzz_require(stream != NULL, "a stream in memory");
    rp_torch_csv_print(csv, stream);
    fclose(stream);
    fuzz_require(rp_torch_csv_parse("written", bytes, length, arena, &again) == RP_OK,
                 "what was written can be read");
    fuzz_require(rp_torch_csv_check(&again, arena) == RP_OK, "and breaks no rule");
    require_same(csv, &again);
    free(bytes);
}

static void lower(const rp_torch_csv *csv, bool waits, rp_arena *arena)
{
    for (int receives = 0; receives < 2 && !csv->lowered; receives++) {
        rp_torch_csv lowered;
        rp_torch_lowering how = {(rp_torch_receives)receives, waits};
        fuzz_require(rp_torch_csv_lower(csv, &how, arena, &lowered) == RP_OK,
                     "what runs to its end can be lowered");
        write_and_read(&lowered, arena);
    }
}

/* Each stage has one layer, and each layer takes a picosecond in each direction. */
static void run(const rp_torch_csv *csv, rp_recompute recompute, rp_arena *arena)
{
    int64_t forward_ps[MOST_STAGES];
    int64_t backward_ps[MOST_STAGES];
    int64_t input_ps[MOST_STAGES];
    uint32_t layers[MOST_STAGES];
    uint32_t backward_layers[MOST_STAGES];
    rpsim_result result;
    if (csv->stage_count > MOST_STAGES || csv->rank_count > MOST_RANKS ||
        csv->row_begin[csv->rank_count] > MOST_OPS) {
        return;
    }
    for (uint32_t s = 0; s < csv->stage_count; s++) {
        forward_ps[s] = 1;
        backward_ps[s] = 2;
        input_ps[s] = 1;
        layers[s] = 1;
    }
    rp_costs costs = {.name = "fuzz",
                      .layers = csv->stage_count,
                      .fwd_ps = forward_ps,
                      .bwd_ps = backward_ps,
                      .bwd_input_ps = input_ps,
                      .hop_ps = 1,
                      .microbatch_size = 1,
                      .seq_len = 1};
    rp_schedule_type schedule = rp_torch_csv_schedule;
    rp_partition partition = {.forward_count = csv->stage_count, .forward_layers = layers};
    if (csv->separate && csv->forward_count >= csv->stage_count) {
        return; /* it has no backward */
    }
    if (csv->separate) { /* all layers in the stage that begins a step, or in the head's */
        schedule.separate_backward = true;
        partition.forward_count = csv->forward_count;
        partition.backward_count = csv->stage_count - csv->forward_count;
        partition.backward_layers = backward_layers;
        memset(layers, 0, sizeof layers);
        memset(backward_layers, 0, sizeof backward_layers);
        bool apart = partition.backward_count > 1 && partition.forward_count > 0;
        layers[0] = apart ? csv->stage_count : 0;
        backward_layers[apart ? partition.backward_count - 1 : 0] = csv->stage_count;
    }
    rp_schedule_config config = {.gpus = csv->rank_count,
                                 .microbatches = csv->microbatch_count,
                                 .iterations = 1,
                                 .recompute = recompute,
                                 .layers = csv->stage_count,
                                 .partition = &partition,
                                 .costs = &costs,
                                 .orders = csv};
    fuzz_require(rpsim_case_run(&schedule, &config, &result, NULL) == RP_OK,
                 "a schedule that breaks no rule runs");
    rp_torch_csv exported;
    fuzz_require(rp_torch_csv_of_program(result.program, csv->separate, arena, &exported) == RP_OK,
                 "and is written again");
    if (!csv->lowered) {
        require_same(csv, &exported);
    }
    rpsim_result_fini(&result);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_begin();
    rp_arena *arena = NULL;
    rp_torch_csv csv;
    fuzz_require(rp_arena_create(&arena) == RP_OK, "an arena");
    bool separate = size > 2 && data[0] == '|';
    const char *text = (const char *)data + (separate ? 2 : 0);
    rp_status status = rp_torch_csv_parse(FUZZ_FILE, text, size - (separate ? 2 : 0), arena, &csv);
    csv.separate = separate;
    csv.forward_count = separate ? (data[1] + 2u) % 10u /* the digit */ : 0;
    status = status == RP_OK ? rp_torch_csv_check(&csv, arena) : status;
    if (status == RP_OK) {
        if (!separate) {
            write_and_read(&csv, arena);
            lower(&csv, size % 2 == 0, arena);
        }
        run(&csv, (rp_recompute)(size % RP_RECOMPUTE_COUNT), arena);
    } else {
        fuzz_require_refusal(status, NULL);
    }
    rp_arena_destroy(arena);
    return fuzz_end();
}
