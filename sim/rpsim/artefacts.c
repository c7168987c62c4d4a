#include "sim/rpsim/artefacts.h"

#include "common/base/log.h"
#include "common/base/version.h"
#include "common/formats/json.h"
#include "common/page/page.h"
#include "common/timeline/chrome_trace.h"
#include "common/timeline/gantt.h"
#include "common/timeline/timeline_csv.h"
#include "common/torch/torch_csv.h"
#include "sim/rpsim/report/page.h"
#include "sim/rpsim/report/report.h"
#include "sim/run/memory/snapshot.h"
#include "sim/study/record.h"

#include <inttypes.h>
#include <string.h>

static rp_status require_one(const rpsim_study *study, const char *option, const char *path)
{
    if (path == NULL || study->row_count == 1) {
        return RP_OK;
    }
    rp_log_error("%s: one file cannot hold %u runs; valid is one schedule in one recompute mode on "
                 "one model",
                 option, study->row_count);
    return RP_USAGE;
}

static bool writes_sidecar(const rpsim_options *o)
{
    return o->torch_csv_out != NULL && o->setup.torch_csv_in == NULL &&
           o->setup.torch_sidecar != NULL;
}

/* Checks that every run has the iterations of --gantt-iterations. */
static rp_status check_iterations(const rpsim_study *study, const rpsim_options *o)
{
    for (uint32_t i = 0; i < study->row_count; i++) {
        const rpsim_row *row = &study->rows[i];
        uint32_t count =
            row->given != NULL ? row->given->iteration_count : row->run.decided.iterations;
        if (o->gantt_last > count) {
            rp_log_error(
                "{gantt_iterations}: %s has %u iteration%s; valid are 1 to %u, or a larger "
                "{iterations}",
                row->schedule_name, count, count == 1 ? "" : "s", count);
            return RP_USAGE;
        }
    }
    return RP_OK;
}

rp_status rpsim_artefacts_open(const rpsim_study *study, const rpsim_options *o,
                               rpsim_artefacts *artefacts_out)
{
    *artefacts_out = (rpsim_artefacts){0};
    RP_TRY(require_one(study, "--trace-out", o->trace_out));
    RP_TRY(require_one(study, "--program-out", o->program_out));
    RP_TRY(require_one(study, "--memory-out", o->memory_out));
    RP_TRY(require_one(study, "--timeline-out", o->timeline_out));
    RP_TRY(require_one(study, "--torch-csv-out", o->torch_csv_out));
    RP_TRY(require_one(study, "--chakra-out", o->chakra_out));
    if (o->gantt_out != NULL) {
        if (study->row_count > RP_GANTT_MAX_PANELS) {
            rp_log_error("{gantt_out}: %u runs do not fit one chart; valid are up to %u",
                         study->row_count, RP_GANTT_MAX_PANELS);
            return RP_USAGE;
        }
        RP_TRY(rp_gantt_check_path("--gantt-out", o->gantt_out));
        RP_TRY(check_iterations(study, o));
    }
    if (o->html_out != NULL) {
        if (study->row_count > RP_PAGE_MAX_RUNS) {
            rp_log_error("{html_out}: %u runs are too many for one page; valid are up to %u",
                         study->row_count, RP_PAGE_MAX_RUNS);
            return RP_USAGE;
        }
        RP_TRY(rp_output_open(o->html_out, &artefacts_out->page));
    }
    if (o->trace_out != NULL) {
        RP_TRY(rp_output_open(o->trace_out, &artefacts_out->trace));
    }
    if (o->program_out != NULL) {
        RP_TRY(rp_output_open(o->program_out, &artefacts_out->program));
    }
    if (o->memory_out != NULL) {
        if (!o->setup.run.hardware) {
            rp_log_error("{memory_out}: stage fidelity has no buffers; valid is {fidelity} "
                         "hardware");
            return RP_USAGE;
        }
        RP_TRY(rp_output_open(o->memory_out, &artefacts_out->memory));
    }
    if (o->timeline_out != NULL) {
        RP_TRY(rp_output_open(o->timeline_out, &artefacts_out->timeline));
    }
    if (o->torch_csv_out != NULL) {
        RP_TRY(rp_output_open(o->torch_csv_out, &artefacts_out->torch_csv));
    }
    if (o->chakra_out != NULL) {
        const rpsim_row *row = &study->rows[0];
        rp_traits traits = row->given != NULL ? row->given->traits : row->run.schedule->traits;
        traits.layout = row->run.decided.layout;
        if (rp_server_copies(&traits) > 1) {
            rp_log_error("{chakra_out}: hosts of several servers add up gradients, which traces of "
                         "GPUs cannot say; valid are runs on one server");
            return RP_USAGE;
        }
        RP_TRY(rpsim_chakra_open(o->chakra_out, row->run.gpus, &row->run.decided.layout,
                                 study->arena, &artefacts_out->chakra));
    }
    if (writes_sidecar(o)) {
        RP_TRY(rp_output_open(o->setup.torch_sidecar, &artefacts_out->sidecar));
    }
    return o->db != NULL ? rp_store_open_before(o->db, &artefacts_out->store) : RP_OK;
}

static rp_status write_trace(const rpsim_study *study, rp_output *output)
{
    const rpsim_row *row = &study->rows[0];
    char seed[32];
    snprintf(seed, sizeof seed, "%" PRIu64, study->setup->seed);
    const rp_trace_fact facts[] = {
        {"program", "rpsim"},
        {"version", rp_version()},
        {"schedule", row->schedule_name},
        {"model", row->model_name},
        {"platform", row->platform_name},
        {"costs", row->run.costs->name},
        {"partition", row->partition_text},
        {"recompute", rp_recompute_text(row->run.recompute)},
        {"fidelity", !row->run.stage ? "hardware" : "stage"},
        {"seed", seed},
    };
    RP_TRY(rp_trace_write(row->result.timeline, facts, sizeof facts / sizeof facts[0],
                          output->stream));
    return rp_output_commit(output);
}

/* Writes the chart of the iterations that were asked for. It measures the timelines itself, because
 * a row's metrics are of a single iteration. */
static rp_status write_gantt(const rpsim_study *study, const rpsim_options *o)
{
    rp_gantt_panel panels[RP_GANTT_MAX_PANELS];
    rp_metrics metrics[RP_GANTT_MAX_PANELS];
    for (uint32_t i = 0; i < study->row_count; i++) {
        const rpsim_row *row = &study->rows[i];
        const char *title = row->schedule_name;
        if (study->setup->all_schedules || study->setup->run.recompute_count != 0) {
            RP_TRY(rp_arena_print(study->arena, &title, "%s, recompute %s", row->schedule_name,
                                  rp_recompute_text(row->run.recompute)));
        }
        metrics[i] = row->result.metrics;
        RP_TRY(rp_metrics_measure(row->result.timeline, row->result.separate_backward, &metrics[i],
                                  NULL));
        panels[i] = (rp_gantt_panel){.timeline = row->result.timeline,
                                     .metrics = &metrics[i],
                                     .schedule = title,
                                     .model = row->model_name};
        if (row->result.timeline->program->iteration_count > 1) {
            panels[i].first_iteration = o->gantt_first != 0 ? o->gantt_first : 1;
            panels[i].last_iteration = o->gantt_first != 0 ? o->gantt_last : 1;
        }
    }
    return rp_gantt_write(panels, study->row_count, o->gantt_out);
}

static rp_status check_legacy(const rpsim_options *o, const rp_program *program,
                              const rp_torch_csv *csv)
{
    bool pairs = false;
    for (uint32_t i = 0; i < csv->row_begin[csv->rank_count]; i++) {
        pairs = pairs || csv->actions[i].overlaps_next;
    }
    if (!o->torch_legacy || !pairs) {
        return RP_OK;
    }
    rp_log_error("{torch_csv_dialect}: the legacy dialect has no overlapped pairs, and %s has "
                 "some; valid are compute-only, lowered and lowered-waits",
                 program->schedule);
    return RP_USAGE;
}

static rp_status write_torch_csv(const rpsim_study *study, const rpsim_options *o,
                                 rp_output *output, rp_output *sidecar)
{
    const rp_program *program = study->rows[0].result.program;
    rp_torch_csv csv;
    bool multi_rank = o->setup.multi_rank_stages;
    RP_TRY(rp_torch_csv_of_program(program, multi_rank, study->arena, &csv));
    if (csv.separate && o->torch_lowered) {
        rp_log_error("{torch_csv_dialect}: PyTorch has no lowering for stages with the backward "
                     "apart, as %s has them; valid is compute-only",
                     program->schedule);
        return RP_USAGE;
    }
    RP_TRY(check_legacy(o, program, &csv));
    if (writes_sidecar(o)) {
        RP_TRY(rpsim_sidecar_write(program, &csv, study->arena, sidecar->stream));
        RP_TRY(rp_output_commit(sidecar));
    }
    if (o->torch_lowered) {
        rp_torch_csv computations = csv;
        RP_TRY(rp_torch_csv_lower(&computations, &o->torch_lowering, study->arena, &csv));
    }
    csv.legacy = o->torch_legacy;
    rp_torch_csv_print(&csv, output->stream);
    return rp_output_commit(output);
}

/* Stores all rows, or none. */
static rp_status store_rows(const rpsim_study *study, bool ops, const char *command,
                            rp_store *store)
{
    RP_TRY(rp_store_begin(store));
    rp_status status = RP_OK;
    for (uint32_t i = 0; i < study->row_count && status == RP_OK; i++) {
        rp_store_run run;
        status = rpsim_row_record(study, &study->rows[i], command, &run);
        if (status == RP_OK) {
            status = rp_store_add_run(store, &run, ops ? study->rows[i].result.timeline : NULL);
        }
    }
    return rp_store_end(store, status);
}

rp_status rpsim_artefacts_write(const rpsim_study *study, const rpsim_options *o,
                                const char *command, rpsim_artefacts *artefacts)
{
    /* This file comes first: it may refuse the program, and then no other file may appear. */
    if (o->torch_csv_out != NULL) {
        RP_TRY(write_torch_csv(study, o, &artefacts->torch_csv, &artefacts->sidecar));
    }
    if (o->chakra_out != NULL) {
        const rpsim_row *row = &study->rows[0];
        rpsim_chakra_host host = o->chakra_delay ? RPSIM_CHAKRA_HOST_DELAY : RPSIM_CHAKRA_HOST_KEEP;
        RP_TRY(rpsim_chakra_write(row->result.timeline, row->run.costs->hop_ps,
                                  row->run.boundary_bytes, host, study->arena, &artefacts->chakra));
    }
    if (o->trace_out != NULL) {
        RP_TRY(write_trace(study, &artefacts->trace));
    }
    if (o->program_out != NULL) {
        rp_program_write(study->rows[0].result.program, artefacts->program.stream);
        RP_TRY(rp_output_commit(&artefacts->program));
    }
    if (o->memory_out != NULL) {
        RP_TRY(rpsim_snapshot_write(study->rows[0].result.timeline, artefacts->memory.stream));
        RP_TRY(rp_output_commit(&artefacts->memory));
    }
    if (o->timeline_out != NULL) {
        rp_timeline_write_csv(study->rows[0].result.timeline, artefacts->timeline.stream);
        RP_TRY(rp_output_commit(&artefacts->timeline));
    }
    if (o->html_out != NULL) {
        RP_TRY(rpsim_page_write(study, command, artefacts->page.stream));
        RP_TRY(rp_output_commit(&artefacts->page));
    }
    if (o->gantt_out != NULL) {
        RP_TRY(write_gantt(study, o));
    }
    if (o->db != NULL && artefacts->store == NULL) {
        RP_TRY(rp_store_open(o->db, &artefacts->store));
    }
    return o->db != NULL ? store_rows(study, o->db_ops, command, artefacts->store) : RP_OK;
}

void rpsim_artefacts_fini(rpsim_artefacts *artefacts)
{
    rp_output_discard(&artefacts->trace);
    rp_output_discard(&artefacts->page);
    rp_output_discard(&artefacts->timeline);
    rp_output_discard(&artefacts->program);
    rp_output_discard(&artefacts->memory);
    rp_output_discard(&artefacts->torch_csv);
    rp_output_discard(&artefacts->sidecar);
    rpsim_chakra_discard(&artefacts->chakra);
    rp_store_close(artefacts->store);
    artefacts->store = NULL;
}
