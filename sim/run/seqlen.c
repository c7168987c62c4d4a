#include "sim/run/seqlen.h"

#include "common/base/log.h"
#include "common/base/reason.h"
#include "common/roofline/roofline.h"

typedef struct search {
    rp_resolved *run;
    const rp_platform *platform;
    rp_arena *arena;
} search;

/* Gives the run model and times of its length, as a run with --seq-len has them. Times of a file
 * are scaled instead. */
static rp_status set_length(const search *s, rp_reason *reason)
{
    rp_resolved *run = s->run;
    const rp_costs *costs = run->costs;
    const rp_roof roof = {s->platform, costs->arithmetic, costs->stack};
    rp_model *model = NULL;
    rp_costs *computed = NULL;
    rp_model part;
    RP_TRY(rp_arena_alloc(s->arena, 1, sizeof *model, &model));
    *model = *run->model;
    rp_model_set_seq_len(model, run->decided.seq_len);
    run->model = model;
    if (!costs->computed) {
        return RP_OK;
    }
    part = *model;
    if (costs->tensor_parallel != 0) {
        RP_TRY(rp_model_cut(model, &run->decided.layout, s->arena, &part, reason));
    }
    RP_TRY(rp_arena_alloc(s->arena, 1, sizeof *computed, &computed));
    RP_TRY(rp_roofline_costs(&part, &roof, costs->microbatch_size, run->decided.seq_len, s->arena,
                             computed, reason));
    computed->name = costs->name;
    computed->tensor_parallel = costs->tensor_parallel;
    run->costs = computed;
    return RP_OK;
}

/* @param without RPSIM_WITHOUT_* */
static rp_status run(const search *s, uint32_t steps, unsigned without, rpsim_result *result_out,
                     rp_reason *reason)
{
    s->run->decided.seq_len = steps * RPSIM_SEQLEN_STEP;
    RP_TRY(set_length(s, reason));
    if (s->run->planned) {
        rp_partition *plan = NULL;
        RP_TRY(rp_arena_alloc(s->arena, 1, sizeof *plan, &plan));
        RP_TRY(rpsim_run_plan(s->run, s->platform, s->arena, plan, NULL, reason));
        s->run->partition = plan;
    }
    RP_TRY(rpsim_hardware_case_run(s->run, s->platform, without, result_out, reason));
    if (!result_out->memory.known) {
        rpsim_result_fini(result_out);
        return rp_broken(); /* every lowered program has buffers */
    }
    return RP_OK;
}

static rp_status try_length(const search *s, uint32_t steps, bool *fits_out, rp_reason *reason)
{
    rpsim_result result;
    RP_TRY(run(s, steps, RPSIM_WITHOUT_STEP | RPSIM_WITHOUT_CHECK | RPSIM_WITHOUT_EQUAL_RANKS,
               &result, reason));
    *fits_out = result.memory.fits;
    rpsim_result_fini(&result);
    return RP_OK;
}

/* Finds the last length that fits and the first that does not: [good, bad). 0 always fits. */
static rp_status bisect(const search *s, uint32_t *good_out, uint32_t *bad_out, rp_reason *reason)
{
    uint32_t good = 0;
    uint32_t bad = 1;
    bool fits = true;
    for (;;) {
        RP_TRY(try_length(s, bad, &fits, reason));
        if (!fits || bad == RPSIM_SEQLEN_MAX_STEPS) {
            break;
        }
        good = bad;
        bad *= 2;
    }
    if (fits) {
        good = bad++;
    }
    while (bad - good > 1) {
        uint32_t middle = good + (bad - good) / 2;
        RP_TRY(try_length(s, middle, &fits, reason));
        good = fits ? middle : good;
        bad = fits ? bad : middle;
    }
    *good_out = good;
    *bad_out = bad;
    return RP_OK;
}

static rp_status check_monotone(const search *s, uint32_t good, uint32_t bad, rpsim_seqlen *found,
                                rp_reason *reason)
{
    const struct {
        uint32_t steps;
        bool fits;
    } probes[RPSIM_SEQLEN_PROBES] = {
        {good / 2, true}, {good * 3 / 4, true}, {bad + 1, false}, {bad + bad / 4, false}};
    for (size_t i = 0; i < sizeof probes / sizeof probes[0]; i++) {
        bool fits = probes[i].fits;
        if (probes[i].steps != 0 && probes[i].steps <= RPSIM_SEQLEN_MAX_STEPS) {
            RP_TRY(try_length(s, probes[i].steps, &fits, reason));
        }
        if (fits != probes[i].fits) {
            found->doubts[found->doubt_count++] =
                (rpsim_seqlen_doubt){.tokens = probes[i].steps * RPSIM_SEQLEN_STEP,
                                     .other_tokens = (fits ? bad : good) * RPSIM_SEQLEN_STEP,
                                     .fits = fits};
        }
    }
    return RP_OK;
}

rp_status rpsim_seqlen_search(rp_resolved *resolved, const rp_platform *platform, unsigned without,
                              rp_arena *arena, rpsim_seqlen *found_out, rpsim_result *result_out,
                              rp_reason *reason)
{
    search s = {resolved, platform, arena};
    uint32_t good = 0;
    uint32_t bad = 0;
    *found_out = (rpsim_seqlen){0};
    RP_TRY(bisect(&s, &good, &bad, reason));
    RP_TRY(check_monotone(&s, good, bad, found_out, reason));
    found_out->tokens = good * RPSIM_SEQLEN_STEP;
    return run(&s, good == 0 ? 1 : good, without, result_out, reason);
}

void rpsim_seqlen_warn(const rpsim_seqlen *found, const char *schedule)
{
    for (uint32_t i = 0; i < found->doubt_count; i++) {
        const rpsim_seqlen_doubt *d = &found->doubts[i];
        rp_log_warning("%s%s{max_seqlen}: %u tokens %s although %u %s; the search assumes that "
                       "what is longer needs more",
                       schedule != NULL ? schedule : "", schedule != NULL ? ": warning: " : "",
                       d->tokens, d->fits ? "fit" : "do not fit", d->other_tokens,
                       d->fits ? "do not" : "do");
    }
}
