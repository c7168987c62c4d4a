#include "exec/predict.h"

#include "common/log.h"
#include "common/process.h"
#include "common/text.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- what was recorded ------------------------------------------------------------------------
 */

rp_status rpexec_predict_read(const char *from, uint32_t layers, uint32_t sequences,
                              uint32_t seq_len, rp_arena *arena, rpexec_prediction *prediction_out)
{
    rpexec_prediction p;
    rp_platform platform;
    struct stat status;
    if (stat(from, &status) != 0) {
        rp_log_error("--costs: %s: %s; valid is a folder that rpexec --record has written", from,
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
    if (p.costs.layers != layers || p.costs.microbatch_size != sequences ||
        p.costs.seq_len != seq_len) {
        rp_log_error("--costs: %s was measured with %u layers and microbatches of %u x %u tokens, "
                     "this run has %u and %u x %u; valid is a record of the same sizes",
                     p.costs_path, p.costs.layers, p.costs.microbatch_size, p.costs.seq_len, layers,
                     sequences, seq_len);
        return RP_INPUT;
    }
    *prediction_out = p;
    return RP_OK;
}

/* ---- rpsim ------------------------------------------------------------------------------------
 */

/* Installed in the same folder; in a build tree one above. */
static rp_status find_rpsim(rp_arena *arena, const char **path_out)
{
    static const char *const places[] = {"rpsim", "../rpsim"};
    char self[PATH_MAX];
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    self[length > 0 ? length : 0] = '\0';
    const char *slash = strrchr(self, '/');
    for (size_t i = 0; slash != NULL && i < sizeof places / sizeof places[0]; i++) {
        RP_TRY(rp_arena_print(arena, path_out, "%.*s/%s", (int)(slash - self), self, places[i]));
        if (access(*path_out, X_OK) == 0) {
            return RP_OK;
        }
    }
    rp_log_error("--predict: there is no rpsim beside %s; valid are installations and builds with "
                 "both",
                 self);
    return RP_TOOL;
}

static rp_status read_makespan(FILE *output, double *makespan_ms_out)
{
    rewind(output);
    json_t *rows = json_loadf(output, 0, NULL);
    const json_t *value = json_object_get(json_array_get(rows, 0), "makespan_ms");
    bool found = json_is_number(value);
    *makespan_ms_out = json_number_value(value);
    json_decref(rows);
    if (!found) {
        rp_log_error("--predict: rpsim has not said a makespan");
        return RP_TOOL;
    }
    return RP_OK;
}

static rp_status simulate(const rpexec_prediction *p, const char *program, uint32_t seq_len,
                          const char *model, const char *timeline_out, rp_arena *arena,
                          double *makespan_ms_out)
{
    const char *rpsim = NULL;
    const char *tokens = NULL;
    RP_TRY(find_rpsim(arena, &rpsim));
    RP_TRY(rp_arena_print(arena, &tokens, "%u", seq_len));
    const char *const arguments[] = {rpsim,
                                     "--program-in",
                                     program,
                                     "--model",
                                     model,
                                     "--seq-len",
                                     tokens,
                                     "--costs",
                                     p->costs_path,
                                     "--platform",
                                     p->platform_path,
                                     "--fidelity",
                                     "hardware",
                                     "--format",
                                     "json",
                                     timeline_out != NULL ? "--timeline-out" : NULL,
                                     timeline_out,
                                     NULL};
    FILE *output = tmpfile();
    if (output == NULL) {
        rp_log_error("--predict: no temporary file: %s", strerror(errno));
        return RP_IO;
    }
    const rp_process process = {.argv = arguments, .package = "roundpipe", .output = output};
    rp_status status = rp_process_run(&process);
    status = status == RP_OK ? read_makespan(output, makespan_ms_out) : status;
    fclose(output);
    return status;
}

rp_status rpexec_predict(const rpexec_prediction *prediction, const rp_program *program,
                         const char *model, const char *timeline_out, rp_arena *arena,
                         double *makespan_ms_out)
{
    const char *folder = getenv("TMPDIR");
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/rpexec-XXXXXX",
             folder != NULL && *folder != '\0' ? folder : "/tmp");
    int descriptor = mkstemp(path);
    FILE *stream = descriptor >= 0 ? fdopen(descriptor, "w") : NULL;
    if (stream == NULL) {
        rp_log_error("--predict: %s: %s", path, strerror(errno));
        return RP_IO;
    }
    rp_status status = rp_program_write(program, stream);
    if (fclose(stream) != 0 && status == RP_OK) {
        rp_log_error("--predict: %s: %s", path, strerror(errno));
        status = RP_IO;
    }
    if (status == RP_OK) {
        status = simulate(prediction, path, prediction->costs.seq_len, model, timeline_out, arena,
                          makespan_ms_out);
    }
    unlink(path);
    return status;
}
