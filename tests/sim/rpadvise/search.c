/* The search against exhaustive trials of small models and servers. */
#include "common/compile/compile.h"
#include "sim/rpadvise/search_internal.h"
#include "tests/support/assertions.h"
#include "tests/support/test_arena.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

TestSuite(search, .init = rp_test_log_begin, .fini = rp_test_log_end, .timeout = 1200);

#define GPUS 4
#define MOST_TRIALS 4096u

typedef struct scene {
    rpadvise_options options;
    rpsim_setup work;
    rpadvise_systems systems;
    rpadvise_bench bench;
} scene;

static const char *few[] = {"gpipe", "zb-h1", "roundpipe", "fsdp", "mobius"};

static void begin(scene *s, const char *model)
{
    *s = (scene){.options = {.model = model,
                             .work = RPSIM_SETUP_INIT,
                             .max_step_tokens = 1u << 17,
                             .schedules = few,
                             .schedule_count = sizeof few / sizeof few[0],
                             .budget = 5000}};
    s->options.work.platform = "rtx4090x8";
    s->options.work.run.gpus = GPUS;
    s->options.work.run.seq_len = 2048;
    cr_assert(eq(int, rpadvise_systems_load(rp_test_arena, &s->systems), RP_OK));
}

static rpadvise_search run(scene *s)
{
    rpadvise_search search;
    const rp_run *given = &s->work.run;
    s->work = s->options.work;
    s->work.models = &s->options.model;
    s->work.model_count = 1;
    s->bench = (rpadvise_bench){.work = &s->work,
                                .systems = &s->systems,
                                .runnable = s->options.runnable,
                                .budget = s->options.budget};
    cr_assert(
        eq(int,
           rpadvise_search_run(&s->options, given->gpus * (given->nodes != 0 ? given->nodes : 1),
                               given->seq_len, &s->bench, rp_test_arena, &search),
           RP_OK));
    cr_expect(s->bench.spent <= s->bench.budget);
    return search;
}

/* Minutes under sanitizers; the tests below take the same paths in shorter searches. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
/* Every schedule, optimizer, recompute, grain and size at N, 2 N and 4 N microbatches; a plain run
 * has a third of these, with each value of each. */
static double best_of_all(scene *s)
{
    static rpadvise_trial trials[MOST_TRIALS];
    uint32_t count = 0;
    uint32_t stride = getenv("RP_LONG") != NULL ? 1 : 3;
    for (uint32_t i = 0; i < s->options.schedule_count; i++) {
        for (uint32_t bits = 0; bits < 2 * 2 * 3 * 3 * 3; bits += stride) {
            const rp_schedule_type *schedule = rp_schedule_find(s->options.schedules[i]);
            uint32_t rest = bits / 4;
            rpadvise_candidate c = rpadvise_candidate_of(&s->work, schedule);
            c.run.asynchronous = bits % 2 != 0;
            c.run.layer_grain = bits / 2 % 2 != 0;
            c.run.recomputes[0] = (rp_recompute)(rest % 3);
            c.run.microbatch_size = 1u << (rest / 3 % 3);
            c.run.microbatches = GPUS << (rest / 9);
            trials[count++] = (rpadvise_trial){.candidate = c};
        }
    }
    cr_assert(eq(int, rpadvise_try(&s->bench, trials, count, "all"), RP_OK));
    double best = 0;
    for (uint32_t i = 0; i < count; i++) {
        double speed = trials[i].outcome.fits ? trials[i].outcome.tokens_per_s : 0;
        best = fmax(best, speed);
    }
    return best;
}

static void compare_with_all(const char *model)
{
    scene s;
    begin(&s, model);
    rpadvise_search search = run(&s);
    cr_assert(search.found_count > 0);
    double best = best_of_all(&s);
    cr_expect(best > 0);
    cr_expect(ge(dbl, search.found[0].outcome.tokens_per_s, 0.995 * best));
    for (uint32_t i = 0; i < search.found_count; i++) {
        const rpadvise_outcome *o = &search.found[i].outcome;
        bool host = o->host_limit_bytes == 0 || o->host_bytes <= o->host_limit_bytes;
        bool within = o->gpu_bytes <= o->gpu_limit_bytes && host;
        cr_expect(eq(int, o->fits && !within, 0));
        cr_expect(le(u64, (uint64_t)o->batch * o->seq_len, s.options.max_step_tokens));
        cr_expect(i == 0 || !o->fits ||
                  o->tokens_per_s <= search.found[i - 1].outcome.tokens_per_s);
    }
}

/* Every layout of `nodes` servers, with and without recompute, sequence parallelism and a shared
 * optimizer, at P, 2 P and 4 P microbatches. */
static double best_layout(scene *s, uint32_t nodes, uint32_t *alike_out)
{
    static rpadvise_trial trials[MOST_TRIALS];
    uint32_t count = 0;
    uint32_t gpus = s->work.run.gpus * (nodes != 0 ? nodes : 1);
    for (uint32_t i = 0; i < s->options.schedule_count; i++) {
        for (uint32_t tensor = 1; tensor <= gpus; tensor *= 2) {
            for (uint32_t data = 1; data * tensor <= gpus; data *= 2) {
                for (uint32_t rest = 0; rest < 2 * 3 * 3 * 4; rest++) {
                    uint32_t places = gpus / tensor / data;
                    rpadvise_candidate c =
                        rpadvise_candidate_of(&s->work, rp_schedule_find(s->options.schedules[i]));
                    c.run.recomputes[0] = rest % 2 != 0 ? RP_RECOMPUTE_WAIT : RP_RECOMPUTE_NONE;
                    c.run.nodes = nodes;
                    c.run.layout.data_parallel = data;
                    c.run.layout.tensor_parallel = tensor;
                    c.run.microbatch_size = 1u << (rest / 2 % 3);
                    c.run.microbatches = places << (rest / 6 % 3);
                    c.run.layout.sequence_parallel = rest / 18 % 2 != 0;
                    c.run.layout.zero = rest / 36;
                    bool same = (tensor == 1 && c.run.layout.sequence_parallel) ||
                                (data == 1 && c.run.layout.zero != 0);
                    trials[count].candidate = c;
                    count += same ? 0 : 1;
                }
            }
        }
    }
    cr_assert(eq(int, rpadvise_try(&s->bench, trials, count, "all"), RP_OK));
    double best = 0;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t tokens = (uint64_t)trials[i].outcome.batch * trials[i].outcome.seq_len;
        if (trials[i].outcome.fits && tokens <= s->options.max_step_tokens &&
            trials[i].outcome.tokens_per_s > best) {
            best = trials[i].outcome.tokens_per_s;
            *alike_out = rpadvise_alike(&trials[i].candidate);
        }
    }
    return best;
}

/* @param composes whether the best layout has copies, or GPUs that share a layer */
static void compare_layouts(const char *model, const char *platform, uint32_t gpus, uint32_t nodes,
                            uint32_t max_step_tokens, bool composes)
{
    static const char *composed[] = {"1f1b", "zb-h1"};
    scene s;
    uint32_t alike = 0;
    begin(&s, model);
    s.options.work.platform = platform;
    s.options.work.run.gpus = gpus;
    s.options.work.run.nodes = nodes;
    s.options.schedules = composed;
    s.options.schedule_count = 2;
    s.options.synchronous = true;
    s.options.max_step_tokens = max_step_tokens;
    rpadvise_search search = run(&s);
    cr_assert(search.found_count > 0);
    double best = best_layout(&s, nodes, &alike);
    for (uint32_t fewer = nodes / 2; fewer > 0; fewer /= 2) {
        uint32_t alike_of_fewer = 0;
        double of_fewer = best_layout(&s, fewer, &alike_of_fewer);
        if (of_fewer > best) {
            best = of_fewer;
            alike = alike_of_fewer;
        }
    }
    cr_expect(eq(int, alike > 1, composes), "%s on %s", model, platform);
    cr_expect(ge(dbl, search.found[0].outcome.tokens_per_s, 0.995 * best), "%s on %s", model,
              platform);
    cr_expect(gt(u32, search.pruned, 0));
}

Test(search, finds_the_best_of_all_layouts)
{
    compare_layouts("qwen3-0.6b", "h100x8", 4, 0, 1u << 15, true);
    compare_layouts("llama3.1-8b", "a100-80x8", 2, 2, 1u << 16, true);
    if (getenv("RP_LONG") != NULL) {
        compare_layouts("qwen3-1.7b", "rtx4090x8", 8, 0, 1u << 17, false); /* its links are slow */
        compare_layouts("llama3.1-8b", "h100x8", 8, 2, 1u << 18, true);
    }
}

Test(search, finds_the_best_of_all_where_much_fits)
{
    compare_with_all("qwen3-0.6b");
}

Test(search, finds_the_best_of_all_where_little_fits)
{
    compare_with_all("llama3.1-8b");
}
#endif

/* Budget and seed decide, not the machine. */
Test(search, the_same_again)
{
    scene s;
    begin(&s, "qwen3-0.6b");
    s.options.budget = 150;
    rpadvise_search one = run(&s);
    rpadvise_search other = run(&s);
    cr_assert(one.found_count > 0);
    cr_expect(eq(u32, one.found_count, other.found_count));
    for (uint32_t i = 0; i < one.found_count; i++) {
        cr_expect(rpadvise_candidate_equal(&one.found[i].candidate, &other.found[i].candidate));
    }
}

Test(search, a_given_batch)
{
    scene s;
    begin(&s, "llama3.1-8b");
    s.options.work.run.global_batch = 24;
    s.options.budget = 300;
    rpadvise_search search = run(&s);
    cr_assert(search.found_count > 0);
    for (uint32_t i = 0; i < search.found_count; i++) {
        cr_expect(eq(u32, search.found[i].outcome.batch, 24));
    }
}

Test(search, restricted_to_a_mode_and_a_system)
{
    scene s;
    begin(&s, "qwen3-0.6b");
    s.options.synchronous = true;
    s.options.runnable = "torch-fsdp";
    s.options.budget = 300;
    rpadvise_search search = run(&s);
    cr_assert(search.found_count > 0);
    for (uint32_t i = 0; i < search.found_count; i++) {
        cr_expect(eq(int, search.found[i].candidate.run.asynchronous, 0));
        cr_expect(eq(str, (char *)search.found[i].candidate.schedule->name, "fsdp"));
    }
}

/* A limit of less than a sequence per GPU holds too. */
Test(search, a_step_of_three_sequences)
{
    scene s;
    begin(&s, "qwen3-0.6b");
    s.options.max_step_tokens = 3 * 2048;
    rpadvise_search search = run(&s);
    cr_assert(search.found_count > 0);
    for (uint32_t i = 0; i < search.found_count; i++) {
        cr_expect(le(u32, search.found[i].outcome.batch, 3));
    }
}

/* 1F1B holds activations of as many microbatches as stages (Narayanan et al., 2019), so fewer
 * microbatches than GPUs allow longer sequences in pipelines of all GPUs. Copies and shared layers
 * shorten these. */
Test(search, fewer_microbatches_than_gpus)
{
    static const char *only[] = {"1f1b"};
    scene s;
    begin(&s, "qwen3-0.6b");
    s.options.work.run.seq_len = 1u << 17;
    s.options.max_step_tokens = 1u << 20;
    s.options.schedules = only;
    s.options.schedule_count = 1;
    rpadvise_search search = run(&s);
    cr_assert(search.found_count > 0);
    cr_expect(search.found[0].outcome.fits);
    uint32_t fitting = 0;
    for (uint32_t i = 0; i < search.family_count; i++) {
        const rpadvise_family *f = &search.families[i];
        bool whole = rpadvise_alike(&f->candidate) == 1;
        cr_expect(eq(int, whole && f->at_n.fits && f->at_n.batch >= GPUS, 0));
        fitting += whole && f->at_n.fits ? 1 : 0;
    }
    cr_expect(gt(u32, fitting, 0));
}

Test(search, nothing_fits)
{
    scene s;
    begin(&s, "qwen3-235b");
    rpadvise_search search = run(&s);
    cr_expect(eq(u32, search.found_count, 0));
    for (uint32_t i = 0; i < search.family_count; i++) {
        cr_expect(eq(int, search.families[i].at_n.fits, 0));
    }
}

/* With the synchronous optimizer PipeDream flushes and is 1F1B (Narayanan et al., SOSP 2019,
 * section 3.2): the same tokens per second and memory, listed once. */
Test(search, schedules_that_are_one_program_are_tried_once)
{
    static const char *names[] = {"pipedream", "1f1b", "pipedream-2bw"};
    scene s;
    begin(&s, "qwen3-0.6b");
    s.options.schedules = names;
    s.options.schedule_count = 3;
    s.options.synchronous = true;
    s.options.budget = 200;
    rpadvise_search search = run(&s);
    cr_assert(search.found_count > 0);
    for (uint32_t i = 0; i < search.family_count; i++) {
        cr_expect(eq(str, (char *)search.families[i].candidate.schedule->name, "1f1b"));
    }
    rp_schedule_type renamed = *rp_schedule_find("pipedream");
    const rpadvise_candidate other = {.schedule = &renamed};
    renamed.name = "renamed";
    cr_expect(rpadvise_is_double(&search, &other));
    rpadvise_trial trials[3];
    for (uint32_t i = 0; i < 3; i++) {
        rpadvise_candidate c = rpadvise_candidate_of(&s.work, rp_schedule_find(names[i]));
        c.run.recomputes[0] = RP_RECOMPUTE_WAIT;
        c.run.microbatches = 8;
        trials[i] = (rpadvise_trial){.candidate = c};
    }
    s.bench.budget += 3;
    cr_assert(eq(int, rpadvise_try(&s.bench, trials, 3, "all"), RP_OK));
    for (uint32_t i = 0; i < 3; i++) {
        cr_expect(gt(dbl, trials[i].outcome.tokens_per_s, 0));
        cr_expect(eq(dbl, trials[i].outcome.tokens_per_s, trials[1].outcome.tokens_per_s));
    }
    s.options.schedule_count = 1; /* it is there if requested alone */
    s.options.budget = 50;
    search = run(&s);
    cr_assert(search.found_count > 0);
    cr_expect(eq(str, (char *)search.found[0].candidate.schedule->name, "pipedream"));
}

/* The winner's short run is 2 % behind the best: a search that kept those within 1 % missed it.
 * RP_LONG only: 7 s, sanitized two minutes. */
Test(search, runs_neighbours_in_full_that_short_runs_put_second)
{
    static const char *both[] = {"roundpipe", "roundpipe-overlap"};
    scene s;
    if (getenv("RP_LONG") == NULL) {
        cr_skip_test("RP_LONG=1 runs it");
    }
    begin(&s, "gpt-oss-20b");
    s.options.work.run.gpus = 8;
    s.options.max_step_tokens = 1u << 20;
    s.options.schedules = both;
    s.options.schedule_count = 2;
    rpadvise_search search = run(&s);
    rpadvise_trial known = {
        .candidate = rpadvise_candidate_of(&s.work, rp_schedule_find("roundpipe-overlap"))};
    rp_run *run_of_known = &known.candidate.run;
    run_of_known->asynchronous = true;
    run_of_known->recomputes[0] = RP_RECOMPUTE_WAIT;
    run_of_known->partition = "auto";
    run_of_known->microbatch_size = 12;
    run_of_known->microbatches = 16;
    run_of_known->accumulate = 2;
    cr_assert(eq(int, rpadvise_try(&s.bench, &known, 1, "known"), RP_OK));
    cr_expect(known.outcome.fits);
    double most = search.found[0].outcome.tokens_per_s;
    cr_expect(ge(dbl, most, 0.995 * known.outcome.tokens_per_s));
}
