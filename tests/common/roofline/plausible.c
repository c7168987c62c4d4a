/* Predictions that no measurement can check, on every kind of platform and for every schedule:
 * times never grow where they must not, gains never exceed the addition, and no step is shorter
 * than its bytes over links and through the host.
 *
 * Partitions are fixed (--partition), and most schedules' orders do not depend on times: a run is a
 * fixed graph of ops. Without shared resources its makespan is monotone in every duration. With
 * max-min fair shares it need not be: an op that ends earlier lets another transfer begin earlier,
 * and take its share of a link or of the DRAM from a third on the critical path (Graham's
 * anomalies). Link-bound pipelines do so chaotically: 0.15 % at worst in 15000 random comparisons
 * (RoundPipe and Mobius on shared DRAM). Schedules that place ops by their times find other orders,
 * at worst 0.93 % slower (v-half-squeezed). */
#include "common/inputs/data.h"
#include "common/inputs/load/models.h"
#include "common/inputs/load/platforms.h"
#include "common/machine/platform_machine.h"
#include "common/schedule/schedule_type.h"
#include "tests/support/assertions.h"
#include "tests/support/platform_file.h"
#include "tests/support/run_tool.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

TestSuite(plausible, .init = rp_test_tool_begin, .fini = rp_test_tool_end, .timeout = 500);

#define TOLERANCE 0.003
#define TOLERANCE_BY_TIME 0.02
#define GPUS 4u

static json_t *run_row(const char *line)
{
    rp_test_outcome outcome = rp_test_rpsim_after("--format json --intervals off", line);
    if (outcome.status == 2) {
        return NULL;
    }
    json_error_t error;
    json_t *rows = json_loads(outcome.output, JSON_REJECT_DUPLICATES, &error);
    cr_assert(rows != NULL && json_array_size(rows) == 1, "rpsim %s: %s", line, outcome.messages);
    json_t *row = json_incref(json_array_get(rows, 0));
    json_decref(rows);
    return row;
}

typedef struct step {
    double ms;   /* of a steady step; 0: refused */
    double peak; /* bytes of the fullest GPU */
    bool fits;
} step;

/* A step of `line` on a platform. An empty `partition` lets the run choose, and receives the
 * choice. */
static step run_step(const char *line, const char *platform, char partition[1024])
{
    char full[2048];
    bool given = partition[0] != '\0';
    snprintf(full, sizeof full, "%s --platform %s%s%s", line, platform,
             given ? " --partition " : "", partition);
    step out = {0};
    json_t *row = run_row(full);
    if (row != NULL) {
        size_t index = 0;
        json_t *peak = NULL;
        out.ms = rp_test_json_number(row, "iteration_ms");
        out.fits = json_is_true(json_object_get(row, "fits"));
        json_array_foreach(json_object_get(row, "peak_gpu_bytes"), index, peak)
        {
            out.peak = fmax(out.peak, json_number_value(peak));
        }
        snprintf(partition, 1024, "%s", rp_test_json_text(row, "partition"));
    }
    json_decref(row);
    return out;
}

static double step_ms(const char *line, const char *platform, char partition[1024])
{
    return run_step(line, platform, partition).ms;
}

static double tolerance_of(const rp_schedule_type *schedule)
{
    return schedule->prepare != NULL ? TOLERANCE_BY_TIME : TOLERANCE;
}

/* Picks a schedule's model and platform by its name, so that new schedules do not change others'.
 */
static uint32_t turn_of(const char *name)
{
    uint32_t turn = 0;
    for (const char *c = name; *c != '\0'; c++) {
        turn = 31 * turn + (unsigned char)*c;
    }
    return turn;
}

/* ---- rates ----------------------------------------------------------------------------------- */

/* Lines of a platform file that make a resource `factor` times as fast. */
typedef void lines_fn(const rp_platform *p, double factor, char lines[1024]);

static void link_lines(const rp_platform *p, double factor, char lines[1024])
{
    snprintf(lines, 1024, "link_gb_per_s: %.9g\nlink_effective_gb_per_s: %.9g",
             factor * p->link_gb_per_s, factor * p->link_effective_gb_per_s);
}

/* The GPU's name is in no table, so that its times are a roofline's. */
static void gpu_lines(const rp_platform *p, double factor, char lines[1024])
{
    snprintf(lines, 1024,
             "gpu: unknown\nmemory_gb: %.9g\nreserved_gib: %.9g\ngemm_efficiency: %.9g\n"
             "sms: %u\nsm_clock_ghz: %.9g\ngemm_fp32_acc_efficiency: %.9g\n"
             "flash_fwd_tflops: %.9g\nflash_bwd_tflops: %.9g\n"
             "fp16_tflops_fp16_acc: %.9g\nfp16_tflops_fp32_acc: %.9g\n"
             "attention_fwd_tflops: %.9g\nattention_bwd_tflops: %.9g\nmemory_gb_per_s: %.9g\n"
             "memory_effective_gb_per_s: %.9g\nlaunch_overhead_us: %.9g",
             p->memory_gb, p->reserved_gib, p->gemm_efficiency, p->sms, p->sm_clock_ghz,
             p->gemm_fp32_acc_efficiency, p->flash_fwd_tflops, p->flash_bwd_tflops,
             factor * p->fp16_tflops_fp16_acc, factor * p->fp16_tflops_fp32_acc,
             factor * p->attention_fwd_tflops, factor * p->attention_bwd_tflops,
             factor * p->memory_gb_per_s, factor * p->memory_effective_gb_per_s,
             p->launch_overhead_us / factor);
}

static void host_lines(const rp_platform *p, double factor, char lines[1024])
{
    snprintf(lines, 1024,
             "host_optimizer_gb_per_s: %.9g\nhost_adam_gb_per_s: %.9g\nhost_refresh_gb_per_s: "
             "%.9g\nzero_gradient_gb_per_s: %.9g",
             factor * p->host_optimizer_gb_per_s, factor * p->host_adam_gb_per_s,
             factor * p->host_refresh_gb_per_s, factor * p->zero_gradient_gb_per_s);
}

static void collective_lines(const rp_platform *p, double factor, char lines[1024])
{
    snprintf(lines, 1024, "collective_gb_per_s: %.9g", factor * p->collective_gb_per_s);
}

static void nvlink_lines(const rp_platform *p, double factor, char lines[1024])
{
    (void)p;
    snprintf(lines, 1024, "peer: nvlink\nnvlink_gpus: -\npeer_gb_per_s: %.9g", 10 * factor);
}

static void bridge_lines(const rp_platform *p, double factor, char lines[1024])
{
    (void)p;
    snprintf(lines, 1024, "peer: nvlink\nnvlink_gpus: 2\npeer_gb_per_s: %.9g", 10 * factor);
}

static void switch_lines(const rp_platform *p, double factor, char lines[1024])
{
    snprintf(lines, 1024, "gpus_per_switch: 4\nswitch_gb_per_s: %.9g", factor * p->link_gb_per_s);
}

static void dram_lines(const rp_platform *p, double factor, char lines[1024])
{
    (void)p;
    snprintf(lines, 1024, "host_dram_gb_per_s: %.9g", 30 * factor);
}

static void socket_lines(const rp_platform *p, double factor, char lines[1024])
{
    (void)p;
    snprintf(lines, 1024, "sockets: 4\nintersocket_gb_per_s: %.9g", 5 * factor);
}

static void network_lines(const rp_platform *p, double factor, char lines[1024])
{
    (void)p;
    snprintf(lines, 1024, "nodes: 4\nnetwork_gb_per_s: %.9g", 3 * factor);
}

static bool is_among(const char *name, const char *const *names)
{
    while (*names != NULL && strcmp(*names, name) != 0) {
        names++;
    }
    return *names != NULL;
}

/* A quarter of the schedules (besides those of `gains`), or all with RP_LONG, with models and
 * platforms in turn, each on half of the resources at two speeds. A factor on a resource's rate
 * divides the time by at most the factor. `gains`: schedules that must gain 5 % at least once, so
 * that the resource has an effect; NULL-terminated. */
static void walk_rates(const char *what, lines_fn *lines_of, const char *const *gains)
{
    static const char *const models[] = {"qwen3-1.7b", "qwen3-8b", "llama3.1-8b-lora"};
    static const char *const bases[] = {"rtx4090x8", "rtx3090x8", "h100x8", "rtx5090x8", "a800x8"};
    static const double factors[] = {0.3, 1.1};
    uint32_t gained = 0;
    uint32_t wanted = 0;
    bool all = getenv("RP_LONG") != NULL;
    for (uint32_t s = 0; s < rp_schedule_count; s++) {
        rp_platform base;
        uint32_t turn = turn_of(rp_schedules[s]->name);
        bool gaining = is_among(rp_schedules[s]->name, gains);
        if (!all && !gaining && (turn / 30 + (unsigned char)what[0]) % 4 != 0) {
            continue;
        }
        const char *base_name = bases[turn % 5];
        cr_assert(eq(int, rp_platform_load(base_name, rp_test_tool_arena(), &base), RP_OK));
        char line[512];
        char partition[1024] = "";
        snprintf(line, sizeof line,
                 "--schedule %s --model %s --gpus %u --microbatches %u --iterations 16",
                 rp_schedules[s]->name, models[turn % 3], GPUS,
                 turn % 2 == 0 ? 2 * GPUS : 4 * GPUS);
        double took_ms[2];
        for (uint32_t f = 0; f < 2; f++) {
            char name[64];
            char lines[1024];
            snprintf(name, sizeof name, "%s-%u-%u", what, s, f);
            lines_of(&base, factors[f], lines);
            took_ms[f] = step_ms(line, rp_test_platform_file(base_name, name, lines), partition);
            cr_assert(gt(dbl, took_ms[f], 0), "%s", line);
            if (f > 0) {
                double factor = factors[f] / factors[f - 1];
                double slack = tolerance_of(rp_schedules[s]);
                cr_expect(le(dbl, took_ms[f], took_ms[f - 1] * (1 + slack)), "%s x %g: %s", what,
                          factor, line);
                cr_expect(ge(dbl, took_ms[f] * factor, took_ms[f - 1] * (1 - slack)), "%s x %g: %s",
                          what, factor, line);
            }
        }
        gained += gaining && took_ms[1] < 0.95 * took_ms[0];
        wanted += gaining;
    }
    cr_expect(eq(u32, gained, wanted), "%s", what);
    cr_expect(gt(u32, wanted, 0), "%s", what);
}

#define RATES(what, ...)                                                                           \
    Test(plausible, faster_##what)                                                                 \
    {                                                                                              \
        static const char *const gains[] = {__VA_ARGS__, NULL};                                    \
        walk_rates(#what, what##_lines, gains);                                                    \
    }

RATES(link, "mobius", "roundpipe", "zero-infinity")
RATES(gpu, "1f1b", "gpipe", "interleaved-1f1b", "zb-h1", "megatron-pp", "roundpipe", "fsdp")
RATES(host, "mobius", "zero-offload", "zero-infinity", "fsdp-offload")
RATES(collective, "megatron-tp", "fsdp-offload", "zero2")
RATES(nvlink, "interleaved-1f1b")
RATES(bridge, "interleaved-1f1b")
RATES(switch, "mobius")
RATES(dram, "mobius", "roundpipe")
RATES(socket, "mobius", "roundpipe")
RATES(network, "mobius", "roundpipe", "interleaved-1f1b", "fsdp", "megatron-tp")

/* ---- work ------------------------------------------------------------------------------------ */

/* A longer sequence, a larger microbatch or another call is more work of every kind, and needs no
 * less memory. A plain run takes every third rung with each schedule, RP_LONG all. */
Test(plausible, more_work_takes_longer)
{
    static const char *const ladder[7] = {
        "--seq-len 256",
        "--seq-len 1000",
        "--seq-len 2048",
        "--seq-len 2048 --microbatch-size 5",
        "--seq-len 2048 --microbatch-size 5 --accumulate 2",
        "--seq-len 4096 --microbatch-size 5 --accumulate 2",
        "--seq-len 32768 --microbatch-size 5 --accumulate 2",
    };
    static const char *const models[] = {"qwen3-0.6b", "gpt-oss-20b", "qwen3-8b"};
    static const char *const platforms[] = {"rtx3090x8-pcie3", "rtx4090x16", "rtx5090x8", "a800x8",
                                            "h100x8",          "h200x8",     "rtx4090x64"};
    bool all = getenv("RP_LONG") != NULL;
    for (uint32_t s = 0; s < rp_schedule_count; s++) {
        uint32_t turn = turn_of(rp_schedules[s]->name);
        step before = {.fits = true};
        char partition[1024] = "";
        for (size_t i = all ? 0 : turn / 21 % 3; i < 7; i += all ? 1 : 3) {
            char line[512];
            snprintf(line, sizeof line,
                     "--schedule %s --model %s --gpus %u --microbatches %u --iterations 16 %s",
                     rp_schedules[s]->name, models[turn % 3], GPUS, 2 * GPUS, ladder[i]);
            step now = run_step(line, platforms[turn % 7], partition);
            cr_expect(gt(dbl, now.ms, before.ms), "%s", line);
            cr_expect(ge(dbl, now.peak, before.peak), "%s", line);
            bool fits_again = now.fits && !before.fits;
            cr_expect(not(fits_again), "%s", line);
            before = now;
        }
    }
}

/* ---- platforms ------------------------------------------------------------------------------- */

/* True if `b` is at least as good as `a` in everything in a file. Peers' rates count only if both
 * have the same kind. */
static bool dominates(const rp_platform *b, const rp_platform *a)
{
    rp_machine ma = rp_machine_of(a);
    rp_machine mb = rp_machine_of(b);
    const double rates[][2] = {
        {a->fp16_tflops_fp16_acc * a->gemm_efficiency,
         b->fp16_tflops_fp16_acc * b->gemm_efficiency},
        {a->fp16_tflops_fp32_acc * a->gemm_efficiency,
         b->fp16_tflops_fp32_acc * b->gemm_efficiency},
        {a->fp16_tflops_fp16_acc, b->fp16_tflops_fp16_acc},
        {a->attention_fwd_tflops, b->attention_fwd_tflops},
        {a->attention_bwd_tflops, b->attention_bwd_tflops},
        {a->memory_effective_gb_per_s, b->memory_effective_gb_per_s},
        {ma.upload_Bps, mb.upload_Bps},
        {ma.download_Bps, mb.download_Bps},
        {rp_machine_host_Bps(&ma, RP_OP_OPTIMIZER), rp_machine_host_Bps(&mb, RP_OP_OPTIMIZER)},
        {rp_machine_host_Bps(&ma, RP_OP_REFRESH), rp_machine_host_Bps(&mb, RP_OP_REFRESH)},
        {rp_machine_host_Bps(&ma, RP_OP_COLLECT), rp_machine_host_Bps(&mb, RP_OP_COLLECT)},
        {a->collective_gb_per_s, b->collective_gb_per_s},
        {a->zero_gradient_gb_per_s, b->zero_gradient_gb_per_s},
        {ma.peer_Bps, mb.peer_Bps},
        {b->launch_overhead_us, a->launch_overhead_us},
        {b->dispatch_us_per_module, a->dispatch_us_per_module},
        {b->optimizer_us_per_object, a->optimizer_us_per_object},
        {b->copy_latency_us, a->copy_latency_us},
        {b->op_gap_us, a->op_gap_us},
        {b->op_wake_us, a->op_wake_us},
    };
    bool all = true;
    for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++) {
        all = all && rates[i][1] >= rates[i][0];
    }
    bool alike = a->gpus_per_switch == b->gpus_per_switch && a->sockets == b->sockets &&
                 a->nodes == b->nodes && a->gpus_per_root == b->gpus_per_root &&
                 a->host_dram_gb_per_s == b->host_dram_gb_per_s;
    bool peers = ma.peer_Bps == 0 || (a->nvlink_gpus == b->nvlink_gpus);
    return all && alike && peers;
}

/* A server that is nowhere worse is not slower: an H200 than an H100, PCIe 4 than PCIe 3, with
 * measured, moved or roofline times. A plain run has a model per pair, RP_LONG three. */
Test(plausible, better_platforms_are_not_slower)
{
    static const char *const models[] = {"qwen3-1.7b", "gpt-oss-20b", "qwen3-8b"};
    const char **names = NULL;
    uint32_t count = 0;
    uint32_t pairs = 0;
    rp_arena *arena = rp_test_tool_arena();
    cr_assert(eq(int, rp_data_list("platforms", arena, &names, &count), RP_OK));
    for (uint32_t i = 0; i < count * count; i++) {
        rp_platform a;
        rp_platform b;
        cr_assert(eq(int, rp_platform_load(names[i / count], arena, &a), RP_OK));
        cr_assert(eq(int, rp_platform_load(names[i % count], arena, &b), RP_OK));
        if (i / count == i % count || !dominates(&b, &a)) {
            continue;
        }
        for (uint32_t k = 0; k < 3; k++, pairs++) {
            if (getenv("RP_LONG") == NULL && (pairs / 3 % 3 != k || pairs / 3 % 4 != 0)) {
                continue;
            }
            char line[512];
            char partition[1024] = "";
            const rp_schedule_type *schedule = rp_schedules[pairs * 7 % rp_schedule_count];
            snprintf(line, sizeof line,
                     "--schedule %s --model %s --gpus %u --microbatches 16 --iterations 16",
                     schedule->name, models[k], a.gpus < 8 || b.gpus < 8 ? 1u : 8u);
            double before_ms = step_ms(line, names[i / count], partition);
            double after_ms = step_ms(line, names[i % count], partition);
            cr_assert(gt(dbl, before_ms, 0), "%s", line);
            cr_expect(le(dbl, after_ms, before_ms * (1 + tolerance_of(schedule))), "%s to %s: %s",
                      names[i / count], names[i % count], line);
        }
    }
    cr_expect(ge(u32, pairs, 3 * 10)); /* 3090 on PCIe 3 to 4, A800 to H100 to H200, … */
}

/* ---- links and host -------------------------------------------------------------------------- */

/* Weights in host memory pass the GPUs' links at least once each way (2 B, as gradients on the way
 * down); Adam in host memory reads and writes master weights and two moments (3 x 4 B each way). A
 * plain run has three of the systems on each platform, RP_LONG all. */
Test(plausible, offloading_is_bound_by_links_and_host)
{
    static const char *const names[] = {"roundpipe",     "roundpipe-overlap", "mobius",
                                        "zero-infinity", "fsdp-offload",      "zero-offload"};
    static const char *const models[] = {"qwen3-8b", "llama3.1-8b"};
    const char **platforms = NULL;
    uint32_t count = 0;
    double closest = INFINITY;
    rp_arena *arena = rp_test_tool_arena();
    cr_assert(eq(int, rp_data_list("platforms", arena, &platforms, &count), RP_OK));
    for (uint32_t i = 0; i < 6 * count; i++) {
        const char *platform_name = platforms[i / 6];
        if (getenv("RP_LONG") == NULL && i % 2 != i / 6 % 2) {
            continue;
        }
        const char *model_name = models[(i + i / 6) / 2 % 2];
        rp_platform platform;
        rp_model model;
        cr_assert(eq(int, rp_platform_load(platform_name, arena, &platform), RP_OK));
        cr_assert(eq(int, rp_model_load(model_name, arena, &model), RP_OK));
        rp_machine m = rp_machine_of(&platform);
        uint32_t gpus = platform.gpus < GPUS ? platform.gpus : GPUS;
        double parameters = (double)model.layers * (double)model.layer_parameters;
        double link_ms = 1e3 * 2 * parameters / gpus / m.upload_Bps;
        double host_ms = 1e3 * 24 * parameters / m.host_Bps; /* all 4 GPUs are in one */
        char line[512];
        char partition[1024] = "";
        snprintf(line, sizeof line,
                 "--schedule %s --model %s --gpus %u --microbatches %u --microbatch-size 1 "
                 "--seq-len 128 --iterations 16",
                 names[i % 6], model_name, gpus, gpus);
        double took_ms = step_ms(line, platform_name, partition);
        cr_expect(ge(dbl, took_ms, link_ms), "%s: %s", platform_name, line);
        cr_expect(ge(dbl, took_ms, host_ms), "%s: %s", platform_name, line);
        closest = fmin(closest, took_ms / fmax(link_ms, host_ms));
    }
    cr_expect(lt(dbl, closest, 2), "%g", closest); /* 512 tokens take little other time */
}

/* Optimizer threads share the work until the DRAM is busy: up to 12 with 60 GB/s of DRAM and 5 GB/s
 * a thread. A host-bound step takes host work / threads / 5 GB/s and the time without overlap. */
Test(plausible, optimizer_threads_help_until_the_dram_binds)
{
    static const uint32_t threads[] = {1, 2, 4, 8, 16, 32, 64};
    static const char *const names[] = {"roundpipe", "mobius"};
    for (size_t s = 0; s < 2; s++) {
        double took_ms[7];
        char partition[1024] = "";
        char line[512];
        snprintf(line, sizeof line,
                 "--schedule %s --model qwen3-8b --gpus 8 --microbatches 8 --seq-len 512 "
                 "--iterations 16",
                 names[s]);
        for (size_t i = 0; i < 7; i++) {
            char name[64];
            char lines[256];
            snprintf(name, sizeof name, "threads-%zu-%u", s, threads[i]);
            snprintf(lines, sizeof lines,
                     "optimizer_threads: %u\noptimizer_thread_gb_per_s: "
                     "5\nhost_optimizer_gb_per_s: -\nhost_dram_gb_per_s: 60",
                     threads[i]);
            const char *path = rp_test_platform_file("h100x8", name, lines);
            took_ms[i] = step_ms(line, path, partition);
        }
        for (size_t i = 1; i < 4; i++) { /* 1 to 8 threads: host-bound */
            double gain = took_ms[i - 1] / took_ms[i];
            cr_expect(gain > 1.7 && gain <= 2, "%s, %u threads: %g", names[s], threads[i], gain);
        }
        cr_expect(lt(dbl, took_ms[4], took_ms[3]), "%s", names[s]); /* 12 of 16 help */
        cr_expect(epsilon_eq(dbl, took_ms[5], took_ms[4], TOLERANCE * took_ms[4]), "%s", names[s]);
        cr_expect(epsilon_eq(dbl, took_ms[6], took_ms[4], TOLERANCE * took_ms[4]), "%s", names[s]);
    }
}
