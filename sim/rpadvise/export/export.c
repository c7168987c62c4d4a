#include "sim/rpadvise/export/export.h"

#include "common/base/text.h"
#include "sim/rpadvise/export/files_internal.h"

#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define README "README.md"
#define MOST_FILES 16
#define MOST_TRIES 1000
#define LINE_COLUMNS 100
#define NOTE_SIZE 2048

static const rpadvise_exporter *const exporters[] = {
    &rpadvise_export_roundpipe,        &rpadvise_export_deepspeed,  &rpadvise_export_megatron,
    &rpadvise_export_torch_pipelining, &rpadvise_export_torch_fsdp, &rpadvise_export_rpexec,
};

#define EXPORTER_COUNT (sizeof exporters / sizeof exporters[0])

/* ---- functions that writers share ------------------------------------------------------------ */

const char *rpadvise_torch_dtype(rp_dtype dtype)
{
    static const char *const names[RP_DTYPE_COUNT] = {
        [RP_DTYPE_F32] = "float32", [RP_DTYPE_F16] = "float16", [RP_DTYPE_BF16] = "bfloat16"};
    return names[dtype];
}

uint32_t rpadvise_most_layers(const rp_partition *partition)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < partition->forward_count; i++) {
        uint32_t layers = partition->forward_layers[i];
        most = layers > most ? layers : most;
    }
    return most;
}

void rpadvise_write_counts(const uint32_t *counts, uint32_t count, FILE *stream)
{
    for (uint32_t i = 0; i < count; i++) {
        fprintf(stream, "%s%u", i == 0 ? "" : ", ", counts[i]);
    }
}

/* Writes a line of Markdown as lines of at most LINE_COLUMNS columns, as far as its words allow. */
static void write_wrapped(const char *line, size_t length, FILE *stream)
{
    size_t column = 0;
    for (size_t at = 0; at < length;) {
        size_t word = 0;
        while (at + word < length && line[at + word] != ' ') {
            word++;
        }
        bool fits = column == 0 || column + 1 + word <= LINE_COLUMNS;
        const char *before = column == 0 ? "" : fits ? " " : "\n  ";
        fprintf(stream, "%s%.*s", before, (int)word, line + at);
        column = fits ? column + word + (column != 0 ? 1 : 0) : 2 + word;
        at += word + (at + word < length ? 1 : 0);
    }
    putc('\n', stream);
}

void rpadvise_note(FILE *stream, const char *format, ...)
{
    char text[NOTE_SIZE];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    for (const char *line = text; *line != '\0';) {
        size_t length = strcspn(line, "\n");
        write_wrapped(line, length, stream);
        line += length + (line[length] == '\n' ? 1 : 0);
    }
}

void rpadvise_note_sizes(const rpadvise_job *job, FILE *stream)
{
    const rpadvise_layout *l = &job->layout;
    uint32_t tokens = job->row->run.decided.seq_len;
    if (l->calls > 1) {
        rpadvise_note(stream,
                      "- The training script gives sequences of %u tokens, and %u calls of %u "
                      "microbatches each before the optimizer steps.",
                      tokens, l->calls, l->microbatches / l->calls);
    } else {
        rpadvise_note(stream, "- The training script gives sequences of %u tokens.", tokens);
    }
}

/* ---- README ---------------------------------------------------------------------------------- */

/* Writes how a step's work is laid out. */
static void write_sizes(const rpadvise_job *job, FILE *stream)
{
    const rpadvise_layout *l = &job->layout;
    const char *each = l->data > 1 ? " on each GPU" : "";
    const char *most = l->even ? "" : " at most";
    fprintf(stream, "| sequences of a step | %u, of %u tokens |\n", l->batch,
            job->row->run.decided.seq_len);
    fprintf(stream, "| microbatches of a step | %u%s, of %u sequences%s |\n", l->microbatches, each,
            l->size, most);
    fprintf(stream, "| calls of a step | %u |\n", l->calls);
}

/* Writes the types that are not the usual ones. */
static void write_types(const rpsim_row *row, FILE *stream)
{
    const rp_types *types = &row->run.decided.types;
    if (types->states != RP_STATES_F32) {
        fprintf(stream, "| moments | %s |\n", rp_states_text((rp_states)types->states));
    }
    if (types->master != RP_MASTER_F32) {
        fprintf(stream, "| masters | %s |\n", rp_master_text((rp_master)types->master));
    }
    if (types->frozen != RP_FROZEN_DTYPE) {
        fprintf(stream, "| frozen weights | %s |\n", rp_frozen_text((rp_frozen)types->frozen));
    }
    if (row->run.costs->fp8_products) {
        fputs("| products | fp8 |\n", stream);
    }
}

static void write_table(const rpadvise_job *job, FILE *stream)
{
    const rpsim_row *row = job->row;
    const rpadvise_layout *l = &job->layout;
    fputs("| | |\n|---|---|\n", stream);
    fprintf(stream, "| schedule | %s |\n", row->schedule_name);
    fprintf(stream, "| optimizer | %s |\n", row->run.decided.asynchronous ? "async" : "sync");
    fprintf(stream, "| GPUs | %u |\n", l->gpus);
    if (row->run.schedule->traits.placement != RP_PLACEMENT_OFFLOAD) {
        fprintf(stream, "| tensor, pipeline, data parallel | %u, %u, %u |\n", l->tensor,
                l->pipeline, l->data);
    }
    write_sizes(job, stream);
    if (l->data * l->tensor == 1) {
        fprintf(stream, "| layers of each stage | `%s` |\n", row->partition_text);
    } else { /* data parallel: gathered and recomputed unit by unit */
        fprintf(stream, "| units of layers | %u |\n", row->run.partition->forward_count);
    }
    fprintf(stream, "| recompute | %s", rp_recompute_text(row->run.recompute));
    if (rp_recompute_has_ops(row->run.recompute)) {
        fputs(row->run.decided.layer_grain ? ", layer by layer" : ", a stage at a time", stream);
    }
    fprintf(stream, " |\n| type | %s |\n", rp_dtype_text(row->run.decided.dtype));
    write_types(row, stream);
    if (row->run.model->lora_rank != 0) {
        fprintf(stream, "| adapters | rank %u |\n", row->run.model->lora_rank);
    }
}

static void write_section(const rpadvise_job *job, const rpadvise_exporter *e, const char *why,
                          FILE *stream)
{
    fprintf(stream, "\n## %s\n\n", e->system);
    if (why != NULL) {
        fprintf(stream, "Cannot run this configuration: %s.\n", why);
        return;
    }
    fprintf(stream, "`%s`", e->files[0].name);
    if (e->files[1].name != NULL) {
        fprintf(stream, ", `%s`", e->files[1].name);
    }
    fputs("\n\n", stream);
    rpadvise_note(stream, "- Open: %s.\n", e->open);
    e->notes(job, stream);
}

static void write_readme(const rpadvise_job *job, const char *const *whys, FILE *stream)
{
    const rpsim_row *row = job->row;
    fprintf(stream,
            "# %s on %s with %s\n\n"
            "Written by rpadvise. The simulation of this configuration:\n\n"
            "```sh\n%s\n```\n\n",
            row->run.model->name, row->platform->name, row->schedule_name, job->command);
    write_table(job, stream);
    fputs("\nEach section says what the system's file cannot express.\n", stream);
    for (size_t i = 0; i < EXPORTER_COUNT; i++) {
        write_section(job, exporters[i], whys[i], stream);
    }
}

/* ---- the folder ------------------------------------------------------------------------------ */

/* A new folder: its files are written to a temporary folder beside the final folder. */
typedef struct folder {
    const char *final;     /* path without '/' at its end */
    const char *temporary; /* path of the temporary folder; NULL: none exists */
    const char *paths[MOST_FILES];
    uint32_t count;
    rp_arena *arena;
} folder;

static rp_status refuse(const char *dir, const char *cause)
{
    rp_log_error("{export}: %s: %s; valid is a folder that does not exist or is empty", dir, cause);
    return RP_USAGE;
}

static rp_status refuse_files(const char *dir)
{
    DIR *stream = opendir(dir);
    bool empty = true;
    if (stream == NULL) {
        return refuse(dir, strerror(errno));
    }
    for (const struct dirent *entry; empty && (entry = readdir(stream)) != NULL;) {
        empty = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
    }
    (void)closedir(stream);
    return empty ? RP_OK : refuse(dir, "has files");
}

/* @return the last '/' in the first `length` bytes of a path, or NULL */
static const char *last_slash(const char *path, size_t length)
{
    while (length > 0 && path[length - 1] != '/') {
        length--;
    }
    return length > 0 ? path + length - 1 : NULL;
}

/* @return the length of the path without '/' at its end; 0: the folder has no name of its own */
static size_t name_length(const char *dir)
{
    size_t length = strlen(dir);
    while (length > 1 && dir[length - 1] == '/') {
        length--;
    }
    const char *slash = last_slash(dir, length);
    const char *name = slash != NULL ? slash + 1 : dir;
    size_t rest = length - (size_t)(name - dir);
    bool dots = rest > 0 && rest <= 2 && strncmp(name, "..", rest) == 0;
    return rest == 0 || dots ? 0 : length;
}

static rp_status check_parent(const char *dir, size_t length)
{
    const char *slash = last_slash(dir, length);
    char parent[4096] = ".";
    if (length >= sizeof parent) {
        return refuse(dir, strerror(ENAMETOOLONG));
    }
    if (slash != NULL) {
        size_t rest = slash > dir ? (size_t)(slash - dir) : 1;
        memcpy(parent, dir, rest);
        parent[rest] = '\0';
    }
    if (access(parent, W_OK | X_OK) != 0) {
        rp_log_error("{export}: %s: %s; valid is a folder that can be written", parent,
                     strerror(errno));
        return RP_USAGE;
    }
    return RP_OK;
}

rp_status rpadvise_export_check(const char *dir)
{
    struct stat info;
    size_t length = name_length(dir);
    if (length == 0) {
        return refuse(dir, "has no name of its own");
    }
    if (lstat(dir, &info) != 0) {
        return errno == ENOENT ? check_parent(dir, length) : refuse(dir, strerror(errno));
    }
    if (!S_ISDIR(info.st_mode)) {
        return refuse(dir, "is no folder");
    }
    RP_TRY(refuse_files(dir));
    return check_parent(dir, length);
}

static rp_status begin(const char *dir, folder *f)
{
    RP_TRY(rpadvise_export_check(dir));
    RP_TRY(rp_arena_copy_text(f->arena, dir, name_length(dir), &f->final));
    for (uint32_t try = 0; try < MOST_TRIES; try++) {
        const char *path = NULL;
        RP_TRY(rp_arena_print(f->arena, &path, "%s.%ld.%u.tmp", f->final, (long)getpid(), try));
        if (mkdir(path, 0777) == 0) {
            f->temporary = path;
            return RP_OK;
        }
        if (errno != EEXIST) {
            break;
        }
    }
    rp_log_error("{export}: %s: %s; valid is a folder that can be written", dir, strerror(errno));
    return RP_INPUT;
}

static void discard(folder *f)
{
    for (uint32_t i = 0; i < f->count; i++) {
        (void)unlink(f->paths[i]);
    }
    if (f->temporary != NULL) {
        (void)rmdir(f->temporary);
    }
}

static rp_status commit(folder *f)
{
    if (rename(f->temporary, f->final) == 0) {
        return RP_OK;
    }
    rp_log_error_at(f->final, 0, "cannot be written: %s", strerror(errno));
    return RP_IO;
}

static rp_status open_file(folder *f, const char *name, rp_output *output)
{
    const char *path = NULL;
    RP_TRY(rp_arena_print(f->arena, &path, "%s/%s", f->temporary, name));
    RP_TRY(rp_output_open(path, output));
    f->paths[f->count++] = path;
    return RP_OK;
}

static rp_status write_file(const rpadvise_job *job, const rpadvise_file *file, folder *f)
{
    rp_output output = {0};
    RP_TRY(open_file(f, file->name, &output));
    rp_status status = file->write(job, output.stream);
    if (status == RP_OK) {
        status = rp_output_commit(&output);
    }
    rp_output_discard(&output);
    return status;
}

static rp_status write_systems(const rpadvise_job *job, const rpadvise_systems *systems,
                               const char **whys, folder *f)
{
    for (size_t i = 0; i < EXPORTER_COUNT; i++) {
        const rpadvise_exporter *e = exporters[i];
        bool runs = rpadvise_runs(systems, e->system, job->row, &whys[i]);
        for (size_t k = 0; runs && k < 2 && e->files[k].name != NULL; k++) {
            RP_TRY(write_file(job, &e->files[k], f));
        }
    }
    return RP_OK;
}

static rp_status write_all(const rpadvise_job *job, const rpadvise_systems *systems, folder *f)
{
    const char *whys[EXPORTER_COUNT] = {0};
    rp_output readme = {0};
    RP_TRY(write_systems(job, systems, whys, f));
    RP_TRY(open_file(f, README, &readme));
    write_readme(job, whys, readme.stream);
    return rp_output_commit(&readme);
}

rp_status rpadvise_export(const rpsim_row *row, const char *command, const char *dir,
                          rp_arena *arena)
{
    const rpadvise_job job = {
        .row = row, .layout = rpadvise_layout_of(row), .command = command, .arena = arena};
    rpadvise_systems systems;
    folder f = {.arena = arena};
    RP_TRY(rpadvise_systems_load(arena, &systems));
    rp_status status = begin(dir, &f);
    if (status == RP_OK) {
        status = write_all(&job, &systems, &f);
    }
    if (status == RP_OK) {
        status = commit(&f);
    }
    if (status != RP_OK) {
        discard(&f);
    }
    return status;
}
