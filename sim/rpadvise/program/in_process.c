/* rpadvise in the process of another program: the library's (sim/library) use of its command line.
 */
#include "sim/library/in_process.h"

#include "common/base/log.h"
#include "common/cli/option_values.h"
#include "sim/library/rpsim.h"
#include "sim/rpadvise/program/command.h"

static rp_status run(void *context, FILE *stream)
{
    static const char *const before[] = {"rpadvise", "--format", "json"};
    const rp_line *l = context;
    rpadvise_options options;
    char **argv = NULL;
    int argc = 0;
    bool found = false;
    RP_TRY(rp_words_copy("rp_advise_json", before, 3, l->words, l->count, l->arena, &argc, &argv));
    RP_TRY(rpadvise_options_parse(argc, argv, l->arena, &options));
    if (options.common.request != RP_OPTIONS_RUN || !options.json) {
        rp_log_error("rp_advise_json: the answer is JSON; valid are options of a search");
        return RP_USAGE;
    }
    return rpadvise_command_act(&options, false, l->arena, stream, &found);
}

int rp_advise_json(int argc, const char *const *argv, char **json_out)
{
    return (int)rp_line_answer("rp_advise_json", argc, argv, run, json_out);
}
