/* Settings, and the runs that they describe. */
#include "common/base/log.h"
#include "common/base/text.h"
#include "sim/library/library_internal.h"
#include "sim/study/columns.h"
#include "sim/study/session.h"

#include <inttypes.h>
#include <string.h>

/* ---- settings as values ---------------------------------------------------------------------- */

/* Settings as keys of a setup, and as the command line that a store keeps. */
typedef struct keys {
    rp_arena *arena;
    rpsim_setup *setup;
    rp_text command;
} keys;

static rp_status set_text(keys *k, const char *key, const char *value)
{
    const char *text = NULL;
    if (value == NULL) {
        return RP_OK;
    }
    RP_TRY(rp_arena_copy_text(k->arena, value, strlen(value), &text));
    RP_TRY(rp_text_print(&k->command, " --%s %s", key, text));
    return rp_options_set(&rpsim_setup_keys, key, text, k->arena, k->setup, NULL);
}

static rp_status set_count(keys *k, const char *key, uint64_t count)
{
    if (count == 0) {
        return RP_OK;
    }
    RP_TRY(rp_text_print(&k->command, " --%s %" PRIu64, key, count));
    return rp_options_set_count(&rpsim_setup_keys, key, count, k->arena, k->setup, NULL);
}

/* @return the name by which the session knows an input */
static const char *name_of(const rp_input *input)
{
    return input != NULL ? input->asked : NULL;
}

/* Sets the model directly, because the key would split its name at commas. */
static rp_status set_model(keys *k, const rp_input *model)
{
    rpsim_setup *o = k->setup;
    if (model == NULL) {
        return RP_OK;
    }
    RP_TRY(rp_arena_alloc(k->arena, 1, sizeof *o->models, &o->models));
    o->models[0] = model->asked; /* the simulation shares the input */
    o->model_count = 1;
    return rp_text_print(&k->command, " --model %s", model->asked);
}

/* Settings that are keys of a setup, in the order of the command line; size of a count: 4 or 8. */
static const struct setting {
    const char *key;
    enum { TEXT, INPUT, COUNT } kind;
    rp_option_member of;
} rows[] = {
#define OF(member) RP_OPTION_MEMBER(rp_settings, member)
    {"platform", INPUT, OF(platform)},
    {"costs", INPUT, OF(costs)},
    {"fidelity", TEXT, OF(fidelity)},
    {"partition", TEXT, OF(partition)},
    {"recompute", TEXT, OF(recompute)},
    {"grain", TEXT, OF(grain)},
    {"dtype", TEXT, OF(dtype)},
    {"accumulation", TEXT, OF(accumulation)},
    {"optimizer", TEXT, OF(optimizer)},
    {"gpus", COUNT, OF(gpus)},
    {"nodes", COUNT, OF(nodes)},
    {"microbatches", COUNT, OF(microbatches)},
    {"microbatch-size", COUNT, OF(microbatch_size)},
    {"seq-len", COUNT, OF(seq_len)},
    {"global-batch", COUNT, OF(global_batch)},
    {"accumulate", COUNT, OF(accumulate)},
    {"iterations", COUNT, OF(iterations)},
    {"lora-rank", COUNT, OF(lora_rank)},
    {"seed", COUNT, OF(seed)},
    {"intervals", COUNT, OF(intervals)},
#undef OF
};

static rp_status set_row(keys *k, const struct setting *row, const rp_settings *s)
{
    const void *member = (const char *)s + row->of.offset;
    switch (row->kind) {
    case TEXT:
        return set_text(k, row->key, *(const char *const *)member);
    case INPUT:
        return set_text(k, row->key, name_of(*(const rp_input *const *)member));
    case COUNT:
        break;
    }
    bool wide = row->of.size == sizeof(uint64_t);
    return set_count(k, row->key, wide ? *(const uint64_t *)member : *(const uint32_t *)member);
}

static rp_status set_all(keys *k, const rp_settings *s)
{
    bool stage = s->fidelity != NULL && strcmp(s->fidelity, "stage") == 0;
    RP_TRY(rp_text_print(&k->command, RP_WORDS_BEFORE));
    RP_TRY(set_text(k, "schedule", s->schedule));
    RP_TRY(set_model(k, s->model));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        RP_TRY(set_row(k, &rows[i], s));
    }
    return s->intervals == 0 && !stage ? set_text(k, "intervals", "off") : RP_OK;
}

/* Checks the kinds of the inputs, and that no further option is NULL. */
static rp_status check_settings(const rp_settings *s)
{
    const struct {
        const char *key;
        rp_kind kind;
        const rp_input *input;
    } inputs[] = {{"model", RP_KIND_MODEL, s->model},
                  {"platform", RP_KIND_PLATFORM, s->platform},
                  {"costs", RP_KIND_COSTS, s->costs}};
    for (int i = 0; i < 3; i++) {
        if (inputs[i].input != NULL && inputs[i].input->kind != inputs[i].kind) {
            rp_log_error("rp_settings: an input of another kind as %s", inputs[i].key);
            return RP_USAGE;
        }
    }
    for (uint32_t i = 0; i < s->option_count; i++) {
        if (s->options == NULL || s->options[i] == NULL) {
            rp_log_error("rp_settings: option %" PRIu32 " of %" PRIu32 " is NULL; valid are texts",
                         i, s->option_count);
            return RP_USAGE;
        }
    }
    return RP_OK;
}

static rp_status set_keys(rp_simulation *s, const rp_settings *settings)
{
    keys k = {.arena = s->arena, .setup = &s->setup};
    rp_status status = set_all(&k, settings);
    if (status == RP_OK) {
        status = rp_arena_copy_text(s->arena, k.command.bytes, k.command.length, &s->command);
    }
    rp_text_fini(&k.command);
    return status;
}

/* ---- preparing ------------------------------------------------------------------------------- */

/* Copies the caller's settings. A caller that was compiled with an older header has fewer members;
 * the missing members are 0. */
static rp_status read_settings(const rp_settings *given, rp_settings *settings_out)
{
    *settings_out = (rp_settings){0};
    if (given == NULL || given->size == 0 || given->size > sizeof *given) {
        rp_log_error("rp_settings: size %zu; valid are RP_SETTINGS_INIT of a header that is not "
                     "newer than the library",
                     given != NULL ? given->size : 0);
        return RP_USAGE;
    }
    memcpy(settings_out, given, given->size);
    return RP_OK;
}

static rp_status share_inputs(rp_simulation *s, const rp_settings *settings)
{
    const rp_input *inputs[] = {settings->model, settings->platform, settings->costs};
    RP_TRY(rpsim_session_create(&s->session));
    for (int i = 0; i < 3; i++) {
        s->inputs[i] = inputs[i] != NULL ? rp_input_share(inputs[i]) : NULL;
    }
    if (settings->model != NULL) {
        RP_TRY(
            rpsim_session_add_model(s->session, settings->model->asked, &settings->model->model));
    }
    if (settings->platform != NULL) {
        RP_TRY(rpsim_session_add_platform(s->session, settings->platform->asked,
                                          &settings->platform->platform));
    }
    if (settings->costs != NULL) {
        RP_TRY(
            rpsim_session_add_costs(s->session, settings->costs->asked, &settings->costs->costs));
    }
    return RP_OK;
}

static rp_status prepare(rp_simulation *s, const rp_settings *given)
{
    rp_settings settings;
    RP_TRY(read_settings(given, &settings));
    RP_TRY(check_settings(&settings));
    s->setup = (rpsim_setup)RPSIM_SETUP_INIT;
    RP_TRY(set_keys(s, &settings));
    if (settings.option_count != 0) {
        RP_TRY(rp_words_read(settings.options, settings.option_count, s->arena, &s->setup,
                             &s->command, &s->words));
    } else {
        RP_TRY(rpsim_setup_check(&rpsim_setup_keys, &s->setup, NULL));
        rpsim_setup_complete(&s->setup);
    }
    RP_TRY(share_inputs(s, &settings));
    s->setup.session = s->session;
    s->setup.keep |= settings.keep_timeline != 0;
    return rpsim_study_prepare(&s->setup, s->arena, &s->study, NULL);
}

static rp_status make(const rp_settings *settings, rp_simulation **simulation_out)
{
    rp_arena *arena = NULL;
    rp_simulation *s = NULL;
    if (simulation_out == NULL) {
        rp_log_error("rp_simulation_prepare: valid is a simulation_out that is not NULL");
        return RP_USAGE;
    }
    RP_TRY(rp_arena_create(&arena));
    rp_status status = rp_arena_alloc(arena, 1, sizeof *s, &s);
    if (status != RP_OK) {
        rp_arena_destroy(arena);
        return status;
    }
    s->arena = arena;
    status = prepare(s, settings);
    if (status != RP_OK) {
        rp_simulation_free(s);
        return status;
    }
    *simulation_out = s;
    return RP_OK;
}

rp_code rp_simulation_prepare(const rp_settings *settings, rp_simulation **simulation_out)
{
    rp_call call;
    rp_call_begin(&call);
    if (simulation_out != NULL) {
        *simulation_out = NULL;
    }
    return rp_call_end(&call, make(settings, simulation_out));
}

void rp_simulation_free(rp_simulation *s)
{
    if (s == NULL) {
        return;
    }
    rpsim_study_fini(&s->study);
    rpsim_session_destroy(s->session);
    for (int i = 0; i < 3; i++) {
        rp_input_free((rp_input *)(uintptr_t)s->inputs[i]);
    }
    rp_arena_destroy(s->arena);
}

/* ---- running --------------------------------------------------------------------------------- */

static rp_status run(rp_simulation *s)
{
    if (s == NULL || s->begun) {
        rp_log_error("rp_simulation_run: %s; valid is once",
                     s == NULL ? "no simulation" : "it has run before");
        return RP_USAGE;
    }
    s->begun = true;
    RP_TRY(s->words != NULL ? rp_words_run(s->words, s->command, &s->study)
                            : rpsim_study_run(&s->study, NULL));
    RP_TRY(rp_arena_alloc(s->arena, s->study.row_count, sizeof *s->lists, &s->lists));
    s->done = true;
    return RP_OK;
}

rp_code rp_simulation_run(rp_simulation *simulation)
{
    rp_call call;
    rp_call_begin(&call);
    return rp_call_end(&call, run(simulation));
}

uint32_t rp_simulation_count(const rp_simulation *simulation)
{
    return simulation != NULL && simulation->done ? simulation->study.row_count : 0;
}

rp_status rp_simulation_row(const rp_simulation *s, uint32_t index, const char *function,
                            const rpsim_row **row_out)
{
    if (s == NULL || !s->done) {
        rp_log_error("%s: valid after rp_simulation_run has succeeded", function);
        return RP_USAGE;
    }
    if (index >= s->study.row_count) {
        rp_log_error("%s: no run %" PRIu32 "; valid are 0 to %" PRIu32, function, index,
                     s->study.row_count - 1);
        return RP_USAGE;
    }
    *row_out = &s->study.rows[index];
    return RP_OK;
}

static rp_status write_json(void *context, FILE *stream)
{
    rpsim_study_write_json(context, stream);
    return RP_OK;
}

static rp_status give_json(const rp_simulation *s, char **json_out)
{
    const rpsim_row *row = NULL;
    RP_TRY(rp_simulation_row(s, 0, "rp_simulation_json", &row));
    if (json_out == NULL) {
        rp_log_error("rp_simulation_json: valid is a json_out that is not NULL");
        return RP_USAGE;
    }
    rpsim_study study = s->study; /* writing allocates in its arena and changes nothing else */
    return rp_write_text(write_json, &study, json_out);
}

rp_code rp_simulation_json(const rp_simulation *simulation, char **json_out)
{
    rp_call call;
    rp_call_begin(&call);
    if (json_out != NULL) {
        *json_out = NULL;
    }
    return rp_call_end(&call, give_json(simulation, json_out));
}
