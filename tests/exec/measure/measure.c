/* --record and --predict. The cost table measured from a simulated timeline is the table of the
 * simulation, and rpexec predicts the same times as rpsim does from the same files. */
#include "exec/measure/measure.h"
#include "common/base/log.h"
#include "common/inputs/load/platforms.h"
#include "common/inputs/platform.h"
#include "common/timeline/timeline_csv.h"
#include "exec/run/work.h"
#include "sim/engine/hardware_engine.h"
#include "tests/support/assertions.h"
#include "tests/support/exec_case.h"
#include "tests/support/make_program.h"
#include "tests/support/run_tool.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(exec_measure, .init = rp_test_tool_begin, .fini = rp_test_tool_end, .timeout = 300);

#define LAYERS 6u
#define LINK_BPS 3e9
#define HOST_BPS 7e9

/* FLOP costs times a factor, as if the executor had taken these times. The head's cost is all in
 * forwards; if `late`, it is all in backwards, as in schedules that have separate jobs for forward
 * and backward of a stage. */
static rp_costs scaled_costs(const rp_costs *flops, double factor, bool late, rp_arena *arena)
{
    rp_costs c = *flops;
    (void)rp_arena_alloc(arena, LAYERS, sizeof(int64_t), &c.fwd_ps);
    (void)rp_arena_alloc(arena, LAYERS, sizeof(int64_t), &c.bwd_ps);
    (void)rp_arena_alloc(arena, LAYERS, sizeof(int64_t), &c.bwd_input_ps);
    for (uint32_t i = 0; i < LAYERS; i++) {
        c.fwd_ps[i] = (int64_t)(factor * (double)flops->fwd_ps[i]);
        c.bwd_ps[i] = (int64_t)(factor * (double)flops->bwd_ps[i]);
        c.bwd_input_ps[i] = (int64_t)(factor * (double)flops->bwd_input_ps[i]);
    }
    int64_t head = (int64_t)(factor * (double)(flops->head_fwd_ps + flops->head_bwd_ps));
    c.head_fwd_ps = late ? 0 : head;
    c.head_bwd_ps = late ? head : 0;
    return c;
}

static void simulate(const rp_program *program, const rp_costs *table, const rp_model *config,
                     rp_arena *arena, rp_timeline **timeline_out)
{
    const rpsim_gpu_rates rates = {
        .attention_fwd_flops = 1e30, .attention_bwd_flops = 1e30, .memory_bytes_per_s = 1e30};
    const rp_machine machine = {
        .upload_Bps = LINK_BPS, .download_Bps = LINK_BPS, .host_Bps = HOST_BPS};
    rpsim_compute_costs costs;
    cr_assert(eq(int,
                 rpsim_compute_costs_create(program, table, config, &rates, table->seq_len, arena,
                                            &costs, NULL),
                 RP_OK));
    cr_assert(eq(int, rpsim_hardware_run(program, &costs, &machine, timeline_out, NULL), RP_OK));
}

/* Makes the first iteration and microbatch 1 of every compute op take ten times as long; neither
 * must count. */
static void disturb(const rp_program *p, rp_timeline *t)
{
    for (uint32_t i = 0; i < p->op_count; i++) {
        bool compute = rp_op_kind_class((rp_op_kind)p->ops[i].kind) == RP_CLASS_COMPUTE;
        if (p->ops[i].iteration == 0 || (compute && p->ops[i].microbatch == 1)) {
            t->end_ps[i] += 9 * (t->end_ps[i] - t->start_ps[i]);
        }
    }
}

static void expect_near(int64_t measured, int64_t right, const char *what)
{
    cr_expect(le(dbl, fabs((double)measured / (double)right - 1), 1e-6), "%s: %lld, not %lld", what,
              (long long)measured, (long long)right);
}

static void check_schedule(const char *name, bool layer_grain, bool late)
{
    rp_arena *arena = rp_test_tool_arena();
    rp_model config = rp_test_decoder(LAYERS, false, false);
    rpexec_model model;
    rpexec_plan plan;
    rpexec_rates rates;
    rp_costs flops, measured;
    rp_program *program = NULL;
    rp_timeline *timeline = NULL;
    rp_resolved work = rp_test_work(name, 2, 4, 3);
    work.decided.microbatch_size = 2;
    work.recompute = RP_RECOMPUTE_WAIT;
    work.decided.layer_grain = layer_grain;
    work.decided.piece_bytes = UINT64_C(1) << 30;
    cr_assert(eq(int, rpexec_model_create(&config, 4, RP_DTYPE_F32, arena, &model), RP_OK));
    cr_assert(eq(int, rpexec_work_costs(&model, 2, arena, &flops), RP_OK));
    cr_assert(eq(int, rpexec_work_program(&work, &model, &flops, &program, NULL), RP_OK));
    cr_assert(eq(int,
                 rpexec_plan_create(program, &model, &(rpexec_plan_limits){0}, arena, &plan, NULL),
                 RP_OK));
    rp_costs right = scaled_costs(&flops, 1234.5, late, arena);
    simulate(program, &right, &config, arena, &timeline);
    disturb(program, timeline);
    cr_assert(eq(int, rpexec_measure(&plan, timeline, &flops, 1, arena, &measured, &rates), RP_OK));
    for (uint32_t i = 0; i < LAYERS; i++) {
        expect_near(measured.fwd_ps[i], right.fwd_ps[i], "fwd");
        expect_near(measured.bwd_ps[i], right.bwd_ps[i], "bwd");
        expect_near(measured.bwd_input_ps[i], right.bwd_input_ps[i], "bwd_input");
    }
    expect_near(measured.head_fwd_ps + measured.head_bwd_ps, right.head_fwd_ps + right.head_bwd_ps,
                "head");
    cr_expect(eq(i64, late ? measured.head_fwd_ps : measured.head_bwd_ps, 0));
    cr_expect(eq(u32, measured.microbatch_size, 2));
    cr_expect(eq(u32, measured.seq_len, 4));
    /* A picosecond of rounding in about a microsecond. */
    cr_expect(le(dbl, fabs(rates.upload_Bps / LINK_BPS - 1), 1e-4), "%s %g", name,
              rates.upload_Bps);
    cr_expect(le(dbl, fabs(rates.download_Bps / LINK_BPS - 1), 1e-4), "%s %g", name,
              rates.download_Bps);
    cr_expect(rates.host_Bps == 0 || fabs(rates.host_Bps / HOST_BPS - 1) < 1e-4, "%s %g", name,
              rates.host_Bps);
    char message[256];
    rp_log_capture_begin(message, sizeof message);
    rp_status none = rpexec_measure(&plan, timeline, &flops, 3, arena, &measured, &rates);
    rp_log_capture_end();
    cr_expect(eq(int, none, RP_USAGE));
    rp_timeline_destroy(timeline);
    rp_program_destroy(program);
}

Test(exec_measure, simulated_costs_come_back)
{
    check_schedule("roundpipe", false, false);
    check_schedule("roundpipe", true, false);
    check_schedule("1f1b", false, false);
    check_schedule("zbv", false, false);
    check_schedule("interleaved-1f1b", true, false);
    check_schedule("mobius", false, true);
}

/* ---- executed FLOP --------------------------------------------------------------------------- */

typedef struct flop_case {
    const char *schedule;
    const char *partition; /* NULL: even partition */
    rp_recompute recompute;
    bool layer_grain;
    uint32_t gpus;
    uint32_t again; /* layers whose forward is computed twice */
    uint32_t experts;
    uint32_t rank;
} flop_case;

/* FLOP per parameter of a matrix and token: six, and two more in layers that are computed again.
 * Attention adds 2 products in the forward and 5 in the backward of the masked square of queries
 * and keys. With adapters only their matrices have gradients. */
static double closed_form(const flop_case *c, const rp_model *m, uint32_t sequences,
                          uint32_t seq_len)
{
    double tokens = (double)sequences * seq_len;
    double d = m->hidden;
    double q = (double)m->heads * m->head_dim;
    double kv = (double)m->kv_heads * m->head_dim;
    double router = c->experts > 1 ? d * c->experts : 0;
    double mlp = 3 * d * m->intermediate * m->active_experts;
    double matrices = 2 * d * q + 2 * d * kv + mlp + router;
    double adapters =
        c->rank * (2 * (d + q) + 2 * (d + kv) + 3 * (d + m->intermediate) * m->active_experts);
    double trained = c->rank != 0 ? adapters : matrices;
    double head = d * m->vocab;
    double square = 2 * tokens * seq_len * q / 2; /* FLOP of a single product, causal */
    double forward = 2 * tokens * (matrices + adapters) + 2 * square;
    double backward = 2 * tokens * (matrices + adapters + trained) + 5 * square;
    return LAYERS * (forward + backward) + c->again * forward +
           (c->rank != 0 ? 4 : 6) * tokens * head;
}

static void check_flop(const flop_case *c)
{
    enum { SEQ_LEN = 8, SIZE = 3, MICROBATCHES = 4, STEPS = 2 };
    rp_arena *arena = rp_test_tool_arena();
    rp_model config = rp_test_decoder(LAYERS, false, false);
    config.experts = c->experts;
    config.active_experts = c->experts > 1 ? 2 : 1;
    rp_model_set_lora_rank(&config, c->rank);
    rpexec_model model;
    rpexec_plan plan;
    rp_costs costs;
    rp_partition partition;
    rp_program *program = NULL;
    double flop = 0;
    rp_resolved work = {.schedule = rp_schedule_find(c->schedule),
                        .gpus = c->gpus,
                        .decided.accumulate = 1,
                        .decided.microbatches = MICROBATCHES,
                        .decided.microbatch_size = SIZE,
                        .decided.iterations = STEPS,
                        .decided.round = RP_ROUND_ALL,
                        .recompute = c->recompute,
                        .decided.layer_grain = c->layer_grain,
                        .decided.piece_bytes = RP_PIECE_BYTES};
    if (c->partition != NULL) {
        cr_assert(
            eq(int, rp_partition_parse("test", c->partition, arena, &partition, NULL), RP_OK));
        work.partition = &partition;
    }
    cr_assert(eq(int, rpexec_model_create(&config, SEQ_LEN, RP_DTYPE_F32, arena, &model), RP_OK));
    cr_assert(eq(int, rpexec_work_costs(&model, SIZE, arena, &costs), RP_OK));
    cr_assert(eq(int, rpexec_work_program(&work, &model, &costs, &program, NULL), RP_OK));
    cr_assert(eq(int,
                 rpexec_plan_create(program, &model, &(rpexec_plan_limits){0}, arena, &plan, NULL),
                 RP_OK));
    cr_assert(eq(int, rpexec_executed_flop(&plan, &flop), RP_OK));
    double right = STEPS * closed_form(c, &config, MICROBATCHES * SIZE, SEQ_LEN);
    cr_expect(le(dbl, fabs(flop / right - 1), 1e-12), "%s %s: %.17g, not %.17g", c->schedule,
              c->partition != NULL ? c->partition : "", flop, right);
    rp_program_destroy(program);
}

Test(exec_measure, executed_flop_are_those_of_the_closed_form)
{
    static const flop_case cases[] = {
        {"gpipe", NULL, RP_RECOMPUTE_NONE, false, 1, 0, 1, 0},
        {"gpipe", NULL, RP_RECOMPUTE_WAIT, false, 1, LAYERS, 1, 0},
        {"1f1b", NULL, RP_RECOMPUTE_WAIT, true, 3, LAYERS, 1, 0},
        {"roundpipe", "6|6", RP_RECOMPUTE_EARLY, false, 1, LAYERS, 1, 0},
        {"roundpipe", "2,2|2,2,2", RP_RECOMPUTE_EARLY, false, 2, 4, 1, 0},
        {"roundpipe", "3|3,2,1", RP_RECOMPUTE_WAIT, true, 2, 3, 1, 0},
        {"zbv", NULL, RP_RECOMPUTE_NONE, false, 2, 0, 1, 0},
        {"fsdp", NULL, RP_RECOMPUTE_WAIT, false, 2, LAYERS, 4, 0},
        {"1f1b", NULL, RP_RECOMPUTE_WAIT, false, 2, LAYERS, 1, 4},
        {"megatron-tp", NULL, RP_RECOMPUTE_NONE, false, 2, 0, 1, 0},
        {"megatron-tp", NULL, RP_RECOMPUTE_WAIT, false, 2, LAYERS, 1, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        check_flop(&cases[i]);
    }
}

/* ---- the command line ------------------------------------------------------------------------ */

#define SIZES "--gpus 2 --microbatches 2 --seq-len 16 "

static rp_test_outcome rpexec(const char *line)
{
    return rp_test_tool_run(RPEXEC_PATH, "rpexec", line);
}

static json_t *parse(const char *text)
{
    json_t *json = json_loads(text, 0, NULL);
    cr_assert(json != NULL, "%s", text);
    return json;
}

/* Median of rpsim's iteration times without the first, in ms. With the asynchronous optimizer the
 * host's work does not count, since it is done beside the next iteration. */
static double simulated_ms(const char *program_path, const char *timeline_path, bool asynchronous)
{
    rp_program *p = NULL;
    rp_timeline *timeline = NULL;
    int64_t ends[8] = {0};
    cr_assert(eq(int, rp_program_read_file(program_path, &p), RP_OK));
    cr_assert(p->iteration_count == 4);
    const char *csv = rp_test_tool_read(timeline_path);
    cr_assert(eq(int, rp_timeline_read_csv("s.csv", csv, strlen(csv), p, &timeline), RP_OK));
    for (uint32_t i = 0; i < p->op_count; i++) {
        bool host = rp_op_kind_class((rp_op_kind)p->ops[i].kind) == RP_CLASS_HOST;
        int64_t *end = &ends[p->ops[i].iteration];
        *end = !(host && asynchronous) && timeline->end_ps[i] > *end ? timeline->end_ps[i] : *end;
    }
    double a = (double)(ends[1] - ends[0]);
    double b = (double)(ends[2] - ends[1]);
    double c = (double)(ends[3] - ends[2]);
    rp_timeline_destroy(timeline);
    rp_program_destroy(p);
    return fmax(fmin(a, b), fmin(fmax(a, b), c)) / 1e9;
}

/* Checks a run with --predict against rpsim. @return rpexec's report; to be released */
static json_t *predicted_run(const char *optimizer, const char *more)
{
    char line[256];
    snprintf(line, sizeof line,
             SIZES "--steps 4 --optimizer %s --costs @DIR@/record --predict "
                   "--program-out @DIR@/p.txt --format json %s",
             optimizer, more);
    rp_test_outcome predicted = rpexec(line);
    cr_assert(eq(int, predicted.status, 0), "%s", predicted.messages);
    rp_test_rpsim_well("--program-in @DIR@/p.txt --model tiny --seq-len 16 "
                       "--costs @DIR@/record/costs.yaml --platform @DIR@/record/platform.yaml "
                       "--fidelity hardware --timeline-out @DIR@/s.csv");
    json_t *run = parse(predicted.output);
    double ms = rp_test_json_number(run, "predicted_iteration_ms");
    double right_ms =
        simulated_ms(rp_test_tool_expand("@DIR@/p.txt", 11), rp_test_tool_expand("@DIR@/s.csv", 11),
                     strcmp(optimizer, "async") == 0);
    cr_expect(gt(dbl, ms, 0));
    cr_expect(ieee_ulp_eq(dbl, ms, right_ms, 4), "%s: %.12g, not %.12g", optimizer, ms, right_ms);
    return run;
}

/* Tokens and FLOP per second are rates over the steps after the first, by the timeline. Planning
 * and the movement of state count only in the rate of wall time. */
Test(exec_measure, rates_are_those_of_the_timeline)
{
    rp_test_outcome made = rpexec(SIZES "--steps 9 --format json"); /* two programs */
    cr_assert(eq(int, made.status, 0), "%s", made.messages);
    json_t *run = parse(made.output);
    const json_t *times = json_object_get(run, "iteration_ms");
    double all_ms = 0;
    double tokens = 2 * 16;
    for (size_t i = 0; i < 9; i++) {
        all_ms += json_number_value(json_array_get(times, i));
    }
    double later_ms = all_ms - json_number_value(json_array_get(times, 0));
    double per_s = rp_test_json_number(run, "tokens_per_s");
    double flop_per_s = rp_test_json_number(run, "executed_flop_per_s");
    cr_expect(le(dbl, fabs(per_s / (8e3 * tokens / later_ms) - 1), 1e-9));
    cr_expect(
        le(dbl, fabs(flop_per_s / (rp_test_json_number(run, "executed_flop") * per_s / tokens) - 1),
           1e-9));
    cr_expect(lt(dbl, rp_test_json_number(run, "wall_tokens_per_s"), 9e3 * tokens / all_ms));
    json_decref(run);
}

/* The costs are another run's, the program is the same: the prediction equals rpsim's time of an
 * iteration. */
Test(exec_measure, predictions_are_those_of_rpsim)
{
    rp_test_outcome recorded = rpexec(SIZES "--steps 3 --record @DIR@/record");
    cr_assert(eq(int, recorded.status, 0), "%s", recorded.messages);
    json_t *run = predicted_run("sync", "--db @DIR@/runs.db");
    json_decref(predicted_run("async", ""));
    double ms = rp_test_json_number(run, "predicted_iteration_ms");
    const char *path = rp_test_tool_expand("@DIR@/runs.db", 13);
    const char *const query[] = {"sqlite3", path,
                                 "SELECT value / 1e9 FROM metrics WHERE name = "
                                 "'iteration_median_ps'",
                                 NULL};
    double measured_ms = atof(rp_test_tool_execute("/usr/bin/sqlite3", query).output);
    double error = 100 * (ms / measured_ms - 1);
    cr_expect(le(dbl, fabs(rp_test_json_number(run, "prediction_error_pct") - error), 1e-6));
    /* rpdiff finds the same numbers in the store: a single configuration, so no pair with an order.
     */
    rp_test_outcome of_store =
        rp_test_tool_run(RPDIFF_PATH, "rpdiff", "@DIR@/runs.db --format json");
    cr_assert(eq(int, of_store.status, 0), "%s", of_store.messages);
    json_t *compared_runs = parse(of_store.output);
    const json_t *order = json_array_get(json_object_get(compared_runs, "orders"), 0);
    const json_t *only = json_array_get(json_object_get(order, "schedules"), 0);
    cr_expect(eq(dbl, rp_test_json_number(compared_runs, "configurations"), 1.0));
    cr_expect(eq(dbl, rp_test_json_number(order, "pairs"), 0.0));
    cr_expect(eq(int, json_typeof(json_object_get(order, "tau")), JSON_NULL));
    cr_expect(ieee_ulp_eq(dbl, rp_test_json_number(only, "predicted_ms"), ms, 4));
    double median_ms = rp_test_json_number(only, "measured_ms");
    cr_expect(
        le(dbl, fabs(rp_test_json_number(only, "error_pct") - 100 * (ms / median_ms - 1)), 1e-6));
    json_decref(compared_runs);
    json_decref(run);
    /* A run that both predicts and records has the simulated timeline beside the measured timeline.
     */
    rp_test_outcome both =
        rpexec(SIZES "--steps 3 --costs @DIR@/record --predict --record @DIR@/both --format json");
    cr_assert(eq(int, both.status, 0), "%s", both.messages);
    rp_test_outcome compared = rp_test_tool_run(
        RPDIFF_PATH, "rpdiff", "@DIR@/both/predicted.csv @DIR@/both --format json");
    cr_assert(eq(int, compared.status, 0), "%s", compared.messages);
    json_t *recorded_run = parse(both.output);
    json_t *difference = parse(compared.output);
    double said = rp_test_json_number(recorded_run, "prediction_error_pct");
    double times[2][2]; /* predicted and measured times of the iterations after the first */
    for (size_t i = 0; i < 2; i++) {
        const json_t *iteration = json_array_get(json_object_get(difference, "iterations"), i + 1);
        times[0][i] = rp_test_json_number(iteration, "predicted_ms");
        times[1][i] = rp_test_json_number(iteration, "measured_ms");
    }
    error = 100 * ((times[0][0] + times[0][1]) / (times[1][0] + times[1][1]) - 1);
    cr_expect(le(dbl, fabs(error - said), 1e-6), "%.9f, not %.9f", said, error);
    json_decref(recorded_run);
    json_decref(difference);
    rp_test_outcome file = rpexec(SIZES "--steps 1 --costs @DIR@/record/costs.yaml --predict");
    cr_expect(eq(int, file.status, 0), "%s", file.messages);
    cr_expect(strstr(file.output, "predicted ") != NULL);
    rp_test_outcome other = rpexec("--seq-len 32 --costs @DIR@/record --predict");
    cr_expect(eq(int, other.status, 2));
    cr_expect(strstr(other.messages, "valid is a record of the same sizes") != NULL, "%s",
              other.messages);
    rp_test_remove(rp_test_tool_expand("@DIR@/record", 12));
}

/* The files of a record belong together, and keep the topology of the platform. */
Test(exec_measure, records_are_read_again)
{
    rp_test_outcome recorded = rpexec(SIZES "--steps 3 --platform rtx3090x8 --record @DIR@/record");
    cr_assert(eq(int, recorded.status, 0), "%s", recorded.messages);
    const char *name = rp_test_tool_expand("@DIR@/record/program.txt", 24);
    rp_program *program = NULL;
    rp_timeline *timeline = NULL;
    rp_platform platform, given;
    cr_assert(eq(int, rp_program_read_file(name, &program), RP_OK));
    const char *csv = rp_test_tool_read(rp_test_tool_expand("@DIR@/record/timeline.csv", 25));
    cr_assert(
        eq(int, rp_timeline_read_csv("timeline.csv", csv, strlen(csv), program, &timeline), RP_OK));
    cr_expect(eq(u32, program->iteration_count, 3));
    rp_timeline_destroy(timeline);
    rp_program_destroy(program);
    const char *path = rp_test_tool_expand("@DIR@/record/platform.yaml", 26);
    cr_assert(eq(int, rp_platform_load(path, rp_test_tool_arena(), &platform), RP_OK));
    cr_assert(eq(int, rp_platform_load("rtx3090x8", rp_test_tool_arena(), &given), RP_OK));
    cr_expect(eq(u32, platform.gpus_per_switch, given.gpus_per_switch));
    cr_expect(eq(u32, platform.gpus, given.gpus));
    double machine_gb = 1e-9 * (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    cr_expect(epsilon_eq(dbl, platform.host_memory_gb, machine_gb, 1e-3));
    cr_expect(le(dbl, platform.link_effective_gb_per_s, given.link_gb_per_s));
    /* rpsim's runs with the record have its data type, and their own passes are no faster than its
     * rates. */
    json_t *rows = rp_test_rpsim_rows(
        "--schedule 1f1b --model tiny --gpus 2 --iterations 2 --intervals off --format json",
        "--costs @DIR@/record/costs.yaml --platform @DIR@/record/platform.yaml");
    const json_t *row = json_array_get(rows, 0);
    cr_expect(eq(str, (char *)rp_test_json_text(row, "dtype"), (char *)"fp32"));
    cr_expect(eq(str, (char *)rp_test_json_text(row, "accumulation"), (char *)"fp32"));
    double share = rp_test_json_number(row, "peak_share_pct");
    cr_expect(share > 0 && share <= 100, "%g", share);
    json_decref(rows);
    rp_test_remove(rp_test_tool_expand("@DIR@/record", 12));
}

static double number_after(const char *text, const char *key)
{
    const char *at = strstr(text, key);
    cr_assert(at != NULL, "no %s in %s", key, text);
    return strtod(at + strlen(key), NULL);
}

/* A link's directions slow each other down: the measured efficiency is the platform's, which rpexec
 * plays. */
Test(exec_measure, directions_are_in_the_record)
{
    static const char text[] =
        "name: single\nsource: made up\ngpu: g\ngpus: 1\nfp16_tflops_fp16_acc: 1\n"
        "fp16_tflops_fp32_acc: 1\nmemory_gb: 1\nmemory_gb_per_s: 1\nlink_gb_per_s: 0.4\n"
        "link_effective_gb_per_s: 0.4\npeer_gb_per_s: 0\nduplex_efficiency: 0.65\n";
    const char *given = rp_test_tool_expand("@DIR@/single.yaml", 17);
    rp_platform platform = {0};
    FILE *file = fopen(given, "w");
    cr_assert(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
    for (int i = 0; i < 20 && fabs(platform.duplex_efficiency / 0.65 - 1) > 0.05; i++) {
        rp_test_outcome recorded = rpexec("--model tiny --seq-len 16 --gpus 1 --steps 2 --platform "
                                          "@DIR@/single.yaml --record @DIR@/record");
        cr_assert(eq(int, recorded.status, 0), "%s", recorded.messages);
        const char *path = rp_test_tool_expand("@DIR@/record/platform.yaml", 26);
        cr_assert(eq(int, rp_platform_load(path, rp_test_tool_arena(), &platform), RP_OK));
    }
    cr_expect(le(dbl, fabs(platform.duplex_efficiency / 0.65 - 1), 0.05), "%g",
              platform.duplex_efficiency);
    rp_test_remove(rp_test_tool_expand("@DIR@/record", 12));
}

/* The record has the rates of links that are slow by construction, and the times of starting, and
 * rpsim simulates with them. Other processes may spoil most tries. */
Test(exec_measure, slow_links_are_in_the_record)
{
    bool seen = false;
    rp_platform platform = {0};
    for (int i = 0; i < 20 && !seen; i++) {
        rp_test_outcome recorded =
            rpexec(SIZES "--steps 2 --link-gb-per-s 0.4 --record @DIR@/record");
        cr_assert(eq(int, recorded.status, 0), "%s", recorded.messages);
        const char *path = rp_test_tool_expand("@DIR@/record/platform.yaml", 26);
        cr_assert(eq(int, rp_platform_load(path, rp_test_tool_arena(), &platform), RP_OK));
        cr_expect(platform.copy_latency_us > 0 && platform.op_wake_us > 0 &&
                  platform.op_gap_us > 0);
        seen = fabs(platform.link_effective_gb_per_s / 0.4 - 1) < 0.05 &&
               fabs(platform.upload_gb_per_s / 0.4 - 1) < 0.1 &&
               fabs(platform.download_gb_per_s / 0.4 - 1) < 0.1 &&
               platform.copy_latency_us < 2000 && platform.op_wake_us < 5000 &&
               platform.op_gap_us < 5000;
    }
    cr_expect(seen, "%g, %g and %g GB/s; %g, %g and %g us", platform.link_effective_gb_per_s,
              platform.upload_gb_per_s, platform.download_gb_per_s, platform.copy_latency_us,
              platform.op_wake_us, platform.op_gap_us);
    cr_expect(platform.gpus_per_switch == 0);
    const char *links = rp_test_tool_read(rp_test_tool_expand("@DIR@/record/links.csv", 22));
    cr_expect(strstr(links, "down,all-both,1,65536,") != NULL, "%s", links);
    const char *operators =
        rp_test_tool_read(rp_test_tool_expand("@DIR@/record/operators.csv", 26));
    const char *measured = strstr(operators, "block,backward,measured,");
    cr_assert(measured != NULL, "%s", operators);
    /* Operators measured by themselves take about as long as their layer takes in the run: the
     * units are the same. */
    double coverage = number_after(measured, ",,,,,");
    cr_expect(coverage > 0.02 && coverage < 50, "%g", coverage);
    const char *starts = rp_test_tool_read(rp_test_tool_expand("@DIR@/record/starts.csv", 23));
    cr_expect(strstr(starts, "other GPU,idle,100,") != NULL, "%s", starts);
    cr_expect(strstr(starts, "same queue,run,") != NULL, "%s", starts);
    rp_test_outcome simulated = rp_test_rpsim_well(
        "--schedule 1f1b --model tiny --gpus 2 --microbatches 2 --seq-len 16 --fidelity hardware "
        "--costs @DIR@/record/costs.yaml --platform @DIR@/record/platform.yaml --format json");
    rp_test_outcome faster = rp_test_rpsim_well(
        "--schedule 1f1b --model tiny --gpus 2 --microbatches 2 --seq-len 16 --fidelity hardware "
        "--costs @DIR@/record/costs.yaml --platform @DIR@/record/platform.yaml --format json "
        "--set platform.op_wake_us=0");
    json_t *with = parse(simulated.output);
    json_t *without = parse(faster.output);
    cr_expect(gt(dbl, rp_test_json_number(json_array_get(with, 0), "makespan_ms"),
                 rp_test_json_number(json_array_get(without, 0), "makespan_ms")));
    json_decref(with);
    json_decref(without);
    rp_test_remove(rp_test_tool_expand("@DIR@/record", 12));
}
