#include "exec/rpexec/loss_log.h"

#include "common/base/mem.h"
#include "exec/rpexec/columns.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Most bytes of a file: a line has at most 110, so that it holds 9 million steps and more. */
#define LIMIT_BYTES ((size_t)1 << 30)

static rp_status refuse(const char *path, size_t line)
{
    rp_log_error_at(
        path, line,
        "no losses of an earlier run; valid for --loss-out with --resume are files that "
        "--loss-out has written (%s), and new ones",
        rpexec_step_keys());
    return RP_INPUT;
}

/* @return true if a whole line, ended by its '\n', begins with a step of an earlier run. */
static bool step_of(const char *line, const char *end, uint64_t *step_out)
{
    char number[24];
    size_t digits = strcspn(line, ",\n");
    if (digits >= sizeof number || line + digits >= end || line[digits] != ',') {
        return false;
    }
    memcpy(number, line, digits);
    number[digits] = '\0';
    return rp_parse_u64(number, 1, UINT64_MAX, step_out);
}

/* A line that a killed run has not finished ends without '\n' and is dropped. */
static rp_status keep_lines(const char *path, const rp_text *before, uint64_t first_step, FILE *to)
{
    const char *end = before->bytes + before->length;
    const char *line = before->bytes;
    uint64_t last = 0;
    const char *keys = rpexec_step_keys();
    size_t length = strlen(keys);
    if (before->length <= length || memcmp(line, keys, length) != 0 || line[length] != '\n') {
        return refuse(path, 1);
    }
    line += length + 1;
    for (size_t number = 2; line < end; number++) {
        const char *next = memchr(line, '\n', (size_t)(end - line));
        uint64_t step = 0;
        if (next == NULL) {
            return RP_OK;
        }
        if (!step_of(line, next, &step) || step <= last) {
            return refuse(path, number);
        }
        if (step <= first_step) {
            fwrite(line, 1, (size_t)(next + 1 - line), to);
        }
        last = step;
        line = next + 1;
    }
    return RP_OK;
}

static rp_status open_beginning(const char *path, uint64_t first_step, rpexec_loss_log *log)
{
    struct stat there;
    rp_text before = {0};
    size_t size = strlen(path) + 1;
    RP_TRY(rp_output_open(path, &log->beginning));
    RP_TRY(rp_mem_resize(&log->path, size));
    memcpy(log->path, path, size);
    fprintf(log->beginning.stream, "%s\n", rpexec_step_keys());
    bool replaces = log->beginning.temporary_path != NULL;
    if (first_step == 0 || !replaces || stat(path, &there) != 0 || there.st_size == 0) {
        return RP_OK;
    }
    rp_status status = rp_text_read_file(path, LIMIT_BYTES, &before);
    status =
        status == RP_OK ? keep_lines(path, &before, first_step, log->beginning.stream) : status;
    rp_text_fini(&before);
    return status;
}

rp_status rpexec_loss_log_open(const char *path, uint64_t first_step, rpexec_loss_log *log_out)
{
    *log_out = (rpexec_loss_log){0};
    rp_status status = open_beginning(path, first_step, log_out);
    if (status != RP_OK) {
        rpexec_loss_log_close(log_out);
    }
    return status;
}

rp_status rpexec_loss_log_begin(rpexec_loss_log *log)
{
    if (log->path == NULL) {
        return RP_OK;
    }
    if (log->beginning.temporary_path == NULL) { /* written directly, to the end of the run */
        log->stream = log->beginning.stream;
        return RP_OK;
    }
    RP_TRY(rp_output_commit(&log->beginning));
    log->stream = fopen(log->path, "ae");
    if (log->stream == NULL) {
        rp_log_error_at(log->path, 0, "cannot be written: %s", strerror(errno));
        return RP_IO;
    }
    return RP_OK;
}

void rpexec_loss_log_add(rpexec_loss_log *log, const rpexec_loss_line *line)
{
    if (log->stream == NULL || log->status != RP_OK) {
        return;
    }
    bool written = true;
    for (uint32_t i = 0; i < rpexec_step_column_count; i++) {
        const rpexec_step_column *c = &rpexec_step_columns[i];
        char number[RPEXEC_NUMBER_SIZE] = "";
        double value = c->value(line);
        if (!c->optional || !isnan(value)) {
            rpexec_print_number(c->exact, 0, c->exact_digits, value, number);
        }
        written &= fprintf(log->stream, "%s%s", i > 0 ? "," : "", number) >= 0;
    }
    written &= fputc('\n', log->stream) != EOF;
    if (!written || fflush(log->stream) != 0) {
        rp_log_error_at(log->path, 0, "cannot be written: %s", strerror(errno));
        log->status = RP_IO;
    }
}

void rpexec_loss_log_close(rpexec_loss_log *log)
{
    if (log->stream != NULL && log->stream != log->beginning.stream) {
        (void)fclose(log->stream);
    }
    log->stream = NULL;
    rp_output_discard(&log->beginning);
    rp_mem_release(&log->path);
}
