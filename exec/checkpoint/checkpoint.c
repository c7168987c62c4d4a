#include "exec/checkpoint/checkpoint.h"

#include "common/base/log.h"
#include "common/base/text.h"
#include "exec/checkpoint/weights.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define PREFIX "step-"
#define UNFINISHED ".step-"
#define REMOVED ".old-"
#define UNFINISHED_BASE ".base"
#define LOCK ".lock"
#define KEPT 2u

/* ---- folders ----------------------------------------------------------------------------------
 */

static rp_status failed(const char *path, const char *what)
{
    rp_log_error("%s: %s: %s", path, what, strerror(errno));
    return RP_IO;
}

static rp_status sync_folder(const char *path)
{
    int descriptor = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) {
        return failed(path, "open");
    }
    int error = fsync(descriptor) != 0 ? errno : 0;
    (void)close(descriptor);
    errno = error;
    return error == 0 ? RP_OK : failed(path, "fsync");
}

/* Where a new folder's name is. */
static rp_status sync_parent(const char *path, rp_arena *arena)
{
    const char *parent = NULL;
    RP_TRY(rp_arena_print(arena, &parent, "%s/..", path));
    return sync_folder(parent);
}

/* A folder with all that is in it, also what a killed writer has left. */
static void remove_folder(rp_arena *arena, const char *folder, const char *name)
{
    const char *path = NULL;
    if (rp_arena_print(arena, &path, "%s/%s", folder, name) != RP_OK) {
        return;
    }
    DIR *inside = opendir(path);
    if (inside == NULL) {
        return;
    }
    for (struct dirent *entry = readdir(inside); entry != NULL; entry = readdir(inside)) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            (void)unlinkat(dirfd(inside), entry->d_name, 0);
        }
    }
    (void)closedir(inside);
    (void)rmdir(path);
}

static bool step_of(const char *name, uint64_t *step_out)
{
    size_t length = strlen(PREFIX);
    return strncmp(name, PREFIX, length) == 0 &&
           rp_parse_u64(name + length, 0, UINT64_MAX, step_out);
}

/* A checkpoint loses its name first: what is removed halfway must not pass for one. */
static void remove_checkpoint(rp_arena *arena, const char *folder, const char *name)
{
    const char *from = NULL;
    const char *to = NULL;
    uint64_t step;
    if (!step_of(name, &step) || rp_arena_print(arena, &from, "%s/%s", folder, name) != RP_OK ||
        rp_arena_print(arena, &to, "%s/" REMOVED "%" PRIu64, folder, step) != RP_OK) {
        return;
    }
    remove_folder(arena, folder, strrchr(to, '/') + 1);
    if (rename(from, to) == 0) {
        remove_folder(arena, folder, strrchr(to, '/') + 1);
    }
}

typedef struct listing {
    uint64_t newest[KEPT + 1]; /* descending */
    uint32_t count;
} listing;

static void insert(listing *l, uint64_t step)
{
    uint32_t at = l->count < KEPT + 1 ? l->count++ : KEPT;
    if (l->count == KEPT + 1 && at == KEPT && l->newest[KEPT] > step && l->count > KEPT) {
        return;
    }
    l->newest[at] = step;
    for (; at > 0 && l->newest[at - 1] < l->newest[at]; at--) {
        uint64_t other = l->newest[at - 1];
        l->newest[at - 1] = l->newest[at];
        l->newest[at] = other;
    }
}

/* Checkpoints that are there, once all but the newest have been removed. */
static rp_status list(const char *folder, rp_arena *arena, listing *l)
{
    *l = (listing){0};
    DIR *open_folder = opendir(folder);
    if (open_folder == NULL) {
        return errno == ENOENT ? RP_OK : failed(folder, "opendir");
    }
    for (struct dirent *entry = readdir(open_folder); entry != NULL; entry = readdir(open_folder)) {
        uint64_t step;
        if (step_of(entry->d_name, &step)) {
            insert(l, step);
        }
    }
    rewinddir(open_folder);
    for (struct dirent *entry = readdir(open_folder); entry != NULL; entry = readdir(open_folder)) {
        uint64_t step;
        bool old = step_of(entry->d_name, &step) && l->count >= KEPT && step < l->newest[KEPT - 1];
        bool broken = strcmp(entry->d_name, UNFINISHED_BASE) == 0 ||
                      strncmp(entry->d_name, UNFINISHED, strlen(UNFINISHED)) == 0 ||
                      strncmp(entry->d_name, REMOVED, strlen(REMOVED)) == 0;
        if (old) {
            remove_checkpoint(arena, folder, entry->d_name);
        } else if (broken) {
            remove_folder(arena, folder, entry->d_name);
        } else if (rp_output_is_abandoned(entry->d_name)) { /* of a --loss-out beside them, say */
            (void)unlinkat(dirfd(open_folder), entry->d_name, 0);
        }
    }
    (void)closedir(open_folder);
    return RP_OK;
}

/* ---- saving -----------------------------------------------------------------------------------
 */

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
    RP_TRY(rp_arena_print(arena, &path, "%s/training.safetensors", folder));
    RP_TRY(rp_arena_print(arena, &numbers[0], "%" PRIu64, s->step));
    RP_TRY(rp_arena_print(arena, &numbers[1], "%" PRIu64, progress->place));
    RP_TRY(rp_arena_print(arena, &numbers[2], "%" PRIu64, progress->seed));
    RP_TRY(rp_arena_print(arena, &numbers[3], "%" PRIu32, progress->seq_len));
    RP_TRY(rp_arena_print(arena, &numbers[4], "%" PRIu64, s->skipped));
    RP_TRY(rp_arena_print(arena, &numbers[5], "%.0f", (double)s->scaler.scale));
    RP_TRY(rp_arena_print(arena, &numbers[6], "%.0f", (double)s->scaler.next));
    RP_TRY(rp_arena_print(arena, &numbers[7], "%" PRIu32, s->scaler.clean));
    const rpexec_metadata metadata[] = {
        {"step", numbers[0]},       {"place", numbers[1]},   {"seed", numbers[2]},
        {"seq_len", numbers[3]},    {"skipped", numbers[4]}, {"loss_scale", numbers[5]},
        {"next_scale", numbers[6]}, {"clean", numbers[7]},   {"dtype", rp_dtype_text(dtype)},
        {"recipe", progress->recipe != NULL ? progress->recipe : ""},
        {"data", progress->data != NULL ? progress->data : ""}};
    uint32_t count = dtype == RP_DTYPE_F32 ? 3 : 4; /* fp32 masters are the weights themselves */
    return rpexec_safetensors_write(path, tensors, count, metadata,
                                    sizeof metadata / sizeof metadata[0]);
}

/* Random weights that adapters are on. Those of a run that left no checkpoint may be others'. */
static rp_status save_base(rpexec_checkpoints *c, const rpexec_companions *companions,
                           const rpexec_state *s, rp_arena *arena)
{
    const char *unfinished = NULL;
    const char *finished = NULL;
    const char *older = NULL;
    RP_TRY(rp_arena_print(arena, &unfinished, "%s/" UNFINISHED_BASE, c->folder));
    RP_TRY(rp_arena_print(arena, &finished, "%s/" RPEXEC_BASE, c->folder));
    RP_TRY(rp_arena_print(arena, &older, "%s/" REMOVED RPEXEC_BASE, c->folder));
    if (companions->base.count == 0 || c->has_base ||
        (c->is_resumed && access(finished, F_OK) == 0)) {
        return RP_OK;
    }
    if (mkdir(unfinished, 0777) != 0) {
        return failed(unfinished, "mkdir");
    }
    RP_TRY(rpexec_frozen_write(s, unfinished, RPEXEC_SHARD_BYTES));
    RP_TRY(rpexec_companions_write(&companions->base, unfinished));
    RP_TRY(sync_folder(unfinished));
    if (rename(finished, older) == 0) {
        remove_folder(arena, c->folder, REMOVED RPEXEC_BASE);
    }
    if (rename(unfinished, finished) != 0) {
        return failed(finished, "rename");
    }
    c->has_base = true;
    return sync_folder(c->folder); /* before there is a checkpoint that names it */
}

static rp_status save(rpexec_checkpoints *c, const rpexec_companions *companions, rpexec_state *s,
                      const rpexec_progress *progress, rp_arena *arena)
{
    const char *folder = c->folder;
    listing l;
    const char *unfinished = NULL;
    const char *finished = NULL;
    uint64_t step = rpexec_state_iterations(s);
    RP_TRY(list(folder, arena, &l)); /* removes what a killed run has left */
    RP_TRY(save_base(c, companions, s, arena));
    RP_TRY(rp_arena_print(arena, &unfinished, "%s/" UNFINISHED "%" PRIu64, folder, step));
    RP_TRY(rp_arena_print(arena, &finished, "%s/" PREFIX "%" PRIu64, folder, step));
    if (mkdir(unfinished, 0777) != 0) {
        return failed(unfinished, "mkdir");
    }
    RP_TRY(rpexec_weights_write(s, unfinished, RPEXEC_SHARD_BYTES));
    RP_TRY(write_training(s, progress, unfinished, arena));
    RP_TRY(rpexec_companions_write(&companions->step, unfinished));
    RP_TRY(sync_folder(unfinished));
    const char *name = strrchr(finished, '/') + 1;
    remove_checkpoint(arena, folder, name); /* the same step, from a run before this one */
    if (rename(unfinished, finished) != 0) {
        return failed(finished, "rename");
    }
    RP_TRY(sync_folder(folder));
    return list(folder, arena, &l);
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

/* ---- the lock ---------------------------------------------------------------------------------
 */

static rp_status refuse_folder(const char *folder)
{
    rp_log_error("--save: %s: %s; valid are folders that can be written, and names in one", folder,
                 strerror(errno));
    return RP_INPUT;
}

/* The file says which process has it; it may be too early or too late for that. */
static rp_status refuse_second(const char *folder, int descriptor)
{
    char process[32] = "";
    ssize_t length = pread(descriptor, process, sizeof process - 1, 0);
    uint64_t number = 0;
    process[length > 0 ? length : 0] = '\0';
    process[strcspn(process, "\n")] = '\0';
    bool known = rp_parse_u64(process, 1, INT32_MAX, &number);
    rp_log_error("--save: %s is in use by another rpexec%s%s; valid are another folder, and this "
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

static void write_process(int descriptor)
{
    if (ftruncate(descriptor, 0) == 0) { /* for the message only */
        (void)dprintf(descriptor, "%ld\n", (long)getpid());
    }
}

/* A process that was killed a moment ago, in the middle of an fsync say, still has it.
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
        *gone_out = errno == ENOENT; /* the folder has gone again */
        return *gone_out ? RP_OK : refuse_folder(c->folder);
    }
    if (wait_for_lock(c->lock) != 0) {
        if (errno == EWOULDBLOCK) {
            rp_status status = refuse_second(c->folder, c->lock);
            give_back(c);
            return status;
        }
        rp_log_warning("--save: %s cannot be locked here (%s); no other rpexec may save there",
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
        return refuse_second(c->folder, -1); /* others come and go all the time */
    }
    write_process(c->lock);
    return RP_OK;
}

static bool has_checkpoints(DIR *folder, uint64_t *step_out)
{
    bool found = false;
    for (struct dirent *entry = readdir(folder); entry != NULL && !found; entry = readdir(folder)) {
        found = step_of(entry->d_name, step_out);
    }
    return found;
}

static rp_status open_locked(rpexec_checkpoints *c, bool anew, rp_arena *arena)
{
    uint64_t step = 0;
    RP_TRY(lock(c, arena));
    DIR *there = access(c->folder, W_OK | X_OK) == 0 ? opendir(c->folder) : NULL;
    if (there == NULL) {
        return refuse_folder(c->folder);
    }
    bool found = has_checkpoints(there, &step);
    (void)closedir(there);
    if (c->made) {
        RP_TRY(sync_parent(c->folder, arena));
    }
    if (found && anew) {
        rp_log_error("--save: %s has checkpoints of an earlier run (" PREFIX "%" PRIu64 "); valid "
                     "are --resume, which goes on from the newest, and a folder without any",
                     c->folder, step);
        return RP_USAGE;
    }
    listing l;
    return list(c->folder, arena, &l); /* removes what killed runs have left */
}

rp_status rpexec_checkpoints_open(const char *folder, bool anew, rpexec_checkpoints *c)
{
    rp_arena *arena = NULL;
    *c = (rpexec_checkpoints){.folder = folder, .lock = -1};
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
        (void)rmdir(c->folder); /* fails where there are checkpoints */
    }
    give_back(c);
}

/* ---- resuming ---------------------------------------------------------------------------------
 */

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

/* A tensor stored in the run's own type: through fp32 and back every bit is kept. */
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
    text = text != NULL ? text : rp_dtype_text(RP_DTYPE_F32); /* all there was */
    if (strcmp(text, rp_dtype_text(dtype)) != 0) {
        rp_log_error("%s: made with --dtype %s; valid is the same type, not %s", file->path, text,
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

/* @param scratch for tensors, @param arena for what stays */
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
    listing l;
    const char *path = NULL;
    rpexec_safetensors file;
    RP_TRY(list(folder, scratch, &l));
    *found_out = l.count > 0;
    if (l.count == 0) {
        return RP_OK;
    }
    RP_TRY(rp_arena_print(scratch, &path, "%s/" PREFIX "%" PRIu64, folder, l.newest[0]));
    RP_TRY(s->model->rank != 0 ? rpexec_adapters_load(path, s) : rpexec_weights_load(path, s));
    RP_TRY(rp_arena_print(scratch, &path, "%s/training.safetensors", path));
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
