/* Settings, and runs made of them. */
#include "sim/library/library_internal.h"
#include "sim/rpsim/command.h"
#include "sim/study/columns.h"
#include "sim/study/session.h"

#include <inttypes.h>
#include <string.h>

/* ---- settings as a command line ---------------------------------------------------------------
 */

/* More than settings have members. */
#define MOST_SETTINGS 32

typedef struct words {
    rp_arena *arena;
    char **items;
    int count;
} words;

static rp_status add_text(words *w, const char *option, const char *value)
{
    const char *texts[2] = {NULL, NULL};
    if (value == NULL) {
        return RP_OK;
    }
    RP_TRY(rp_arena_print(w->arena, &texts[0], "--%s", option));
    RP_TRY(rp_arena_copy_text(w->arena, value, strlen(value), &texts[1]));
    for (int i = 0; i < 2; i++) {
        w->items[w->count++] = (char *)(uintptr_t)texts[i];
    }
    return RP_OK;
}

static rp_status add_number(words *w, const char *option, uint64_t value)
{
    char digits[32];
    snprintf(digits, sizeof digits, "%" PRIu64, value);
    return add_text(w, option, value != 0 ? digits : NULL);
}

static rp_status add_input(words *w, const char *option, rp_kind kind, const rp_input *input)
{
    if (input != NULL && input->kind != kind) {
        rp_log_error("rp_settings: an input of another kind as %s", option);
        return RP_USAGE;
    }
    return add_text(w, option, input != NULL ? input->asked : NULL);
}

static rp_status add_words(words *w, const rp_settings *s)
{
    char draws[32];
    snprintf(draws, sizeof draws, "%" PRIu32, s->intervals);
    bool stage = s->fidelity != NULL && strcmp(s->fidelity, "stage") == 0;
    RP_TRY(add_text(w, "schedule", s->schedule));
    RP_TRY(add_input(w, "model", RP_KIND_MODEL, s->model));
    RP_TRY(add_input(w, "platform", RP_KIND_PLATFORM, s->platform));
    RP_TRY(add_input(w, "costs", RP_KIND_COSTS, s->costs));
    RP_TRY(add_text(w, "fidelity", s->fidelity));
    RP_TRY(add_text(w, "partition", s->partition));
    RP_TRY(add_text(w, "recompute", s->recompute));
    RP_TRY(add_text(w, "grain", s->grain));
    RP_TRY(add_text(w, "dtype", s->dtype));
    RP_TRY(add_text(w, "accumulation", s->accumulation));
    RP_TRY(add_text(w, "optimizer", s->optimizer));
    RP_TRY(add_number(w, "gpus", s->gpus));
    RP_TRY(add_number(w, "nodes", s->nodes));
    RP_TRY(add_number(w, "microbatches", s->microbatches));
    RP_TRY(add_number(w, "microbatch-size", s->microbatch_size));
    RP_TRY(add_number(w, "seq-len", s->seq_len));
    RP_TRY(add_number(w, "global-batch", s->global_batch));
    RP_TRY(add_number(w, "accumulate", s->accumulate));
    RP_TRY(add_number(w, "iterations", s->iterations));
    RP_TRY(add_number(w, "lora-rank", s->lora_rank));
    RP_TRY(add_number(w, "seed", s->seed));
    RP_TRY(add_text(w, "intervals", s->intervals != 0 ? draws : stage ? NULL : "off"));
    for (uint32_t i = 0; i < s->option_count; i++) {
        const char *text = NULL;
        if (s->options == NULL || s->options[i] == NULL) {
            rp_log_error("rp_settings: option %" PRIu32 " of %" PRIu32 " is NULL; valid are texts",
                         i, s->option_count);
            return RP_USAGE;
        }
        RP_TRY(rp_arena_copy_text(w->arena, s->options[i], strlen(s->options[i]), &text));
        w->items[w->count++] = (char *)(uintptr_t)text;
    }
    return RP_OK;
}

/* ---- preparing --------------------------------------------------------------------------------
 */

/* A caller that was compiled with an older header has fewer members; what it lacks is 0. */
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
    words w = {.arena = s->arena};
    RP_TRY(read_settings(given, &settings));
    RP_TRY(rp_arena_alloc(s->arena, 2 * MOST_SETTINGS + (size_t)settings.option_count,
                          sizeof *w.items, &w.items));
    RP_TRY(add_words(&w, &settings));
    RP_TRY(rpsim_command_parse_json(w.count, w.items, s->arena, &s->options, &s->command));
    if (s->options.action != RPSIM_ACTION_RUN) {
        rp_log_error("rp_settings: --flows is no run; valid with rp_run_json");
        return RP_USAGE;
    }
    RP_TRY(share_inputs(s, &settings));
    s->options.setup.session = s->session;
    s->options.setup.keep |= settings.keep_timeline != 0;
    return rpsim_study_prepare(&s->options.setup, s->arena, &s->study, NULL);
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

/* ---- running ----------------------------------------------------------------------------------
 */

static rp_status run(rp_simulation *s)
{
    if (s == NULL || s->begun) {
        rp_log_error("rp_simulation_run: %s; valid is once",
                     s == NULL ? "no simulation" : "it has run before");
        return RP_USAGE;
    }
    s->begun = true;
    RP_TRY(rpsim_command_simulate(&s->study, &s->options, s->command));
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
