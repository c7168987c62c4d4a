/* Output of --schedule all beside the table. */
#include "sim/study/columns.h"
#include "sim/study/ranking.h"

#include <string.h>

#define REVERSALS_TOLD 3u

void rpsim_refusals_write(const rpsim_study *study, FILE *stream)
{
    for (uint32_t i = 0; i < study->refusal_count; i++) {
        const rpsim_refusal *refusal = &study->refusals[i];
        bool several = study->setup->model_count > 1;
        fprintf(stream, "%s  %s%s%s cannot run: %s\n", i == 0 ? "\n" : "", refusal->schedule_name,
                several ? " on " : "", several ? refusal->model_name : "", refusal->reason);
    }
}

/* @return the index of the best schedule, or `count` if none runs and fits */
static uint32_t best_of(const rpsim_standing *standings, uint32_t count)
{
    uint32_t best = count;
    for (uint32_t i = 0; i < count; i++) {
        double tokens = standings[i].tokens_per_s;
        if (tokens > 0 && (best == count || tokens > standings[best].tokens_per_s)) {
            best = i;
        }
    }
    return best;
}

static void write_best(const rpsim_comparison *c, const rpsim_flip *flip, FILE *stream)
{
    uint32_t was = best_of(c->standings, c->count);
    uint32_t is = best_of(flip->standings, c->count);
    if (is == c->count) {
        fputs("none runs and fits", stream);
        return;
    }
    fprintf(stream, "%s is %s", flip->standings[is].schedule, is == was ? "still best" : "best");
    if (was != c->count) {
        double gain = flip->standings[is].tokens_per_s / c->standings[was].tokens_per_s - 1;
        fprintf(stream, "%s%s (%+.2f %% tokens/s)", is == was ? "" : " instead of ",
                is == was ? "" : c->standings[was].schedule, 100 * gain);
    }
}

static void write_reversals(const rpsim_comparison *c, const rpsim_reversal *reversals,
                            uint32_t count, uint32_t pairs, FILE *stream)
{
    if (pairs == 0) {
        return;
    }
    if (count == 0) {
        fprintf(stream, "; none of %u pair%s changes places", pairs, pairs == 1 ? "" : "s");
    } else {
        fprintf(stream, "; %u of %u pairs change%s places", count, pairs, count == 1 ? "s" : "");
    }
    for (uint32_t i = 0; i < count && i < REVERSALS_TOLD; i++) {
        const rpsim_reversal *r = &reversals[i];
        fprintf(stream, "%s%s, %.2f %% ahead of %s, falls %.2f %% behind", i == 0 ? ": " : "; ",
                c->standings[r->ahead].schedule, 100 * r->lead, c->standings[r->behind].schedule,
                100 * r->loss);
    }
}

/* Writes the schedules that run and fit only with the flip (`with`), or only without it. */
static void write_movers(const rpsim_comparison *c, const rpsim_flip *flip, bool with, FILE *stream)
{
    uint32_t told = 0;
    for (uint32_t i = 0; i < c->count; i++) {
        bool was = c->standings[i].tokens_per_s > 0;
        bool is = flip->standings[i].tokens_per_s > 0;
        if (was != is && is == with) {
            const char *before = with ? "; now fits: " : "; does not run or fit any more: ";
            fprintf(stream, "%s%s", told++ == 0 ? before : ", ", c->standings[i].schedule);
        }
    }
}

/* Writes the rpadvise command for the same question. It has the options that both programs take;
 * the other options are inputs, or settings that rpadvise searches. */
static void write_pointer(const rpsim_study *study, const rpsim_row *like, FILE *stream)
{
    const rpsim_setup *o = study->setup;
    const char *model = o->model_count == 1 ? o->models[0] : like->model_name;
    fprintf(stream,
            "  rpadvise searches these settings within GPU and host memory: rpadvise --model %s "
            "--platform %s",
            model, o->platform != NULL ? o->platform : like->platform_name);
    if (o->run.gpus != 0) {
        fprintf(stream, " --gpus %u", o->run.gpus);
    }
    if (o->run.seq_len != 0) {
        fprintf(stream, " --seq-len %u", o->run.seq_len);
    }
    if (o->run.global_batch != 0) {
        fprintf(stream, " --global-batch %u", o->run.global_batch);
    }
    if (o->lora_rank != 0) {
        fprintf(stream, " --lora-rank %u", o->lora_rank);
    }
    if (o->assume != NULL) {
        fprintf(stream, " --assume %s", o->assume);
    }
    fputc('\n', stream);
}

/* Writes the settings that all rows share and that no schedule chose. */
static void write_fixed(const rpsim_study *study, const rpsim_row *like, FILE *stream)
{
    const rpsim_setup *o = study->setup;
    fprintf(stream, "\n%s: held fixed for all schedules: ", like->model_name);
    if (o->run.config_paper) {
        fputs("--config paper, the published settings of each", stream);
    } else {
        fprintf(stream,
                "optimizer %s, %g sequences of %u tokens per microbatch, %u x %u "
                "microbatches per step",
                o->run.asynchronous ? "async" : "sync", rpsim_row_microbatch_size(like),
                like->run.decided.seq_len, like->run.decided.accumulate,
                like->run.decided.microbatches);
    }
    fprintf(stream, ", grain %s, partition %s\n",
            !o->run.grain_given  ? "as usual"
            : o->run.layer_grain ? "layer"
                                 : "stage",
            o->run.partition != NULL ? o->run.partition : "as published or even");
    if (!like->run.stage) {
        write_pointer(study, like, stream);
    }
}

rp_status rpsim_comparison_write(const rpsim_study *study, const rpsim_comparison *c, FILE *stream)
{
    const rpsim_setup *o = study->setup;
    rpsim_reversal *reversals = NULL;
    write_fixed(study, &study->rows[c->first], stream);
    size_t pairs_most = (size_t)c->count * c->count / 2 + 1;
    RP_TRY(rp_arena_alloc(study->arena, pairs_most, sizeof *reversals, &reversals));
    fprintf(stream,
            "\n%s: what changes when an assumption flips (from recompute %s, partition %s)\n",
            c->model_name, rp_recompute_text(c->recompute),
            o->run.partition != NULL ? o->run.partition : "as published or even");
    for (uint32_t f = 0; f < c->flip_count; f++) {
        uint32_t pairs = 0;
        uint32_t count = rpsim_flip_reversals(c, &c->flips[f], reversals, &pairs);
        fprintf(stream, "  %-24s  ", c->flips[f].what);
        write_best(c, &c->flips[f], stream);
        write_reversals(c, reversals, count, pairs, stream);
        write_movers(c, &c->flips[f], true, stream);
        write_movers(c, &c->flips[f], false, stream);
        fputs(".\n", stream);
    }
    if (c->untried_size != 0) {
        fprintf(
            stream,
            "  microbatch size %-8u  not run: so many microbatches take long; --microbatch-size "
            "%u with --microbatches does.\n",
            c->untried_size, c->untried_size);
    }
    fprintf(stream,
            "  %-24s  nothing: a receive takes no time of its GPU, so where it stands makes no "
            "difference here.\n",
            "receive placement");
    if (rp_run_is_tuned(&o->run)) {
        fputs("  Other flips would need a search each: give --recompute, or costs with another "
              "hop.\n",
              stream);
    }
    return RP_OK;
}
