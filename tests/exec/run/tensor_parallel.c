/* Tensor parallelism (megatron-tp) on the host backend: ranks with slices of every layer train as
 * one device does with the whole model, and exchange the bytes of the closed forms. */
#include "common/base/log.h"
#include "exec/host/lane.h"
#include "exec/operators/random.h"
#include "tests/support/assertions.h"
#include "tests/support/exec_case.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LAYERS 4u
#define SEQ_LEN 6u

TestSuite(exec_slices, .init = rp_test_arena_begin, .fini = rp_test_arena_end, .timeout = 120);

/* Kinds of decoders, each with another part. Four ranks share four heads on two kv heads; the
 * vocabulary of 97 has unequal parts. */
enum { DENSE, NORMS, ADAPTERS, EXPERTS, ADAPTED_EXPERTS, ONE_KV_HEAD, BIASES, KINDS };

/* RP_LONG tries all numbers; a plain run two of five, with all kinds and variants. */
static bool tries(uint32_t number)
{
    return getenv("RP_LONG") != NULL || number % 5 % 3 == 0;
}

static rp_model decoder_of(uint32_t kind, bool tied)
{
    rp_model m = rp_test_decoder(LAYERS, tied, kind != DENSE);
    if (kind == EXPERTS || kind == ADAPTED_EXPERTS) {
        m.experts = 4;
        m.active_experts = 2;
        m.intermediate = 16;
    }
    if (kind == ADAPTERS || kind == ADAPTED_EXPERTS) {
        rp_model_set_lora_rank(&m, 3);
        m.lora_alpha = 6;
    }
    m.kv_heads = kind == ONE_KV_HEAD ? 1 : m.kv_heads;
    m.qkv_bias = m.output_bias = m.mlp_bias = kind == BIASES;
    return m;
}

static void run_it(const rp_model *config, const rp_resolved *work, const rp_test_twist *twist,
                   rp_test_run *run)
{
    cr_assert(eq(int, rp_test_execute(rp_test_arena, config, SEQ_LEN, work, twist, run), RP_OK));
}

static void run_plain(const rp_model *config, const rp_resolved *work, const rp_test_twist *twist,
                      rp_test_run *run)
{
    cr_assert(
        eq(int, rp_test_single_from(rp_test_arena, config, SEQ_LEN, work, twist, run), RP_OK));
}

/* Distance (rms) between two runs' weights, relative to their distance from the start. Adam's first
 * steps are as long for small gradients as for large gradients, and a gradient that is only
 * rounding may have either sign. */
static double weight_distance(const rp_test_run *run, const rp_test_run *plain, uint64_t seed)
{
    double apart = 0;
    double way = 0;
    rpexec_state first;
    cr_assert(eq(int, rpexec_state_create(&run->model, rp_test_arena, &first), RP_OK));
    cr_assert(eq(int, rpexec_state_initialise(&first, seed, true), RP_OK));
    for (uint64_t i = 0; i < rpexec_state_own(&run->state, 0, run->model.layer_count); i++) {
        double a = (double)run->state.master[i];
        double b = (double)plain->state.master[i];
        apart += (a - b) * (a - b);
        way += (b - (double)first.master[i]) * (b - (double)first.master[i]);
    }
    cr_assert(gt(dbl, way, 0));
    return sqrt(apart / way);
}

static void set_variant(uint32_t number, rp_resolved *work, rp_partition *partition)
{
    static const rp_recompute modes[] = {RP_RECOMPUTE_WAIT, RP_RECOMPUTE_NONE, RP_RECOMPUTE_EARLY};
    static uint32_t layers[] = {1, 3, 0}; /* the last stage has only the head */
    *partition = (rp_partition){.forward_count = 3, .forward_layers = layers};
    work->decided.microbatches = work->gpus * (1 + number % 3);
    work->decided.microbatch_size = 1 + number % 2;
    work->recompute = modes[number % 3];
    work->decided.layer_grain = number % 4 == 2 && work->recompute != RP_RECOMPUTE_NONE;
    work->partition = number % 5 == 3 ? partition : NULL;
}

/* Compares the gradients of a step, and the losses and weights of three steps. */
Test(exec_slices, ranks_train_as_one_device_does)
{
    for (uint32_t number = 0; number < KINDS * 6; number++) {
        if (!tries(number)) {
            continue;
        }
        rp_model config = decoder_of(number % KINDS, number / KINDS % 2 == 0);
        rp_partition partition;
        rp_resolved work = rp_test_work("megatron-tp", 1u << number / KINDS % 3, 0, 1);
        set_variant(number, &work, &partition);
        for (work.decided.iterations = 1; work.decided.iterations <= 3;
             work.decided.iterations += 2) {
            rp_test_run plain;
            rp_test_run run;
            run_plain(&config, &work, NULL, &plain);
            run_it(&config, &work, NULL, &run);
            for (uint32_t i = 0; i < work.decided.iterations; i++) {
                double error = fabs(run.losses[i] - plain.losses[i]) / fabs(plain.losses[i]);
                cr_expect(error <= 1e-5, "%u on %u GPUs: loss %u differs by %g", number, work.gpus,
                          i, error);
            }
            double distance = work.decided.iterations == 1 ? rp_test_distance(&run, &plain) : 0;
            cr_expect(distance <= 1e-5, "%u on %u GPUs: gradients differ by %g", number, work.gpus,
                      distance);
            double apart = weight_distance(&run, &plain, 1);
            cr_expect(apart <= 1e-3, "%u on %u GPUs: weights differ by %g", number, work.gpus,
                      apart);
            cr_expect(eq(u64, run.state.step, work.decided.iterations));
            cr_expect(work.gpus > 1 || rp_test_same(&run, &plain, work.decided.iterations), "%u",
                      number);
        }
        rp_test_arena_again();
    }
}

/* In 16 bits each rank rounds its parts of sums, so a tensor's gradients differ by a few roundings.
 */
Test(exec_slices, sixteen_bits_differ_by_rounding)
{
    static const rp_dtype dtypes[] = {RP_DTYPE_BF16, RP_DTYPE_F16};
    static const uint32_t kinds[] = {DENSE, BIASES, ADAPTERS, ONE_KV_HEAD};
    for (uint32_t number = 0; number < 16; number++) {
        rp_model config = decoder_of(kinds[number / 4], number % 3 == 0);
        rp_dtype dtype = dtypes[number % 2];
        double roundoff = dtype == RP_DTYPE_BF16 ? 0x1p-8 : 0x1p-11;
        rp_partition partition;
        rp_test_run plain;
        rp_test_run run;
        const rp_test_twist twist = {.dtype = dtype};
        rp_resolved work = rp_test_work("megatron-tp", 2 + number / 2 % 2 * 2, 0, 1);
        set_variant(number, &work, &partition);
        run_plain(&config, &work, &twist, &plain);
        run_it(&config, &work, &twist, &run);
        double apart = 0;
        double all = 0;
        for (uint64_t i = 0; i < rpexec_state_own(&run.state, 0, run.model.layer_count); i++) {
            double a = (double)run.state.gradients[i];
            double b = (double)plain.state.gradients[i];
            apart += (a - b) * (a - b);
            all += b * b;
        }
        cr_expect(sqrt(apart / all) <= 4 * roundoff, "%u: %g", number, sqrt(apart / all));
        cr_expect(fabs(run.losses[0] / plain.losses[0] - 1) <= roundoff, "%u", number);
        rp_test_arena_again();
    }
}

/* If a rank is late, the others wait inside of their ops. */
Test(exec_slices, random_delays_change_nothing)
{
    for (uint32_t seed = 0; seed < 12; seed++) {
        if (!tries(seed)) {
            continue;
        }
        rp_model config = decoder_of(seed % KINDS, seed % 2 == 0);
        rp_test_run run;
        rp_test_run delayed;
        rp_resolved work = rp_test_work("megatron-tp", seed % 3 == 0 ? 4 : 2, 8, 1);
        work.decided.iterations = 2;
        work.decided.layer_grain = seed % 2 == 1;
        rp_test_twist twist = {.dtype = seed % 4 == 3 ? RP_DTYPE_F16 : RP_DTYPE_F32};
        run_it(&config, &work, &twist, &run);
        twist.delay_seed = seed;
        twist.delay_us = 400;
        run_it(&config, &work, &twist, &delayed);
        cr_expect(rp_test_same(&run, &delayed, 2), "seed %u", seed);
        rp_test_arena_again();
    }
}

/* Bytes that all ranks together exchange in a step of a dense model. */
static uint64_t exchanged_of(const rp_test_run *run, const rp_resolved *work)
{
    const rp_model *m = run->model.config;
    uint64_t ranks = work->gpus;
    uint64_t groups = work->decided.microbatches / ranks;
    uint64_t tokens = ranks * work->decided.microbatch_size * SEQ_LEN;
    bool again = work->recompute != RP_RECOMPUTE_NONE;
    uint64_t sums = ((again ? 6 : 4) * LAYERS + 2) * tokens * m->hidden * groups;
    /* Two numbers of each row, from every rank, in whole blocks of 16. */
    uint64_t told = groups * ranks * ((2 * tokens + 15) / 16 * 16);
    sums += m->qk_norm ? (uint64_t)2 * LAYERS * m->head_dim : 0;
    sums += ranks > m->kv_heads ? (uint64_t)2 * LAYERS * m->kv_heads * m->head_dim * m->hidden : 0;
    return (ranks - 1) * (2 * sums + told) * sizeof(float);
}

Test(exec_slices, bytes_moved_equal_the_closed_form)
{
    static const uint32_t kinds[] = {DENSE, NORMS, ONE_KV_HEAD};
    for (uint32_t number = 0; number < 18; number++) {
        rp_model config = decoder_of(kinds[number / 3 % 3], number % 2 == 0);
        rp_partition partition;
        rp_test_run run;
        rp_resolved work = rp_test_work("megatron-tp", 1u << number % 3, 0, 1);
        set_variant(number, &work, &partition);
        work.recompute = number < 9 ? RP_RECOMPUTE_WAIT : RP_RECOMPUTE_NONE;
        work.decided.layer_grain &= number < 9;
        run_it(&config, &work, NULL, &run);
        cr_expect(eq(u64, run.exchanged_bytes, exchanged_of(&run, &work)), "%u", number);
        /* The program counts the same bytes as rpsim, boundaries only. */
        uint64_t reduces = (work.recompute != RP_RECOMPUTE_NONE ? 6 : 4) * LAYERS + 2;
        uint64_t boundary =
            (uint64_t)work.gpus * work.decided.microbatch_size * SEQ_LEN * config.hidden;
        uint64_t groups = work.decided.microbatches / work.gpus;
        cr_expect(eq(u64, run.collective_bytes,
                     2 * reduces * boundary * sizeof(float) * (work.gpus - 1) * groups));
        cr_expect(eq(u64, run.uploaded_bytes + run.downloaded_bytes, 0));
        rp_test_arena_again();
    }
}

/* Bytes that ranks exchange inside of their ops go over their links. */
Test(exec_slices, sums_are_as_slow_as_the_links)
{
    rp_model config = decoder_of(NORMS, true);
    rp_test_run run;
    rp_resolved work = rp_test_work("megatron-tp", 2, 4, 1);
    const rp_machine machine = {.upload_Bps = 20e6, .download_Bps = 20e6, .host_Bps = 20e6};
    rp_test_twist twist = {.machine = &machine, .observe = true};
    run_it(&config, &work, &twist, &run);
    double bytes = 0;
    int64_t end_ps = 0;
    for (uint32_t op = 0; op < run.program->op_count; op++) {
        bool own = run.program->queues[run.plan.order.queue_of[op]].gpu == 0;
        bool sums = run.program->ops[op].kind == RP_OP_ALL_REDUCE;
        bytes += own && sums ? (double)run.program->op_bytes[op] : 0;
        end_ps = run.timeline->end_ps[op] > end_ps ? run.timeline->end_ps[op] : end_ps;
    }
    cr_expect(gt(dbl, bytes, 0));
    cr_expect(ge(dbl, 1e-12 * (double)end_ps, bytes / 20e6));
    rp_test_forget(&run);
}

/* Weights, gradients and moments are cut: each of two ranks needs little more than half of the
 * memory of one GPU. The planned memory is enough, and one byte less is refused. */
Test(exec_slices, memory_is_shared_and_stays_below_its_cap)
{
    rp_model config = rp_test_decoder(16, false, true);
    uint64_t one = 0;
    for (uint32_t gpus = 1; gpus <= 4; gpus *= 2) {
        char message[1024] = "";
        rp_test_run run;
        rp_test_run capped;
        rp_resolved work = rp_test_work("megatron-tp", gpus, gpus, 1);
        run_it(&config, &work, NULL, &run);
        one = gpus == 1 ? run.most_bytes : one;
        cr_expect(le(dbl, (double)run.most_bytes,
                     (double)one * (gpus == 1   ? 1
                                    : gpus == 2 ? 0.65
                                                : 0.5)));
        rp_test_twist twist = {.cap_bytes = run.most_bytes};
        run_it(&config, &work, &twist, &capped);
        cr_expect(rp_test_same(&run, &capped, 1));
        twist.cap_bytes--;
        rp_log_capture_begin(message, sizeof message);
        rp_status status = rp_test_execute(rp_test_arena, &config, SEQ_LEN, &work, &twist, &capped);
        rp_log_capture_end();
        cr_expect(eq(int, status, RP_USAGE));
        cr_expect(strstr(message, "bytes beyond its end") != NULL, "%s", message);
    }
}

/* The other ranks wait inside of their ops for the failed rank. */
Test(exec_slices, injected_failures_end_the_run)
{
    static const rp_op_kind kinds[] = {RP_OP_FORWARD, RP_OP_RECOMPUTE, RP_OP_BACKWARD,
                                       RP_OP_ALL_REDUCE, RP_OP_UPDATE};
    rp_model config = decoder_of(NORMS, true);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        char message[1024] = "";
        rp_test_run run;
        rp_resolved work = rp_test_work("megatron-tp", 4, 8, 1);
        rp_test_twist twist = {.fails = true, .fail_kind = kinds[i]};
        rp_log_capture_begin(message, sizeof message);
        rp_status status = rp_test_execute(rp_test_arena, &config, SEQ_LEN, &work, &twist, &run);
        rp_log_capture_end();
        cr_expect(eq(int, status, RP_TOOL), "%s", rp_op_kind_text(kinds[i]));
        cr_expect(strstr(message, "failed (GPU 0, stage ") != NULL, "%s", message);
        rp_test_arena_again();
    }
}

Test(exec_slices, what_cannot_be_cut_is_refused)
{
    static const struct {
        uint32_t kind, gpus, vocab;
        const char *reason;
    } cases[] = {
        {DENSE, 3, 97,
         "--gpus: 3 GPUs cannot have equal parts of test decoder, which has 4 heads, "
         "2 kv heads, an MLP of 48 and 97 tokens; valid for tensor parallelism are 1, 2, 4"},
        {DENSE, 8, 97, "valid for tensor parallelism are 1, 2, 4"},
        {DENSE, 4, 3, "valid for tensor parallelism are 1, 2"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rp_model config = decoder_of(cases[i].kind, true);
        char message[1024] = "";
        rp_test_run run;
        rp_resolved work = rp_test_work("megatron-tp", cases[i].gpus, cases[i].gpus, 1);
        config.vocab = cases[i].vocab;
        rp_log_capture_begin(message, sizeof message);
        rp_status status = rp_test_execute(rp_test_arena, &config, SEQ_LEN, &work, NULL, &run);
        rp_log_capture_end();
        cr_expect(eq(int, status, RP_USAGE));
        cr_expect(strstr(message, cases[i].reason) != NULL, "%s", message);
    }
}

/* ---- the whole model ------------------------------------------------------------------------- */

static void continue_from(void *context, rp_arena *unused, rp_test_run *run)
{
    const rp_test_run *from = context;
    uint64_t floats = from->state.trained[from->model.layer_count];
    (void)unused;
    memcpy(run->state.master, from->state.master, floats * sizeof(float));
    memcpy(run->state.m, from->state.m, floats * sizeof(float));
    memcpy(run->state.v, from->state.v, floats * sizeof(float));
    /* Checkpoints have no masters or moments of a tied head's table, since it is the embedding's.
     */
    uint64_t own = rpexec_state_own(&run->state, 0, run->model.layer_count);
    memset(run->state.master + own, 0xff, (floats - own) * sizeof(float));
    memset(run->state.m + own, 0xff, (floats - own) * sizeof(float));
    memset(run->state.v + own, 0xff, (floats - own) * sizeof(float));
    run->state.step = from->state.step;
    for (uint32_t layer = 0; layer < run->model.layer_count; layer++) {
        rpexec_state_refresh(&run->state, layer);
    }
}

/* Ranks leave the whole model with its moments. Other schedules go on from there, on one device and
 * on several, and ranks go on from the state of other schedules. */
Test(exec_slices, training_goes_on_with_another_schedule)
{
    for (uint32_t kind = 0; kind < KINDS; kind++) {
        rp_model config = decoder_of(kind, kind % 2 == 0);
        rp_test_run first;
        rp_test_run plain;
        rp_resolved work = rp_test_work("megatron-tp", kind % 3 == 0 ? 2 : 4, 4, 1);
        work.decided.iterations = 2;
        run_it(&config, &work, NULL, &first);
        const rp_test_twist twist = {.prepare = continue_from, .context = &first};
        run_plain(&config, &work, &twist, &plain);
        for (uint32_t i = 0; i < 3; i++) {
            static const char *const names[] = {"fsdp", "roundpipe", "megatron-tp"};
            rp_test_run run;
            work.schedule = rp_schedule_find(names[i]);
            work.gpus = 2;
            run_it(&config, &work, &twist, &run);
            double distance = rp_test_distance(&run, &plain);
            cr_expect(distance <= 1e-5, "%s, %u: %g", names[i], kind, distance);
            double apart = weight_distance(&run, &plain, 1);
            cr_expect(apart <= 1e-3, "%s, %u: %g", names[i], kind, apart);
        }
        rp_test_arena_again();
    }
}

/* The slices have every value of the whole, and put it back in its place. */
static void check_layer(const rpexec_model *m, const rpexec_slice *slices, uint32_t ranks,
                        uint32_t layer, bool trained)
{
    const rpexec_layer *l = rpexec_model_layer(m, layer);
    uint64_t skipped = trained ? l->frozen : 0;
    uint64_t count = l->floats - skipped;
    float *whole = NULL;
    float *part = NULL;
    float *back = NULL;
    cr_assert(eq(int, rp_arena_alloc(rp_test_arena, count + 1, sizeof *whole, &whole), RP_OK));
    cr_assert(eq(int, rp_arena_alloc(rp_test_arena, count + 1, sizeof *part, &part), RP_OK));
    cr_assert(eq(int, rp_arena_alloc(rp_test_arena, count + 1, sizeof *back, &back), RP_OK));
    for (uint32_t i = 0; i < l->tensor_count; i++) {
        const rpexec_tensor *t = &l->tensors[i];
        for (uint64_t k = 0; t->offset >= skipped && k < t->rows * t->columns; k++) {
            whole[t->offset - skipped + k] = (float)(t->offset + k + 1);
        }
    }
    for (uint32_t rank = 0; rank < ranks; rank++) {
        rpexec_slice_copy copy = {.layer = layer,
                                  .width = sizeof(float),
                                  .trained = trained,
                                  .whole = whole,
                                  .part = part};
        rpexec_slice_move(&slices[rank], &copy);
        copy.whole = back;
        copy.to_whole = true;
        rpexec_slice_move(&slices[rank], &copy);
    }
    cr_expect(eq(int, memcmp(whole, back, count * sizeof *whole), 0), "layer %u", layer);
}

Test(exec_slices, slices_make_the_whole_again)
{
    for (uint32_t number = 0; number < KINDS * 3; number++) {
        rp_model config = decoder_of(number % KINDS, false);
        uint32_t ranks = 1u << number / KINDS;
        rpexec_model m;
        rpexec_slice slices[4];
        cr_assert(
            eq(int, rpexec_model_create(&config, SEQ_LEN, RP_DTYPE_F32, rp_test_arena, &m), RP_OK));
        for (uint32_t i = 0; i < ranks; i++) {
            cr_assert(eq(int, rpexec_slice_create(&m, ranks, i, rp_test_arena, &slices[i]), RP_OK));
        }
        for (uint32_t layer = 0; layer < m.layer_count; layer++) {
            check_layer(&m, slices, ranks, layer, false);
            check_layer(&m, slices, ranks, layer, true);
        }
        rp_test_arena_again();
    }
}

/* ---- the loss -------------------------------------------------------------------------------- */

/* Parts of a vocabulary give the loss and the gradient of the whole: a row without a label, labels
 * in each part, and logits that overflow unless the largest logit is subtracted. */
static void check_parts_of_the_loss(float cap)
{
    enum { ROWS = 5, VOCAB = 23, PARTS = 3, STRIDE = 16 };
    static const uint32_t begins[PARTS + 1] = {0, 7, 8, VOCAB};
    static const int32_t labels[ROWS] = {0, 7, RPEXEC_IGNORED, 22, 9};
    const rpexec_operators *op = rpexec_host_operators[RP_DTYPE_F32];
    rpexec_lane lane = {0};
    float whole[ROWS * VOCAB];
    float parts[PARTS][ROWS * VOCAB];
    float statistics[PARTS * STRIDE] = {0};
    double loss = 1;
    double sum = 1;
    rpexec_random_normal(3, 1, 3, ROWS * VOCAB, whole);
    for (uint32_t i = 3 * VOCAB; i < ROWS * VOCAB; i++) {
        whole[i] *= 100;
    }
    for (uint32_t p = 0; p < PARTS; p++) {
        uint32_t width = begins[p + 1] - begins[p];
        for (uint32_t row = 0; row < ROWS; row++) {
            memcpy(parts[p] + row * width, whole + row * VOCAB + begins[p], width * sizeof(float));
        }
        op->row_statistics(&lane, ROWS, width, cap, parts[p], statistics + p * STRIDE);
    }
    op->cross_entropy(&lane, ROWS, VOCAB, labels, cap, 0.25f, whole, &loss);
    for (uint32_t p = 0; p < PARTS; p++) {
        uint32_t width = begins[p + 1] - begins[p];
        op->cross_entropy_part(&lane, ROWS, width, begins[p], labels, PARTS, statistics, STRIDE,
                               cap, 0.25f, parts[p], &sum);
        for (uint32_t i = 0; i < ROWS * width; i++) {
            float right = whole[i / width * VOCAB + begins[p] + i % width];
            cr_expect(fabsf(parts[p][i] - right) <= 1e-6f, "part %u, %u: %g, not %g", p, i,
                      (double)parts[p][i], (double)right);
        }
    }
    cr_expect(fabs(sum - loss) <= 1e-6 * loss, "%.9g, not %.9g", sum, loss);
}

Test(exec_slices, parts_of_the_loss_are_the_loss)
{
    check_parts_of_the_loss(0);
    check_parts_of_the_loss(2.5f);
}
