/* Copies of RoundPipe on separate servers, whose hosts sum gradients over the network. */
#include "common/machine/machine.h"
#include "sim/run/hardware_case.h"
#include "tests/support/assertions.h"
#include "tests/support/study_case.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(servers, .init = rp_test_tool_begin, .fini = rp_test_tool_end, .timeout = 120);

#define RUN "--schedule roundpipe --model qwen3-1.7b --platform rtx4090x8 "
#define SERVERS(n) RUN "--nodes " #n " --data-parallel " #n " --set platform.network_gb_per_s="

/* Qwen3-1.7B, config.json: the table of 151936 rows is tied to the head. */
#define HIDDEN 2048.0
static const double parameters =
    151936 * HIDDEN + HIDDEN +
    28 * (2 * HIDDEN * 16 * 128 + 2 * HIDDEN * 8 * 128 + 3 * HIDDEN * 6144 + 2 * HIDDEN + 2 * 128);

static rp_program *lowered(const char *line)
{
    rpsim_study study;
    rp_program *program = NULL;
    rp_test_study(line, &study);
    const rpsim_row *row = &study.rows[0];
    cr_assert(eq(int, rpsim_hardware_lower(&row->run, row->platform, &program, NULL), RP_OK));
    cr_assert(eq(int, rp_program_check(program), RP_OK));
    rpsim_study_fini(&study);
    return program;
}

static double network_bytes(const rp_program *p)
{
    double sum = 0;
    for (uint32_t i = 0; i < p->op_count; i++) {
        sum += p->ops[i].kind == RP_OP_NETWORK_REDUCE ? (double)p->op_bytes[i] : 0;
    }
    return sum;
}

/* A ring of N hosts moves 2 (N - 1) / N of the gradients' bytes through each port per step, 4 bytes
 * per trained parameter. */
Test(servers, bytes_on_the_network)
{
    static const struct {
        const char *line;
        double servers, iterations;
    } cases[] = {
        {SERVERS(1) "12.5 --iterations 2", 1, 2},
        {SERVERS(2) "12.5 --iterations 2 --optimizer async", 2, 2},
        {SERVERS(4) "12.5 --iterations 3 --accumulate 2", 4, 3},
        {SERVERS(8) "12.5 --iterations 1 --dtype fp32", 8, 1},
        {SERVERS(8) "3.125 --iterations 1 --grain layer --recompute early", 8, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rp_program *program = lowered(cases[i].line);
        double moved = 2 * (cases[i].servers - 1) / cases[i].servers * 4 * parameters;
        cr_expect(
            epsilon_eq(dbl, network_bytes(program), cases[i].iterations * moved, 1e-6 * moved),
            "%s", cases[i].line);
        rp_program_destroy(program);
    }
    /* LoRA of rank 8 on a layer's seven matrices only */
    rp_program *program = lowered(SERVERS(2) "12.5 --iterations 1 --lora-rank 8");
    double adapters = 28 * 8 * (4 * HIDDEN + 2 * (HIDDEN + 1024) + 3 * (HIDDEN + 6144));
    cr_expect(epsilon_eq(dbl, network_bytes(program), 4 * adapters, 1e-6 * adapters));
    rp_program_destroy(program);
}

static bool is_network(const rp_program *p, uint32_t op)
{
    return p->ops[op].kind == RP_OP_NETWORK_REDUCE;
}

/* Staleness and memory equal a single server's: only the sums between a layer's collection and the
 * optimizer are added to its ops, waits and buffers. */
static void expect_one_server(const char *many, const char *one)
{
    rp_program *copies = lowered(many);
    rp_program *alone = lowered(one);
    uint32_t k = 0;
    uint32_t sums = 0;
    for (uint32_t i = 0; i < copies->op_count; i++) {
        if (is_network(copies, i)) { /* after the layer's collection */
            uint32_t begin = copies->ops[i].wait_begin;
            const rp_op *collect = &copies->ops[rp_wait_op(copies->waits[begin])];
            cr_assert(eq(u32, begin + 1, copies->ops[i + 1].wait_begin));
            cr_assert(eq(int, collect->kind, RP_OP_COLLECT));
            cr_assert(eq(u32, collect->microbatch, copies->ops[i].microbatch));
            cr_assert(eq(u32, collect->iteration, copies->ops[i].iteration));
            continue;
        }
        const rp_op *a = &copies->ops[i];
        const rp_op *b = &alone->ops[k];
        uint32_t w = b->wait_begin;
        cr_assert(a->kind == b->kind && a->stage == b->stage && a->iteration == b->iteration &&
                  a->microbatch == b->microbatch);
        for (uint32_t v = a->wait_begin; v < a[1].wait_begin; v++) {
            uint32_t target = rp_wait_op(copies->waits[v]);
            if (is_network(copies, target)) {
                cr_assert(eq(int, a->kind, RP_OP_OPTIMIZER));
                cr_assert(eq(u32, copies->ops[target].iteration, a->iteration));
                sums++;
                continue;
            }
            cr_assert(lt(u32, w, b[1].wait_begin));
            cr_assert(eq(u32, copies->waits[v], alone->waits[w]));
            w++;
        }
        cr_assert(eq(u32, w, b[1].wait_begin));
        k++;
    }
    cr_assert(eq(u32, k, alone->op_count));
    cr_assert(eq(u32, sums, 30 * copies->iteration_count));
    cr_assert(eq(u32, copies->buffer_count, alone->buffer_count));
    rp_program_destroy(copies);
    rp_program_destroy(alone);
}

Test(servers, ops_are_those_of_one_server)
{
    expect_one_server(SERVERS(4) "12.5 --iterations 3 --optimizer async",
                      RUN "--iterations 3 --optimizer async");
    expect_one_server(SERVERS(4) "12.5 --iterations 2", RUN "--iterations 2");
    cr_expect(eq(dbl, rp_test_row_number(SERVERS(8) "3.125 --iterations 2", "peak_host_bytes"),
                 rp_test_row_number(RUN "--iterations 2", "peak_host_bytes")));
    cr_expect(eq(dbl, rp_test_row_number(SERVERS(8) "3.125 --iterations 2", "host_memory_bytes"),
                 rp_test_row_number(RUN "--iterations 2", "host_memory_bytes")));
}

/* A slow network is always busy: an asynchronous step takes its bytes and 2 (N - 1) hops for each
 * of the 30 sums. A fast network is hidden. */
Test(servers, steps_take_as_long_as_the_network)
{
    double bytes = 2 * 3.0 / 4 * 4 * parameters;
    double slow =
        rp_test_row_number(SERVERS(4) "0.05 --optimizer async --iterations 16", "iteration_ms");
    cr_expect(epsilon_eq(dbl, slow, 1e3 * bytes / 0.05e9, 5e-3 * slow));
    double hops = rp_test_row_number(SERVERS(4) "0.05 --optimizer async --iterations 16 --set "
                                                "platform.network_hop_us=1000",
                                     "iteration_ms");
    cr_expect(epsilon_eq(dbl, hops - slow, 30 * 6 * 1.0, 6.1)); /* the first: with a collection */
    cr_expect(epsilon_eq(dbl,
                         rp_test_row_number(SERVERS(4) "100 --optimizer async", "tokens_per_s"),
                         4 * rp_test_row_number(RUN "--optimizer async", "tokens_per_s"), 1));
    /* A single synchronous iteration shows all of the delay. */
    double half = rp_test_row_number(SERVERS(4) "0.05 --iterations 1", "makespan_ms");
    double whole = rp_test_row_number(SERVERS(4) "0.1 --iterations 1", "makespan_ms");
    cr_expect(epsilon_eq(dbl, half - whole, 1e3 * (bytes / 0.05e9 - bytes / 0.1e9), 1e-4 * half));
}

Test(servers, programs_keep_their_servers)
{
    char line[256];
    const char *written = rp_test_tool_expand("@DIR@/p.txt", strlen("@DIR@/p.txt"));
    (void)snprintf(line, sizeof line, "%s --program-out %s", SERVERS(2) "3.125 --iterations 2",
                   written);
    double whole = rp_test_row_number(line, "tokens_per_s");
    (void)snprintf(line, sizeof line,
                   "--program-in %s --model qwen3-1.7b --platform rtx4090x8 "
                   "--nodes 2 --set platform.network_gb_per_s=3.125",
                   written);
    cr_expect(gt(dbl, whole, 0));
    cr_expect(eq(dbl, rp_test_row_number(line, "gpus"), 16));
}
