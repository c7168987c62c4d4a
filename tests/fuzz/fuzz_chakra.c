/* The reader of Chakra execution traces. The first byte gives the beginning of the second rank's
 * file, in 256ths of the rest; 0: there is a single rank. An accepted trace runs to its end:
 * without exact times a rank never does two GPU computations at once, and no node ends after the
 * makespan. */
#include "sim/interchange/chakra.h"
#include "tests/fuzz/fuzz.h"

static void check(const rpsim_chakra_trace *trace, const rpsim_chakra_rank *ranks,
                  int64_t makespan_ps)
{
    bool exact = false;
    uint32_t nodes = 0;
    int64_t latest_ps = 0;
    for (uint32_t i = 0; i < trace->node_count; i++) {
        exact = exact || trace->nodes[i].exact;
    }
    for (uint32_t r = 0; r < trace->rank_count; r++) {
        nodes += ranks[r].nodes;
        latest_ps = ranks[r].end_ps > latest_ps ? ranks[r].end_ps : latest_ps;
        fuzz_require(exact || ranks[r].compute_ps <= makespan_ps, "computations take turns");
        fuzz_require(exact || ranks[r].cpu_ps <= makespan_ps, "those of the CPU, too");
    }
    fuzz_require(nodes == trace->node_count, "every node runs once");
    fuzz_require(latest_ps == makespan_ps, "the last node ends the run");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const rpsim_chakra_rates rates = {.memory = 1e9, .peer = 1e9, .collective = 1e9};
    if (size == 0) {
        return 0;
    }
    fuzz_begin();
    rp_arena *arena = NULL;
    rpsim_chakra_trace trace = {0};
    rpsim_chakra_rank *ranks = NULL;
    int64_t makespan_ps = 0;
    fuzz_require(rp_arena_create(&arena) == RP_OK, "an arena");
    size_t rest = size - 1;
    size_t first = data[0] == 0 ? rest : rest * data[0] / 256;
    rp_status status = rpsim_chakra_add(&trace, FUZZ_FILE, data + 1, first);
    if (status == RP_OK && data[0] != 0) {
        status = rpsim_chakra_add(&trace, FUZZ_FILE, data + 1 + first, rest - first);
    }
    if (status == RP_OK) {
        status = rpsim_chakra_link(&trace, arena);
    }
    if (status == RP_OK) {
        status = rpsim_chakra_run(&trace, &rates, arena, &ranks, &makespan_ps);
    }
    if (status == RP_OK) {
        check(&trace, ranks, makespan_ps);
    } else {
        fuzz_require_refusal(status, ": ");
    }
    rpsim_chakra_fini(&trace);
    rp_arena_destroy(arena);
    return fuzz_end();
}
