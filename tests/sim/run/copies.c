/* Copies of a pipeline: starts of their collectives, bytes moved, bytes in memory. */
#include "tests/support/assertions.h"
#include "tests/support/study_case.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

TestSuite(copies, .init = rp_test_tool_begin, .fini = rp_test_tool_end, .timeout = 300);

/* ---- start times of buckets ------------------------------------------------------------------ */

#define LAYERS 8
#define HIDDEN 512.0
#define BLOCK_BYTES (2 * (12 * HIDDEN * HIDDEN + 13 * HIDDEN)) /* weights, biases, two norms */
#define TABLE_BYTES (2 * 50304 * HIDDEN)                       /* 50257 rows, padded */
#define HEAD_BYTES (TABLE_BYTES + 2 * (2 + 1024) * HIDDEN)     /* the final norm, positions */
#define ONE_STAGE                                                                                  \
    "--schedule 1f1b --model gpt:512x8x8 --platform a100-80x8 --gpus 4 --data-parallel 4 "         \
    "--seq-len 1024 --microbatch-size 4 --microbatches 2 --iterations 1 "

/* A stage's last backward and its gradients' reductions. */
typedef struct reductions {
    int64_t layer_end_ps[LAYERS + 2]; /* [layer, from 1; LAYERS + 1: head] */
    uint32_t count;
    int64_t start_ps[LAYERS + 2];
    int64_t end_ps[LAYERS + 2];
    double bytes[LAYERS + 2];
    uint32_t calls[LAYERS + 2];
} reductions;

static reductions reductions_of(const char *more)
{
    char line[512];
    (void)snprintf(line, sizeof line, ONE_STAGE "%s", more);
    rp_test_run run = rp_test_run_line(line);
    const rp_program *p = run.program;
    reductions r = {.count = 0};
    for (uint32_t i = 0; i < p->op_count; i++) {
        const rp_op *op = &p->ops[i];
        bool reduces = op->kind == RP_OP_ALL_REDUCE || op->kind == RP_OP_REDUCE_SCATTER;
        if (op->kind == RP_OP_BACKWARD && op->microbatch == 1) {
            uint32_t layer = rp_op_layer(op);
            cr_assert(layer >= 1 && layer <= LAYERS + 1, "%s", more);
            r.layer_end_ps[layer] = run.timeline->end_ps[i];
        } else if (reduces) {
            cr_assert(lt(u32, r.count, LAYERS + 2));
            r.start_ps[r.count] = run.timeline->start_ps[i];
            r.end_ps[r.count] = run.timeline->end_ps[i];
            r.bytes[r.count] = (double)p->op_bytes[i];
            r.calls[r.count++] = rp_op_repeat(op);
        }
    }
    rp_test_run_fini(&run);
    return r;
}

/* After 8.4 us and six hops of 3.4 us a ring of four moves 2 x 3/4 of a bucket's bytes at 230 GB/s
 * (traces/platforms/a100-80x8.yaml). */
static int64_t reduction_ps(double bytes, double calls, double link)
{
    return (int64_t)(1e12 * bytes * 1.5 / (230e9 * link) + calls * 1e6 * (8.4 + 6 * 3.4));
}

/* Buckets of at least `mib` fill from the head down to the table. A reduction begins when its last
 * layer's gradients are ready and the one before it is done. */
static void expect_buckets(const reductions *r, double mib, double link)
{
    double most = mib * (1 << 20);
    double bytes = HEAD_BYTES;
    uint32_t count = 0;
    int64_t free_ps = 0;
    for (uint32_t layer = LAYERS + 1; layer > 0; layer--) {
        bytes += layer <= LAYERS ? BLOCK_BYTES : 0;
        bool last = layer == 1;
        if (bytes < most && !last) {
            continue;
        }
        int64_t ready_ps = r->layer_end_ps[layer];
        for (int part = 0; part < 1 + (last && bytes >= most ? 1 : 0); part++) {
            /* The table's gradients come with the first layer's, in the last, partial bucket. */
            double all = last && (bytes < most || part == 1) ? TABLE_BYTES : 0;
            all += part == 0 ? bytes : 0;
            double calls = all >= most ? (double)(uint64_t)(all / most) : 1;
            int64_t start_ps = ready_ps > free_ps ? ready_ps : free_ps;
            cr_assert(lt(u32, count, r->count), "%g MiB", mib);
            cr_expect(epsilon_eq(dbl, r->bytes[count], 1.5 * all, 8), "%g MiB, %u", mib, count);
            cr_expect(eq(dbl, r->calls[count], calls), "%g MiB, %u", mib, count);
            cr_expect(eq(i64, r->start_ps[count], start_ps), "%g MiB, %u", mib, count);
            free_ps = r->end_ps[count++];
            cr_expect(epsilon_eq(dbl, (double)(free_ps - start_ps),
                                 (double)reduction_ps(all, calls, link), 4.0),
                      "%g MiB, %u", mib, count);
        }
        bytes = 0;
    }
    cr_expect(eq(u32, r->count, count), "%g MiB", mib);
}

Test(copies, reductions_start_with_their_buckets)
{
    static const int sizes[] = {1, 5, 7, 13, 25, 64, 1000};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        char more[64];
        (void)snprintf(more, sizeof more, "--bucket-mb %d", sizes[i]);
        reductions r = reductions_of(more);
        expect_buckets(&r, sizes[i], 1);
        (void)snprintf(more, sizeof more, "--bucket-mb %d --grain layer --recompute wait",
                       sizes[i]);
        r = reductions_of(more);
        expect_buckets(&r, sizes[i], 1);
    }
}

/* Changes of bucket, link and backward, and the reductions that they delay. */
Test(copies, exposed_reductions_move_with_bucket_link_and_backward)
{
    reductions small = reductions_of("--bucket-mb 13");
    reductions large = reductions_of("--bucket-mb 64");
    cr_assert(ge(u32, small.count, 4));
    cr_assert(ge(u32, large.count, 2));
    /* The head's 49 MiB fill a small bucket; the large also needs three layers of 6 MiB. */
    cr_expect(eq(i64, small.start_ps[0], small.layer_end_ps[LAYERS + 1]));
    cr_expect(eq(i64, large.start_ps[0], large.layer_end_ps[LAYERS - 2]));
    cr_expect(eq(i64, large.layer_end_ps[LAYERS + 1], small.layer_end_ps[LAYERS + 1]));
    /* On a link with a thousandth of the rate the first reduction starts as before, and the others
     * queue. */
    reductions slow = reductions_of("--bucket-mb 13 --set platform.collective_gb_per_s*0.001");
    expect_buckets(&slow, 13, 0.001);
    cr_expect(eq(i64, slow.start_ps[0], small.start_ps[0]));
    for (uint32_t i = 1; i < slow.count; i++) {
        cr_expect(eq(i64, slow.start_ps[i], slow.end_ps[i - 1]));
        cr_expect(gt(i64, slow.start_ps[i], small.start_ps[i]));
    }
    /* A GPU with half the rate: each reduction starts with its layer, later than before. */
    reductions late = reductions_of("--bucket-mb 13 --set platform.gemm_fp32_acc_efficiency*0.5");
    expect_buckets(&late, 13, 1);
    for (uint32_t i = 0; i < late.count; i++) {
        cr_expect(gt(i64, late.start_ps[i], small.start_ps[i]));
    }
    cr_expect(eq(i64, late.start_ps[0], late.layer_end_ps[LAYERS + 1]));
}

/* comm_exposed_ms is time without a pass of the GPU: with a single stage, from the last pass's end
 * to the end of the copies' work after it, shares of weights included. */
Test(copies, sums_behind_the_last_backward_are_exposed)
{
    static const char *const more[] = {"", "--zero 1", "--bucket-mb 13", "--zero 2 --bucket-mb 13",
                                       "--zero 1 --iterations 2"};
    for (size_t k = 0; k < sizeof more / sizeof more[0]; k++) {
        char line[512];
        (void)snprintf(line, sizeof line, ONE_STAGE "%s", more[k]);
        rp_test_run run = rp_test_run_line(line);
        const rp_program *p = run.program;
        const rp_timeline *t = run.timeline;
        int64_t idle_ps[2] = {0, 0}; /* of each iteration, after its last backward */
        int64_t exposed_ps = 0;
        for (uint32_t i = 0; i < p->op_count; i++) {
            int64_t *from_ps = &idle_ps[p->ops[i].iteration];
            bool pass = rp_op_kind_is_pass((rp_op_kind)p->ops[i].kind);
            *from_ps = pass && t->end_ps[i] > *from_ps ? t->end_ps[i] : *from_ps;
        }
        for (uint32_t i = 0; i < p->op_count; i++) { /* in turn, in a queue */
            int64_t from_ps = idle_ps[p->ops[i].iteration];
            bool sum = p->queues[rp_program_queue_of(p, i)].kind == RP_QUEUE_DATA;
            int64_t start_ps = t->start_ps[i] > from_ps ? t->start_ps[i] : from_ps;
            bool first = p->ops[i].iteration == 0;
            exposed_ps += sum && first && t->end_ps[i] > start_ps ? t->end_ps[i] - start_ps : 0;
        }
        cr_expect(gt(i64, exposed_ps, 0), "%s", more[k]);
        double reported = rp_test_row_number(line, "comm_exposed_ms");
        cr_expect(epsilon_eq(dbl, reported, (double)exposed_ps / 1e9, 1e-9), "%s", more[k]);
        rp_test_run_fini(&run);
    }
}

/* ---- bytes that ZeRO moves and keeps --------------------------------------------------------- */

typedef struct zero_case {
    uint32_t zero;
    uint32_t tensor;
    uint32_t data;
    bool each;   /* --reduce-each microbatch */
    bool single; /* --reduce-dtype fp32 */
} zero_case;

/* Passes that use weights: forwards and backwards, or their input parts. */
static double uses_of(const rp_program *p)
{
    return (double)(p->forward_count + p->backward_count) * p->microbatch_count;
}

static void expect_zero(const rpsim_row *row, const zero_case *c)
{
    const double h = 256;
    const double layers = 32;
    const double copies = c->data;
    rp_test_run run = rp_test_run_row(row);
    const rp_program *p = run.program;
    const char *name = row->schedule_name;
    cr_assert(eq(int, rp_program_check(p), RP_OK), "%s", name);
    double rows = c->tensor == 1 ? 393 : c->tensor == 2 ? 197 : 99; /* of 128, for 50257 / tensor */
    double cut = 12 * h * h / c->tensor + 7 * h / c->tensor + 6 * h;
    double table = 128 * rows * h;
    double both = layers * cut + 2 * h + 2 * table + row->run.decided.seq_len * h;
    double once =
        both - (rp_test_ends_meet(p) ? table : 0); /* a GPU with both ends has a single table */
    double gradient = c->single ? 4 : 2;
    /* Rajbhandari et al., ZeRO, SC 2020, section 5: 2 + 2 + 12 bytes per parameter, with shared
     * optimizer, gradients and weights. */
    double slack = 3.0 * c->data * p->gpu_count;
    double shares = c->zero >= 3 ? copies : 1;
    cr_expect(epsilon_eq(dbl, rp_test_lasting_bytes(p, RP_BUFFER_WEIGHT), 2 * once / shares, slack),
              "%s", name);
    shares = c->zero >= 2 && c->each ? copies : 1;
    cr_expect(epsilon_eq(dbl, rp_test_lasting_bytes(p, RP_BUFFER_GRADIENT),
                         gradient * once / shares, slack),
              "%s", name);
    shares = c->zero >= 1 ? copies : 1;
    cr_expect(
        epsilon_eq(dbl, rp_test_lasting_bytes(p, RP_BUFFER_OPTIMIZER), 12 * once / shares, slack),
        "%s", name);
    /* Section 7: a reduce-scatter or gather passes (n - 1) / n of the bytes through each GPU, an
     * all-reduce twice that. Microbatches may each be reduced, and gather. */
    double microbatches = p->microbatch_count;
    double reduced = gradient * both * (c->each ? microbatches : 1);
    double gathered = c->zero == 0   ? reduced
                      : c->zero == 3 ? 2 * 2 * both * microbatches
                                     : 2 * once;
    double moved = (reduced + gathered) * (copies - 1) / copies;
    cr_expect(epsilon_eq(dbl, rp_test_queue_bytes(p, RP_QUEUE_DATA), moved,
                         2 * (uses_of(p) + p->microbatch_count * (layers + 2) + p->gpu_count)),
              "%s, ZeRO-%u", name, c->zero);
    rp_test_run_fini(&run);
}

static void expect_zero_of(const rp_schedule_type *schedule, const zero_case *c, const char *more)
{
    rpsim_study study;
    char line[400];
    (void)snprintf(line, sizeof line,
                   "--schedule %s --model gpt:256x4x32 --platform a100-80x8 --nodes 2 "
                   "--tensor-parallel %u --data-parallel %u --zero %u --microbatches 32 "
                   "--microbatch-size 2 --seq-len 512 --iterations 1 --reduce-each %s "
                   "--reduce-dtype %s --dtype bf16 %s",
                   schedule->name, c->tensor, c->data, c->zero, c->each ? "microbatch" : "step",
                   c->single ? "fp32" : "bf16", more);
    rp_test_study(line, &study);
    expect_zero(&study.rows[0], c);
    rpsim_study_fini(&study);
}

/* Every pipeline with a synchronous step. */
Test(copies, bytes_in_memory_and_on_links)
{
    bool all = getenv("RP_LONG") != NULL;
    uint32_t number = 0;
    for (uint32_t i = 0; i < rp_schedule_count; i++) {
        bool resident = rp_schedules[i]->traits.placement == RP_PLACEMENT_RESIDENT;
        bool endless = rp_schedules[i]->traits.versions != RP_VERSIONS_ONE;
        for (uint32_t k = 0; resident && !endless && k < 96; k++) {
            const zero_case c = {.zero = k % 4,
                                 .tensor = 1u << k / 4 % 3,
                                 .data = 2u << k / 12 % 2,
                                 .each = k / 24 % 2 == 0,
                                 .single = k / 48 == 0};
            number++;
            if (all || number % 67 == 0) {
                expect_zero_of(rp_schedules[i], &c, "");
                expect_zero_of(rp_schedules[i], &c, "--bucket-mb 4");
            }
        }
    }
}

/* Most buffers at a time: weights of two gathered units, gradients of two on their way. */
static double most_at_a_time(const rp_test_run *run, uint32_t gpu, rp_buffer_kind kind,
                             double of_stage)
{
    const rp_program *p = run->program;
    double most = 0;
    for (uint32_t i = 0; i < p->buffer_count; i++) {
        const rp_buffer *at = &p->buffers[i];
        double sum = 0;
        for (uint32_t k = 0; k < p->buffer_count; k++) {
            const rp_buffer *b = &p->buffers[k];
            bool there =
                run->timeline->start_ps[b->alloc_op] <= run->timeline->start_ps[at->alloc_op] &&
                run->timeline->end_ps[b->free_op] > run->timeline->start_ps[at->alloc_op];
            bool boundary = b->bytes < 1u << 20; /* gradients, too */
            sum += there && b->kind == kind && b->place == gpu && !boundary ? (double)b->bytes : 0;
        }
        most = sum > most ? sum : most;
    }
    return most / of_stage;
}

/* Two stages of two layers on a slow link, the second with the head. Besides the shares of four
 * copies a GPU has two units' weights, with ZeRO-2 two units' gradients. With ZeRO-3 their
 * reduction precedes the next backward's weights. */
Test(copies, whole_weights_and_gradients_come_and_go)
{
    static const double weights[] = {0, 1, 1, 2.25};
    static const double gradients[] = {0, 1, 2.25, 1.25};
    double stage = 2 * (12 * 256 * 256 + 13 * 256) + 50304 * 256.0 + (2 + 512) * 256;
    for (uint32_t zero = 1; zero <= 3; zero++) {
        char line[320];
        (void)snprintf(line, sizeof line,
                       "--schedule 1f1b --model gpt:256x4x4 --platform a100-80x8 --gpus 8 "
                       "--data-parallel 4 --seq-len 512 --microbatch-size 2 --microbatches 6 "
                       "--iterations 2 --partition 2,2 --zero %u "
                       "--set platform.collective_gb_per_s*0.01",
                       zero);
        rp_test_run run = rp_test_run_line(line);
        cr_expect(epsilon_eq(dbl, most_at_a_time(&run, 1, RP_BUFFER_WEIGHT, 2 * stage),
                             weights[zero], 1e-6),
                  "%u", zero);
        cr_expect(epsilon_eq(dbl, most_at_a_time(&run, 1, RP_BUFFER_GRADIENT, 2 * stage),
                             gradients[zero], 1e-6),
                  "%u", zero);
        rp_test_run_fini(&run);
    }
}

/* A shared step takes a D-th of the time, then gathers. */
Test(copies, a_step_is_shared_and_gathered)
{
    const char *line = "--schedule 1f1b --model gpt:512x8x4 --platform a100-80x8 --seq-len 1024 "
                       "--microbatch-size 2 --gpus 4 --microbatches 4 --data-parallel 4";
    char shared[320];
    double parameters = 4 * (12 * 512.0 * 512 + 13 * 512) + 2 * 512 + 50304 * 512.0 + 1024 * 512.0;
    double both = parameters + 50304 * 512.0;
    double update_ms = 1e3 * 54 * parameters / 1861e9; /* sim/model.md 13, a100-80x8.yaml */
    double ring_ms = 1e-3 * (8.4 + 3 * 3.4);
    double all_ms = 1e3 * 2 * both * 1.5 / 230e9 + 1e-3 * (8.4 + 6 * 3.4);
    double half_ms = 1e3 * 2 * both * 0.75 / 230e9 + ring_ms;
    double gather_ms = 1e3 * 2 * parameters * 0.75 / 230e9 + ring_ms;
    (void)snprintf(shared, sizeof shared, "%s --zero 1", line);
    double whole = rp_test_row_number(line, "makespan_ms");
    cr_expect(epsilon_eq(dbl, whole - rp_test_row_number(shared, "makespan_ms"),
                         all_ms + update_ms - half_ms - update_ms / 4 - gather_ms, 1e-5));
    cr_expect(eq(dbl, rp_test_row_number(shared, "zero"), 1));
    (void)snprintf(shared, sizeof shared, "%s --bucket-mb 25", line);
    cr_expect(lt(dbl, rp_test_row_number(shared, "makespan_ms"), whole));
    cr_expect(eq(dbl, rp_test_row_number(shared, "bucket_mb"), 25));
}

Test(copies, what_they_cannot_share_is_refused)
{
    static const struct {
        const char *line;
        const char *message;
    } cases[] = {
        {"--schedule 1f1b --zero 1", "--zero: one copy has nobody to share with"},
        {"--schedule 1f1b --tensor-parallel 8 --bucket-mb 1", "--bucket-mb: one copy"},
        {"--schedule 1f1b --data-parallel 2 --zero 4", "valid values are 0|1|2|3"},
        {"--schedule 1f1b --data-parallel 2 --zero 1 --optimizer async",
         "valid with --optimizer sync"},
        {"--schedule fsdp --data-parallel 2 --zero 1", "already spreads one model over all GPUs"},
        {"--schedule 1f1b --reduce-each microbatch", "--data-parallel 2 or more"},
        {"--schedule 1f1b --data-parallel 2 --zero 1 --fidelity stage",
         "valid only with --fidelity hardware"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rp_test_outcome outcome = rp_test_rpsim_after("", cases[i].line);
        cr_expect(eq(int, outcome.status, 2), "%s", cases[i].line);
        cr_expect(ne(ptr, strstr(outcome.messages, cases[i].message), NULL), "%s: %s",
                  cases[i].line, outcome.messages);
    }
}
