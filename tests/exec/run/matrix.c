/* Loss and gradients of whole decoders against the double-precision reference (tests/reference,
 * executor.md section 3, 1, 3 and 4): every schedule that rpexec runs, on 1, 2, 3, 5 and 8 GPUs,
 * with each number of microbatches, recompute mode, grain and optimizer. No expected value comes
 * from the executor. */
#include "common/base/log.h"
#include "tests/support/assertions.h"
#include "tests/support/golden_case.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Under sanitizers only every fifth combination runs, in a plain run every third, and each schedule
 * has others. */
static uint32_t step(void)
{
#ifdef __SANITIZE_ADDRESS__
    return 5;
#else
    return getenv("RP_LONG") != NULL ? 1 : 3;
#endif
}

TestSuite(exec_matrix, .init = rp_test_arena_begin, .fini = rp_test_arena_end, .timeout = 120);

static const uint32_t gpu_counts[] = {1, 2, 3, 5, 8};

static uint32_t failures; /* number of reported failures */

/* Options that may be combined with a schedule and a number of GPUs. */
typedef struct combination {
    uint32_t rounds; /* microbatches per GPU */
    rp_recompute recompute;
    bool asynchronous;
    bool layer_grain;
    bool variant; /* resident: GPUs send to each other; otherwise the step is two calls */
} combination;

static const combination combinations[] = {
    {2, RP_RECOMPUTE_NONE, false, false, true},  {2, RP_RECOMPUTE_WAIT, false, true, false},
    {2, RP_RECOMPUTE_WAIT, true, false, false},  {2, RP_RECOMPUTE_EARLY, true, true, true},
    {3, RP_RECOMPUTE_WAIT, false, false, false}, {2, RP_RECOMPUTE_EARLY, false, false, true},
};
#define COMBINATIONS (sizeof combinations / sizeof combinations[0])
#define FOR_MANY_GPUS 4 /* combinations on 5 and 8 GPUs: more threads than cores are slow */

/* Rounding of fp32 on the way from the inputs to a gradient: k u sqrt(length of all sums on it). A
 * block has six sums over d elements (two norms, four products), a sum over a head for scores, a
 * sum over a row of attention, and a sum over f. A backward has twice the products; then come the
 * head and the sum over tokens. */
static double tolerance_of(const rp_test_golden *golden)
{
    const slow_decoder *d = &golden->file.decoder;
    const double k = 4;
    const double u = ldexp(1, -24);
    double block = 6.0 * d->hidden + d->head_dim + golden->file.seq_len + d->intermediate;
    double length = 3 * (d->layers * block + d->hidden + d->vocab) +
                    golden->file.sequences * golden->file.seq_len;
    return k * u * sqrt(length);
}

/* In asynchronous training the first two steps have the initial weights, otherwise only the first
 * step. */
static uint32_t iterations_of(const rp_schedule_type *schedule, const combination *c)
{
    return c->asynchronous && schedule->traits.placement == RP_PLACEMENT_OFFLOAD ? 2 : 1;
}

/* True if heads and MLPs can be cut into equal parts for this number of GPUs, or the schedule does
 * not cut them. */
static bool can_cut(const rp_test_golden *golden, const rp_schedule_type *schedule, uint32_t gpus)
{
    const rp_model *m = &golden->config;
    return !rp_cuts_layers(&schedule->traits) ||
           (m->heads % gpus == 0 && (m->kv_heads % gpus == 0 || gpus % m->kv_heads == 0) &&
            m->intermediate % gpus == 0);
}

/* @return false if the executor refuses the combination for an allowed reason */
static bool run_one(rp_test_golden *golden, const rp_schedule_type *schedule, uint32_t gpus,
                    const combination *c)
{
    char message[2048] = "";
    char report[256];
    rp_test_run run;
    bool none = c->recompute == RP_RECOMPUTE_NONE;
    bool resident = schedule->traits.placement == RP_PLACEMENT_RESIDENT;
    bool offload = schedule->traits.placement == RP_PLACEMENT_OFFLOAD;
    rp_resolved work = {.schedule = schedule,
                        .gpus = gpus,
                        .decided.accumulate = c->variant && offload ? 2 : 1,
                        .peer_gpus = c->variant && resident ? UINT32_MAX : 0,
                        .decided.iterations = iterations_of(schedule, c),
                        .decided.round = RP_ROUND_ALL,
                        .decided.asynchronous = c->asynchronous,
                        .recompute = c->recompute,
                        .decided.layer_grain = c->layer_grain,
                        .decided.piece_bytes = 3000};
    uint32_t sequences = (uint32_t)golden->file.sequences;
    bool few = gpus > 4 && c->layer_grain; /* these cases take longest; some schedules need more
                                            * microbatches */
    uint32_t microbatches = (few ? 1 : c->rounds) * gpus;
    work.decided.microbatches = microbatches / work.decided.accumulate;
    work.decided.microbatch_size = (sequences + microbatches - 1) / microbatches;
    const rp_test_twist twist = {.prepare = rp_test_golden_prepare, .context = golden};
    rp_log_capture_begin(message, sizeof message);
    rp_status status = rp_test_execute(rp_test_arena, &golden->config,
                                       (uint32_t)golden->file.seq_len, &work, &twist, &run);
    rp_log_capture_end();
    if (status != RP_OK) {
        bool may = (none && !resident && strstr(message, "--recompute") == message) ||
                   (few && strstr(message, "--microbatches") == message) ||
                   !can_cut(golden, schedule, gpus);
        cr_expect(may && status == RP_USAGE, "%s, %s, %u GPUs: %s", golden->name, schedule->name,
                  gpus, message);
        return false;
    }
    double error = rp_test_golden_error(golden, &run, tolerance_of(golden), report, sizeof report);
    failures += error <= 1 ? 0 : 1;
    cr_assert(failures < 10, "and so on");
    cr_expect(rp_test_golden_cosine(golden, &run) > 0.9999, "%s", schedule->name);
    cr_expect(error <= 1,
              "%s, %s, %u GPUs, %u times %u microbatches, recompute %s, %s grain, %s: %.2f "
              "times: %s",
              golden->name, schedule->name, gpus, work.decided.accumulate,
              work.decided.microbatches, rp_recompute_text(c->recompute),
              c->layer_grain ? "layer" : "stage", c->asynchronous ? "async" : "sync", error,
              report);
    return true;
}

/* Runs every schedule on each of the numbers of GPUs, up to `gpu_limit`, on which it can run. */
static void run_all(const char *name, uint32_t gpu_limit, size_t combination_count)
{
    rp_test_golden golden;
    rp_test_golden_load(name, &golden);
    uint32_t number = 0;
    for (uint32_t s = 0; s < rp_schedule_count; s++) {
        const rp_schedule_type *schedule = rp_schedules[s];
        for (size_t n = 0; rpexec_work_obstacle(&schedule->traits, false) == NULL && n < 5; n++) {
            uint32_t ran = 0;
            for (size_t i = 0; gpu_counts[n] <= gpu_limit && i < combination_count; i++) {
                const combination *c = &combinations[i];
                bool other =
                    (c->asynchronous && schedule->traits.placement != RP_PLACEMENT_OFFLOAD) ||
                    (gpu_counts[n] > 4 && i >= FOR_MANY_GPUS);
                if (!other && number++ % step() == 0) {
                    ran += run_one(&golden, schedule, gpu_counts[n], c) ? 1 : 0;
                    rp_test_arena_end();
                    rp_test_arena_begin();
                }
            }
            bool should = step() == 1 && gpu_counts[n] <= gpu_limit &&
                          can_cut(&golden, schedule, gpu_counts[n]);
            cr_expect(ran > 0 || !should, "%s never ran on %u GPUs", schedule->name, gpu_counts[n]);
        }
    }
    slow_golden_free(&golden.file);
}

Test(exec_matrix, deep_decoder_on_all_numbers_of_gpus)
{
    run_all("deep", 8, COMBINATIONS);
}

/* As many stages as layers, or two stages without layers. */
Test(exec_matrix, tied_decoder_with_qk_norm)
{
    run_all("tied", 2, 2);
}

Test(exec_matrix, untied_decoder_with_scaled_rotation)
{
    run_all("untied", 2, 2);
}

/* Plain loops on one device, without a schedule, have the right loss and gradients to begin with.
 */
Test(exec_matrix, plain_loops)
{
    for (int i = 0; i < slow_golden_count; i++) {
        char report[256];
        rp_test_golden golden;
        rp_test_run run;
        rp_test_golden_load(slow_golden_names[i], &golden);
        const rp_resolved work = {.gpus = 1,
                                  .decided.accumulate = 1,
                                  .decided.microbatches = 1,
                                  .decided.microbatch_size = (uint32_t)golden.file.sequences,
                                  .decided.iterations = 1};
        const rp_test_twist twist = {.prepare = rp_test_golden_prepare, .context = &golden};
        cr_assert(eq(int,
                     rp_test_single_from(rp_test_arena, &golden.config,
                                         (uint32_t)golden.file.seq_len, &work, &twist, &run),
                     RP_OK));
        double error =
            rp_test_golden_error(&golden, &run, tolerance_of(&golden), report, sizeof report);
        cr_expect(error <= 1, "%s: %.2f times: %s", golden.name, error, report);
        slow_golden_free(&golden.file);
    }
}

/* Makes the reference's gradients for weights that are rounded to a storage type. */
static void round_weights(slow_golden *file, rp_dtype dtype)
{
    for (int i = 0; i < file->count; i++) {
        slow_golden_tensor *t = &file->tensors[i];
        for (int k = 0; k < t->shape.rows * t->shape.columns; k++) {
            uint16_t narrow;
            rpexec_narrow(dtype, 1, &t->weights[k], &narrow);
            rpexec_widen(dtype, 1, &narrow, &t->weights[k]);
        }
    }
    double *gradients = NULL;
    double *weights = slow_golden_weights(file, &gradients);
    const slow_batch batch = {file->sequences, file->seq_len, file->ids, file->labels};
    file->loss = slow_decoder_loss(&file->decoder, &batch, weights, gradients);
    for (int i = 0; i < file->count; i++) {
        const slow_parameter *p = &file->tensors[i].shape;
        for (int k = 0; k < p->rows * p->columns; k++) {
            file->tensors[i].gradients[k] = (float)gradients[p->offset + (size_t)k];
        }
    }
    free(weights);
    free(gradients);
}

/* Storage of 16 bits rounds every tensor that a block keeps or hands on: about 12 in the forward,
 * 15 in the backward, and some at the ends. The model of errors is the same as above, with a
 * rounding for each term. */
static double half_tolerance(const rp_test_golden *golden, rp_dtype dtype)
{
    const double k = 6;
    double u = ldexp(1, dtype == RP_DTYPE_BF16 ? -9 : -12);
    return k * u * sqrt(27.0 * golden->file.decoder.layers + 6);
}

/* 3, and the cosine of 1, with 16-bit storage and fp32 arithmetic. */
Test(exec_matrix, half_precision_storage)
{
    static const char *const names[] = {"roundpipe", "1f1b", "zbv", "looped-bfs", "mobius", "fsdp"};
    for (size_t i = 0; i < 12; i++) {
        char report[256];
        rp_test_golden golden;
        rp_test_run run;
        rp_dtype dtype = i < 6 ? RP_DTYPE_BF16 : RP_DTYPE_F16;
        rp_test_golden_load(i % 2 == 0 ? "tied" : "untied", &golden);
        round_weights(&golden.file, dtype);
        const rp_test_twist twist = {
            .prepare = rp_test_golden_prepare, .context = &golden, .dtype = dtype};
        rp_resolved work = rp_test_work(names[i % 6], 2, 4, 1);
        work.recompute = RP_RECOMPUTE_WAIT;
        work.decided.layer_grain = i % 3 == 0;
        cr_assert(eq(int,
                     rp_test_execute(rp_test_arena, &golden.config, (uint32_t)golden.file.seq_len,
                                     &work, &twist, &run),
                     RP_OK));
        double error = rp_test_golden_error(&golden, &run, half_tolerance(&golden, dtype), report,
                                            sizeof report);
        cr_expect(error <= 1, "%s, %s: %.2f times: %s", names[i % 6], rp_dtype_text(dtype), error,
                  report);
        double cosine = rp_test_golden_cosine(&golden, &run);
        cr_expect(cosine > 0.999, "%s, %s: cosine %g", names[i % 6], rp_dtype_text(dtype), cosine);
        slow_golden_free(&golden.file);
    }
}

/* The executor cannot keep several versions of weights, and must not train with a wrong version. */
Test(exec_matrix, schedules_that_are_simulated_only_are_refused)
{
    static const char *const names[] = {"pipedream", "pipedream-2bw"};
    rp_model config = rp_test_decoder(4, true, true);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char message[1024] = "";
        rp_test_run run;
        const rp_schedule_type *schedule = rp_schedule_find(names[i]);
        rp_resolved work = rp_test_work(names[i], 2, 4, 2);
        work.decided.asynchronous = true;
        work.recompute = RP_RECOMPUTE_WAIT;
        cr_expect(rpexec_work_obstacle(&schedule->traits, true) != NULL);
        rp_log_capture_begin(message, sizeof message);
        rp_status status = rp_test_execute(rp_test_arena, &config, 5, &work, NULL, &run);
        rp_log_capture_end();
        cr_expect(eq(int, status, RP_USAGE), "%s", names[i]);
        cr_expect(strstr(message, "--schedule: ") == message, "%s", message);
        cr_expect(strstr(message, rpexec_work_obstacle(&schedule->traits, true)) != NULL, "%s",
                  message);
    }
}
