/* The points of an experiment. */
#include "experiments/experiment_internal.h"

#include "common/base/log.h"
#include "common/base/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- settings -------------------------------------------------------------------------------- */

/* Later settings override earlier settings. */
static void set(rpsweep_point *point, rpsweep_setting setting)
{
    for (uint32_t i = 0; i < point->count; i++) {
        if (strcmp(point->settings[i].option, setting.option) == 0) {
            point->settings[i] = setting;
            return;
        }
    }
    point->settings[point->count++] = setting;
}

static void set_all(rpsweep_point *point, const rpsweep_choice *choice)
{
    for (uint32_t i = 0; i < choice->count; i++) {
        set(point, choice->settings[i]);
    }
}

static int by_option(const void *a, const void *b)
{
    return strcmp(((const rpsweep_setting *)a)->option, ((const rpsweep_setting *)b)->option);
}

static void drop_absent(rpsweep_point *point)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < point->count; i++) {
        if (point->settings[i].value != NULL) {
            point->settings[kept++] = point->settings[i];
        }
    }
    point->count = kept;
}

static const char *value_of(const rpsweep_point *point, const char *option)
{
    for (uint32_t i = 0; i < point->count; i++) {
        if (strcmp(point->settings[i].option, option) == 0) {
            return point->settings[i].value;
        }
    }
    return NULL;
}

/* ---- conditions ------------------------------------------------------------------------------ */

static bool is_number(const char *text, double *value_out)
{
    char *end = NULL;
    *value_out = text != NULL && text[0] != '\0' ? strtod(text, &end) : NAN;
    return end != NULL && *end == '\0' && isfinite(*value_out);
}

/* Both sides of a comparison must be known: a point that does not give the option gets a default
 * that the file does not know. */
static rp_status compare(const rpsweep_experiment *e, const rpsweep_point *point,
                         const rpsweep_condition *c, bool *holds_out)
{
    double left = 0;
    double right = 0;
    const char *other = c->values[0];
    const char *side = is_number(other, &right) ? NULL : other;
    if (!is_number(value_of(point, c->option), &left)) {
        side = c->option;
    } else if (side != NULL && is_number(value_of(point, side), &right)) {
        side = NULL;
    }
    if (side != NULL) {
        const char *value = value_of(point, side);
        rp_log_error_at(e->file, c->line,
                        "--%s is %s in point %" PRIu64 ", which cannot be compared; valid are "
                        "numbers, and options that every point gives as a number",
                        side, value != NULL ? value : "not given", point->number);
        return RP_INPUT;
    }
    *holds_out = (c->relation == RPSWEEP_LESS && left < right) ||
                 (c->relation == RPSWEEP_AT_MOST && left <= right) ||
                 (c->relation == RPSWEEP_MORE && left > right) ||
                 (c->relation == RPSWEEP_AT_LEAST && left >= right);
    return RP_OK;
}

static rp_status check_condition(const rpsweep_experiment *e, const rpsweep_point *point,
                                 const rpsweep_condition *c, bool *holds_out)
{
    if (c->relation != RPSWEEP_EQUAL) {
        return compare(e, point, c, holds_out);
    }
    const char *value = value_of(point, c->option);
    *holds_out = false;
    for (uint32_t i = 0; i < c->value_count && !*holds_out; i++) {
        bool absent = c->values[i] == NULL;
        *holds_out = absent ? value == NULL : value != NULL && strcmp(value, c->values[i]) == 0;
    }
    return RP_OK;
}

/* A condition of a rule is evaluated only if the conditions before it hold: they can say for which
 * points it makes sense. */
static rp_status matches_any(const rpsweep_experiment *e, const rpsweep_point *point,
                             const rpsweep_rule *rules, uint32_t count, bool *matches_out)
{
    *matches_out = false;
    for (uint32_t i = 0; i < count && !*matches_out; i++) {
        bool holds = true;
        for (uint32_t k = 0; k < rules[i].count && holds; k++) {
            RP_TRY(check_condition(e, point, &rules[i].conditions[k], &holds));
        }
        *matches_out = holds;
    }
    return RP_OK;
}

static rp_status is_included(const rpsweep_experiment *e, const rpsweep_point *point,
                             bool *included_out)
{
    bool excluded = false;
    bool wanted = true;
    RP_TRY(matches_any(e, point, e->exclude, e->exclude_count, &excluded));
    if (!excluded && e->only_count > 0) {
        RP_TRY(matches_any(e, point, e->only, e->only_count, &wanted));
    }
    *included_out = wanted && !excluded;
    return RP_OK;
}

/* ---- points ---------------------------------------------------------------------------------- */

rp_status rpsweep_experiment_point(const rpsweep_experiment *e, uint64_t number, rp_arena *arena,
                                   rpsweep_point *point_out, bool *included_out)
{
    rpsweep_point point = {.number = number};
    const rpsweep_choice **chosen = NULL;
    size_t most = e->base.count + 1;
    uint64_t rest = number / e->repeats;
    RP_TRY(rp_arena_alloc(arena, e->dimension_count, sizeof(rpsweep_choice *), &chosen));
    for (uint32_t i = e->dimension_count; i-- > 0;) {
        chosen[i] = &e->dimensions[i].choices[rest % e->dimensions[i].count];
        rest /= e->dimensions[i].count;
        most += chosen[i]->count;
    }
    RP_TRY(rp_arena_alloc(arena, most, sizeof *point.settings, &point.settings));
    set_all(&point, &e->base);
    for (uint32_t i = 0; i < e->dimension_count; i++) {
        set_all(&point, chosen[i]);
    }
    if (e->seed_given || e->repeats > 1) {
        rpsweep_setting seed = {.option = "seed"};
        RP_TRY(rp_arena_print(arena, &seed.value, "%" PRIu64, e->seed + number % e->repeats));
        set(&point, seed);
    }
    drop_absent(&point);
    qsort(point.settings, point.count, sizeof *point.settings, by_option);
    *point_out = point;
    return is_included(e, &point, included_out);
}

static const char *program_of(const rpsweep_experiment *e)
{
    return e->executed ? "rpexec" : "rpsim";
}

bool rpsweep_is_change(const char *name)
{
    return strncmp(name, "costs.", 6) == 0 || strncmp(name, "platform.", 9) == 0 ||
           strncmp(name, "stack.", 6) == 0;
}

rp_status rpsweep_setting_option(const rpsweep_setting *s, rp_arena *arena,
                                 rpsweep_setting *option_out)
{
    *option_out = *s;
    if (!rpsweep_is_change(s->option)) {
        return RP_OK;
    }
    const char *equal = s->option[strlen(s->option) - 1] == '*' ? "" : "=";
    option_out->option = "set";
    return rp_arena_print(arena, &option_out->value, "%s%s%s", s->option, equal, s->value);
}

static bool is_plain(const char *value)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+-@,/:=%";
    return value[0] != '\0' && strspn(value, plain) == strlen(value);
}

static rp_status append_quoted(rp_text *text, const char *value)
{
    RP_TRY(rp_text_append(text, "'", 1));
    for (const char *at = value; *at != '\0'; at++) {
        RP_TRY(*at == '\'' ? rp_text_append(text, "'\\''", 4) : rp_text_append(text, at, 1));
    }
    return rp_text_append(text, "'", 1);
}

static rp_status append_command(const rpsweep_experiment *e, const rpsweep_point *point,
                                rp_arena *arena, rp_text *text)
{
    RP_TRY(rp_text_print(text, "%s", program_of(e)));
    for (uint32_t i = 0; i < point->count; i++) {
        rpsweep_setting s;
        RP_TRY(rpsweep_setting_option(&point->settings[i], arena, &s));
        RP_TRY(rp_text_print(text, " --%s%s", s.option, s.value[0] != '\0' ? " " : ""));
        if (s.value[0] != '\0') {
            RP_TRY(is_plain(s.value) ? rp_text_print(text, "%s", s.value)
                                     : append_quoted(text, s.value));
        }
    }
    return RP_OK;
}

rp_status rpsweep_point_command(const rpsweep_experiment *e, const rpsweep_point *point,
                                rp_arena *arena, const char **command_out)
{
    rp_text text = {0};
    rp_status status = append_command(e, point, arena, &text);
    if (status == RP_OK) {
        status = rp_arena_copy_text(arena, text.bytes, text.length, command_out);
    }
    rp_text_fini(&text);
    return status;
}

rp_status rpsweep_point_arguments(const rpsweep_point *point, rp_arena *arena, int *argc_out,
                                  char ***argv_out)
{
    const char **argv = NULL;
    RP_TRY(rp_arena_alloc(arena, (size_t)point->count + 2, sizeof(char *), &argv));
    argv[0] = "rpexec";
    for (uint32_t i = 0; i < point->count; i++) {
        const rpsweep_setting *s = &point->settings[i];
        bool valued = s->value[0] != '\0';
        RP_TRY(rp_arena_print(arena, &argv[i + 1], "--%s%s%s", s->option, valued ? "=" : "",
                              s->value));
    }
    /* Options are read from the texts and the array, and nothing writes to them. */
    *argv_out = (char **)(void *)argv;
    *argc_out = (int)point->count + 1;
    return RP_OK;
}
