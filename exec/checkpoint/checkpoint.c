#include "exec/checkpoint/checkpoint.h"

#include "common/base/log.h"
#include "common/base/text.h"
#include "exec/checkpoint/run_folder.h"
#include "exec/checkpoint/weights.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LOCK ".lock"

/* ---- saving ---------------------------------------------------------------------------------- */

static rp_status write_training(rpexec_state *s, const rpexec_progress *progress,
                                const char *folder, rp_arena *arena)
{
    const char *path = NULL;
    const char *numbers[8] = {NULL};
    uint64_t values = s->trained[s->model->layer_count];
    rp_dtype dtype = s->model->dtype;
    void *working = s->working;
    if (s->model->rank != 0) {
        RP_TRY(rp_arena_alloc_raw(arena, values, rp_dtype_bytes(dtype), &working));
        rpexec_state_copy_working(s, working, false);
    }
    const rpexec_writable tensors[] = {
        {.name = "m", .rank = 1, .shape = {values}, .values = s->m},
        {.name = "v", .rank = 1, .shape = {values}, .values = s->v},
        {.name = "working", .dtype = dtype, .rank = 1, .shape = {values}, .values = working},
        {.name = "master", .rank = 1, .shape = {values}, .values = s->master},
    };
    RP_TRY(rp_arena_print(arena, &path, "%s/" RPEXEC_TRAINING, folder));
    RP_TRY(rp_arena_print(arena, &numbers[0], "%" PRIu64, s->step));
    RP_TRY(rp_arena_print(arena, &numbers[1], "%" PRIu64, progress->place));
    RP_TRY(rp_arena_print(arena, &numbers[2], "%" PRIu64, progress->seed));
    RP_TRY(rp_arena_print(arena, &numbers[3], "%" PRIu32, progress->seq_len));
    RP_TRY(rp_arena_print(arena, &numbers[4], "%" PRIu64, s->skipped));
    RP_TRY(rp_arena_print(arena, &numbers[5], "%.0f", (double)s->scaler.scale));
    RP_TRY(rp_arena_print(arena, &numbers[6], "%.0f", (double)s->scaler.next));
    RP_TRY(rp_arena_print(arena, &numbers[7], "%" PRIu32, s->scaler.clean));
    const rpexec_metadata metadata[] = {
        {"step", numbers[0]},
        {"place", numbers[1]},
        {"seed", numbers[2]},
        {"seq_len", numbers[3]},
        {"skipped", numbers[4]},
        {"loss_scale", numbers[5]},
        {"next_scale", numbers[6]},
        {"clean", numbers[7]},
        {"dtype", rp_dtype_text(dtype)},
        {"recipe", progress->recipe != NULL ? progress->recipe : ""},
        {"data", progress->data != NULL ? progress->data : ""}};
    uint32_t count = dtype == RP_DTYPE_F32 ? 3 : 4; /* fp32 masters are the weights themselves */
    return rpexec_safetensors_write(path, tensors, count, metadata,
                                    sizeof metadata / sizeof metadata[0]);
}

static bool needs_base(const rpexec_checkpoints *c, const rpexec_companions *companions)
{
    char path[PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/" RPEXEC_BASE, c->folder);
    return companions->base.count != 0 && !c->has_base &&
           !(c->is_resumed && access(path, F_OK) == 0);
}

rp_status rpexec_checkpoints_check_base(const rpexec_checkpoints *c,
                                        const rpexec_companions *companions)
{
    return !needs_base(c, companions) || rpexec_run_folder_is_free(c->folder, RPEXEC_BASE)
               ? RP_OK
               : RP_INPUT;
}

/* Saves random weights that adapters are on. Weights left by a run without a checkpoint are
 * replaced, since they may be of another seed or model. */
static rp_status save_base(rpexec_checkpoints *c, const rpexec_companions *companions,
                           const rpexec_state *s, rp_arena *arena)
{
    const char *unfinished = NULL;
    if (!needs_base(c, companions)) {
        return RP_OK;
    }
    RP_TRY(rpexec_run_folder_make(c->folder, RPEXEC_BASE, arena, &unfinished));
    RP_TRY(rpexec_frozen_write(s, unfinished, RPEXEC_SHARD_BYTES));
    RP_TRY(rpexec_companions_write(&companions->base, unfinished));
    RP_TRY(rpexec_run_folder_sync(unfinished));
    RP_TRY(rpexec_run_folder_finish(c->folder, unfinished, RPEXEC_BASE, arena));
    c->has_base = true; /* set before any checkpoint names the folder */
    return RP_OK;
}

static rp_status save(rpexec_checkpoints *c, const rpexec_companions *companions, rpexec_state *s,
                      const rpexec_progress *progress, rp_arena *arena)
{
    const char *unfinished = NULL;
    const char *name = NULL;
    RP_TRY(save_base(c, companions, s, arena));
    RP_TRY(rp_arena_print(arena, &name, RPEXEC_STEP "%" PRIu64, rpexec_state_iterations(s)));
    RP_TRY(rpexec_run_folder_make(c->folder, name, arena, &unfinished));
    RP_TRY(rpexec_weights_write(s, unfinished, RPEXEC_SHARD_BYTES));
    RP_TRY(write_training(s, progress, unfinished, arena));
    RP_TRY(rpexec_companions_write(&companions->step, unfinished));
    RP_TRY(rpexec_run_folder_sync(unfinished));
    RP_TRY(rpexec_run_folder_finish(c->folder, unfinished, name, arena));
    return rpexec_run_folder_clean(c, arena);
}

rp_status rpexec_checkpoint_save(rpexec_checkpoints *checkpoints,
                                 const rpexec_companions *companions, rpexec_state *state,
                                 const rpexec_progress *progress)
{
    rp_arena *arena = NULL;
    RP_TRY(rp_arena_create(&arena));
    rp_status status = save(checkpoints, companions, state, progress, arena);
    rp_arena_destroy(arena);
    return status;
}

/* ---- the lock -------------------------------------------------------------------------------- */

static rp_status refuse_folder(const char *folder)
{
    rp_log_error("{save}: %s: %s; valid are folders that can be written, and names in one", folder,
                 strerror(errno));
    return RP_INPUT;
}

/* The file holds the number of the process that has the lock, unless that process has not yet
 * written it or has just ended. */
static rp_status refuse_second(const char *folder, int descriptor)
{
    char process[32] = "";
    ssize_t length = pread(descriptor, process, sizeof process - 1, 0);
    uint64_t number = 0;
    process[length > 0 ? length : 0] = '\0';
    process[strcspn(process, "\n")] = '\0';
    bool known = rp_parse_u64(process, 1, INT32_MAX, &number);
    rp_log_error("{save}: %s is in use by another rpexec%s%s; valid are another folder, and this "
                 "one when that process has ended",
                 folder, known ? ", process " : "", known ? process : "");
    return RP_USAGE;
}

static void give_back(rpexec_checkpoints *c)
{
    if (c->lock >= 0) {
        (void)close(c->lock);
    }
    c->lock = -1;
}

/* A lock is empty or holds the number of a process. */
static bool is_lock(int descriptor)
{
    char process[32] = "";
    uint64_t number = 0;
    ssize_t length = pread(descriptor, process, sizeof process, 0);
    char *end = length > 0 ? memchr(process, '\n', (size_t)length) : NULL;
    if (end != NULL && end + 1 == process + length) {
        *end = '\0';
    }
    return length == 0 || (end != NULL && rp_parse_u64(process, 1, INT32_MAX, &number));
}

static void write_process(int descriptor)
{
    if (ftruncate(descriptor, 0) == 0) { /* for the message only */
        (void)dprintf(descriptor, "%ld\n", (long)getpid());
    }
}

/* Waits for the lock: a process that was killed a moment ago, for instance in the middle of an
 * fsync, still has it.
 * @return as flock */
static int wait_for_lock(int descriptor)
{
    const struct timespec pause = {.tv_nsec = 20000000};
    int failed = flock(descriptor, LOCK_EX | LOCK_NB);
    for (uint32_t i = 0; i < 50 && failed != 0 && errno == EWOULDBLOCK; i++) {
        (void)nanosleep(&pause, NULL);
        failed = flock(descriptor, LOCK_EX | LOCK_NB);
    }
    return failed;
}

/* @param gone_out the file was removed by its last owner between open and lock: try again */
static rp_status lock_once(rpexec_checkpoints *c, const char *path, bool *gone_out)
{
    struct stat now;
    bool made = mkdir(c->folder, 0777) == 0;
    c->made |= made;
    if (!made && errno != EEXIST) {
        return refuse_folder(c->folder);
    }
    c->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (c->lock < 0) {
        int error = errno;
        *gone_out = error == ENOENT && lstat(c->folder, &now) != 0; /* it has been removed again */
        errno = error;
        return *gone_out ? RP_OK : refuse_folder(c->folder);
    }
    if (!is_lock(c->lock)) {
        give_back(c);
        rp_log_error("{save}: %s is another program's; valid is a folder without " LOCK, path);
        return RP_INPUT;
    }
    if (wait_for_lock(c->lock) != 0) {
        if (errno == EWOULDBLOCK) {
            rp_status status = refuse_second(c->folder, c->lock);
            give_back(c);
            return status;
        }
        rp_log_warning("{save}: %s cannot be locked here (%s); no other rpexec may save there",
                       c->folder, strerror(errno));
    }
    *gone_out = fstat(c->lock, &now) == 0 && now.st_nlink == 0;
    return RP_OK;
}

#define LOCK_TRIES 100u

static rp_status lock(rpexec_checkpoints *c, rp_arena *arena)
{
    const char *path = NULL;
    bool gone = true;
    RP_TRY(rp_arena_print(arena, &path, "%s/" LOCK, c->folder));
    for (uint32_t i = 0; gone && i < LOCK_TRIES; i++) {
        RP_TRY(lock_once(c, path, &gone));
        if (gone) {
            give_back(c);
        }
    }
    if (gone) {
        return refuse_second(c->folder, -1); /* others take and remove it all the time */
    }
    write_process(c->lock);
    return RP_OK;
}

static rp_status open_locked(rpexec_checkpoints *c, bool anew, rp_arena *arena)
{
    uint64_t step = 0;
    const char *parent = NULL;
    RP_TRY(lock(c, arena));
    if (access(c->folder, W_OK | X_OK) != 0) {
        return refuse_folder(c->folder);
    }
    if (c->made) { /* the parent holds the folder's name */
        RP_TRY(rp_arena_print(arena, &parent, "%s/..", c->folder));
        RP_TRY(rpexec_run_folder_sync(parent));
    }
    RP_TRY(rpexec_run_folder_newest(c->folder, &step));
    if (step != 0 && anew) {
        rp_log_error("{save}: %s has checkpoints of an earlier run (" RPEXEC_STEP "%" PRIu64
                     "); valid are {resume}, which goes on from the newest, and a folder without "
                     "any",
                     c->folder, step);
        return RP_USAGE;
    }
    return rpexec_run_folder_clean(c, arena); /* remove the remains of killed runs */
}

rp_status rpexec_checkpoints_open(const char *folder, uint32_t keep, bool anew,
                                  rpexec_checkpoints *c)
{
    rp_arena *arena = NULL;
    *c = (rpexec_checkpoints){.folder = folder, .keep = keep, .lock = -1};
    RP_TRY(rp_arena_create(&arena));
    rp_status status = open_locked(c, anew, arena);
    rp_arena_destroy(arena);
    if (status != RP_OK) {
        rpexec_checkpoints_close(c);
    }
    return status;
}

void rpexec_checkpoints_close(rpexec_checkpoints *c)
{
    if (c->folder == NULL || c->lock < 0) {
        return;
    }
    int folder = open(c->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder >= 0) {
        (void)unlinkat(folder, LOCK, 0); /* before the lock is given back: nobody has it now */
        (void)close(folder);
    }
    if (c->made) {
        (void)rmdir(c->folder); /* fails if there are checkpoints */
    }
    give_back(c);
}

/* ---- resuming -------------------------------------------------------------------------------- */

static rp_status number_of(const rpexec_safetensors *file, const char *key, uint64_t *value_out)
{
    const char *text = rpexec_safetensors_metadata(file, key);
    if (text == NULL || !rp_parse_u64(text, 0, UINT64_MAX, value_out)) {
        rp_log_error("%s: metadata: \"%s\" must be a whole number", file->path, key);
        return RP_INPUT;
    }
    return RP_OK;
}

static rp_status array_of(const rpexec_safetensors *file, const char *name, uint64_t floats,
                          float *to)
{
    const rpexec_stored *stored = rpexec_safetensors_find(file, name);
    if (stored == NULL || stored->elements != floats) {
        rp_log_error("%s: tensor \"%s\": valid for this model are %" PRIu64 " values", file->path,
                     name, floats);
        return RP_INPUT;
    }
    return rpexec_safetensors_read(file, stored, to);
}

/* A tensor stored in the run's own type: conversion to fp32 and back keeps every bit. */
static rp_status working_of(const rpexec_safetensors *file, uint64_t values, rpexec_state *s,
                            rp_arena *arena)
{
    float *wide = NULL;
    RP_TRY(rp_arena_alloc_raw(arena, values, sizeof *wide, &wide));
    RP_TRY(array_of(file, "working", values, wide));
    void *working = s->working;
    if (s->model->rank != 0) {
        RP_TRY(rp_arena_alloc_raw(arena, values, rp_dtype_bytes(s->model->dtype), &working));
    }
    rpexec_narrow(s->model->dtype, values, wide, working);
    if (s->model->rank != 0) {
        rpexec_state_copy_working(s, working, true);
    }
    return RP_OK;
}

static rp_status check_dtype(const rpexec_safetensors *file, rp_dtype dtype)
{
    const char *text = rpexec_safetensors_metadata(file, "dtype");
    text = text != NULL ? text : rp_dtype_text(RP_DTYPE_F32); /* the only type of older files */
    if (strcmp(text, rp_dtype_text(dtype)) != 0) {
        rp_log_error("%s: made with {dtype} %s; valid is the same type, not %s", file->path, text,
                     rp_dtype_text(dtype));
        return RP_INPUT;
    }
    return RP_OK;
}

static rp_status scaler_of(const rpexec_safetensors *file, rpexec_state *s)
{
    uint64_t scale;
    uint64_t next;
    uint64_t clean;
    RP_TRY(number_of(file, "skipped", &s->skipped));
    RP_TRY(number_of(file, "loss_scale", &scale));
    RP_TRY(number_of(file, "next_scale", &next));
    RP_TRY(number_of(file, "clean", &clean));
    s->scaler =
        (rpexec_scaler){.scale = (float)scale, .next = (float)next, .clean = (uint32_t)clean};
    return RP_OK;
}

static rp_status text_of(const rpexec_safetensors *file, const char *key, rp_arena *arena,
                         const char **text_out)
{
    const char *text = rpexec_safetensors_metadata(file, key);
    *text_out = NULL;
    return text == NULL || *text == '\0' ? RP_OK : rp_arena_print(arena, text_out, "%s", text);
}

/* @param scratch for tensors, @param arena for the texts of `progress` */
static rp_status read_training(const rpexec_safetensors *file, rpexec_state *s,
                               rpexec_progress *progress, rp_arena *scratch, rp_arena *arena)
{
    uint64_t values = s->trained[s->model->layer_count];
    uint64_t seq_len;
    RP_TRY(check_dtype(file, s->model->dtype));
    RP_TRY(array_of(file, "m", values, s->m));
    RP_TRY(array_of(file, "v", values, s->v));
    RP_TRY(working_of(file, values, s, scratch));
    if (s->model->dtype != RP_DTYPE_F32) {
        RP_TRY(array_of(file, "master", values, s->master));
    }
    if (rpexec_scaler_needed(s->model->dtype)) {
        RP_TRY(scaler_of(file, s));
    }
    RP_TRY(number_of(file, "step", &s->step));
    RP_TRY(number_of(file, "place", &progress->place));
    RP_TRY(number_of(file, "seed", &progress->seed));
    RP_TRY(number_of(file, "seq_len", &seq_len));
    progress->seq_len = (uint32_t)seq_len;
    RP_TRY(text_of(file, "recipe", arena, &progress->recipe));
    return text_of(file, "data", arena, &progress->data);
}

static rp_status resume(const char *folder, rpexec_state *s, rpexec_progress *progress,
                        rp_arena *scratch, rp_arena *arena, bool *found_out)
{
    const char *path = NULL;
    uint64_t step = 0;
    rpexec_safetensors file;
    RP_TRY(rpexec_run_folder_newest(folder, &step));
    *found_out = step != 0;
    if (step == 0) {
        return RP_OK;
    }
    RP_TRY(rp_arena_print(scratch, &path, "%s/" RPEXEC_STEP "%" PRIu64, folder, step));
    RP_TRY(s->model->rank != 0 ? rpexec_adapters_load(path, s) : rpexec_weights_load(path, s));
    RP_TRY(rp_arena_print(scratch, &path, "%s/" RPEXEC_TRAINING, path));
    RP_TRY(rpexec_safetensors_open(path, scratch, &file));
    rp_status status = read_training(&file, s, progress, scratch, arena);
    rpexec_safetensors_close(&file);
    return status;
}

rp_status rpexec_checkpoint_resume(rpexec_checkpoints *checkpoints, rpexec_state *state,
                                   rpexec_progress *progress_out, rp_arena *arena, bool *found_out)
{
    rp_arena *scratch = NULL;
    RP_TRY(rp_arena_create(&scratch));
    rp_status status = resume(checkpoints->folder, state, progress_out, scratch, arena, found_out);
    checkpoints->is_resumed = status == RP_OK && *found_out;
    rp_arena_destroy(scratch);
    return status;
}
