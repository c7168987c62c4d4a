/* export_row DIR WORDS...: writes the files that rpadvise exports for a line of rpsim. */
#include "common/cli/tool.h"
#include "sim/rpadvise/export/export.h"
#include "sim/rpsim/options_internal.h"
#include "sim/study/study.h"

#include <string.h>

static rp_status line_of(int argc, char **argv, rp_arena *arena, const char **line_out)
{
    const char *line = "rpsim";
    for (int i = 1; i < argc; i++) {
        bool quoted = strpbrk(argv[i], " |") != NULL;
        RP_TRY(rp_arena_print(arena, &line, quoted ? "%s '%s'" : "%s %s", line, argv[i]));
    }
    *line_out = line;
    return RP_OK;
}

static rp_status run(int argc, char **argv, rp_arena *arena)
{
    const char *line = NULL;
    rpsim_options options;
    rpsim_study study;
    if (argc < 2) {
        return RP_USAGE;
    }
    RP_TRY(line_of(argc - 1, argv + 1, arena, &line));
    RP_TRY(rpsim_options_parse(argc - 1, argv + 1, arena, &options, NULL));
    rp_status status = rpsim_study_prepare(&options.setup, arena, &study, NULL);
    if (status == RP_OK) {
        status = rpadvise_export(&study.rows[0], line, argv[1], arena);
    }
    rpsim_study_fini(&study);
    return status;
}

int main(int argc, char **argv)
{
    rp_tool_begin("export_row");
    return rp_tool_main("export_row", argc, argv, run);
}
