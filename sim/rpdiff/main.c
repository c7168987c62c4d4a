/* rpdiff: compares predicted and measured times. */
#include "common/base/log.h"
#include "common/base/text.h"
#include "common/cli/option_values.h"
#include "common/cli/tool.h"
#include "common/schedule/schedule_type.h"
#include "common/store/timeline.h"
#include "common/timeline/chrome_trace.h"
#include "common/timeline/gantt.h"
#include "common/timeline/timeline_csv.h"
#include "sim/rpdiff/diff.h"
#include "sim/rpdiff/options.h"
#include "sim/rpdiff/page.h"
#include "sim/rpdiff/runs.h"

#include <string.h>
#include <sys/stat.h>

/* ---- reading a timeline ---------------------------------------------------------------------- */

/* Reads the folder of a recorded run, which has the program, too. */
static rp_status read_folder(const char *folder, rp_arena *arena, rp_read_timeline *out)
{
    const char *csv = NULL;
    const char *program = NULL;
    rp_text text = {0};
    RP_TRY(rp_arena_print(arena, &csv, "%s/timeline.csv", folder));
    RP_TRY(rp_arena_print(arena, &program, "%s/program.txt", folder));
    RP_TRY(rp_program_read_file(program, &out->program));
    rp_status status = rp_text_read_file(csv, rp_timeline_csv_most_bytes(out->program), &text);
    if (status == RP_OK) {
        status = rp_timeline_read_csv(csv, text.bytes, text.length, out->program, &out->timeline);
    }
    rp_text_fini(&text);
    return status;
}

/* Splits STORE:RUN. @return false if the name does not have that form */
static bool is_run(const char *name, rp_arena *arena, const char **path_out, uint64_t *run_out)
{
    const char *colon = strrchr(name, ':');
    return colon != NULL && colon > name && rp_parse_u64(colon + 1, 1, INT64_MAX, run_out) &&
           rp_arena_print(arena, path_out, "%.*s", (int)(colon - name), name) == RP_OK;
}

static rp_status read_run(const char *path, uint64_t run, rp_read_timeline *out)
{
    rp_store *store = NULL;
    RP_TRY(rp_store_open_existing(path, &store));
    rp_status status = rp_store_read_timeline(store, (int64_t)run, out);
    rp_store_close(store);
    return status;
}

static rp_status read_any(const char *name, rp_arena *arena, rp_read_timeline *out)
{
    struct stat there;
    const char *path = NULL;
    uint64_t run = 0;
    bool exists = stat(name, &there) == 0;
    if (exists && S_ISDIR(there.st_mode)) {
        return read_folder(name, arena, out);
    }
    if (!exists && is_run(name, arena, &path, &run)) {
        return read_run(path, run, out);
    }
    return rp_timeline_read_file(name, out);
}

/* Reads a timeline. Its times must be so small that their sum over all GPUs does not overflow. */
static rp_status read_timeline(const char *name, rp_arena *arena, rp_read_timeline *out)
{
    RP_TRY(read_any(name, arena, out));
    const rp_program *p = out->program;
    int64_t most = INT64_MAX / (p->gpu_count > 0 ? p->gpu_count : 1);
    for (uint32_t i = 0; i < p->op_count; i++) {
        if (out->timeline->end_ps[i] > most) {
            rp_log_error("%s: op %u ends at %lld ps; valid are ends up to %lld with %u GPUs", name,
                         i, (long long)out->timeline->end_ps[i], (long long)most, p->gpu_count);
            return RP_INPUT;
        }
    }
    return RP_OK;
}

/* ---- pictures -------------------------------------------------------------------------------- */

static const char *const side_names[2] = {"predicted", "measured"};

/* Output files. They are opened before anything is compared, so that a file that cannot be written
 * is reported first. */
typedef struct outputs {
    rp_output trace;
    rp_output page;
} outputs;

static rp_status open_outputs(const rpdiff_options *o, outputs *out)
{
    if (o->trace_out != NULL) {
        RP_TRY(rp_output_open(o->trace_out, &out->trace));
    }
    return o->html_out != NULL ? rp_output_open(o->html_out, &out->page) : RP_OK;
}

static rp_status write_trace(const rpdiff_options *o, const rpsim_diff *d, rp_output *output)
{
    const rp_trace_fact facts[] = {{"predicted", o->predicted}, {"measured", o->measured}};
    const rp_trace_part parts[] = {{d->predicted, side_names[0]}, {d->measured, side_names[1]}};
    RP_TRY(rp_trace_write_parts(parts, 2, facts, 2, output->stream));
    return rp_output_commit(output);
}

static rp_status write_page(const rpdiff_options *o, const rpsim_diff *d, rp_arena *arena,
                            rp_output *output)
{
    const char *const names[2] = {o->predicted, o->measured};
    RP_TRY(rpsim_diff_page_write(d, names, o->command, arena, output->stream));
    return rp_output_commit(output);
}

/* Metrics of a timeline, for a panel of the chart. */
static rp_metrics metrics_of(const rp_timeline *t)
{
    const rp_program *p = t->program;
    rp_metrics m = {.makespan_ps = rp_metrics_makespan_ps(t)};
    for (uint32_t q = 0; q < p->queue_count; q++) {
        for (uint32_t i = p->queues[q].op_begin;
             p->queues[q].kind == RP_QUEUE_COMPUTE && i < p->queues[q].op_end; i++) {
            m.busy_ps += t->end_ps[i] - t->start_ps[i];
        }
    }
    m.bubble_ps = (int64_t)p->gpu_count * m.makespan_ps - m.busy_ps;
    return m;
}

static rp_status write_gantt(const rpdiff_options *o, const rpsim_diff *d)
{
    const rp_metrics metrics[2] = {metrics_of(d->predicted), metrics_of(d->measured)};
    const rp_gantt_panel panels[2] = {{d->predicted, &metrics[0], side_names[0], NULL, 0, 0},
                                      {d->measured, &metrics[1], side_names[1], NULL, 0, 0}};
    return rp_gantt_write(panels, 2, o->gantt_out);
}

/* ---- all of it ------------------------------------------------------------------------------- */

static rp_status compare_to(const rpdiff_options *o, const rp_read_timeline sides[2],
                            rp_arena *arena, outputs *out)
{
    rpsim_diff diff;
    const char *const names[2] = {o->predicted, o->measured};
    RP_TRY(rpsim_diff_compare(sides[0].timeline, sides[1].timeline, names, o->worst, arena, &diff));
    if (o->trace_out != NULL) {
        RP_TRY(write_trace(o, &diff, &out->trace));
    }
    if (o->html_out != NULL) {
        RP_TRY(write_page(o, &diff, arena, &out->page));
    }
    if (o->gantt_out != NULL) {
        RP_TRY(write_gantt(o, &diff));
    }
    if (o->format == RPDIFF_FORMAT_JSON) {
        rpsim_diff_write_json(&diff, stdout);
    } else {
        return rpsim_diff_print(&diff, arena, stdout);
    }
    return RP_OK;
}

static rp_status compare(const rpdiff_options *o, const rp_read_timeline sides[2], rp_arena *arena)
{
    outputs out = {0};
    rp_status status = open_outputs(o, &out);
    status = status == RP_OK ? compare_to(o, sides, arena, &out) : status;
    rp_output_discard(&out.trace);
    rp_output_discard(&out.page);
    return status;
}

/* Adds the recompute mode to the variant of a run if it is not the schedule's default mode. */
static rp_status name_recompute(rp_store_prediction *run, rp_arena *arena)
{
    const rp_schedule_type *type = rp_schedule_find(run->schedule);
    const char *usual = type != NULL ? rp_recompute_text(type->default_recompute) : "";
    return run->recompute[0] == '\0' || strcmp(run->recompute, usual) == 0
               ? RP_OK
               : rp_arena_print(arena, &run->variant, "recompute=%s%s%s", run->recompute,
                                run->variant[0] != '\0' ? " " : "", run->variant);
}

/* Compares every predicted run of a store with its measurement. */
static rp_status compare_runs(const rpdiff_options *o, rp_arena *arena)
{
    rp_store *store = NULL;
    rp_store_prediction *runs = NULL;
    uint32_t count = 0;
    rpsim_diff_runs diff;
    RP_TRY(rp_store_open_existing(o->predicted, &store));
    rp_status status = rp_store_read_predictions(store, arena, &runs, &count);
    rp_store_close(store);
    if (status == RP_OK && count == 0) {
        rp_log_error(
            "%s: no run was predicted; valid are stores with runs of rpexec --predict --db "
            "of two steps or more",
            o->predicted);
        status = RP_INPUT;
    }
    RP_TRY(status);
    for (uint32_t i = 0; i < count; i++) {
        RP_TRY(name_recompute(&runs[i], arena));
    }
    RP_TRY(rpsim_diff_runs_compare(runs, count, arena, &diff));
    switch (o->format) {
    case RPDIFF_FORMAT_TABLE:
        return rpsim_diff_runs_print(&diff, arena, stdout);
    case RPDIFF_FORMAT_JSON:
        rpsim_diff_runs_write_json(&diff, stdout);
        break;
    case RPDIFF_FORMAT_CSV:
        rpsim_diff_runs_write_csv(&diff, stdout);
        break;
    }
    return RP_OK;
}

static rp_status act(const rpdiff_options *o, rp_arena *arena)
{
    rp_read_timeline sides[2] = {{0}};
    if (o->common.request != RP_OPTIONS_RUN) {
        return rp_options_answer(&rpdiff_command_line, o, stdout);
    }
    if (o->measured == NULL) {
        return compare_runs(o, arena);
    }
    rp_status status =
        o->gantt_out != NULL ? rp_gantt_check_path("--gantt-out", o->gantt_out) : RP_OK;
    status = status == RP_OK ? read_timeline(o->predicted, arena, &sides[0]) : status;
    status = status == RP_OK ? read_timeline(o->measured, arena, &sides[1]) : status;
    status = status == RP_OK ? compare(o, sides, arena) : status;
    rp_read_timeline_fini(&sides[0]);
    rp_read_timeline_fini(&sides[1]);
    return status;
}

static rp_status run(int argc, char **argv, rp_arena *arena)
{
    rpdiff_options options;
    RP_TRY(rpdiff_options_parse(argc, argv, arena, &options));
    RP_TRY(rp_option_command("rpdiff", argc, argv, arena, &options.command));
    return act(&options, arena);
}

int main(int argc, char **argv)
{
    return rp_tool_main("rpdiff", argc, argv, run);
}
