/* rpimport: measurements of other programs, taken over. */
#include "common/base/log.h"
#include "common/base/text.h"
#include "common/cli/tool.h"
#include "sim/rpimport/chakra.h"

#include <stdio.h>
#include <string.h>

#define MAX_TRACE_BYTES ((size_t)2 << 30)

static rp_status read_traces(const rpimport_options *o, rpsim_ranges *ranges)
{
    for (uint32_t i = 0; i < o->trace_count; i++) {
        rp_text text = {0};
        rp_status status = rp_text_read_file(o->traces[i], MAX_TRACE_BYTES, &text);
        if (status == RP_OK) {
            status = rpsim_kineto_read(o->traces[i], text.bytes != NULL ? text.bytes : "",
                                       text.length, ranges);
        }
        rp_text_fini(&text);
        RP_TRY(status);
    }
    if (ranges->unknown != 0) {
        rp_log_warning("%u ranges named PP: are no actions and are left out", ranges->unknown);
    }
    if (!ranges->on_gpu && !o->statistic_given) {
        rp_log_warning("the traces have ranges of the CPU only, and these include waiting for "
                       "inputs; --statistic min takes the shortest");
    }
    return RP_OK;
}

/* The name of a cost table is that of its file, or where that is no name, "kineto". */
static rp_status name_table(const char *path, rp_arena *arena, const char **name_out)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+-@";
    const char *slash = strrchr(path, '/');
    const char *base = slash != NULL ? slash + 1 : path;
    size_t length = strlen(base);
    length -= length > 5 && strcmp(base + length - 5, ".yaml") == 0 ? 5 : 0;
    bool named =
        strcmp(path, "-") != 0 && length > 0 && length <= 128 && strspn(base, allowed) >= length;
    return rp_arena_copy_text(arena, named ? base : "kineto", named ? length : 6, name_out);
}

static rp_status write_costs(const rpimport_options *o, rpsim_ranges *ranges, rp_arena *arena,
                             rp_output *output)
{
    rpsim_range_summary *summaries = NULL;
    uint32_t count = 0;
    rp_partition partition;
    rp_costs costs;
    if (o->partition != NULL) {
        RP_TRY(rp_partition_parse("--partition", o->partition, arena, &partition));
    }
    RP_TRY(rpsim_ranges_summarise(ranges, arena, &summaries, &count));
    RP_TRY(rpsim_kineto_costs(ranges, summaries, count, o->statistic,
                              o->partition != NULL ? &partition : NULL, arena, &costs));
    costs.source = "PyTorch's profiler, by rpimport --kineto";
    costs.microbatch_size = o->microbatch_size;
    costs.seq_len = o->seq_len;
    RP_TRY(name_table(o->out != NULL ? o->out : "-", arena, &costs.name));
    RP_TRY(rpsim_kineto_write(&costs, ranges, summaries, count, output->stream));
    return rp_output_commit(output);
}

static rp_status import_kineto(const rpimport_options *o, rp_arena *arena)
{
    rpsim_ranges ranges = {0};
    rp_output output = {0};
    rp_status status = rp_output_open(o->out != NULL ? o->out : "-", &output);
    if (status == RP_OK) {
        status = read_traces(o, &ranges);
    }
    if (status == RP_OK) {
        status = write_costs(o, &ranges, arena, &output);
    }
    rp_output_discard(&output);
    rpsim_ranges_fini(&ranges);
    return status;
}

static rp_status act(const rpimport_options *options, rp_arena *arena)
{
    if (options->common.request != RP_OPTIONS_RUN) {
        return rp_options_answer(&rpimport_command_line, options, stdout);
    }
    return options->chakra != NULL ? rpimport_chakra(options, arena, stdout)
                                   : import_kineto(options, arena);
}

static rp_status run(int argc, char **argv, rp_arena *arena)
{
    rpimport_options options;
    RP_TRY(rpimport_options_parse(argc, argv, arena, &options));
    return act(&options, arena);
}

int main(int argc, char **argv)
{
    return rp_tool_main("rpimport", argc, argv, run);
}
