/* Several servers, MPT models and FSDP's reductions. */
#include "common/base/text.h"
#include "common/inputs/load/models.h"
#include "common/inputs/model.h"
#include "tests/support/assertions.h"
#include "tests/support/run_tool.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

TestSuite(cli_nodes, .init = rp_test_tool_begin, .fini = rp_test_tool_end, .timeout = 120);

#define FSDP                                                                                       \
    "--schedule fsdp --model mpt-125m --seq-len 2048 --microbatch-size 4 --dtype bf16 "            \
    "--iterations 2 --format json "

static json_t *run(const char *options, const char *line)
{
    rp_test_outcome outcome = rp_test_rpsim_after(options, line);
    cr_assert(eq(int, outcome.status, 0), "%s: %s", line, outcome.messages);
    json_t *rows = json_loads(outcome.output, 0, NULL);
    cr_assert(ne(ptr, rows, NULL));
    return rows;
}

static double number(const char *options, const char *line, const char *key)
{
    json_t *rows = run(options, line);
    double value = rp_test_json_number(json_array_get(rows, 0), key);
    json_decref(rows);
    return value;
}

/* A network efficiency of 0.5 equals half the rate. */
Test(cli_nodes, the_network_reaches_a_share_of_its_rate)
{
    static const char *const two = FSDP "--platform h100x8 --nodes 2 --gpus 2 --intervals off";
    double whole = number(two, "--set platform.network_gb_per_s*1", "makespan_ms");
    double half = number(two, "--set platform.network_gb_per_s*0.5", "makespan_ms");
    cr_expect(ieee_ulp_eq(dbl, number(two, "--set platform.network_efficiency=0.5", "makespan_ms"),
                          half, 4));
    cr_expect(ieee_ulp_eq(dbl, number(two, "--set platform.network_efficiency=1", "makespan_ms"),
                          whole, 4));
    cr_expect(gt(dbl, half, whole));
}

/* V h + s h + L (12 h^2 + 13 h) + 2 h: MosaicML's published counts, at every sequence length. */
Test(cli_nodes, mpt_parameters)
{
    static const struct {
        const char *name;
        uint64_t h, heads, layers;
    } shapes[] = {{"mpt-125m", 768, 12, 12}, {"mpt-350m", 1024, 16, 24}, {"mpt-760m", 1536, 12, 24},
                  {"mpt-1b", 2048, 16, 24},  {"mpt-3b", 2560, 20, 32},   {"mpt-7b", 4096, 32, 32},
                  {"mpt-13b", 5120, 40, 40}, {"mpt-30b", 7168, 56, 48},  {"mpt-70b", 8192, 64, 80}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        rp_model model;
        cr_assert(eq(int, rp_model_load(shapes[i].name, rp_test_tool_arena(), &model), RP_OK));
        for (uint64_t s = 2048; s <= 65536; s *= 4) {
            uint64_t h = shapes[i].h;
            uint64_t count = 50368 * h + s * h + shapes[i].layers * (12 * h * h + 13 * h) + 2 * h;
            rp_model_set_seq_len(&model, (uint32_t)s);
            cr_expect(eq(u64, model.total_parameters, count), "%s, %" PRIu64, shapes[i].name, s);
            cr_expect(eq(u64, model.heads, shapes[i].heads));
        }
    }
}

Test(cli_nodes, gpus_count_per_server)
{
    static const struct {
        const char *line;
        double gpus, nodes;
    } cases[] = {{"--platform a100-80x8", 8, 1},
                 {"--platform a100-80x8 --nodes 1", 8, 1},
                 {"--platform a100-40x8 --nodes 4", 32, 4},
                 {"--platform a100-40x8 --nodes 4 --gpus 2", 8, 4},
                 {"--platform h100x8 --nodes 2", 16, 2},
                 {"--platform h100x64", 64, 8}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        cr_expect(eq(dbl, number(FSDP, cases[i].line, "gpus"), cases[i].gpus), "%s", cases[i].line);
        cr_expect(eq(dbl, number(FSDP, cases[i].line, "nodes"), cases[i].nodes), "%s",
                  cases[i].line);
    }
    /* The same GPUs in fewer servers are at least as fast. */
    double together = number(FSDP, "--platform a100-80x8 --nodes 2 --gpus 8", "tokens_per_s");
    double apart = number(FSDP, "--platform a100-80x8 --nodes 8 --gpus 2", "tokens_per_s");
    cr_expect(ge(dbl, together, apart));
}

Test(cli_nodes, refusals)
{
    static const char *const lines[][2] = {
        {"--schedule fsdp --platform h100x64 --nodes 2", "'nodes' of its own"},
        {"--schedule fsdp --platform rtx4090x8 --nodes 2", "no 'network_gb_per_s'"},
        {"--schedule fsdp --platform a100-80x8 --nodes 2 --gpus 9", "--gpus counts per server"},
        {"--schedule fsdp --platform a100-80x8 --nodes 1000", "at most 4096 GPUs"},
        {"--schedule 1f1b --nodes 2 --fidelity stage", "--nodes"},
        {"--schedule zero2 --reduce-each microbatch", "valid with fsdp"},
        {"--schedule 1f1b --reduce-dtype fp32", "valid with fsdp"},
        {"--schedule fsdp --reduce-dtype fp16", "fp32 and bf16"},
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        rp_test_outcome outcome = rp_test_rpsim(lines[i][0]);
        cr_expect(eq(int, outcome.status, 2), "%s", lines[i][0]);
        cr_expect(ne(ptr, strstr(outcome.messages, lines[i][1]), NULL), "%s: %s", lines[i][0],
                  outcome.messages);
    }
}

/* Bytes of a kind of collective in a program's text, summed over GPUs. */
static uint64_t bytes_of(const char *program, const char *kind)
{
    uint64_t sum = 0;
    for (const char *at = strstr(program, kind); at != NULL; at = strstr(at + 1, kind)) {
        const char *end = at + strlen(kind);
        end += strspn(end, "0123456789"); /* skips its microbatch */
        bool op = strncmp(end, " bytes ", strlen(" bytes ")) == 0;
        sum += op ? strtoull(end + strlen(" bytes "), NULL, 10) : 0;
    }
    return sum;
}

/* Each microbatch gathers the blocks twice and the root once. Everything is reduced once per
 * microbatch or step. Each GPU passes on (n - 1) / n of the bytes. The tied table counts at both
 * ends. */
Test(cli_nodes, bytes_of_collectives)
{
    static const struct {
        const char *line;
        uint64_t gathers, reductions, reduced; /* per rank and step; bytes of a reduced element */
    } cases[] = {{"--reduce-each microbatch --reduce-dtype fp32", 3, 3, 4},
                 {"--reduce-each microbatch --reduce-dtype bf16", 3, 3, 2},
                 {"--reduce-each microbatch", 3, 3, 2},
                 {"--reduce-each step --reduce-dtype fp32", 3, 1, 4},
                 {"", 3, 1, 2}};
    const uint64_t n = 8;
    const uint64_t h = 768;
    const uint64_t layer = 12 * h * h + 13 * h;
    const uint64_t root = 2 * 50368 * h + 2048 * h + 2 * h;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *line = NULL;
        cr_assert(eq(int,
                     rp_arena_print(rp_test_tool_arena(), &line,
                                    "--schedule fsdp --model mpt-125m --seq-len 2048 "
                                    "--microbatch-size 1 --microbatches 24 --dtype bf16 "
                                    "--iterations 1 --platform a100-80x8 --program-out @DIR@/p "
                                    "%s",
                                    cases[i].line),
                     RP_OK));
        size_t length = strlen(line); /* no blank at the end */
        rp_test_rpsim_well(
            rp_test_tool_expand(line, line[length - 1] == ' ' ? length - 1 : length));
        const char *path = NULL;
        cr_assert(eq(int,
                     rp_arena_print(rp_test_tool_arena(), &path, "%s/p", rp_test_tool_folder()),
                     RP_OK));
        const char *program = rp_test_tool_read(path);
        uint64_t gathered = cases[i].gathers * (2 * 12 * layer + root) * 2;
        uint64_t reduced = cases[i].reductions * (12 * layer + root) * cases[i].reduced;
        cr_expect(eq(u64, bytes_of(program, "ALL_GATHER"), gathered * (n - 1)), "%s",
                  cases[i].line);
        cr_expect(eq(u64, bytes_of(program, "REDUCE_SCATTER"), reduced * (n - 1)), "%s",
                  cases[i].line);
    }
}

/* Faster machines are faster, and more work takes longer: the same order as in hidden rows. */
Test(cli_nodes, times_are_plausible)
{
    static const char *const platforms[] = {"a100-40x8", "a100-80x8", "h100x8"};
    double before = 0;
    for (size_t i = 0; i < sizeof platforms / sizeof platforms[0]; i++) {
        char line[256];
        snprintf(line, sizeof line, "--reduce-each microbatch --microbatches 8 --platform %s",
                 platforms[i]);
        double rate = number(FSDP, line, "tokens_per_s");
        cr_expect(gt(dbl, rate, before), "%s", platforms[i]);
        before = rate;
    }
#define LONG "--schedule fsdp --dtype bf16 --iterations 2 --format json --platform a100-80x8 "
    /* The same tokens in longer sequences, recompute, more layers: each costs time. */
    const char *lines[] = {"--model mpt-1b --microbatch-size 8 --seq-len 2048 --recompute none",
                           "--model mpt-1b --microbatch-size 2 --seq-len 8192 --recompute none",
                           "--model mpt-1b --microbatch-size 2 --seq-len 8192 --recompute wait",
                           "--model mpt-3b --microbatch-size 2 --seq-len 8192 --recompute wait"};
    for (size_t i = 1; i < sizeof lines / sizeof lines[0]; i++) {
        cr_expect(gt(dbl, number(LONG, lines[i], "iteration_ms"),
                     number(LONG, lines[i - 1], "iteration_ms")),
                  "%s", lines[i]);
    }
}

/* Reducing in each microbatch needs no room for a whole model's gradients. */
Test(cli_nodes, memory_of_reductions)
{
    double peaks[2];
    for (int i = 0; i < 2; i++) {
        json_t *rows = run("--schedule fsdp --model mpt-1b --seq-len 2048 --microbatch-size 1 "
                           "--microbatches 24 --dtype bf16 --iterations 2 --format json "
                           "--platform a100-80x8",
                           i == 0 ? "--reduce-each step" : "--reduce-each microbatch");
        const json_t *of = json_object_get(json_array_get(rows, 0), "peak_gpu_bytes");
        peaks[i] = (double)json_integer_value(json_array_get(of, 0));
        json_decref(rows);
    }
    const double blocks = 24 * 12.0 * 2048 * 2048; /* parameters */
    cr_expect(gt(dbl, peaks[0] - peaks[1], blocks));
    cr_expect(lt(dbl, peaks[0] - peaks[1], 2 * blocks + 2 * 50368.0 * 2048 * 2));
}
