/* Invariants of executor.md section 3 about losses and gradients; each test has its invariant's
 * number. */
#include "exec/host/lane.h"
#include "tests/support/assertions.h"
#include "tests/support/exec_watch.h"
#include "tests/support/golden_case.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define SEQ_LEN 5u

TestSuite(exec_invariants_numerics, .init = rp_test_arena_begin, .fini = rp_test_arena_end,
          .timeout = 60);

static void execute(const rp_model *config, const rp_resolved *work, const rp_test_twist *twist,
                    rp_test_run *run)
{
    cr_assert(eq(int, rp_test_execute(rp_test_arena, config, SEQ_LEN, work, twist, run), RP_OK),
              "%s", work->schedule->name);
}

/* 2: the same microbatches on any number of GPUs, for five iterations. */
Test(exec_invariants_numerics, n_independence)
{
    enum { STEPS = 5 };
    static const char *const names[] = {"roundpipe", "roundpipe-overlap", "1f1b", "zb-h1", "gpipe"};
    static const uint32_t gpus[] = {1, 2, 3, 5, 8};
    rp_model config = rp_test_small_decoder(16, true, true);
    for (size_t i = 0; i < 5; i++) {
        for (int asynchronous = 0; asynchronous < (i < 2 ? 2 : 1); asynchronous++) {
            rp_test_run first;
            for (size_t n = 0; n < 5; n++) {
                rp_test_run run;
                rp_resolved work = rp_test_work(names[i], gpus[n], 9, STEPS);
                work.decided.asynchronous = asynchronous != 0;
                execute(&config, &work, NULL, &run);
                first = n == 0 ? run : first;
                cr_expect(memcmp(run.losses, first.losses, STEPS * sizeof(double)) == 0,
                          "%s on %u GPUs", names[i], gpus[n]);
                cr_expect(rp_test_same(&run, &first, STEPS), "%s on %u GPUs", names[i], gpus[n]);
            }
        }
    }
}

/* 4: stage grain, layer grain, no recompute, last stage fused or not. */
Test(exec_invariants_numerics, grain_and_fusing_do_not_matter)
{
    uint32_t three_three[] = {3, 3};
    uint32_t two_two_two[] = {2, 2, 2};
    uint32_t none_first[] = {0, 3, 3}; /* the last stage has only the head, and nothing is fused */
    uint32_t two_first[] = {2, 2, 2};
    uint32_t two_two[] = {2, 2};
    const rp_partition partitions[] = {
        {.forward_count = 3,
         .forward_layers = two_two_two,
         .backward_count = 3,
         .backward_layers = none_first},
        {.forward_count = 2,
         .forward_layers = two_two,
         .backward_count = 3,
         .backward_layers = two_first},
        {.forward_count = 2,
         .forward_layers = three_three,
         .backward_count = 3,
         .backward_layers = none_first},
    };
    rp_model config = rp_test_small_decoder(6, true, true);
    rp_resolved plain = rp_test_work("1f1b", 2, 4, 2);
    rp_test_run right;
    plain.recompute = RP_RECOMPUTE_NONE;
    execute(&config, &plain, NULL, &right);
    for (size_t i = 0; i < sizeof partitions / sizeof partitions[0]; i++) {
        for (int layers = 0; layers < 2; layers++) {
            for (int early = 0; early < 2; early++) {
                rp_test_run run;
                rp_resolved work = rp_test_work("roundpipe", 2, 4, 2);
                work.partition = &partitions[i];
                work.decided.layer_grain = layers != 0;
                work.recompute = early != 0 ? RP_RECOMPUTE_EARLY : RP_RECOMPUTE_WAIT;
                execute(&config, &work, NULL, &run);
                cr_expect(rp_test_same(&run, &right, 2), "partition %zu, %s grain, %s", i,
                          layers != 0 ? "layer" : "stage", rp_recompute_text(work.recompute));
            }
        }
    }
}

static uint32_t count_of(const rp_program *program, rp_op_kind kind)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < program->op_count; i++) {
        count += program->ops[i].kind == kind ? 1 : 0;
    }
    return count;
}

/* 5: calls of 2, 3 and 4 microbatches, and one call of all. The gradients of a call are uploaded
 * again in the next call. */
Test(exec_invariants_numerics, one_call_is_two_calls)
{
    rp_model config = rp_test_small_decoder(7, true, true);
    for (int asynchronous = 0; asynchronous < 2; asynchronous++) {
        rp_test_run one;
        const rp_test_twist watch = {.observe = true};
        rp_resolved work = rp_test_work("roundpipe", 3, 12, 3);
        work.decided.asynchronous = asynchronous != 0;
        execute(&config, &work, &watch, &one);
        cr_expect(eq(u32, count_of(one.program, RP_OP_UPLOAD_PARAM_GRAD), 0));
        for (uint32_t calls = 3; calls <= 6; calls += calls == 3 ? 1 : 2) {
            rp_test_run run;
            work.decided.accumulate = calls;
            work.decided.microbatches = 12 / calls;
            execute(&config, &work, &watch, &run);
            cr_expect(rp_test_same(&run, &one, 3), "%u calls", calls);
            uint32_t backwards = run.program->backward_count;
            cr_expect(eq(u32, count_of(run.program, RP_OP_UPLOAD_PARAM_GRAD),
                         3 * (calls - 1) * backwards));
            rp_test_forget(&run);
        }
        rp_test_forget(&one);
    }
}

/* Gives the head the embedding's table. */
static void tie(void *context, rp_arena *in, rp_test_run *run)
{
    (void)context;
    (void)in;
    uint32_t head = run->model.layer_count - 1;
    uint64_t table = run->state.offsets[head] + run->model.head.tensors[RPEXEC_HEAD_TABLE].offset;
    memcpy(run->state.master + table, run->state.master,
           run->model.embedding.floats * sizeof(float));
    rpexec_state_refresh(&run->state, head);
}

/* 6: the gradient of a tied table is the sum of the embedding's part and the head's, each once. */
Test(exec_invariants_numerics, tied_table_gets_both_gradients)
{
    static const char *const names[] = {"roundpipe", "roundpipe", "1f1b", "zbv"};
    rp_model tied = rp_test_small_decoder(5, true, true);
    rp_model untied = rp_test_small_decoder(5, false, true);
    const rp_test_twist twist = {.prepare = tie};
    for (uint32_t i = 0; i < 4; i++) {
        rp_test_run one;
        rp_test_run two;
        rp_resolved work = rp_test_work(names[i], 2, 4, 1);
        work.decided.accumulate = i == 1 ? 2 : 1;
        execute(&tied, &work, NULL, &one);
        execute(&untied, &work, &twist, &two);
        const rpexec_state *s = &two.state;
        const float *of_head = s->gradients + s->offsets[two.model.layer_count - 1] +
                               two.model.head.tensors[RPEXEC_HEAD_TABLE].offset;
        uint32_t both = 0;
        for (uint64_t k = 0; k < (uint64_t)tied.vocab * tied.hidden; k++) {
            float sum = of_head[k] + s->gradients[k];
            both += of_head[k] != 0 && s->gradients[k] != 0 ? 1 : 0;
            cr_expect(one.state.gradients[k] == sum, "%s, element %u: %g + %g is not %g", names[i],
                      (unsigned)k, (double)of_head[k], (double)s->gradients[k],
                      (double)one.state.gradients[k]);
        }
        cr_expect(gt(u32, both, 0));
    }
}

/* 7: a microbatch counts in proportion to its labels; a mean of the microbatches' means would be
 * wrong. */
Test(exec_invariants_numerics, loss_is_over_all_valid_labels)
{
    char report[256];
    rp_test_golden golden;
    rp_test_run run;
    rp_test_golden_load("untied", &golden);
    slow_golden *file = &golden.file;
    int seq_len = file->seq_len;
    /* the first sequence keeps one label, the last keeps all of its labels */
    for (int t = 0; t < seq_len - 1; t++) {
        file->labels[t] = SLOW_IGNORED;
    }
    file->labels[seq_len - 1] = 5;
    double *gradients = NULL;
    double *weights = slow_golden_weights(file, &gradients);
    slow_batch whole = {file->sequences, seq_len, file->ids, file->labels};
    file->loss = slow_decoder_loss(&file->decoder, &whole, weights, gradients);
    double means = 0;
    for (int i = 0; i < file->sequences; i++) {
        slow_batch one = {1, seq_len, file->ids + i * seq_len, file->labels + i * seq_len};
        means += slow_decoder_loss(&file->decoder, &one, weights, NULL) / file->sequences;
    }
    cr_assert(fabs(means / file->loss - 1) > 1e-3, "the data cannot tell them apart");
    for (int i = 0; i < file->count; i++) {
        const slow_parameter *p = &file->tensors[i].shape;
        for (int k = 0; k < p->rows * p->columns; k++) {
            file->tensors[i].gradients[k] = (float)gradients[p->offset + (size_t)k];
        }
    }
    rp_resolved work = rp_test_work("roundpipe", 2, 4, 1);
    const rp_test_twist twist = {.prepare = rp_test_golden_prepare, .context = &golden};
    cr_assert(eq(
        int, rp_test_execute(rp_test_arena, &golden.config, (uint32_t)seq_len, &work, &twist, &run),
        RP_OK));
    double error = rp_test_golden_error(&golden, &run, 1e-5, report, sizeof report);
    cr_expect(error <= 1, "%g: %s", error, report);
    free(weights);
    free(gradients);
    slow_golden_free(file);
}

/* ---- 12 -------------------------------------------------------------------------------------- */

/* Every gradient of microbatch m is 2^m, so that the sum in Adam tells which microbatches were
 * added. */
static _Thread_local float contribution;

static void note_microbatch(rp_test_watch *watch, uint32_t op)
{
    contribution = ldexpf(1, (int)watch->plan->program->ops[op].microbatch);
}

static void add_contribution(uint64_t count, float *to)
{
    for (uint64_t i = 0; i < count; i++) {
        to[i] += contribution;
    }
}

static void synthetic_norm(rpexec_lane *lane, uint64_t rows, uint32_t width, const void *x,
                           const float *r, const void *dy, bool wide, void *dweight)
{
    (void)lane, (void)rows, (void)x, (void)r, (void)dy, (void)wide;
    add_contribution(width, dweight);
}

static void synthetic_linear(rpexec_lane *lane, uint64_t rows, uint32_t in, uint32_t out,
                             const void *dy, const void *x, bool wide, void *dweight)
{
    (void)lane, (void)rows, (void)dy, (void)x, (void)wide;
    add_contribution((uint64_t)in * out, dweight);
}

static void synthetic_embed(rpexec_lane *lane, uint64_t tokens, uint32_t width, const int32_t *ids,
                            const void *dx, bool wide, void *dtable)
{
    (void)lane, (void)tokens, (void)ids, (void)dx, (void)wide;
    add_contribution((uint64_t)19 * width, dtable); /* the whole vocabulary */
}

typedef struct tally {
    float expected;
    pthread_mutex_t lock;
    uint64_t right, wrong;
    const rpexec_state *state;
} tally;

static tally seen;

static void take(const float *gradients, uint64_t count)
{
    pthread_mutex_lock(&seen.lock);
    for (uint64_t i = 0; i < count; i++) {
        seen.right += gradients[i] == seen.expected ? 1 : 0;
        seen.wrong += gradients[i] != seen.expected && gradients[i] != 0 ? 1 : 0; /* 0: padding */
    }
    pthread_mutex_unlock(&seen.lock);
}

/* Adam on the GPUs. */
static void synthetic_adam(rpexec_lane *lane, const rpexec_adam_factors *factors,
                           const rpexec_update *update)
{
    (void)lane, (void)factors;
    take(update->gradients, update->count);
}

/* On the host Adam leaves the gradients as they are, so they are checked after its op. */
static void after_synthetic(rp_test_watch *watch, uint32_t op)
{
    const rp_schedule_type *type = watch->context;
    bool on_host =
        type->traits.placement == RP_PLACEMENT_OFFLOAD || type->traits.sharding.host_optimizer;
    if (watch->plan->program->ops[op].kind == RP_OP_OPTIMIZER && on_host) {
        take(seen.state->gradients, seen.state->offsets[watch->plan->model->layer_count]);
    }
}

static void remember_state(void *context, rp_arena *in, rp_test_run *run)
{
    (void)context;
    (void)in;
    seen.state = &run->state;
}

static void check_contributions(const char *schedule, uint32_t gpus, uint32_t calls,
                                bool asynchronous, bool layer_grain)
{
    enum { STEPS = 3, M = 12 };
    rpexec_operators operators = *rpexec_host_operators[RP_DTYPE_F32];
    operators.rms_norm_weight = synthetic_norm;
    operators.linear_weight = synthetic_linear;
    operators.embed_weight = synthetic_embed;
    operators.adam = synthetic_adam;
    rp_resolved work = rp_test_work(schedule, gpus, M / calls, STEPS);
    rp_schedule_type type = *work.schedule;
    rp_test_watch watch = {.before = note_microbatch,
                           .after = after_synthetic,
                           .operators = &operators,
                           .context = &type};
    const rp_test_twist twist = {.driver_type = rp_test_watched(&watch), .prepare = remember_state};
    rp_model config = rp_test_small_decoder(8, false, true);
    work.decided.accumulate = calls;
    work.decided.asynchronous = asynchronous;
    work.decided.layer_grain = layer_grain;
    seen = (tally){.expected = ldexpf(1, M) - 1};
    pthread_mutex_init(&seen.lock, NULL);
    rp_test_run run;
    execute(&config, &work, &twist, &run);
    uint64_t parameters = 0;
    for (uint32_t layer = 0; layer < run.model.layer_count; layer++) {
        const rpexec_layer *l = rpexec_model_layer(&run.model, layer);
        for (uint32_t i = 0; i < l->tensor_count; i++) {
            parameters += l->tensors[i].rows * l->tensors[i].columns;
        }
    }
    cr_expect(eq(u64, seen.wrong, 0), "%s on %u GPUs, %u calls", schedule, gpus, calls);
    cr_expect(eq(u64, seen.right, STEPS * parameters), "%s on %u GPUs, %u calls", schedule, gpus,
              calls);
    pthread_mutex_destroy(&seen.lock);
}

/* 12: the Adam of a step gets the gradient of every microbatch of every call once, in each
 * parameter. */
Test(exec_invariants_numerics, adam_sees_every_microbatch_once)
{
    for (uint32_t calls = 1; calls <= 3; calls++) {
        for (uint32_t gpus = 1; gpus <= 3; gpus++) {
            check_contributions("roundpipe", gpus, calls, (gpus + calls) % 2 == 0, calls == 3);
        }
    }
    for (uint32_t i = 0; i < rp_schedule_count; i++) {
        const rp_schedule_type *schedule = rp_schedules[i];
        /* Tensor-parallel ranks work on microbatches whose ops belong to other ranks. */
        bool alone = !rp_cuts_layers(&schedule->traits);
        if (alone && rpexec_work_obstacle(&schedule->traits, false) == NULL) {
            check_contributions(schedule->name, 3, 1, false, i % 2 == 0);
        }
    }
}
