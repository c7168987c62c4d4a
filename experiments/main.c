/* rpsweep: runs experiment files (cli.md). */
#include "common/base/crew.h"
#include "common/base/log.h"
#include "common/base/process.h"
#include "common/cli/paragraph.h"
#include "common/cli/table.h"
#include "common/cli/tool.h"
#include "common/inputs/data.h"
#include "experiments/options.h"
#include "experiments/reference.h"
#include "experiments/report/report.h"
#include "experiments/sweep.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

/* Reads an experiment, given as a path or as the name of a shipped experiment. */
static rp_status read_experiment(const char *name, rp_arena *arena, rpsweep_experiment *experiment)
{
    static const rp_data_kind kind = {.folder = "../experiments",
                                      .setting = "EXPERIMENT",
                                      .noun = "experiment",
                                      .files = "a file NAME.yaml"};
    const char *path = name;
    rp_text text = {0};
    if (strcmp(name, "-") != 0) {
        RP_TRY(rp_data_path(&kind, name, arena, &path));
    }
    rp_status status = rp_text_read_file(path, (size_t)16 << 20, &text);
    if (status == RP_OK) {
        status = rpsweep_experiment_parse(path, text.bytes != NULL ? text.bytes : "", text.length,
                                          arena, experiment);
    }
    rp_text_fini(&text);
    return status;
}

/* Looks for rpexec beside this program, then in the build's folder, then in PATH. */
static rp_status find_rpexec(rp_arena *arena, const char **path_out)
{
    static const char *const places[] = {"rpexec", "../exec/rpexec"};
    const char *own = rp_process_folder();
    *path_out = "rpexec";
    for (size_t i = 0; own != NULL && i < sizeof places / sizeof places[0]; i++) {
        const char *path = NULL;
        RP_TRY(rp_arena_print(arena, &path, "%s/%s", own, places[i]));
        if (access(path, X_OK) == 0) {
            *path_out = path;
            return RP_OK;
        }
    }
    return RP_OK;
}

static rp_status print_points(const rpsweep_experiment *e, const rpsweep_options *o)
{
    rp_status status = RP_OK;
    for (uint64_t number = o->shard; number < e->combinations && status == RP_OK;
         number += o->shards) {
        rp_arena *arena = NULL;
        rpsweep_point point;
        bool included = false;
        const char *command = NULL;
        RP_TRY(rp_arena_create(&arena));
        status = rpsweep_experiment_point(e, number, arena, &point, &included);
        if (status == RP_OK && included) {
            status = rpsweep_point_command(e, &point, arena, &command);
        }
        if (status == RP_OK && included) {
            puts(command);
        }
        rp_arena_destroy(arena);
    }
    return status;
}

static rp_status report(const rpsweep_config *config, const rpsweep_summary *sum, rp_arena *arena)
{
    const char *text = NULL;
    const char *again = "";
    if (sum->present_failed > 0) {
        RP_TRY(rp_arena_print(arena, &again,
                              ", %" PRIu64 " of them failed (--retry-failed runs these again)",
                              sum->present_failed));
    }
    RP_TRY(rp_arena_print(arena, &text,
                          "%s: %" PRIu64 " points: %" PRIu64 " run in %.1f s, %" PRIu64
                          " failed, %" PRIu64 " were in %s%s",
                          config->experiment->name, sum->points, sum->run, sum->seconds,
                          sum->failed, sum->present, config->db, again));
    rp_paragraph_write(text, 0, 2, rp_paragraph_columns(stdout, RP_TABLE_COLUMNS), stdout);
    if (sum->stopped) {
        rp_log_error("stopped; rpsweep with --resume goes on");
        return RP_TOOL;
    }
    return sum->failed > 0 ? RP_TOOL : RP_OK;
}

static rp_status sweep(const rpsweep_options *o, bool is_mpi, rp_arena *arena)
{
    rpsweep_experiment experiment;
    rpsweep_summary summary;
    rpsweep_config config = {.experiment = &experiment,
                             .crew_type = is_mpi ? rpsweep_crew_mpi : &rpsweep_crew_processes,
                             .crew = {.experiment = &experiment, .rpexec = o->rpexec},
                             .db = o->db,
                             .resume = o->resume,
                             .retry = o->retry,
                             .shard = o->shard,
                             .shards = o->shards,
                             .show_progress = isatty(STDERR_FILENO) == 1};
    RP_TRY(read_experiment(o->experiment, arena, &experiment));
    if (o->action == RPSWEEP_ACTION_COUNT) {
        return print_points(&experiment, o);
    }
    if (config.crew.rpexec == NULL) {
        RP_TRY(find_rpexec(arena, &config.crew.rpexec));
    }
    if (config.db == NULL) {
        RP_TRY(rp_arena_print(arena, &config.db, "%s.db", experiment.name));
    }
    /* An executed point uses all cores by itself; two at a time would disturb each other's times.
     */
    uint32_t usual = experiment.executed ? 1 : rp_crew_threads(0, UINT32_MAX);
    config.crew.jobs = o->jobs != 0 ? o->jobs : usual;
    config.crew.patience_s = 2 * (o->watchdog_s != 0 ? o->watchdog_s : RPSWEEP_WATCHDOG_S);
    rp_status status = rpsweep_run(&config, &summary);
    return status == RP_OK ? report(&config, &summary, arena) : status;
}

static rp_status merge(const rpsweep_options *o)
{
    rp_store *store = NULL;
    RP_TRY(rp_store_open_before(o->db, &store));
    rp_status status = RP_OK;
    for (uint32_t i = 0; i < o->store_count && status == RP_OK; i++) {
        rp_store *from = NULL;
        uint64_t added = 0;
        status = rp_store_open_existing(o->stores[i], &from);
        if (status == RP_OK && store == NULL) {
            status = rp_store_open(o->db, &store);
        }
        if (status == RP_OK) {
            status = rp_store_merge(store, from, &added);
        }
        if (status == RP_OK) {
            printf("%s: %" PRIu64 " points added to %s\n", o->stores[i], added, o->db);
        }
        rp_store_close(from);
    }
    rp_store_close(store);
    return status;
}

static rp_status export(const rpsweep_options *o)
{
    rp_store *store = NULL;
    RP_TRY(rp_store_open_existing(o->db, &store));
    rp_status status = rp_store_export(store, o->view, stdout);
    rp_store_close(store);
    return status;
}

static rp_status import_reference(const rpsweep_options *o, rp_arena *arena)
{
    uint64_t added = 0;
    RP_TRY(rpsweep_reference_import(o->db, o->table, o->cell, arena, &added));
    printf("%s: %" PRIu64 " values in %s\n", o->table, added, o->db);
    return RP_OK;
}

static rp_status act(const rpsweep_options *o, bool is_mpi, rp_arena *arena)
{
    if (o->common.request != RP_OPTIONS_RUN) {
        return rp_options_answer(&rpsweep_command_line, o, stdout);
    }
    if (o->action != RPSWEEP_ACTION_RUN) {
        rpsweep_mpi_end(); /* no other rank has work */
    }
    switch (o->action) {
    case RPSWEEP_ACTION_MERGE:
        return merge(o);
    case RPSWEEP_ACTION_EXPORT:
        return export(o);
    case RPSWEEP_ACTION_REFERENCE:
        return import_reference(o, arena);
    case RPSWEEP_ACTION_REPORT:
        return rpsweep_report(o->stores[0], o->html, arena);
    case RPSWEEP_ACTION_RUN:
    case RPSWEEP_ACTION_COUNT:
        return sweep(o, is_mpi, arena);
    }
    return rp_broken();
}

static rp_status run(int argc, char **argv, bool is_mpi)
{
    rp_arena *arena = NULL;
    rpsweep_options options;
    RP_TRY(rp_arena_create(&arena));
    rp_status status = rpsweep_options_parse(argc, argv, arena, &options);
    if (status == RP_OK) {
        status = act(&options, is_mpi, arena);
    }
    if ((fflush(stdout) != 0 || ferror(stdout) != 0) && status == RP_OK) {
        rp_log_error("standard output: %s", strerror(errno));
        status = RP_IO;
    }
    rp_arena_destroy(arena);
    return status;
}

int main(int argc, char **argv)
{
    bool is_mpi = false;
    bool is_worker = false;
    rp_tool_begin("rpsweep");
    rp_status status = rpsweep_mpi_begin(argc, argv, &is_mpi, &is_worker);
    if (status == RP_OK && !is_worker) {
        status = run(argc, argv, is_mpi);
    }
    rpsweep_mpi_end();
    return rp_status_exit(status);
}
