#include "sim/study/setup.h"

#include "common/base/text.h"
#include "common/cli/option_values.h"
#include "sim/run/intervals.h"

#include <string.h>

/* ---- values with rules of their own ------------------------------------------------------------
 */

static rpsim_setup *setup_of(const rp_option *row, size_t member, void *object)
{
    return (rpsim_setup *)(void *)((char *)object + row->to.offset - member);
}

static const rpsim_setup *setup_in(const rp_option *row, size_t member, const void *object)
{
    return (const rpsim_setup *)(const void *)((const char *)object + row->to.offset - member);
}

rp_status rpsim_take_schedules(const rp_option *row, const char *text, rp_arena *arena,
                               void *object, rp_reason *reason)
{
    rpsim_setup *o = setup_of(row, offsetof(rpsim_setup, schedules), object);
    o->all_schedules = strcmp(text, "all") == 0;
    if (o->all_schedules) {
        RP_TRY(rp_arena_alloc(arena, rp_schedule_count, sizeof *o->schedules, &o->schedules));
        for (uint32_t i = 0; i < rp_schedule_count; i++) {
            o->schedules[i] = rp_schedules[i];
        }
        o->schedule_count = rp_schedule_count;
        return RP_OK;
    }
    const char **names = NULL;
    RP_TRY(rp_option_list(row->name, text, arena, &names, &o->schedule_count, reason));
    RP_TRY(rp_arena_alloc(arena, o->schedule_count, sizeof *o->schedules, &o->schedules));
    for (uint32_t i = 0; i < o->schedule_count; i++) {
        RP_TRY(rp_schedule_require("--schedule", names[i], true, &o->schedules[i], reason));
        for (uint32_t k = 0; k < i; k++) {
            if (o->schedules[k] == o->schedules[i]) {
                return rp_option_bad(row->name, text, "different schedules", reason);
            }
        }
    }
    return RP_OK;
}

rp_status rpsim_text_schedules(const rp_option *row, const void *object, rp_arena *arena,
                               const char **text_out)
{
    const rpsim_setup *o = setup_in(row, offsetof(rpsim_setup, schedules), object);
    *text_out = o->all_schedules ? "all" : NULL;
    for (uint32_t i = 0; i < o->schedule_count && !o->all_schedules; i++) {
        RP_TRY(rp_arena_print(arena, text_out, "%s%s%s", i != 0 ? *text_out : "", i != 0 ? "," : "",
                              o->schedules[i]));
    }
    return RP_OK;
}

rp_status rpsim_take_changes(const rp_option *row, const char *text, rp_arena *arena, void *object,
                             rp_reason *reason)
{
    rpsim_setup *o = setup_of(row, offsetof(rpsim_setup, changes), object);
    return rp_changes_add(row->name, text, arena, &o->changes, reason);
}

rp_status rpsim_text_changes(const rp_option *row, const void *object, rp_arena *arena,
                             const char **text_out)
{
    const rpsim_setup *o = setup_in(row, offsetof(rpsim_setup, changes), object);
    return rpsim_setup_changes(o, arena, text_out);
}

rp_status rpsim_take_intervals(const rp_option *row, const char *text, rp_arena *arena,
                               void *object, rp_reason *reason)
{
    rpsim_setup *o = setup_of(row, offsetof(rpsim_setup, intervals), object);
    uint64_t draws = 0;
    (void)arena;
    if (strcmp(text, "off") != 0 && !rp_option_count(text, 1000, 1, RPSIM_MAX_DRAWS, &draws)) {
        return rp_option_bad(row->name, text, row->valid, reason);
    }
    o->intervals = (uint32_t)draws;
    o->intervals_given = true;
    return RP_OK;
}

rp_status rpsim_text_intervals(const rp_option *row, const void *object, rp_arena *arena,
                               const char **text_out)
{
    const rpsim_setup *o = setup_in(row, offsetof(rpsim_setup, intervals), object);
    *text_out = o->intervals_given ? "off" : NULL;
    bool drawn = o->intervals_given && o->intervals != 0;
    return drawn ? rp_arena_print(arena, text_out, "%u", o->intervals) : RP_OK;
}

/* Runs without them have no such key. */
static void write_intervals(const void *object, rp_json *json)
{
    const rpsim_setup *o = object;
    if (o->intervals_given && o->intervals != 0) {
        rp_json_key(json, "intervals");
        rp_json_uint(json, o->intervals);
    }
}

rp_status rpsim_take_slow_gpu(const rp_option *row, const char *text, rp_arena *arena, void *object,
                              rp_reason *reason)
{
    rpsim_setup *o = setup_of(row, offsetof(rpsim_setup, slow_gpu), object);
    (void)arena;
    return rp_option_factor(row->name, text, RP_MAX_GPUS, RPSIM_MAX_SLOW_FACTOR, &o->slow_gpu,
                            &o->slow_factor, reason);
}

rp_status rpsim_text_slow_gpu(const rp_option *row, const void *object, rp_arena *arena,
                              const char **text_out)
{
    const rpsim_setup *o = setup_in(row, offsetof(rpsim_setup, slow_gpu), object);
    return rp_arena_print(arena, text_out, "%u*%.17g", o->slow_gpu, o->slow_factor);
}

static void write_slow_gpu(const void *object, rp_json *json)
{
    const rpsim_setup *o = object;
    rp_json_key(json, "slow_gpu");
    rp_json_uint(json, o->slow_gpu);
    rp_json_key(json, "slow_factor");
    rp_json_double(json, o->slow_factor);
}

/* ---- rows ------------------------------------------------------------------------------------ */

enum { WORK, INPUTS, NOISE }; /* of no interest here */

#define TO(member) .to = RP_OPTION_MEMBER(rpsim_setup, member)
#define COUNT(member) .count = RP_OPTION_MEMBER(rpsim_setup, member)
#define GIVEN(member) .given = RP_OPTION_MEMBER(rpsim_setup, member)
#define RECORDED .own_setting = true
#define WRITE(function) .write = (function)

const rp_option rpsim_setup_rows[] = {
#define OPTION(members, ...) {__VA_ARGS__},
#include "sim/study/setup_rows.inc"
#undef OPTION
};

const uint32_t rpsim_setup_row_count = sizeof rpsim_setup_rows / sizeof rpsim_setup_rows[0];

/* ---- setups ---------------------------------------------------------------------------------- */

void rpsim_setup_complete(rpsim_setup *o)
{
    if (o->run.hardware && !o->intervals_given) {
        o->intervals = RPSIM_DEFAULT_DRAWS;
    }
    if (o->jitter_given && o->replicas == 0) {
        o->replicas = RPSIM_DEFAULT_REPLICAS;
    }
}

rp_status rpsim_setup_schedule(const rp_schedule_type *schedule, rp_arena *arena, rpsim_setup *o)
{
    RP_TRY(rp_arena_alloc(arena, 1, sizeof *o->schedules, &o->schedules));
    o->schedules[0] = schedule;
    o->schedule_count = 1;
    o->all_schedules = false;
    return RP_OK;
}

void rpsim_setup_write(const rpsim_setup *o, rp_json *json)
{
    rp_option_write_members(rpsim_setup_rows, rpsim_setup_row_count, o, json);
    rp_option_write_members(rp_run_rows, rp_run_row_count, &o->run, json);
}

rp_status rpsim_setup_changes(const rpsim_setup *o, rp_arena *arena, const char **text_out)
{
    *text_out = NULL;
    for (uint32_t i = 0; i < o->changes.count; i++) {
        const rp_change *c = &o->changes.items[i];
        RP_TRY(rp_arena_print(arena, text_out, "%s%s%s%s", i != 0 ? *text_out : "",
                              i != 0 ? "," : "", c->schema->prefix, c->text));
    }
    return RP_OK;
}
