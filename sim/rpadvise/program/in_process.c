/* rpadvise in the process of another program: the library's (sim/library) use of its command line.
 */
#include "sim/library/in_process.h"

#include "common/base/log.h"
#include "common/cli/option_values.h"
#include "sim/library/rpsim.h"
#include "sim/rpadvise/program/command.h"

typedef struct line {
    int argc;
    const char *const *argv;
    rp_arena *arena;
} line;

static rp_status run(void *context, FILE *stream)
{
    static const char *const before[] = {"rpadvise", "--format", "json"};
    const line *l = context;
    rpadvise_options options;
    char **argv = NULL;
    int argc = 0;
    bool found = false;
    RP_TRY(rp_words_copy("rp_advise_json", before, 3, l->argv, l->argc, l->arena, &argc, &argv));
    RP_TRY(rpadvise_options_parse(argc, argv, l->arena, &options));
    if (options.common.request != RP_OPTIONS_RUN || !options.json) {
        rp_log_error("rp_advise_json: the answer is JSON; valid are options of a search");
        return RP_USAGE;
    }
    return rpadvise_command_act(&options, false, l->arena, stream, &found);
}

static rp_status advise(int argc, const char *const *argv, char **json_out)
{
    line l = {.argc = argc, .argv = argv};
    if (json_out == NULL || argc < 0 || (argc > 0 && argv == NULL)) {
        rp_log_error("rp_advise_json: valid are argc >= 0, argv of that length and a json_out");
        return RP_USAGE;
    }
    RP_TRY(rp_arena_create(&l.arena));
    rp_status status = rp_write_text(run, &l, json_out);
    rp_arena_destroy(l.arena);
    return status;
}

int rp_advise_json(int argc, const char *const *argv, char **json_out)
{
    rp_call call;
    rp_call_begin(&call);
    if (json_out != NULL) {
        *json_out = NULL;
    }
    return (int)rp_call_end(&call, advise(argc, argv, json_out));
}
