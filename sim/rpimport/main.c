/* rpimport: imports measurements of other programs. */
#include "common/base/log.h"
#include "common/base/text.h"
#include "common/cli/tool.h"
#include "common/inputs/data.h"
#include "sim/interchange/roundpipe.h"
#include "sim/rpimport/chakra.h"

#include <stdio.h>

#define MAX_TRACE_BYTES ((size_t)2 << 30)

typedef rp_status read_ranges(const char *name, const char *text, size_t length,
                              rpsim_ranges *ranges);

static rp_status read_file(const char *path, read_ranges *read, rpsim_ranges *ranges)
{
    rp_text text = {0};
    rp_status status = rp_text_read_file(path, MAX_TRACE_BYTES, &text);
    if (status == RP_OK) {
        status = read(path, text.bytes != NULL ? text.bytes : "", text.length, ranges);
    }
    rp_text_fini(&text);
    return status;
}

static rp_status read_all(const rpimport_options *o, rpsim_ranges *ranges)
{
    if (o->timer != NULL) {
        return read_file(o->timer, rpsim_roundpipe_timer, ranges);
    }
    for (uint32_t i = 0; i < o->trace_count; i++) {
        RP_TRY(read_file(o->traces[i], rpsim_kineto_read, ranges));
    }
    if (ranges->unknown != 0) {
        rp_log_warning("%u ranges named PP: are no actions and are left out", ranges->unknown);
    }
    if (!ranges->on_gpu && !o->statistic_given) {
        rp_log_warning("the traces have ranges of the CPU only, and these include waiting for "
                       "inputs; {statistic} min takes the shortest");
    }
    return RP_OK;
}

static rp_status write_costs(const rpimport_options *o, rpsim_ranges *ranges, rp_arena *arena,
                             rp_output *output)
{
    rpsim_range_summary *summaries = NULL;
    uint32_t count = 0;
    rp_partition partition;
    rp_costs costs;
    if (o->partition != NULL && ranges->roundpipe) {
        rp_log_error("{partition}: RoundPipe's ranges are of layers; valid without it");
        return RP_USAGE;
    }
    if (o->partition != NULL) {
        RP_TRY(rp_partition_parse(NULL, o->partition, arena, &partition, NULL));
    }
    if (ranges->roundpipe) {
        RP_TRY(rpsim_roundpipe_share(ranges, arena));
    }
    RP_TRY(rpsim_ranges_summarise(ranges, arena, &summaries, &count));
    RP_TRY(rpsim_kineto_costs(ranges, summaries, count, o->statistic,
                              o->partition != NULL ? &partition : NULL, arena, &costs));
    if (ranges->roundpipe && !o->no_ends) {
        RP_TRY(rpsim_roundpipe_ends(ranges, &costs));
    }
    costs.source = ranges->timer ? "RoundPipe's ModelTimer, by rpimport --timer"
                                 : "PyTorch's profiler, by rpimport --kineto";
    costs.microbatch_size = o->microbatch_size;
    costs.seq_len = o->seq_len;
    RP_TRY(rp_data_name_of(o->out != NULL ? o->out : "-", 128, "kineto", arena, &costs.name));
    rpsim_kineto_write(&costs, ranges, summaries, count, output->stream);
    return rp_output_commit(output);
}

static rp_status import_costs(const rpimport_options *o, rp_arena *arena)
{
    rpsim_ranges ranges = {0};
    rp_output output = {0};
    rp_status status = rp_output_open(o->out != NULL ? o->out : "-", &output);
    if (status == RP_OK) {
        status = read_all(o, &ranges);
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
                                   : import_costs(options, arena);
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
