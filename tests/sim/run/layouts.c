/* Layouts: a GPU of a program stands for a tensor group times a data group. Programs with all GPUs,
 * made here, must take the same time, to the picosecond. */
#include "common/machine/platform_machine.h"
#include "common/program/assembly.h"
#include "sim/run/hardware_case.h"
#include "tests/support/assertions.h"
#include "tests/support/study_case.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

TestSuite(layouts, .init = rp_test_tool_begin, .fini = rp_test_tool_end, .timeout = 300);

/* ---- all GPUs -------------------------------------------------------------------------------- */

typedef struct expansion {
    const rp_program *program; /* each of whose GPUs stands for `copies` */
    uint32_t copies;
    uint32_t tensor;
    uint32_t experts;
    uint32_t sharing; /* GPUs that share each expert */
    rp_strides strides;
    rp_handle *handles; /* [op][copy]; equal for the host's ops */
} expansion;

static bool on_gpu(const rp_program *p, uint32_t op)
{
    return rp_queue_kind_on_gpu((rp_queue_kind)p->queues[rp_program_queue_of(p, op)].kind);
}

static rp_handle handle(const expansion *e, uint32_t op, uint32_t copy)
{
    return e->handles[(size_t)op * e->copies + copy];
}

static void wait(rp_assembly *a, rp_handle op, rp_handle target, bool control)
{
    cr_assert(eq(int, rp_assembly_wait(a, op, target, control), RP_OK));
}

/* A copy's rank among those of its stage, neighbours first. */
static uint32_t neighbour(const expansion *e, uint32_t copy)
{
    uint32_t rank = copy % e->tensor;
    bool copies_first = e->strides.data < e->strides.tensor;
    return copies_first ? rank * (e->copies / e->tensor) + copy / e->tensor : copy;
}

/* A collective begins when its whole group has come. */
static bool meets(const expansion *e, rp_queue_kind kind, uint32_t copy, uint32_t other)
{
    uint32_t share = e->sharing * e->experts;
    uint32_t at = e->sharing == 1 ? neighbour(e, copy) : copy;
    uint32_t there = e->sharing == 1 ? neighbour(e, other) : other;
    return kind == RP_QUEUE_TENSOR ? copy / e->tensor == other / e->tensor
           : kind == RP_QUEUE_DATA ? copy % e->tensor == other % e->tensor
           : kind == RP_QUEUE_EXPERT
               ? at % e->sharing == there % e->sharing && at / share == there / share
           : kind == RP_QUEUE_REPLICA ? at % share == there % share
                                      : copy == other;
}

static void add_waits(const expansion *e, rp_assembly *a, uint32_t op, uint32_t copy)
{
    const rp_program *p = e->program;
    rp_queue_kind kind = (rp_queue_kind)p->queues[rp_program_queue_of(p, op)].kind;
    for (uint32_t w = p->ops[op].wait_begin; w < p->ops[op + 1].wait_begin; w++) {
        uint32_t target = rp_wait_op(p->waits[w]);
        for (uint32_t other = 0; other < e->copies; other++) {
            if (!on_gpu(p, op) || meets(e, kind, copy, other)) {
                bool control = rp_wait_is_control(p->waits[w]) || other != copy;
                wait(a, handle(e, op, copy), handle(e, target, other), control);
            }
        }
    }
}

/* The GPU that does a program GPU's work for a copy. */
static uint32_t place_of(const expansion *e, uint32_t gpu, uint32_t copy)
{
    return gpu * e->strides.pipeline + copy / e->tensor * e->strides.data +
           copy % e->tensor * e->strides.tensor;
}

static rp_program *expand(expansion *e)
{
    const rp_program *p = e->program;
    rp_arena *arena = rp_test_tool_arena();
    rp_assembly *a = NULL;
    rp_queue *queues = NULL;
    rp_program *full = NULL;
    uint32_t count = 0;
    size_t handles = (size_t)p->op_count * e->copies;
    cr_assert(eq(int, rp_program_create(&full), RP_OK));
    cr_assert(eq(int, rp_arena_alloc(arena, handles, sizeof *e->handles, &e->handles), RP_OK));
    cr_assert(eq(int,
                 rp_arena_alloc(arena, (size_t)p->queue_count * e->copies, sizeof *queues, &queues),
                 RP_OK));
    for (uint32_t q = 0; q < p->queue_count; q++) {
        bool gpu = rp_queue_kind_on_gpu((rp_queue_kind)p->queues[q].kind);
        for (uint32_t copy = 0; copy < (gpu ? e->copies : 1); copy++) {
            queues[count] = p->queues[q];
            queues[count++].gpu = (uint16_t)(gpu ? place_of(e, p->queues[q].gpu, copy) : 0);
        }
    }
    cr_assert(eq(int, rp_assembly_create(arena, queues, count, &a, NULL), RP_OK));
    count = 0;
    for (uint32_t q = 0; q < p->queue_count; q++) {
        bool gpu = rp_queue_kind_on_gpu((rp_queue_kind)p->queues[q].kind);
        for (uint32_t copy = 0; copy < (gpu ? e->copies : 1); copy++) {
            for (uint32_t i = p->queues[q].op_begin; i < p->queues[q].op_end; i++) {
                rp_handle *at = &e->handles[(size_t)i * e->copies + copy];
                cr_assert(
                    eq(int, rp_assembly_add(a, count, &p->ops[i], p->op_bytes[i], at), RP_OK));
                for (uint32_t other = 1; !gpu && other < e->copies; other++) {
                    at[other] = *at;
                }
            }
            count++;
        }
    }
    for (uint32_t i = 0; i < p->op_count; i++) {
        for (uint32_t copy = 0; copy < (on_gpu(p, i) ? e->copies : 1); copy++) {
            add_waits(e, a, i, copy);
        }
    }
    rp_arena *own = full->arena;
    *full = *p;
    full->arena = own;
    full->buffer_count = 0;
    full->gpu_count = p->gpu_count * e->copies;
    cr_assert(eq(int, rp_assembly_finish(a, full), RP_OK));
    for (uint32_t i = 0; i < p->op_count; i++) {
        for (uint32_t copy = 0; copy < e->copies; copy++) {
            e->handles[(size_t)i * e->copies + copy] = rp_assembly_number(a, handle(e, i, copy));
        }
    }
    return full;
}

static void expect_readable(const rp_program *program)
{
    char *text = NULL;
    size_t length = 0;
    rp_program *again = NULL;
    FILE *stream = open_memstream(&text, &length);
    rp_program_write(program, stream);
    fclose(stream);
    cr_assert(eq(int, rp_program_read("written", text, length, &again), RP_OK), "%s",
              program->schedule);
    cr_expect(eq(u64, rp_program_hash(again), rp_program_hash(program)), "%s", program->schedule);
    rp_program_destroy(again);
    free(text);
}

static void expect_equal_times(const char *line)
{
    rpsim_study study;
    rp_test_study(line, &study);
    for (uint32_t k = 0; k < study.row_count; k++) {
        const rpsim_row *row = &study.rows[k];
        rp_test_run run = rp_test_run_row(row);
        const rp_program *program = run.program;
        rp_timeline *whole = NULL;
        expect_readable(program);
        const rp_layout *layout = &program->traits.layout;
        expansion e = {program,
                       rp_layout_gpus(layout),
                       rp_layout_tensor(layout),
                       rp_layout_expert(layout),
                       rp_layout_expert_tensor(layout),
                       rp_layout_strides(layout, program->gpu_count),
                       NULL};
        rp_program *full = expand(&e);
        rp_machine all = rp_machine_of(row->platform);
        all.tensor = run.machine.tensor;
        all.data = run.machine.data;
        all.expert = run.machine.expert;
        all.replica = run.machine.replica;
        cr_assert(eq(int, rpsim_hardware_run(full, &run.costs, &all, &whole, NULL), RP_OK));
        for (uint32_t i = 0; i < program->op_count; i++) {
            for (uint32_t copy = 0; copy < e.copies; copy++) {
                uint32_t op = (uint32_t)handle(&e, i, copy);
                cr_assert(eq(i64, whole->start_ps[op], run.timeline->start_ps[i]),
                          "%s: %s, op %u of %u", line, row->schedule_name, i, copy);
                cr_assert(eq(i64, whole->end_ps[op], run.timeline->end_ps[i]),
                          "%s: %s, op %u of %u", line, row->schedule_name, i, copy);
            }
        }
        rp_timeline_destroy(whole);
        rp_program_destroy(full);
        rp_test_run_fini(&run);
    }
    rpsim_study_fini(&study);
}

#define SCHEDULES "--schedule gpipe,1f1b,interleaved-1f1b,zb-h1,zbv,megatron-pp "
#define RUN SCHEDULES "--iterations 2 --microbatches 8 --model "

/* Copies in a server; tensor groups within and across servers; pipelines over servers; GPUs joined
 * all to all, in pairs by NVLink, or not at all. */
Test(layouts, one_of_all_that_do_the_same_takes_their_time)
{
    expect_equal_times(RUN "gpt:512x8x16 --platform a100-80x8 --gpus 8 --tensor-parallel 2 "
                           "--data-parallel 2");
    expect_equal_times(RUN "gpt:512x8x16 --platform a100-80x8 --nodes 2 --tensor-parallel 4");
    expect_equal_times(RUN "gpt:512x8x16 --platform a100-80x8 --nodes 4 --tensor-parallel 8 "
                           "--data-parallel 2");
    expect_equal_times(RUN "gpt:512x16x16 --platform a100-80x8 --nodes 4 --tensor-parallel 16");
    expect_equal_times(RUN "gpt:512x8x16 --platform a100-80x8 --nodes 2 --data-parallel 4");
    expect_equal_times(RUN "qwen3-1.7b --platform rtx4090x8 --tensor-parallel 2 "
                           "--data-parallel 2");
    expect_equal_times(RUN "qwen3-1.7b --platform rtx3090x8 --data-parallel 2");
    expect_equal_times(RUN "gpt:512x8x16 --platform a100-80x8 --nodes 2 --tensor-parallel 2 "
                           "--data-parallel 4 --zero 3 --bucket-mb 2 --sequence-parallel");
    expect_equal_times(RUN "tiny-moe --platform a100-80x8 --nodes 2 --data-parallel 4 "
                           "--expert-parallel 2 --zero 2");
    expect_equal_times(RUN "tiny-moe --platform a100-80x8 --nodes 2 --data-parallel 4 "
                           "--tensor-parallel 2 --sequence-parallel --expert-parallel 2 --zero 1");
    expect_equal_times(RUN "tiny-moe --platform a100-80x8 --nodes 4 --data-parallel 4 "
                           "--tensor-parallel 2 --sequence-parallel --expert-parallel 8 "
                           "--expert-tensor-parallel 1 --axes dtp");
    expect_equal_times(RUN "qwen3-1.7b --platform rtx3090x8 --data-parallel 2 --axes pdt");
    expect_equal_times(RUN "gpt:512x8x16 --platform a100-80x8 --nodes 2 --tensor-parallel 2 "
                           "--data-parallel 2 --axes ptd");
    if (getenv("RP_LONG") != NULL) {
        static const char *const axes[] = {"tdp", "tpd", "dtp", "dpt", "ptd", "pdt"};
        static const char *const sizes[] = {
            "qwen3-1.7b --platform rtx4090x8 --tensor-parallel 2 --data-parallel 2",
            "qwen3-1.7b --platform rtx3090x8 --tensor-parallel 2",
            "gpt:512x8x16 --platform a100-80x8 --nodes 4 --tensor-parallel 2 --data-parallel 4",
            "gpt:512x8x16 --platform a100-80x8 --nodes 2 --tensor-parallel 4 --data-parallel 2",
            "gpt:512x8x16 --platform a100-80x8 --nodes 4 --tensor-parallel 1 --data-parallel 2"};
        for (size_t i = 0; i < 6 * sizeof sizes / sizeof sizes[0]; i++) {
            char line[256];
            (void)snprintf(line, sizeof line, RUN "%s --axes %s", sizes[i / 6], axes[i % 6]);
            expect_equal_times(line);
        }
        for (size_t i = 0; i < 6; i++) {
            char line[320];
            (void)snprintf(line, sizeof line,
                           RUN "tiny-moe --platform a100-80x8 --nodes 4 --data-parallel 4 "
                               "--tensor-parallel 2 --sequence-parallel --zero %zu "
                               "--expert-parallel 4 --axes %s",
                           i % 4, axes[i]);
            expect_equal_times(line);
            if (strcmp(axes[i], "tpd") != 0 && strcmp(axes[i], "dpt") != 0) {
                (void)strcat(line, " --expert-tensor-parallel 1");
                expect_equal_times(line);
            }
        }
        expect_equal_times(RUN "tiny-moe --platform a100-80x8 --nodes 4 --data-parallel 8 "
                               "--expert-parallel 4 --zero 3 --bucket-mb 1");
        expect_equal_times(RUN "gpt:512x8x16 --platform a100-80x8 --nodes 2 --tensor-parallel 2 "
                               "--data-parallel 4 --zero 1");
        expect_equal_times(RUN "gpt:512x8x16 --platform a100-80x8 --nodes 2 --data-parallel 8 "
                               "--zero 2 --recompute none");
        expect_equal_times(RUN "gpt:512x8x16 --platform a100-80x8 --nodes 8 --tensor-parallel 4 "
                               "--data-parallel 4 --optimizer async");
        expect_equal_times(RUN "gpt:512x8x16 --platform h100x8 --tensor-parallel 2 --grain layer "
                               "--recompute wait");
    }
}

/* A server with four adapters, with or without rails, leaf switches of two servers and an
 * oversubscribed spine. */
static const char *network_platform(const char *rails)
{
    const char *from = rp_test_tool_read(RP_SOURCE_ROOT "/traces/platforms/a100-80x8.yaml");
    const char *path = rp_test_tool_expand("@DIR@/net.yaml", strlen("@DIR@/net.yaml"));
    FILE *file = fopen(path, "w");
    cr_assert(ne(ptr, file, NULL));
    fprintf(file, "name: net%sadapters: 4\nrails: %s\nleaf_nodes: 2\nspine_oversubscription: 8\n",
            strchr(from, '\n'), rails);
    fclose(file);
    return path;
}

static void expect_equal_on(const char *rails, const char *rest)
{
    char line[512];
    (void)snprintf(line, sizeof line, RUN "gpt:512x16x16 --platform %s %s", network_platform(rails),
                   rest);
    expect_equal_times(line);
}

/* A tensor group's two GPUs send a boundary each over a shared adapter: 92.5 / 4 GB/s, less than
 * their PCIe links (traces/platforms/a100-80x8-hdr.yaml). */
Test(layouts, neighbours_share_an_adapter)
{
    rp_test_run run = rp_test_run_line(
        "--schedule 1f1b --model gpt:1024x16x24 --platform a100-80x8-hdr --nodes 2 --iterations 1 "
        "--tensor-parallel 2 --microbatches 8 --microbatch-size 4 --seq-len 1024");
    const rp_program *p = run.program;
    double longest_ps = 0; /* the gradient uses NVLink */
    for (uint32_t i = 0; i < p->op_count; i++) {
        const rp_op *op = &p->ops[i];
        bool sent = op->kind == RP_OP_SEND && op->stage == 3 && op->microbatch == 0 &&
                    p->queues[rp_program_queue_of(p, i)].gpu == 3;
        double ps = (double)(run.timeline->end_ps[i] - run.timeline->start_ps[i]);
        longest_ps = sent && ps > longest_ps ? ps : longest_ps;
    }
    double Bps = 92.5e9 / 4 / 2;
    cr_expect(epsilon_eq(dbl, longest_ps, 1e12 * 2 * 4 * 1024 * 1024 / Bps, 4));
    rp_test_run_fini(&run);
}

/* Groups and pipelines that share adapters and leaf switches. */
Test(layouts, one_of_all_takes_their_time_over_any_network)
{
    expect_equal_on("true", "--nodes 8 --tensor-parallel 4 --data-parallel 4");
    expect_equal_on("false", "--nodes 8 --tensor-parallel 8 --data-parallel 2 --collectives tree");
    expect_equal_on("true", "--nodes 4 --data-parallel 16 --collectives hierarchical");
    if (getenv("RP_LONG") != NULL) {
        expect_equal_on("true", "--nodes 4 --tensor-parallel 2");
        expect_equal_on("false", "--nodes 8 --data-parallel 2");
        expect_equal_on("true", "--nodes 16 --tensor-parallel 16 --data-parallel 2 "
                                "--collectives hierarchical");
        expect_equal_on("false", "--nodes 16 --tensor-parallel 8 --data-parallel 8 "
                                 "--collectives tree");
    }
}

/* ---- a thousand GPUs ------------------------------------------------------------------------- */

#define THOUSAND                                                                                   \
    "--model llama3.1-70b --platform h100x1024 --tensor-parallel 8 --data-parallel 16 "            \
    "--microbatches 64 --microbatch-size 1 --seq-len 4096"

/* 1,024 H100 in 128 servers: an iteration in less than ten seconds and 4 GiB. RP_LONG includes the
 * program with all GPUs. */
Test(layouts, a_thousand_gpus)
{
    json_t *rows = rp_test_rpsim_rows(
        "--intervals off --timings --format json --iterations 1 --schedule 1f1b ", THOUSAND);
    const json_t *row = json_array_get(rows, 0);
    struct rusage usage;
    cr_expect(eq(dbl, rp_test_json_number(row, "gpus"), 1024));
    cr_expect(eq(dbl, rp_test_json_number(row, "nodes"), 128));
    cr_expect(eq(dbl, rp_test_json_number(row, "simulated_gpus"), 8));
    cr_expect(eq(dbl, rp_test_json_number(row, "global_batch"), 1024));
    cr_expect(lt(dbl, rp_test_json_number(row, "sim_wall_s"), 10));
    bool fits = json_is_true(json_object_get(row, "fits"));
    cr_expect(fits);
    json_decref(rows);
    cr_assert(eq(int, getrusage(RUSAGE_CHILDREN, &usage), 0));
    cr_expect(lt(i64, usage.ru_maxrss, 4 << 20)); /* KiB */
    if (getenv("RP_LONG") != NULL) {
        expect_equal_times("--schedule 1f1b --iterations 1 " THOUSAND);
    }
}

/* Each schedule gives its own reason. For schedules that compose it is heads that do not divide,
 * although there is no cost table of a rank. */
Test(layouts, all_schedules_say_what_they_cannot)
{
    rp_test_outcome outcome =
        rp_test_rpsim("--schedule all --model gpt:512x8x16 --platform a100-80x8 --gpus 6 "
                      "--tensor-parallel 3");
    cr_expect(eq(int, outcome.status, 2));
    static const char *const causes[][2] = {{"1f1b left out: ", "attention heads"},
                                            {"zbv left out: ", "attention heads"},
                                            {"fsdp left out: ", "--tensor-parallel"}};
    for (size_t i = 0; i < sizeof causes / sizeof causes[0]; i++) {
        const char *line = strstr(outcome.messages, causes[i][0]);
        cr_assert(line != NULL, "%s: %s", causes[i][0], outcome.messages);
        const char *end = strchr(line, '\n');
        const char *cause = strstr(line, causes[i][1]);
        cr_expect(cause != NULL && cause < end, "%s: %.200s", causes[i][0], line);
    }
}

/* ---- values from theory ---------------------------------------------------------------------- */

/* A single stage over all GPUs is tensor parallelism with microbatches written as a slice per GPU,
 * with and without latencies of collectives, in one server and in two. Only the step differs: every
 * GPU steps the norms, 7/8 of which megatron-tp has elsewhere, and pads its part of both tables
 * from 128256 / 8 rows to 126 x 128. */
Test(layouts, one_stage_is_tensor_parallelism)
{
    static const struct {
        const char *platform;
        double memory_gb_per_s;
    } rows[] = {{"rtx4090x8", 920}, {"h100x8", 3057.5}, {"h100x8 --nodes 2 --gpus 4", 3057.5}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char line[2][256];
        (void)snprintf(line[0], sizeof line[0],
                       "--schedule megatron-tp --model llama3.1-8b --microbatches 16 "
                       "--microbatch-size 1 --platform %s",
                       rows[i].platform);
        (void)snprintf(line[1], sizeof line[1],
                       "--schedule megatron-pp --model llama3.1-8b --tensor-parallel 8 "
                       "--microbatches 2 --microbatch-size 8 --grain layer --platform %s",
                       rows[i].platform);
        double norms = (2 * 32 + 1) * 4096.0; /* Llama 3.1 8B, config.json */
        double padding = 2 * (126 * 128 - 128256 / 8) * 4096.0;
        double update_ms = 28 * (norms * 7 / 8 + padding) / rows[i].memory_gb_per_s * 1e-6;
        double layout_ms = rp_test_row_number(line[1], "iteration_ms");
        double slices_ms = rp_test_row_number(line[0], "iteration_ms");
        cr_expect(epsilon_eq(dbl, layout_ms - slices_ms, update_ms, 1e-4), "%s", rows[i].platform);
    }
}

/* Tensor groups: two all-reduces of a boundary tensor per layer and direction, two more per
 * recompute, one each for embedding and head. Data groups: one of all gradients; both ends have the
 * table. Rings move 2 (n - 1) / n of the bytes; a group that gathers parts received by its GPUs
 * (megatron-pp) moves half. */
static void expect_volumes(const rpsim_row *row, uint32_t tensor, uint32_t data)
{
    const double h = 256;
    const double layers = 32;
    rp_program *program = NULL;
    cr_assert(eq(int, rpsim_hardware_lower(&row->run, row->platform, &program, NULL), RP_OK), "%s",
              row->schedule_name);
    cr_assert(eq(int, rp_program_check(program), RP_OK), "%s", row->schedule_name);
    double boundary = 2 * h * row->run.decided.seq_len;
    double reduces = (program->recompute == RP_RECOMPUTE_NONE ? 4 : 6) * layers + 2;
    bool parts = program->traits.scatter_gather && !program->traits.layout.sequence_parallel;
    double gathers = parts ? 2 * (program->stage_count - 1.0) : 0;
    double moved =
        (2 * reduces + gathers) * boundary * row->run.global_batch * (tensor - 1) / tensor;
    cr_expect(epsilon_eq(dbl, rp_test_queue_bytes(program, RP_QUEUE_TENSOR), moved, 1e-6 * moved),
              "%s", row->schedule_name);
    double rows = tensor == 1 ? 393 : tensor == 2 ? 197 : 99;  /* of 128, for 50257 / tensor */
    double cut = 12 * h * h / tensor + 7 * h / tensor + 6 * h; /* biases of o and down: whole */
    double parameters = layers * cut + 2 * h + 2 * 128 * rows * h + row->run.decided.seq_len * h;
    moved = 2 * parameters * 2 * (data - 1) / data;
    cr_expect(epsilon_eq(dbl, rp_test_queue_bytes(program, RP_QUEUE_DATA), moved, 1e-6 * moved),
              "%s", row->schedule_name);
    rp_program_destroy(program);
}

Test(layouts, volumes_of_every_pipeline)
{
    bool all = getenv("RP_LONG") != NULL;
    for (uint32_t i = 0; i < rp_schedule_count; i++) {
        bool resident = rp_schedules[i]->traits.placement == RP_PLACEMENT_RESIDENT;
        bool endless = rp_schedules[i]->traits.versions != RP_VERSIONS_ONE;
        for (uint32_t size = 1; resident && size < 9; size++) {
            uint32_t tensor = 1u << size % 3;
            uint32_t data = 1u << size / 3;
            rpsim_study study;
            char line[256];
            if (!all && size != 3 && size != 4) {
                continue;
            }
            (void)snprintf(line, sizeof line,
                           "--schedule %s --model gpt:256x4x32 --platform a100-80x8 --nodes 2 "
                           "--tensor-parallel %u --data-parallel %u --microbatches 32 "
                           "--microbatch-size 2 --seq-len 512 --iterations 1 --optimizer %s%s",
                           rp_schedules[i]->name, tensor, data, endless ? "async" : "sync",
                           tensor > 1 && (size + i) % 2 == 0 ? " --sequence-parallel" : "");
            rp_test_study(line, &study);
            expect_volumes(&study.rows[0], tensor, data);
            rpsim_study_fini(&study);
        }
    }
}

/* Two servers of eight GPUs, tensor groups of 8 and pipelines of two places. Groups of neighbours
 * stay in a server, 230 GB/s each. Groups of every second GPU span both; the first to reduce has
 * the full 185 GB/s (traces/platforms/a100-80x8.yaml). A ring enters and leaves a server once. */
Test(layouts, placement_decides_which_links_a_group_has)
{
    static const struct {
        const char *axes;
        double Bps;
        double near; /* hops in the server */
        double away; /* and between servers */
    } cases[] = {{"tdp", 230e9, 7, 0}, {"ptd", 185e9, 6, 1}};
    double boundary = 2.0 * 2 * 1024 * 512;
    for (int i = 0; i < 2; i++) {
        char line[320];
        (void)snprintf(line, sizeof line,
                       "--schedule 1f1b --model gpt:512x8x4 --platform a100-80x8 --nodes 2 "
                       "--tensor-parallel 8 --seq-len 1024 --microbatch-size 2 --microbatches 4 "
                       "--iterations 1 --axes %s",
                       cases[i].axes);
        rp_test_run run = rp_test_run_line(line);
        const rp_program *p = run.program;
        double took = 0;
        double calls = 0;
        for (uint32_t op = 0; op < p->op_count; op++) {
            if (p->ops[op].kind == RP_OP_ALL_REDUCE && calls == 0) {
                took = (double)(run.timeline->end_ps[op] - run.timeline->start_ps[op]);
                calls = rp_op_repeat(&p->ops[op]);
            }
        }
        double hops_us = 2 * (cases[i].near * 3.4 + cases[i].away * 14);
        double ps = 1e12 * boundary * 2 * 7 / 8 / cases[i].Bps + 1e6 * (8.4 + hops_us);
        cr_expect(eq(dbl, calls, 5), "%s", cases[i].axes); /* two layers and the embedding */
        cr_expect(epsilon_eq(dbl, took, calls * ps, 1e-6 * calls * ps), "%s", cases[i].axes);
        rp_test_run_fini(&run);
    }
}

/* With a single stage nothing overlaps the gradients' reduction: after 2 (D - 1) hops a ring of D
 * GPUs moves 2 (D - 1) / D of their bytes (traces/platforms/a100-80x8.yaml). */
Test(layouts, copies_add_their_reduction)
{
    const char *one = "--schedule 1f1b --model gpt:512x8x4 --platform a100-80x8 --seq-len 1024 "
                      "--microbatch-size 2 --gpus 1 --microbatches 4";
    const char *four = "--schedule 1f1b --model gpt:512x8x4 --platform a100-80x8 --seq-len 1024 "
                       "--microbatch-size 2 --gpus 4 --microbatches 4 --data-parallel 4";
    /* 4 layers of 12 h^2 + 13 h, the final norm, the table's 50304 rows at both ends, 1024
     * positions */
    double parameters = 4 * (12 * 512.0 * 512 + 13 * 512) + 2 * 512 + 50304 * 512.0 + 1024 * 512.0;
    double bytes = 2 * (parameters + 50304 * 512.0) * 2 * 3 / 4;
    double reduce_ms = 1e3 * bytes / 230e9 + 1e-3 * (8.4 + 2 * 3 * 3.4);
    double difference =
        rp_test_row_number(four, "makespan_ms") - rp_test_row_number(one, "makespan_ms");
    cr_expect(epsilon_eq(dbl, difference, reduce_ms, 1e-3 * reduce_ms));
    cr_expect(epsilon_eq(dbl, rp_test_row_number(four, "tokens_per_s"),
                         4 * rp_test_row_number(one, "tokens_per_s") *
                             rp_test_row_number(one, "iteration_ms") /
                             rp_test_row_number(four, "iteration_ms"),
                         1));
    cr_expect(eq(dbl, rp_test_row_number(four, "global_batch"),
                 4 * rp_test_row_number(one, "global_batch")));
    cr_expect(eq(dbl, rp_test_row_number(four, "gpus"), 4));
}

/* A written program names its layout, and takes the same time when read. */
Test(layouts, programs_keep_their_layout)
{
    const char *sizes =
        "--model gpt:512x8x16 --platform a100-80x8 --seq-len 512 --microbatch-size 2";
    const char *written = rp_test_tool_expand("@DIR@/p.txt", strlen("@DIR@/p.txt"));
    char line[512];
    (void)snprintf(line, sizeof line,
                   "--schedule 1f1b %s --data-parallel 2 --tensor-parallel 2 --program-out %s",
                   sizes, written);
    double whole = rp_test_row_number(line, "iteration_ms");
    double tokens = rp_test_row_number(line, "tokens_per_s");
    (void)snprintf(line, sizeof line, "--program-in %s %s", written, sizes);
    cr_expect(eq(dbl, rp_test_row_number(line, "iteration_ms"), whole));
    cr_expect(eq(dbl, rp_test_row_number(line, "tokens_per_s"), tokens));
    cr_expect(eq(dbl, rp_test_row_number(line, "gpus"), 8));
}

Test(layouts, what_cannot_be_laid_out_is_refused)
{
    static const struct {
        const char *line;
        const char *message;
    } cases[] = {
        {"--schedule roundpipe --data-parallel 2", "valid with it are as many copies as --nodes"},
        {"--schedule roundpipe --tensor-parallel 2", "keeps weights in host memory"},
        {"--schedule fsdp --tensor-parallel 2", "already spreads one model over all GPUs"},
        {"--schedule 1f1b --data-parallel 3", "do not divide 8 GPUs"},
        {"--schedule 1f1b --data-parallel 4096 --tensor-parallel 4096", "do not divide 8 GPUs"},
        {"--schedule 1f1b --model gpt:4x2x60000 --platform a100-80x8 --gpus 2 --tensor-parallel 2",
         "collectives; valid are stages"},
        {"--schedule 1f1b --gpus 6 --tensor-parallel 3", "attention heads of 16"},
        {"--schedule 1f1b --data-parallel 2 --global-batch 33", "valid are multiples of 2"},
        {"--schedule 1f1b --data-parallel 2 --fidelity stage",
         "valid only with --fidelity hardware"},
        {"--schedule 1f1b --data-parallel 2 --sequence-parallel",
         "valid with --tensor-parallel 2 and more"},
        {"--schedule 1f1b --tensor-parallel 4 --sequence-parallel --seq-len 2050",
         "valid are multiples of 4"},
        {"--schedule 1f1b --platform a100-80x8 --nodes 3 --data-parallel 2 --axes pdt",
         "of which one divides the other"},
        {"--schedule 1f1b --data-parallel 2 --axes dp", "valid values are tdp|tpd"},
        {"--schedule 1f1b --platform a100-80x8 --nodes 3 --data-parallel 6",
         "of which one divides the other"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rp_test_outcome outcome = rp_test_rpsim_after("", cases[i].line);
        cr_expect(eq(int, outcome.status, 2), "%s", cases[i].line);
        cr_expect(ne(ptr, strstr(outcome.messages, cases[i].message), NULL), "%s: %s",
                  cases[i].line, outcome.messages);
    }
}
