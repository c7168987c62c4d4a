#include "common/run/run.h"

#include "common/cli/option_values.h"

#include <string.h>

/* ---- values with rules of their own ---------------------------------------------------------- */

static rp_run *run_of(const rp_option *row, size_t member, void *object)
{
    return (rp_run *)(void *)((char *)object + row->to.offset - member);
}

static const rp_run *run_in(const rp_option *row, size_t member, const void *object)
{
    return (const rp_run *)(const void *)((const char *)object + row->to.offset - member);
}

rp_status rp_run_take_recompute(const rp_option *row, const char *text, rp_arena *arena,
                                void *object, rp_reason *reason)
{
    rp_run *run = run_of(row, offsetof(rp_run, recomputes), object);
    const char **names = NULL;
    uint32_t count = 0;
    if (strcmp(text, "all") == 0) {
        run->recomputes[0] = RP_RECOMPUTE_WAIT;
        run->recomputes[1] = RP_RECOMPUTE_EARLY;
        run->recompute_count = 2;
        return RP_OK;
    }
    RP_TRY(rp_option_list(row->name, text, arena, &names, &count, reason));
    run->recompute_count = 0;
    for (uint32_t i = 0; i < count; i++) {
        rp_recompute recompute;
        if (i == RP_RECOMPUTE_COUNT || !rp_recompute_parse(names[i], &recompute)) {
            return rp_option_bad(row->name, text, row->valid, reason);
        }
        for (uint32_t k = 0; k < i; k++) {
            if (run->recomputes[k] == recompute) {
                return rp_option_bad(row->name, text, row->valid, reason);
            }
        }
        run->recomputes[run->recompute_count++] = recompute;
    }
    return RP_OK;
}

rp_status rp_run_take_accumulation(const rp_option *row, const char *text, rp_arena *arena,
                                   void *object, rp_reason *reason)
{
    rp_run *run = run_of(row, offsetof(rp_run, accumulation), object);
    (void)arena;
    bool known = rp_accumulation_parse(text, &run->accumulation);
    return known ? RP_OK : rp_option_bad(row->name, text, row->valid, reason);
}

rp_status rp_run_text_recompute(const rp_option *row, const void *object, rp_arena *arena,
                                const char **text_out)
{
    const rp_run *run = run_in(row, offsetof(rp_run, recomputes), object);
    for (uint32_t i = 0; i < run->recompute_count; i++) {
        RP_TRY(rp_arena_print(arena, text_out, "%s%s%s", i != 0 ? *text_out : "", i != 0 ? "," : "",
                              rp_recompute_text(run->recomputes[i])));
    }
    return RP_OK;
}

rp_status rp_run_text_accumulation(const rp_option *row, const void *object, rp_arena *arena,
                                   const char **text_out)
{
    const rp_run *run = run_in(row, offsetof(rp_run, accumulation), object);
    bool given = run->accumulation != RP_ACCUMULATION_USUAL;
    (void)arena;
    *text_out = given ? rp_accumulation_text(run->accumulation) : NULL;
    return RP_OK;
}

/* ---- rows ------------------------------------------------------------------------------------ */

enum { WORK, INPUTS, SCHEDULE }; /* of no interest here */

#define TO(member) .to = RP_OPTION_MEMBER(rp_run, member)
#define GIVEN(member) .given = RP_OPTION_MEMBER(rp_run, member)

const rp_option rp_run_rows[] = {
#define OPTION(members, ...) {__VA_ARGS__},
#define MORE(...) {__VA_ARGS__},
#include "common/run/run_rows.inc"
#undef MORE
#undef OPTION
};

const uint32_t rp_run_row_count = sizeof rp_run_rows / sizeof rp_run_rows[0];

static bool is_key_of(const char *name, const char *key)
{
    for (; *name != '\0' && (*name == *key || (*name == '-' && *key == '_')); name++, key++) {
    }
    return *name == '\0' && *key == '\0';
}

const rp_option *rp_run_row(const char *key)
{
    for (uint32_t i = 0; i < rp_run_row_count; i++) {
        if (is_key_of(rp_run_rows[i].name, key)) {
            return &rp_run_rows[i];
        }
    }
    return NULL;
}

void rp_run_complete_row(rp_option *row, size_t base)
{
    const rp_option *of_run = rp_run_row(row->name);
    if (row->to.size != 0) { /* the row is complete */
        return;
    }
    row->kind = of_run->kind;
    row->to = of_run->to;
    row->to.offset += base;
    row->given = of_run->given;
    row->given.offset += base;
    row->means = of_run->means;
    row->argument = row->argument != NULL ? row->argument : of_run->argument;
    row->most = row->most > 0 ? row->most : of_run->most;
    row->all = of_run->all;
    row->binary = of_run->binary;
    row->choices = of_run->choices;
    row->aliases = of_run->aliases;
    row->valid = of_run->valid;
    row->take = of_run->take;
}

rp_status rp_run_set(rp_run *run, const char *key, const char *text, rp_arena *arena,
                     rp_reason *reason)
{
    const rp_option *row = rp_run_row(key);
    if (row == NULL) {
        return rp_refuse(reason, RP_USAGE, "%s: no decision of a run has this name", key);
    }
    return rp_option_assign(row, text, arena, run, reason);
}

static bool same_member(rp_option_member of, const rp_run *a, const rp_run *b)
{
    return memcmp((const char *)a + of.offset, (const char *)b + of.offset, of.size) == 0;
}

static bool same_text(rp_option_member of, const rp_run *a, const rp_run *b)
{
    const char *texts[2] = {NULL};
    memcpy(&texts[0], (const char *)a + of.offset, sizeof texts[0]);
    memcpy(&texts[1], (const char *)b + of.offset, sizeof texts[1]);
    return texts[0] != NULL && texts[1] != NULL ? strcmp(texts[0], texts[1]) == 0
                                                : texts[0] == texts[1];
}

bool rp_run_equal(const rp_run *a, const rp_run *b)
{
    bool equal = a->recompute_count == b->recompute_count;
    for (uint32_t i = 0; i < rp_run_row_count && equal; i++) {
        const rp_option *row = &rp_run_rows[i];
        equal =
            same_member(row->given, a, b) &&
            (row->kind == RP_OPTION_TEXT ? same_text(row->to, a, b) : same_member(row->to, a, b));
    }
    return equal;
}

rp_status rp_run_check(const rp_run *run, rp_reason *reason)
{
    for (uint32_t i = 0; i < rp_run_row_count; i++) {
        RP_TRY(rp_option_check(&rp_run_rows[i], run, reason));
    }
    return RP_OK;
}

/* ---- values of several decisions ------------------------------------------------------------- */

bool rp_run_is_tuned(const rp_run *run)
{
    return run->partition != NULL && strcmp(run->partition, "tuned") == 0;
}
