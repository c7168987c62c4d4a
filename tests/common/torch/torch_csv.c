/* PyTorch schedule CSV. Expected rows follow from the schedules' definitions, and a reader of the
 * published grammar reads the cells; neither uses the exporter. */
#include "common/torch/torch_csv.h"
#include "common/base/log.h"
#include "common/schedule/build.h"
#include "tests/support/assertions.h"
#include "tests/support/run_tool.h"
#include "tests/support/synthetic.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

static rp_arena *arena;
static char messages[4096];
static char *written;

static void begin(void)
{
    cr_assert(eq(int, rp_arena_create(&arena), RP_OK));
    rp_log_capture_begin(messages, sizeof messages);
}

static void end(void)
{
    rp_log_capture_end();
    free(written);
    rp_test_end(arena);
}

TestSuite(torch_csv, .init = begin, .fini = end);

typedef struct sizes {
    uint32_t gpus, microbatches, stages_per_gpu, iterations;
    rp_recompute recompute;
} sizes;

static rp_program *build(const char *name, sizes s)
{
    const rp_schedule_type *schedule = rp_schedule_find(name);
    uint32_t layers = s.gpus * s.stages_per_gpu;
    rp_costs costs;
    rp_partition partition;
    rp_test_equal_costs(arena, layers, 1000, 2000, &costs);
    cr_assert(eq(int,
                 rp_partition_even(schedule, &costs, s.gpus,
                                   rp_schedule_stages(schedule, s.gpus) == 0 ? layers : 0, arena,
                                   &partition, NULL),
                 RP_OK));
    rp_schedule_config config = {.gpus = s.gpus,
                                 .microbatches = s.microbatches,
                                 .iterations = s.iterations,
                                 .round = s.gpus,
                                 .recompute = s.recompute,
                                 .layers = layers,
                                 .partition = &partition,
                                 .costs = &costs};
    rp_program *program = NULL;
    cr_assert(eq(int, rp_schedule_build(schedule, &config, &program, NULL), RP_OK), "%s: %s", name,
              messages);
    return program;
}

/* Leaves the program's CSV in `written`. */
static rp_status export(const rp_program *program)
{
    size_t length = 0;
    free(written);
    FILE *stream = open_memstream(&written, &length);
    rp_status status = rp_torch_csv_write(program, arena, stream);
    fclose(stream);
    return status;
}

Test(torch_csv, rows_of_the_definitions)
{
    static const struct {
        const char *schedule;
        sizes sizes;
        const char *rows;
    } cases[] = {
        {"gpipe",
         {2, 3, 1, 1, RP_RECOMPUTE_NONE},
         "0F0,0F1,0F2,0B0,0B1,0B2\n"
         "1F0,1F1,1F2,1B0,1B1,1B2\n"},
        {"1f1b",
         {3, 4, 1, 1, RP_RECOMPUTE_NONE},
         "0F0,0F1,0F2,0B0,0F3,0B1,0B2,0B3\n"
         "1F0,1F1,1B0,1F2,1B1,1F3,1B2,1B3\n"
         "2F0,2B0,2F1,2B1,2F2,2B2,2F3,2B3\n"},
        {"interleaved-1f1b",
         {2, 4, 2, 1, RP_RECOMPUTE_NONE},
         "0F0,0F1,2F0,2F1,0F2,2B0,0F3,2B1,2F2,0B0,2F3,0B1,2B2,2B3,0B2,0B3\n"
         "1F0,1F1,3F0,3B0,3F1,3B1,1F2,1B0,1F3,1B1,3F2,3B2,3F3,3B3,1B2,1B3\n"},
        /* A recompute belongs to its backward there. */
        {"gpipe", {1, 1, 1, 1, RP_RECOMPUTE_WAIT}, "0F0,0B0\n"},
        {"gpipe", {2, 1, 1, 1, RP_RECOMPUTE_EARLY}, "0F0,0B0\n1F0,1B0\n"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        rp_program *program = build(cases[i].schedule, cases[i].sizes);
        cr_expect(eq(int, export(program), RP_OK), "%s", messages);
        cr_expect(eq(str, written, (char *)cases[i].rows), "%s", cases[i].schedule);
        rp_program_destroy(program);
    }
}

/* Separate gradients of input and weights, and stages not numbered along the model. */
Test(torch_csv, all_compute_types)
{
    static const char text[] =
        "rp-program 2\nschedule given\ngpus 2\nmicrobatches 1\niterations 1\nlayers 2\n"
        "recompute none\nasynchronous no\nplacement resident\nversions one\ntraits\n"
        "stage 1..2 forward backward head\nstage 0..1 forward backward\n"
        "forward-chain 1 0\nbackward-chain 0 1\n"
        "queue compute 0\n1F0\n1B0 after 3\n"
        "queue compute 1\n0F0 after 0\n0I0\n0W0\n"
        "queue optimizer\nOPTIMIZER order 1 4\nend\n";
    rp_program *program = NULL;
    rp_status status = rp_program_read("given", text, strlen(text), &program);
    cr_assert(eq(int, status, RP_OK), "%s", messages);
    cr_expect(eq(int, export(program), RP_OK), "%s", messages);
    cr_expect(eq(str, written, "0F0,0B0\n1F0,1I0,1W0\n"));
    rp_program_destroy(program);
}

/* ---- read by the grammar: STAGE TYPE MB, digits, one of F I W B, digits; or pairs ------------ */

typedef struct cell {
    uint32_t stage, microbatch;
    char type;
    bool opens, closes; /* first and second of a pair, "(0F1;3B0)OVERLAP_F_B" */
} cell;

static const char *read_cell(const char *at, cell *out)
{
    static const char close[] = ")OVERLAP_F_B";
    char *after = NULL;
    out->opens = *at == '(';
    at += out->opens ? 1 : 0;
    cr_assert(at[0] >= '0' && at[0] <= '9', "%s", at);
    out->stage = (uint32_t)strtoul(at, &after, 10);
    out->type = *after++;
    cr_assert(out->type != '\0' && strchr("FIWB", out->type) != NULL, "%s", at);
    cr_assert(after[0] >= '0' && after[0] <= '9', "%s", at);
    out->microbatch = (uint32_t)strtoul(after, &after, 10);
    out->closes = strncmp(after, close, strlen(close)) == 0;
    cr_assert(eq(int, out->opens &&*after != ';', 0), "%s", after);
    return after + (out->closes ? strlen(close) : 0);
}

/* A row has its GPU's compute ops except recomputes, in order. */
static const char *check_row(const rp_program *program, uint32_t gpu, const char *at)
{
    for (uint32_t q = 0; q < program->queue_count; q++) {
        const rp_queue *queue = &program->queues[q];
        if (queue->kind != RP_QUEUE_COMPUTE || queue->gpu != gpu) {
            continue;
        }
        bool first = true;
        bool pair = false;
        for (uint32_t i = queue->op_begin; i < queue->op_end; i++) {
            const rp_op *op = &program->ops[i];
            if (op->kind == RP_OP_RECOMPUTE) {
                continue;
            }
            if (!first) {
                cr_assert(eq(chr, *at++, pair ? ';' : ','));
            }
            first = false;
            cell c;
            at = read_cell(at, &c);
            cr_assert(eq(int, c.closes, pair));
            pair = (op->flags & RP_OP_OVERLAP) != 0;
            cr_assert(eq(int, c.opens, pair));
            cr_assert(eq(u32, c.stage, op->stage));
            cr_assert(eq(u32, c.microbatch, op->microbatch));
            cr_assert(eq(chr, c.type, rp_op_kind_text((rp_op_kind)op->kind)[0]));
        }
    }
    cr_assert(eq(chr, *at, '\n'));
    return at + 1;
}

/* PyTorch's rules: a stage is on a single rank, s mod P or in a V; M forwards, then M backwards of
 * it, each whole or in two parts, I before W. */
static void check_rules(sizes s, bool v_shaped)
{
    enum { MAX_STAGES = 64, MAX_MICROBATCHES = 64 };
    static unsigned char seen[128][MAX_STAGES][MAX_MICROBATCHES]; /* by type */
    memset(seen, 0, sizeof seen);
    uint32_t rank = 0;
    for (const char *at = written; *at != '\0';) {
        cell c;
        at = read_cell(at, &c);
        uint32_t stage = c.stage;
        uint32_t m = c.microbatch;
        cr_assert(lt(u32, m, s.microbatches));
        cr_assert(lt(u32, stage, s.gpus * s.stages_per_gpu));
        bool up = v_shaped && stage >= s.gpus;
        cr_assert(eq(u32, up ? 2 * s.gpus - 1 - stage : stage % s.gpus, rank));
        cr_assert(eq(int, seen['F'][stage][m], c.type == 'F' ? 0 : 1));
        cr_assert(eq(int, seen['I'][stage][m], c.type == 'W' ? 1 : 0));
        seen[(unsigned char)c.type][stage][m]++;
        rank += *at == '\n' ? 1 : 0;
        at++;
    }
    cr_assert(eq(u32, rank, s.gpus));
    for (uint32_t stage = 0; stage < s.gpus * s.stages_per_gpu; stage++) {
        for (uint32_t m = 0; m < s.microbatches; m++) {
            cr_assert(eq(int, seen['F'][stage][m], 1));
            cr_assert(eq(int, seen['B'][stage][m] + seen['I'][stage][m], 1));
            cr_assert(eq(int, seen['I'][stage][m], seen['W'][stage][m]));
        }
    }
}

Test(torch_csv, cells_are_the_ops)
{
    static const uint32_t gpus[] = {1, 2, 3, 4, 8, 16};
    uint32_t checked = 0;
    for (uint32_t t = 0; t < rp_schedule_count; t++) {
        const rp_schedule_type *type = rp_schedules[t];
        if (type->separate_backward || rp_is_data_parallel(&type->traits)) {
            continue;
        }
        for (size_t i = 0; i < COUNT(gpus) * 3 * RP_RECOMPUTE_COUNT; i++) {
            sizes s = {.gpus = gpus[i % COUNT(gpus)],
                       .stages_per_gpu = type->many_stages || type->stages_per_gpu == 2 ? 2 : 1,
                       .iterations = 1,
                       .recompute = (rp_recompute)(i / COUNT(gpus) / 3)};
            s.microbatches = s.gpus * (uint32_t)(i / COUNT(gpus) % 3 + 1);
            s.microbatches += type->splits_backward ? s.gpus : 0; /* some need 2 P */
            rp_program *program = build(type->name, s);
            cr_assert(eq(int, export(program), RP_OK), "%s", messages);
            const char *at = written;
            for (uint32_t gpu = 0; gpu < s.gpus; gpu++) {
                at = check_row(program, gpu, at);
            }
            cr_assert(eq(chr, *at, '\0'));
            check_rules(s, type->stages_per_gpu == 2);
            rp_program_destroy(program);
            checked++;
        }
    }
    cr_expect(ge(u32, checked, 4 * COUNT(gpus) * 3 * RP_RECOMPUTE_COUNT));
}

/* Refused programs, which the format cannot hold, write nothing. */
Test(torch_csv, refusals)
{
    static const struct {
        const char *schedule;
        sizes sizes;
        const char *message;
    } cases[] = {
        {"1f1b", {2, 2, 1, 2, RP_RECOMPUTE_WAIT}, "valid is --iterations 1"},
        {"roundpipe", {4, 8, 2, 1, RP_RECOMPUTE_WAIT}, "stage 0 of roundpipe has no backward"},
        {"fsdp", {2, 2, 1, 1, RP_RECOMPUTE_WAIT}, "stage 0 of fsdp runs on GPU 0 and on GPU 1"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        rp_program *program = build(cases[i].schedule, cases[i].sizes);
        cr_expect(eq(int, export(program), RP_USAGE));
        cr_expect(eq(str, written, ""));
        cr_expect(strstr(messages, cases[i].message) != NULL, "%s", messages);
        rp_program_destroy(program);
    }
}

Test(torch_csv, full_disk_is_an_error)
{
    rp_program *program = build("gpipe", (sizes){2, 2, 1, 1, RP_RECOMPUTE_NONE});
    rp_output full;
    cr_assert(eq(int, rp_output_open("/dev/full", &full), RP_OK));
    cr_expect(eq(int, rp_torch_csv_write(program, arena, full.stream), RP_OK));
    cr_expect(eq(int, rp_output_commit(&full), RP_IO));
    cr_expect(strstr(messages, "/dev/full: cannot be written") != NULL, "%s", messages);
    rp_program_destroy(program);
}

/* ---- rpsim --torch-csv-out; bad command lines are in tests/bad/commands.tsv ------------------ */

TestSuite(torch_csv_cli, .init = rp_test_tool_begin, .fini = rp_test_tool_end);

Test(torch_csv_cli, writes_the_file)
{
    rp_test_rpsim_well("--schedule gpipe --gpus 2 --microbatches 1 --torch-csv-out @DIR@/s.csv");
    const char *path = NULL;
    cr_assert(eq(int,
                 rp_arena_print(rp_test_tool_arena(), &path, "%s/s.csv", rp_test_tool_folder()),
                 RP_OK));
    cr_expect(eq(str, (char *)rp_test_tool_read(path), "0F0,0B0\n1F0,1B0\n"));
}

/* By hand from the passes of formats.md 1. */
Test(torch_csv_cli, writes_lowered_files)
{
    static const struct {
        const char *options;
        const char *rows;
    } cases[] = {
        {"lowered", "0UNSHARD,0F0,0SEND_F0,0RECV_B0,0B0,0REDUCE_GRAD,0RESHARD\n"
                    "1UNSHARD,1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE_GRAD,1RESHARD\n"},
        {"lowered-waits --recv-placement just-in-time",
         "0UNSHARD,0F0,0SEND_F0,0RECV_B0,0B0,0WAIT_SEND_F0,0REDUCE_GRAD,0WAIT_REDUCE_GRAD,"
         "0RESHARD\n"
         "1UNSHARD,1RECV_F0,1F0,1B0,1SEND_B0,1REDUCE_GRAD,1WAIT_REDUCE_GRAD,1RESHARD,"
         "1WAIT_SEND_B0\n"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        const char *line = NULL;
        const char *path = NULL;
        rp_arena *texts = rp_test_tool_arena();
        cr_assert(eq(int,
                     rp_arena_print(texts, &line,
                                    "--schedule gpipe --gpus 2 --microbatches 1 --torch-csv-out "
                                    "@DIR@/l.csv --torch-csv-dialect %s",
                                    cases[i].options),
                     RP_OK));
        rp_test_rpsim_well(line);
        cr_assert(eq(int, rp_arena_print(texts, &path, "%s/l.csv", rp_test_tool_folder()), RP_OK));
        cr_expect(eq(str, (char *)rp_test_tool_read(path), (char *)cases[i].rows));
    }
}

Test(torch_csv_cli, one_file_holds_one_run)
{
    rp_test_outcome result = rp_test_rpsim("--schedule gpipe,1f1b --torch-csv-out @DIR@/two.csv");
    cr_expect(eq(int, result.status, 2));
    cr_expect(strstr(result.messages, "--torch-csv-out: one file cannot hold 2 runs") != NULL, "%s",
              result.messages);
}
