/* The reader of program texts. An accepted program survives a round trip, and runs without a
 * deadlock. */
#include "common/base/hash.h"
#include "common/inputs/costs.h"
#include "sim/engine/hardware_engine.h"
#include "sim/run/case.h"
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct text {
    char *bytes;
    size_t length;
} text;

static text write_text(const rp_program *program)
{
    text result = {NULL, 0};
    FILE *stream = open_memstream(&result.bytes, &result.length);
    fuzz_require(stream != NULL, "a stream in memory");
    rp_program_write(program, stream);
    fclose(stream);
    return result;
}

static void check_round_trip(const rp_program *program)
{
    text first = write_text(program);
    rp_program *again = NULL;
    rp_status status = rp_program_read("written", first.bytes, first.length, &again);
    fuzz_require(status == RP_OK, "what was written can be read");
    fuzz_require(rp_program_hash(program) == rp_program_hash(again), "the hash survives");
    text second = write_text(again);
    bool same =
        first.length == second.length && memcmp(first.bytes, second.bytes, first.length) == 0;
    fuzz_require(same, "the bytes survive");
    rp_program_destroy(again);
    free(first.bytes);
    free(second.bytes);
}

/* A time of any magnitude that a cost table may have, sometimes zero. */
static int64_t next_time(uint64_t *state, int64_t limit)
{
    *state = rp_hash_add(*state, 1);
    bool zero = (*state & 7) == 0;
    return zero ? 0 : (int64_t)((*state >> 8) % (uint64_t)limit);
}

static void fill_costs(const rp_program *program, uint64_t state, rp_arena *arena, rp_costs *costs)
{
    uint32_t layers = program->layer_count;
    int64_t limit = RP_MAX_MICROBATCH_PS / (4 * ((int64_t)layers + 1)) >> state % 40;
    limit = limit > 0 ? limit : 1;
    *costs = (rp_costs){.name = "fuzz", .source = "", .layers = layers};
    costs->microbatch_size = costs->seq_len = 1;
    fuzz_require(rp_arena_alloc(arena, layers, sizeof(int64_t), &costs->fwd_ps) == RP_OK, "memory");
    fuzz_require(rp_arena_alloc(arena, layers, sizeof(int64_t), &costs->bwd_ps) == RP_OK, "memory");
    fuzz_require(rp_arena_alloc(arena, layers, sizeof(int64_t), &costs->bwd_input_ps) == RP_OK,
                 "memory");
    for (uint32_t i = 0; i < layers; i++) {
        costs->fwd_ps[i] = next_time(&state, limit);
        costs->bwd_ps[i] = next_time(&state, limit);
        costs->bwd_input_ps[i] = next_time(&state, costs->bwd_ps[i] + 1);
    }
    costs->head_fwd_ps = next_time(&state, limit);
    costs->head_bwd_ps = next_time(&state, limit);
    costs->hop_ps = next_time(&state, limit);
}

static void check_result(const rpsim_result *result)
{
    const rp_metrics *m = &result->metrics;
    fuzz_require(m->makespan_ps >= 0 && m->busy_ps >= 0, "times are not negative");
    fuzz_require(m->fill_ps >= 0 && m->switch_ps >= 0 && m->drain_ps >= 0 && m->intra_ps >= 0,
                 "parts of the bubble are not negative");
    fuzz_require(m->fill_ps + m->switch_ps + m->drain_ps + m->intra_ps == m->bubble_ps,
                 "the parts are the bubble");
    fuzz_require(m->comm_exposed_ps >= 0 && m->comm_exposed_ps <= m->comm_total_ps,
                 "exposed hops are some of all");
    fuzz_require(m->lower_bound_ps <= m->makespan_ps, "the bound is below the makespan");
}

/* Compute times as at stage fidelity, on a machine that allows every transfer. */
static void fill_hardware(const rp_program *program, const rp_costs *table, rp_arena *arena,
                          rpsim_compute_costs *costs, rp_machine *machine)
{
    rp_stage_times times;
    fuzz_require(rp_stage_times_compute(program, table, arena, &times, NULL) == RP_OK, "times");
    *costs = (rpsim_compute_costs){
        .ps = times.ps, .stage_count = program->stage_count, .memory_ps_per_byte = 1};
    fuzz_require(rp_arena_alloc(arena, program->microbatch_count, sizeof(uint32_t),
                                &costs->class_of) == RP_OK,
                 "memory");
    costs->layer_count = program->layer_count + 1;
    size_t entries = (size_t)costs->layer_count * RP_OP_KIND_COUNT;
    fuzz_require(rp_arena_alloc(arena, entries, sizeof(int64_t), &costs->layer_ps) == RP_OK,
                 "memory");
    for (size_t i = 0; i < entries; i++) {
        costs->layer_ps[i] = 1000 * (int64_t)i;
    }
    *machine = (rp_machine){.upload_Bps = 20e9,
                            .download_Bps = 21e9,
                            .host_Bps = 90e9,
                            .dram_Bps = 100e9,
                            .collective_Bps = 5e9,
                            .gpus_per_switch = 2,
                            .switch_Bps = 25e9,
                            .gpus_per_node = 4,
                            .sockets = 2,
                            .intersocket_Bps = 15e9,
                            .network_Bps = 10e9,
                            .peer_Bps = 30e9,
                            .peer_pcie = true};
}

/* Lowered programs also run at hardware fidelity, or are refused because their times are too long
 * for the clock. */
static void check_hardware(const rp_program *program, const rp_costs *table, rp_arena *arena)
{
    rpsim_compute_costs costs;
    rp_machine machine;
    rp_timeline *timeline = NULL;
    fill_hardware(program, table, arena, &costs, &machine);
    rp_status status = rpsim_hardware_run(program, &costs, &machine, &timeline, NULL);
    fuzz_require(status == RP_OK || status == RP_INPUT, "a lowered program runs on hardware");
    for (uint32_t i = 0; status == RP_OK && i < program->op_count; i++) {
        fuzz_require(timeline->start_ps[i] >= 0 && timeline->start_ps[i] <= timeline->end_ps[i],
                     "ops end after they start");
    }
    rp_timeline_destroy(timeline);
}

/* Runs a program and destroys it. */
static void check_run(rp_program *program)
{
    rp_arena *arena = NULL;
    rp_costs costs;
    rpsim_result result;
    fuzz_require(rp_arena_create(&arena) == RP_OK, "an arena");
    fill_costs(program, rp_program_hash(program), arena, &costs);
    if (program->op_bytes != NULL) {
        check_hardware(program, &costs, arena);
    }
    rp_status status = rpsim_program_run(program, &costs, &result, NULL);
    if (status == RP_OK) {
        check_result(&result);
        rpsim_result_fini(&result);
    } else {
        fuzz_require(status == RP_INPUT, "a valid program runs, or has no costs");
        fuzz_require(fuzz_log()[0] != '\0', "a refusal says why");
        rp_program_destroy(program);
    }
    rp_arena_destroy(arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_begin();
    rp_program *program = NULL;
    rp_status status = rp_program_read(FUZZ_FILE, (const char *)data, size, &program);
    if (status == RP_OK) {
        fuzz_require(fuzz_log()[0] == '\0', "success is silent");
        check_round_trip(program);
        check_run(program);
    } else if (status == RP_INVALID_PROGRAM) {
        const char *newline = strchr(fuzz_log(), '\n');
        fuzz_require(strncmp(fuzz_log(), "program: ", 9) == 0, "a rule is named");
        fuzz_require(newline != NULL && newline[1] == '\0', "one rule is named");
    } else {
        fuzz_require_refusal(status, NULL);
    }
    return fuzz_end();
}
