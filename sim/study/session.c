#include "sim/study/session.h"

#include "common/base/log.h"
#include "common/base/reason.h"
#include "common/inputs/load/models.h"
#include "common/inputs/load/platforms.h"

#include <string.h>

/* A file, or a line of the table of published partitions. */
typedef struct file {
    const char *name;
    const char *more; /* a second part of the name, or "" */
    const void *object;
    rp_arena *arena;
} file;

typedef struct files {
    file items[RPSIM_SESSION_FILES];
    uint32_t count;
} files;

struct rpsim_session {
    rp_arena *arena;
    rpsim_kept *programs;
    files platforms;
    files models;
    files costs;
    files partitions;
};

/* A function that reads an object of a kind. */
typedef rp_status (*reader)(const char *name, const char *more, rp_arena *arena, void *object_out);

typedef struct published {
    rp_partition partition;
    bool found;
} published;

static rp_status read_platform(const char *name, const char *more, rp_arena *arena, void *out)
{
    (void)more;
    return rp_platform_load(name, arena, out);
}

static rp_status read_model(const char *name, const char *more, rp_arena *arena, void *out)
{
    (void)more;
    return rp_model_load(name, arena, out);
}

static rp_status read_costs(const char *name, const char *more, rp_arena *arena, void *out)
{
    (void)more;
    return rp_costs_load(name, arena, out);
}

static rp_status read_published(const char *schedule, const char *model, rp_arena *arena, void *out)
{
    published *p = out;
    return rp_partition_published(schedule, model, arena, &p->partition, &p->found);
}

rp_status rpsim_session_create(rpsim_session **session_out)
{
    rp_arena *arena = NULL;
    rpsim_session *s = NULL;
    *session_out = NULL;
    RP_TRY(rp_arena_create(&arena));
    rp_status status = rp_arena_alloc(arena, 1, sizeof *s, &s);
    if (status == RP_OK) {
        s->arena = arena;
        status = rpsim_kept_create(&s->programs);
    }
    if (status != RP_OK) {
        rp_arena_destroy(arena);
        return status;
    }
    *session_out = s;
    return RP_OK;
}

static void forget(files *list)
{
    while (list->count > 0) {
        rp_arena_destroy(list->items[--list->count].arena);
    }
}

void rpsim_session_destroy(rpsim_session *s)
{
    if (s != NULL) {
        rpsim_kept_destroy(s->programs);
        forget(&s->platforms);
        forget(&s->models);
        forget(&s->costs);
        forget(&s->partitions);
        rp_arena_destroy(s->arena);
    }
}

rpsim_kept *rpsim_session_programs(rpsim_session *session)
{
    return session != NULL ? session->programs : NULL;
}

/* ---- files ----------------------------------------------------------------------------------- */

static const void *find(const files *list, const char *name, const char *more)
{
    for (uint32_t i = 0; i < list->count; i++) {
        const file *f = &list->items[i];
        if (strcmp(f->name, name) == 0 && strcmp(f->more, more) == 0) {
            return f->object;
        }
    }
    return NULL;
}

static rp_status read_item(reader read, const char *name, const char *more, size_t size, file *item)
{
    void *object = NULL;
    RP_TRY(rp_arena_copy_text(item->arena, name, strlen(name), &item->name));
    RP_TRY(rp_arena_copy_text(item->arena, more, strlen(more), &item->more));
    RP_TRY(rp_arena_alloc(item->arena, 1, size, &object));
    item->object = object;
    return read(name, more, item->arena, object);
}

/* Reads a file once more, into the session. */
static rp_status keep(files *list, reader read, const char *name, const char *more, size_t size)
{
    file *item = &list->items[list->count];
    RP_TRY(rp_arena_create(&item->arena));
    rp_status status = read_item(read, name, more, size, item);
    if (status != RP_OK) {
        rp_arena_destroy(item->arena);
        return status;
    }
    list->count++;
    return RP_OK;
}

/* Gets an object from the session or reads it. Objects read without a message are kept; others are
 * read again by each run, which repeats the message. */
static rp_status get(files *list, reader read, const char *name, const char *more, size_t size,
                     rp_arena *arena, void *object_out)
{
    const void *object = find(list, name, more);
    if (object != NULL) {
        memcpy(object_out, object, size);
        return RP_OK;
    }
    uint64_t before = rp_log_said();
    RP_TRY(read(name, more, arena, object_out));
    bool keeps = rp_log_said() == before && list->count < RPSIM_SESSION_FILES;
    return keeps ? keep(list, read, name, more, size) : RP_OK;
}

static rp_status add(rpsim_session *session, files *list, const char *name, const void *object)
{
    file *item = &list->items[list->count];
    if (list->count == RPSIM_SESSION_FILES) {
        return rp_broken();
    }
    *item = (file){.more = "", .object = object};
    RP_TRY(rp_arena_copy_text(session->arena, name, strlen(name), &item->name));
    list->count++;
    return RP_OK;
}

rp_status rpsim_session_add_model(rpsim_session *session, const char *name, const rp_model *model)
{
    return add(session, &session->models, name, model);
}

rp_status rpsim_session_add_platform(rpsim_session *session, const char *name,
                                     const rp_platform *platform)
{
    return add(session, &session->platforms, name, platform);
}

rp_status rpsim_session_add_costs(rpsim_session *session, const char *name, const rp_costs *costs)
{
    return add(session, &session->costs, name, costs);
}

rp_status rpsim_session_platform(rpsim_session *session, const char *name,
                                 const rp_changes *changes, rp_arena *arena,
                                 rp_platform *platform_out, rp_reason *reason)
{
    if (session == NULL || rp_changes_any(changes, &rp_platform_schema)) {
        return rp_platform_load_changed(name, changes, arena, platform_out, reason);
    }
    return get(&session->platforms, read_platform, name, "", sizeof *platform_out, arena,
               platform_out);
}

rp_status rpsim_session_model(rpsim_session *session, const char *name, rp_arena *arena,
                              rp_model *model_out)
{
    if (session == NULL) {
        return rp_model_load(name, arena, model_out);
    }
    return get(&session->models, read_model, name, "", sizeof *model_out, arena, model_out);
}

rp_status rpsim_session_costs(rpsim_session *session, const char *name, const rp_changes *changes,
                              rp_arena *arena, rp_costs *costs_out, rp_reason *reason)
{
    if (session == NULL || rp_changes_any(changes, &rp_costs_schema)) {
        return rp_costs_load_changed(name, changes, arena, costs_out, reason);
    }
    return get(&session->costs, read_costs, name, "", sizeof *costs_out, arena, costs_out);
}

static rp_status find_published(void *context, const char *schedule, const char *model,
                                rp_arena *arena, rp_partition *partition_out, bool *found_out)
{
    rpsim_session *session = context;
    published p = {.found = false};
    RP_TRY(get(&session->partitions, read_published, schedule, model, sizeof p, arena, &p));
    *partition_out = p.partition;
    *found_out = p.found;
    return RP_OK;
}

rp_status rpsim_session_partition(rpsim_session *session, const char *text, const char *words,
                                  const char *model, uint32_t stages,
                                  const rp_schedule_type *schedule,
                                  const rp_schedule_config *config, rp_arena *arena,
                                  rp_partition *partition_out, rp_reason *reason)
{
    if (session == NULL) {
        return rp_compile_partition(text, words, model, stages, schedule, config, arena,
                                    partition_out, reason);
    }
    const rp_published_source source = {.find = find_published, .context = session};
    return rp_compile_partition_from(&source, text, words, model, stages, schedule, config, arena,
                                     partition_out, reason);
}
