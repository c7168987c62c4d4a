#include "sim/rpimport/chakra.h"

#include "common/base/log.h"
#include "common/base/units.h"
#include "common/cli/paragraph.h"
#include "common/cli/table.h"
#include "common/formats/json.h"
#include "common/inputs/load/platforms.h"
#include "sim/interchange/chakra.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_PLATFORM "rtx4090x8"
#define MAX_FILE_BYTES ((size_t)4 << 30)
#define MAX_RANKS 65536u

static rp_status read_rank(const char *path, rp_arena *arena, rpsim_chakra_trace *trace)
{
    rp_text text = {0};
    const char *bytes = NULL;
    rp_status status = rp_text_read_file(path, MAX_FILE_BYTES, &text);
    if (status == RP_OK) { /* names of nodes point into these bytes */
        status =
            rp_arena_copy_text(arena, text.bytes != NULL ? text.bytes : "", text.length, &bytes);
    }
    if (status == RP_OK) {
        status = rpsim_chakra_add(trace, path, bytes, text.length);
    }
    rp_text_fini(&text);
    return status;
}

/* Reads the files of ranks from 0 on, up to the first file that does not exist. */
static rp_status read_ranks(const char *prefix, rp_arena *arena, rpsim_chakra_trace *trace)
{
    for (uint32_t rank = 0; rank < MAX_RANKS; rank++) {
        const char *path = NULL;
        RP_TRY(rp_arena_print(arena, &path, "%s.%" PRIu32 ".et", prefix, rank));
        if (rank > 0 && access(path, F_OK) != 0) {
            return RP_OK;
        }
        RP_TRY(read_rank(path, arena, trace));
    }
    rp_log_error("{chakra}: valid are up to %u ranks", MAX_RANKS);
    return RP_INPUT;
}

/* X(member, key, heading). */
#define TIME_LIST(X)                                                                               \
    X(compute_ps, "compute_ms", "compute")                                                         \
    X(cpu_ps, "cpu_ms", "cpu")                                                                     \
    X(memory_ps, "memory_ms", "memory")                                                            \
    X(send_ps, "send_ms", "send")                                                                  \
    X(collective_ps, "collective_ms", "collective")                                                \
    X(end_ps, "end_ms", "end")

static void print_json(const rpsim_chakra_trace *trace, const rpsim_chakra_rank *ranks,
                       int64_t makespan_ps, FILE *stream)
{
    rp_json json;
    rp_json_begin_document(&json, stream, 2);
    rp_json_begin_object(&json);
    rp_json_member_uint(&json, "nodes", trace->node_count);
    rp_json_member_ms(&json, "makespan_ms", makespan_ps);
    rp_json_key(&json, "ranks");
    rp_json_begin_array(&json);
    for (uint32_t r = 0; r < trace->rank_count; r++) {
        rp_json_begin_object(&json);
        rp_json_member_uint(&json, "nodes", ranks[r].nodes);
#define JSON_TIME(member, key, heading)                                                            \
    rp_json_key(&json, key);                                                                       \
    rp_json_ms(&json, ranks[r].member);
        TIME_LIST(JSON_TIME)
#undef JSON_TIME
        rp_json_end_object(&json);
    }
    rp_json_end_array(&json);
    rp_json_end_object(&json);
    rp_json_end_document(&json);
}

static rp_status print_table(const rpsim_chakra_trace *trace, const rpsim_chakra_rank *ranks,
                             int64_t makespan_ps, rp_arena *arena, FILE *stream)
{
    static const rp_table_column columns[] = {RP_TABLE_RIGHT("rank", 1), RP_TABLE_RIGHT("nodes", 1),
#define TABLE_HEADING(member, key, heading) RP_TABLE_RIGHT(heading " ms", 1),
                                              TIME_LIST(TABLE_HEADING)
#undef TABLE_HEADING
    };
    rp_table *table = NULL;
    RP_TRY(rp_table_create(columns, sizeof columns / sizeof columns[0], trace->rank_count, arena,
                           &table));
    for (uint32_t r = 0; r < trace->rank_count; r++) {
        RP_TRY(rp_table_print(table, "%" PRIu32, r));
        RP_TRY(rp_table_print(table, "%" PRIu32, ranks[r].nodes));
#define TABLE_TIME(member, key, heading)                                                           \
    RP_TRY(rp_table_print(table, "%.6f", rp_ps_to_ms(ranks[r].member)));
        TIME_LIST(TABLE_TIME)
#undef TABLE_TIME
    }
    fprintf(stream, "%" PRIu32 " nodes on %" PRIu32 " ranks, makespan %.6f ms\n\n",
            trace->node_count, trace->rank_count, rp_ps_to_ms(makespan_ps));
    rp_table_write(table, 0, rp_paragraph_columns(stream, RP_TABLE_COLUMNS), stream);
    return RP_OK;
}

static rp_status run_trace(const rpimport_options *o, rp_arena *arena, rpsim_chakra_trace *trace,
                           FILE *stream)
{
    rp_platform platform;
    rpsim_chakra_rank *ranks = NULL;
    int64_t makespan_ps = 0;
    RP_TRY(
        rp_platform_load(o->platform != NULL ? o->platform : DEFAULT_PLATFORM, arena, &platform));
    RP_TRY(read_ranks(o->chakra, arena, trace));
    RP_TRY(rpsim_chakra_link(trace, arena));
    rpsim_chakra_rates rates = rpsim_chakra_platform_rates(&platform);
    RP_TRY(rpsim_chakra_run(trace, &rates, arena, &ranks, &makespan_ps));
    if (o->json) {
        print_json(trace, ranks, makespan_ps, stream);
    } else {
        return print_table(trace, ranks, makespan_ps, arena, stream);
    }
    return RP_OK;
}

rp_status rpimport_chakra(const rpimport_options *options, rp_arena *arena, FILE *stream)
{
    rpsim_chakra_trace trace = {0};
    rp_status status = run_trace(options, arena, &trace, stream);
    rpsim_chakra_fini(&trace);
    return status;
}
