/* rpsim in the process of another program: the library's (sim/library) use of rpsim's command line.
 */
#include "sim/library/in_process.h"

#include "common/base/log.h"
#include "common/cli/option_values.h"
#include "sim/library/rpsim.h"
#include "sim/rpsim/command.h"

#include <inttypes.h>
#include <string.h>

/* ---- options that are refused in another process --------------------------------------------- */

/* @return the option that asks for text; NULL: there is none */
static const char *text_option(const rpsim_options *o)
{
    if (o->setup.common.request != RP_OPTIONS_RUN) {
        return o->setup.common.request == RP_OPTIONS_HELP      ? "help"
               : o->setup.common.request == RP_OPTIONS_VERSION ? "version"
                                                               : "print-man";
    }
    return o->action == RPSIM_ACTION_LIST       ? "list"
           : o->action == RPSIM_ACTION_CHECK    ? "check"
           : o->action == RPSIM_ACTION_PLATFORM ? "platform-out"
                                                : NULL;
}

static rp_status check_json(const rpsim_options *o)
{
    const char *option = text_option(o);
    if (option != NULL) {
        return rp_refuse_setting(NULL, RP_USAGE, rp_option_key(option).text,
                                 "gives text and no JSON; valid with the program rpsim");
    }
    if (o->format != RPSIM_FORMAT_JSON) {
        rp_log_error("{format}: the result is JSON; valid is json, or none");
        return RP_USAGE;
    }
    return RP_OK;
}

/* Refuses outputs on standard output, which belongs to the host program. */
static rp_status check_outputs(const rpsim_options *o)
{
    for (uint32_t i = 0; i < rpsim_command_line.row_count; i++) {
        const rp_option *row = &rpsim_command_line.rows[i];
        const char *path = row->output ? o->setup.common.given[i].text : NULL;
        if (path != NULL && (strcmp(path, "-") == 0 || strcmp(path, "/dev/stdout") == 0)) {
            rp_log_error("--%s: standard output belongs to the calling program; valid are files",
                         row->name);
            return RP_USAGE;
        }
    }
    return RP_OK;
}

/* ---- words ----------------------------------------------------------------------------------- */

rp_status rp_words_copy(const char *function, const char *const *before, int before_count,
                        const char *const *words, int count, rp_arena *arena, int *argc_out,
                        char ***argv_out)
{
    const char **argv = NULL;
    *argc_out = before_count + count;
    RP_TRY(rp_arena_alloc(arena, (size_t)*argc_out, sizeof *argv, &argv));
    for (int i = 0; i < *argc_out; i++) {
        const char *word = i < before_count ? before[i] : words[i - before_count];
        if (word == NULL) {
            rp_log_error("%s: argument %d of %d is NULL; valid are texts", function,
                         i - before_count, count);
            return RP_USAGE;
        }
        RP_TRY(rp_arena_copy_text(arena, word, strlen(word), &argv[i]));
    }
    *argv_out = (char **)(void *)argv; /* nothing writes to them */
    return RP_OK;
}

/* Reads words into options whose setup has values already. */
static rp_status add_words(const char *const *words, int count, const char *command,
                           rp_arena *arena, rpsim_options *options, const char **command_out)
{
    static const char *const before[] = {"rpsim"};
    char **argv = NULL;
    int argc = 0;
    RP_TRY(rp_words_copy("rp_run_json", before, 1, words, count, arena, &argc, &argv));
    RP_TRY(rp_option_command(command, argc, argv, arena, command_out));
    options->format = RPSIM_FORMAT_JSON;
    RP_TRY(rpsim_options_add(argc, argv, arena, options, NULL));
    RP_TRY(check_json(options));
    return check_outputs(options);
}

struct rp_words {
    rpsim_options options;
};

rp_status rp_words_read(const char *const *words, uint32_t count, rp_arena *arena,
                        rpsim_setup *setup, const char **command, rp_words **words_out)
{
    rp_words *w = NULL;
    RP_TRY(rp_arena_alloc(arena, 1, sizeof *w, &w));
    w->options.setup = *setup;
    RP_TRY(add_words(words, (int)count, *command, arena, &w->options, command));
    if (w->options.action != RPSIM_ACTION_RUN) {
        rp_log_error("rp_settings: --flows is no run; valid with rp_run_json");
        return RP_USAGE;
    }
    *setup = w->options.setup;
    *words_out = w;
    return RP_OK;
}

rp_status rp_words_run(const rp_words *words, const char *command, rpsim_study *study)
{
    return rpsim_command_simulate(study, &words->options, command);
}

/* ---- a command line -------------------------------------------------------------------------- */

static rp_status run(void *context, FILE *stream)
{
    const rp_line *l = context;
    rpsim_options options = {.setup = RPSIM_SETUP_INIT};
    const char *command = NULL;
    RP_TRY(add_words(l->words, l->count, RP_WORDS_BEFORE, l->arena, &options, &command));
    return rpsim_command_act(&options, command, l->arena, stream);
}

int rp_run_json(int argc, const char *const *argv, char **json_out)
{
    return (int)rp_line_answer("rp_run_json", argc, argv, run, json_out);
}
