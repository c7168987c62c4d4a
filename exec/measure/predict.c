#include "exec/measure/predict.h"

#include "common/base/log.h"
#include "common/base/process.h"
#include "common/base/text.h"
#include "common/inputs/load/platforms.h"
#include "common/inputs/platform.h"
#include "common/timeline/timeline_csv.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- the record of an earlier run ------------------------------------------------------------ */

rp_status rpexec_predict_conditions(rp_dtype dtype, const rp_model *model, bool half_accumulation,
                                    rpexec_attention_by attention, rp_arena *arena,
                                    const char **text_out)
{
    static const char *const names[] = {RP_LORA_LINEARS};
    char adapters[96] = "";
    char by[32] = "";
    if (model->lora_rank != 0) {
        int length = snprintf(adapters, sizeof adapters, ", LoRA of rank %u", model->lora_rank);
        for (size_t i = 0; model->lora_linears != 0 && i < sizeof names / sizeof names[0]; i++) {
            length += (model->lora_linears >> i & 1) == 0
                          ? 0
                          : snprintf(adapters + length, sizeof adapters - (size_t)length, " %s",
                                     names[i]);
        }
    }
    if (attention != RPEXEC_ATTENTION_OWN) {
        snprintf(by, sizeof by, ", attention %s", rpexec_attention_text(attention));
    }
    return rp_arena_print(arena, text_out, "%s%s%s%s", rp_dtype_text(dtype), adapters,
                          half_accumulation ? ", products in fp16" : "", by);
}

static rp_status check_sizes(const char *path, const rp_costs *c, const rpexec_measured *w)
{
    if (c->layers != w->layers || c->microbatch_size != w->sequences || c->seq_len != w->seq_len) {
        rp_log_error("{costs}: %s was measured with %u layers and microbatches of %u x %u tokens, "
                     "this run has %u and %u x %u; valid is a record of the same sizes",
                     path, c->layers, c->microbatch_size, c->seq_len, w->layers, w->sequences,
                     w->seq_len);
        return RP_INPUT;
    }
    return RP_OK;
}

/* Compares the names too, since different models may have the same sizes. */
static rp_status check_origin(const char *path, const rp_costs *c, const rpexec_measured *w)
{
    const char *at = strrchr(c->name, '@');
    size_t model = at != NULL ? (size_t)(at - c->name) : 0;
    if (at != NULL && (strlen(w->model) != model || strncmp(c->name, w->model, model) != 0 ||
                       strcmp(at + 1, w->backend) != 0)) {
        rp_log_error("{costs}: %s was measured with %.*s on the backend %s, this run has %s on %s; "
                     "valid is a record of the same model and backend",
                     path, (int)model, c->name, at + 1, w->model, w->backend);
        return RP_INPUT;
    }
    size_t before = strlen(RPEXEC_MEASURED_IN);
    bool says = strncmp(c->source, RPEXEC_MEASURED_IN, before) == 0;
    size_t length = says ? strcspn(c->source + before, ";") : 0;
    if (says && (length != strlen(w->conditions) ||
                 strncmp(c->source + before, w->conditions, length) != 0)) {
        rp_log_error("{costs}: %s was measured in %.*s, this run is in %s; valid is a record of "
                     "the same",
                     path, (int)length, c->source + before, w->conditions);
        return RP_INPUT;
    }
    return RP_OK;
}

rp_status rpexec_predict_read(const char *from, const rpexec_measured *wanted, rp_arena *arena,
                              rpexec_prediction *prediction_out)
{
    rpexec_prediction p = {0};
    rp_platform platform;
    struct stat status;
    if (stat(from, &status) != 0) {
        rp_log_error("{costs}: %s: %s; valid is a folder that {record} has written", from,
                     strerror(errno));
        return RP_INPUT;
    }
    const char *slash = strrchr(from, '/');
    if (S_ISDIR(status.st_mode)) {
        RP_TRY(rp_arena_print(arena, &p.costs_path, "%s/costs.yaml", from));
        RP_TRY(rp_arena_print(arena, &p.platform_path, "%s/platform.yaml", from));
    } else {
        RP_TRY(rp_arena_print(arena, &p.costs_path, "%s%s", slash == NULL ? "./" : "", from));
        RP_TRY(rp_arena_print(arena, &p.platform_path, "%.*s/platform.yaml",
                              slash == NULL ? 1 : (int)(slash - from), slash == NULL ? "." : from));
    }
    RP_TRY(rp_costs_load(p.costs_path, arena, &p.costs));
    RP_TRY(rp_platform_load(p.platform_path, arena, &platform));
    RP_TRY(check_sizes(p.costs_path, &p.costs, wanted));
    RP_TRY(check_origin(p.costs_path, &p.costs, wanted));
    p.bound = platform.bound_cores > 0;
    p.busy_pct = platform.recorded_busy_pct;
    p.network_gb_per_s = platform.network_gb_per_s;
    *prediction_out = p;
    return RP_OK;
}

/* ---- rpsim ----------------------------------------------------------------------------------- */

/* rpsim is installed in the same folder as rpexec; in a build tree it is a folder above. */
static rp_status find_rpsim(rp_arena *arena, const char **path_out)
{
    static const char *const places[] = {"rpsim", "../rpsim"};
    const char *own = rp_process_folder();
    for (size_t i = 0; own != NULL && i < sizeof places / sizeof places[0]; i++) {
        RP_TRY(rp_arena_print(arena, path_out, "%s/%s", own, places[i]));
        if (access(*path_out, X_OK) == 0) {
            return RP_OK;
        }
    }
    rp_log_error("{predict}: there is no rpsim in %s; valid are installations and builds with both",
                 own != NULL ? own : "this program's folder");
    return RP_TOOL;
}

static rp_status simulate(const rpexec_prediction *p, const char *program, const char *model,
                          const char *timeline, rp_arena *arena)
{
    const char *rpsim = NULL;
    const char *tokens = NULL;
    const char *network = NULL;
    RP_TRY(find_rpsim(arena, &rpsim));
    RP_TRY(rp_arena_print(arena, &tokens, "%u", p->costs.seq_len));
    RP_TRY(rp_arena_print(arena, &network, "platform.network_gb_per_s=%.17g", p->network_gb_per_s));
    const struct {
        const char *setting;
        const char *value;
    } settings[] = {{"program-in", program},
                    {"model", model},
                    {"seq-len", tokens},
                    {"costs", p->costs_path},
                    {"platform", p->platform_path},
                    {"fidelity", "hardware"},
                    {"timeline-out", timeline},
                    {p->network_gb_per_s > 0 ? "set" : NULL, network}};
    const char *words[2 + sizeof settings / sizeof *settings] = {rpsim};
    size_t count = 1;
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        if (settings[i].setting != NULL) {
            RP_TRY(rp_arena_print(arena, &words[count++], "--%s=%s", settings[i].setting,
                                  settings[i].value));
        }
    }
    const rp_process process = {.argv = words, .package = "rpsim"};
    return rp_process_run(&process);
}

/* @param path_out a new, empty file, which the caller removes */
static rp_status make_temporary(rp_arena *arena, const char **path_out)
{
    const char *folder = getenv("TMPDIR");
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/rpexec-XXXXXX",
             folder != NULL && *folder != '\0' ? folder : "/tmp");
    int descriptor = mkstemp(path);
    if (descriptor < 0) {
        rp_log_error("{predict}: %s: %s", path, strerror(errno));
        return RP_IO;
    }
    close(descriptor);
    rp_status status = rp_arena_print(arena, path_out, "%s", path);
    if (status != RP_OK) {
        unlink(path);
    }
    return status;
}

static rp_status write_program(const rp_program *program, const char *path)
{
    rp_output output;
    RP_TRY(rp_output_open(path, &output));
    rp_program_write(program, output.stream);
    return rp_output_commit(&output);
}

static rp_status read_timeline(const char *path, const rp_program *program,
                               rp_timeline **timeline_out)
{
    rp_text text = {0};
    RP_TRY(rp_text_read_file(path, rp_timeline_csv_most_bytes(program), &text));
    rp_status status = rp_timeline_read_csv(path, text.bytes, text.length, program, timeline_out);
    rp_text_fini(&text);
    return status;
}

rp_status rpexec_predict(const rpexec_prediction *prediction, const rp_program *program,
                         const char *model, const char *timeline_path, rp_arena *arena,
                         rp_timeline **timeline_out)
{
    const char *text = NULL;
    const char *temporary = NULL;
    rp_status status = make_temporary(arena, &text);
    if (status == RP_OK && timeline_path == NULL) {
        status = make_temporary(arena, &temporary);
        timeline_path = temporary;
    }
    status = status == RP_OK ? write_program(program, text) : status;
    status = status == RP_OK ? simulate(prediction, text, model, timeline_path, arena) : status;
    status = status == RP_OK ? read_timeline(timeline_path, program, timeline_out) : status;
    if (text != NULL) {
        unlink(text);
    }
    if (temporary != NULL) {
        unlink(temporary);
    }
    return status;
}
