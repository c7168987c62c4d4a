#include "sim/rpadvise/candidate.h"

#include "common/base/text.h"
#include "common/compile/compile.h"

#include <inttypes.h>
#include <string.h>

#define MOST_ARGUMENTS 48

bool rpadvise_candidate_equal(const rpadvise_candidate *a, const rpadvise_candidate *b)
{
    const char *one = a->partition != NULL ? a->partition : "";
    const char *other = b->partition != NULL ? b->partition : "";
    return a->schedule == b->schedule && a->asynchronous == b->asynchronous &&
           a->recompute == b->recompute && a->layer_grain == b->layer_grain &&
           a->microbatch_size == b->microbatch_size && a->microbatches == b->microbatches &&
           a->calls == b->calls && a->nodes == b->nodes &&
           a->data_parallel == b->data_parallel && a->tensor_parallel == b->tensor_parallel &&
           strcmp(one, other) == 0;
}

bool rpadvise_candidate_same_mode(const rpadvise_candidate *a, const rpadvise_candidate *b)
{
    return a->schedule == b->schedule && a->asynchronous == b->asynchronous;
}

typedef struct list {
    rp_arena *arena;
    char **argv;
    int argc;
    rp_status status;
} list;

static void add(list *l, const char *option, const char *value)
{
    const char *parts[] = {option, value};
    for (int i = 0; i < 2 && parts[i] != NULL && l->status == RP_OK; i++) {
        const char *copy = NULL;
        l->status = rp_arena_copy_text(l->arena, parts[i], strlen(parts[i]), &copy);
        l->argv[l->argc++] = (char *)copy;
    }
}

static void add_count(list *l, const char *option, uint64_t value)
{
    const char *text = NULL;
    if (l->status == RP_OK) {
        l->status = rp_arena_print(l->arena, &text, "%" PRIu64, value);
    }
    add(l, option, text);
}

static void add_work(list *l, const rpadvise_work *work, const rpadvise_candidate *c)
{
    uint32_t nodes = c->nodes != 0 ? c->nodes : work->nodes;
    add(l, "--model", work->model);
    if (work->assume != NULL) {
        add(l, "--assume", work->assume);
    }
    if (work->lora_rank != 0) {
        add_count(l, "--lora-rank", work->lora_rank);
    }
    add(l, "--platform", work->platform);
    if (work->gpus != 0) {
        add_count(l, "--gpus", work->gpus);
    }
    if (nodes != 0) {
        add_count(l, "--nodes", nodes);
    }
    if (c->data_parallel > 1) {
        add_count(l, "--data-parallel", c->data_parallel);
    }
    if (c->tensor_parallel > 1) {
        add_count(l, "--tensor-parallel", c->tensor_parallel);
    }
    if (work->arithmetic.dtype != RP_DTYPE_F16) { /* rpsim's default */
        add(l, "--dtype", rp_dtype_text(work->arithmetic.dtype));
    }
    if (work->arithmetic.accumulation != RP_ACCUMULATION_USUAL) {
        add(l, "--accumulation", rp_accumulation_text(work->arithmetic.accumulation));
    }
    if (work->seq_len != 0) {
        add_count(l, "--seq-len", work->seq_len);
    }
    if (work->change != NULL) {
        add(l, "--set", work->change);
    }
}

static void add_sizes(list *l, const rpadvise_work *work, const rpadvise_candidate *c,
                      const rpadvise_manner *manner)
{
    add_count(l, "--microbatch-size", c->microbatch_size);
    add_count(l, "--microbatches", c->microbatches);
    if (c->calls > 1) {
        add_count(l, "--accumulate", c->calls);
    }
    if (work->global_batch != 0 && !manner->free_batch) {
        add_count(l, "--global-batch", work->global_batch);
    }
}

static void add_manner(list *l, const rpadvise_work *work, const rpadvise_candidate *c,
                       const rpadvise_manner *manner)
{
    if (c->partition != NULL) {
        add(l, "--partition", c->partition);
    }
    if (work->seed != 0) {
        add_count(l, "--seed", work->seed);
    }
    if (manner->iterations != 0) {
        add_count(l, "--iterations", manner->iterations);
    }
    if (manner->explain) {
        add(l, "--explain", NULL);
    }
    if (!manner->intervals) {
        add(l, "--intervals", "off");
    }
}

rp_status rpadvise_candidate_arguments(const rpadvise_work *work, const rpadvise_candidate *c,
                                       const rpadvise_manner *manner, rp_arena *arena,
                                       int *argc_out, char ***argv_out)
{
    list l = {.arena = arena};
    RP_TRY(rp_arena_alloc(arena, MOST_ARGUMENTS, sizeof *l.argv, &l.argv));
    add(&l, "rpsim", NULL);
    add(&l, "--schedule", c->schedule->name);
    add_work(&l, work, c);
    add(&l, "--optimizer", c->asynchronous ? "async" : "sync");
    add_sizes(&l, work, c, manner);
    if (c->recompute != c->schedule->default_recompute) {
        add(&l, "--recompute", rp_recompute_text(c->recompute));
    }
    if (c->layer_grain != rp_usual_layer_grain(c->schedule)) {
        add(&l, "--grain", c->layer_grain ? "layer" : "stage");
    }
    add_manner(&l, work, c, manner);
    *argc_out = l.argc;
    *argv_out = l.argv;
    return l.status;
}

/* A word as a shell reads it. */
static rp_status add_word(const char *word, rp_text *text)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "-_.,/:=+@%";
    if (*word != '\0' && word[strspn(word, plain)] == '\0') {
        return rp_text_print(text, "%s", word);
    }
    RP_TRY(rp_text_print(text, "'"));
    for (; *word != '\0'; word++) {
        RP_TRY(*word == '\'' ? rp_text_print(text, "'\\''") : rp_text_print(text, "%c", *word));
    }
    return rp_text_print(text, "'");
}

static rp_status join(int argc, char **argv, rp_text *text)
{
    for (int i = 0; i < argc; i++) {
        RP_TRY(rp_text_print(text, "%s", i == 0 ? "" : " "));
        RP_TRY(add_word(argv[i], text));
    }
    return RP_OK;
}

rp_status rpadvise_candidate_command(const rpadvise_work *work, const rpadvise_candidate *candidate,
                                     rp_arena *arena, const char **command_out)
{
    const rpadvise_manner as_it_is = {.intervals = true};
    int argc = 0;
    char **argv = NULL;
    RP_TRY(rpadvise_candidate_arguments(work, candidate, &as_it_is, arena, &argc, &argv));
    rp_text text = {0};
    rp_status status = join(argc, argv, &text);
    if (status == RP_OK) {
        status = rp_arena_copy_text(arena, text.bytes, text.length, command_out);
    }
    rp_text_fini(&text);
    return status;
}
