#include "common/timeline/chrome_trace.h"

#include "common/base/log.h"
#include "common/formats/json.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* A flow's start must lie inside its producer's slice: viewers work in whole nanoseconds, so the
 * last picosecond would already belong to the next slice. */
#define FLOW_START_BEFORE_END_PS 2000

#define FIRST_HOST_PID 1000u
/* Further queues of the same kind on a GPU get 10 + tid, 20 + tid, …. */
#define SAME_KIND_TIDS 10u

typedef enum event_type {
    EVENT_ITERATION,
    EVENT_FREE, /* before allocations of the same moment, as lifetimes exclude their end */
    EVENT_ALLOC,
    EVENT_SLICE,
    EVENT_FLOW_START,
    EVENT_FLOW_END,
} event_type;

typedef struct event {
    int64_t time_ps;
    uint32_t index; /* of the op, the buffer, the wait or the iteration */
    uint16_t place; /* for counters only, so that counters of a place are neighbours */
    uint8_t type;
} event;

typedef struct thread_id {
    uint32_t pid;
    uint32_t tid;
} thread_id;

typedef struct writer {
    const rp_timeline *timeline;
    const rp_program *program;
    rp_arena *arena; /* scratch */
    rp_json json;
    const char *name;  /* prefix of the names of its processes; NULL: none */
    uint32_t pid_base; /* GPU 0 */
    uint32_t flow_base;
    uint32_t host_pid;
    thread_id *threads;  /* [queue_count] */
    uint32_t *queue_of;  /* [op_count] */
    uint32_t *waiter_of; /* [wait_count] op that waits */
    uint64_t *live;      /* [gpu_count + 1][RP_BUFFER_KIND_COUNT], the host's last */
    bool bytes_known;
    bool kind_used[RP_BUFFER_KIND_COUNT];
    event *events;
    size_t event_count;
} writer;

/* Thread numbers of formats.md 2, which has a single number for uploads; the two upload queues here
 * overlap and need two. */
static const struct {
    uint32_t tid;
    uint32_t sort_index;
} queue_threads[RP_QUEUE_KIND_COUNT] = {
#define THREAD(name, text, carrier, thread, row) [RP_QUEUE_##name] = {thread, row},
    RP_QUEUE_KIND_LIST(THREAD)};

static const char *category(rp_op_kind kind)
{
#define CATEGORY(name, category, ...) [RP_WAY_##name] = category,
    static const char *const of_way[] = {RP_OP_WAY_LIST(CATEGORY)};
    switch (rp_op_kind_class(kind)) {
    case RP_CLASS_TRANSFER:
        return of_way[rp_op_kinds[kind].way];
    case RP_CLASS_COLLECTIVE:
        return "COLL";
    case RP_CLASS_HOST:
        return "OPT";
    case RP_CLASS_COMPUTE:
    default:
        return rp_op_kind_text(kind);
    }
}

/* ---- preparation ----------------------------------------------------------------------------- */

static rp_status assign_threads(writer *w)
{
    const rp_program *program = w->program;
    uint32_t *seen;
    size_t places = (size_t)program->gpu_count + 1;
    RP_TRY(rp_arena_alloc(w->arena, program->queue_count, sizeof *w->threads, &w->threads));
    RP_TRY(rp_arena_alloc(w->arena, program->op_count, sizeof *w->queue_of, &w->queue_of));
    RP_TRY(rp_arena_alloc(w->arena, places * RP_QUEUE_KIND_COUNT, sizeof *seen, &seen));
    w->host_pid = w->pid_base + FIRST_HOST_PID;
    while (w->host_pid - w->pid_base < program->gpu_count) {
        w->host_pid += FIRST_HOST_PID;
    }
    for (uint32_t q = 0; q < program->queue_count; q++) {
        const rp_queue *queue = &program->queues[q];
        bool on_gpu = rp_queue_kind_on_gpu(queue->kind);
        size_t place = on_gpu ? queue->gpu : program->gpu_count;
        uint32_t before = seen[place * RP_QUEUE_KIND_COUNT + queue->kind]++;
        w->threads[q] = (thread_id){on_gpu ? w->pid_base + queue->gpu : w->host_pid,
                                    queue_threads[queue->kind].tid + SAME_KIND_TIDS * before};
        for (uint32_t op = queue->op_begin; op < queue->op_end; op++) {
            w->queue_of[op] = q;
        }
    }
    return RP_OK;
}

static void add_event(writer *w, event_type type, int64_t time_ps, uint32_t index, uint16_t place)
{
    w->events[w->event_count++] = (event){time_ps, index, place, (uint8_t)type};
}

static int64_t flow_start_ps(const writer *w, uint32_t producer)
{
    int64_t start = w->timeline->start_ps[producer];
    int64_t end = w->timeline->end_ps[producer];
    int64_t half = (end - start) / 2;
    return end - (half < FLOW_START_BEFORE_END_PS ? half : FLOW_START_BEFORE_END_PS);
}

static void collect_op(writer *w, uint32_t op)
{
    const rp_program *program = w->program;
    add_event(w, EVENT_SLICE, w->timeline->start_ps[op], op, 0);
    for (uint32_t i = program->ops[op].wait_begin; i < program->ops[op + 1].wait_begin; i++) {
        w->waiter_of[i] = op;
        if (!rp_wait_is_control(program->waits[i])) {
            uint32_t producer = rp_wait_op(program->waits[i]);
            add_event(w, EVENT_FLOW_START, flow_start_ps(w, producer), i, 0);
            add_event(w, EVENT_FLOW_END, w->timeline->start_ps[op], i, 0);
        }
    }
}

static void collect_buffers(writer *w)
{
    const rp_program *program = w->program;
    for (uint32_t b = 0; b < program->buffer_count; b++) {
        const rp_buffer *buffer = &program->buffers[b];
        w->bytes_known |= buffer->bytes > 0;
        w->kind_used[buffer->kind] = true;
        add_event(w, EVENT_ALLOC, w->timeline->start_ps[buffer->alloc_op], b, buffer->place);
        add_event(w, EVENT_FREE, w->timeline->end_ps[buffer->free_op], b, buffer->place);
    }
}

static rp_status collect_iterations(writer *w)
{
    const rp_program *program = w->program;
    int64_t *begin_ps;
    RP_TRY(rp_arena_alloc(w->arena, program->iteration_count, sizeof *begin_ps, &begin_ps));
    for (uint32_t i = 0; i < program->iteration_count; i++) {
        begin_ps[i] = INT64_MAX;
    }
    for (uint32_t op = 0; op < program->op_count; op++) {
        int64_t *begin = &begin_ps[program->ops[op].iteration];
        *begin = w->timeline->start_ps[op] < *begin ? w->timeline->start_ps[op] : *begin;
    }
    for (uint32_t i = 0; i < program->iteration_count; i++) {
        if (begin_ps[i] != INT64_MAX) {
            add_event(w, EVENT_ITERATION, begin_ps[i], i, 0);
        }
    }
    return RP_OK;
}

/* Counters of the same moment and place must be neighbours, their frees first; the other keys only
 * make the order total, so that the file is the same everywhere. */
static int compare_events(const void *left, const void *right)
{
    const event *a = left;
    const event *b = right;
    if (a->time_ps != b->time_ps) {
        return a->time_ps < b->time_ps ? -1 : 1;
    }
    if (a->place != b->place) {
        return a->place < b->place ? -1 : 1;
    }
    if (a->type != b->type) {
        return a->type < b->type ? -1 : 1;
    }
    return (a->index > b->index) - (a->index < b->index);
}

static rp_status collect_events(writer *w)
{
    const rp_program *program = w->program;
    size_t capacity = (size_t)program->op_count + 2 * (size_t)program->wait_count +
                      2 * (size_t)program->buffer_count + program->iteration_count;
    size_t counters = ((size_t)program->gpu_count + 1) * RP_BUFFER_KIND_COUNT;
    RP_TRY(rp_arena_alloc(w->arena, capacity, sizeof *w->events, &w->events));
    RP_TRY(rp_arena_alloc(w->arena, program->wait_count, sizeof *w->waiter_of, &w->waiter_of));
    RP_TRY(rp_arena_alloc(w->arena, counters, sizeof *w->live, &w->live));
    for (uint32_t op = 0; op < program->op_count; op++) {
        collect_op(w, op);
    }
    collect_buffers(w);
    RP_TRY(collect_iterations(w));
    qsort(w->events, w->event_count, sizeof *w->events, compare_events);
    return RP_OK;
}

/* ---- writing --------------------------------------------------------------------------------- */

static void begin_event(rp_json *json, const char *phase, const char *name)
{
    rp_json_begin_object(json);
    rp_json_member_string(json, "ph", phase);
    rp_json_member_string(json, "name", name);
}

static void write_place(rp_json *json, thread_id thread, int64_t time_ps)
{
    rp_json_member_uint(json, "pid", thread.pid);
    rp_json_member_uint(json, "tid", thread.tid);
    rp_json_key(json, "ts");
    rp_json_us(json, time_ps);
}

static void begin_metadata(rp_json *json, const char *name, thread_id thread)
{
    begin_event(json, "M", name);
    rp_json_member_uint(json, "pid", thread.pid);
    rp_json_member_uint(json, "tid", thread.tid);
    rp_json_key(json, "args");
    rp_json_begin_object(json);
}

static void end_metadata(rp_json *json)
{
    rp_json_end_object(json);
    rp_json_end_object(json);
}

static void write_name(rp_json *json, const char *what, thread_id thread, const char *name)
{
    begin_metadata(json, what, thread);
    rp_json_member_string(json, "name", name);
    end_metadata(json);
}

static void write_sort_index(rp_json *json, const char *what, thread_id thread, uint32_t index)
{
    begin_metadata(json, what, thread);
    rp_json_member_uint(json, "sort_index", index);
    end_metadata(json);
}

static bool has_host(const writer *w)
{
    bool found = false;
    for (uint32_t q = 0; q < w->program->queue_count; q++) {
        found |= !rp_queue_kind_on_gpu(w->program->queues[q].kind);
    }
    for (uint32_t b = 0; b < w->program->buffer_count; b++) {
        found |= w->program->buffers[b].place == RP_PLACE_HOST;
    }
    return found;
}

static void write_processes(writer *w)
{
    char name[64];
    const char *of = w->name != NULL ? w->name : "";
    const char *blank = w->name != NULL ? " " : "";
    for (uint32_t gpu = 0; gpu < w->program->gpu_count; gpu++) {
        thread_id process = {w->pid_base + gpu, 0};
        snprintf(name, sizeof name, "%s%sGPU %" PRIu32, of, blank, gpu);
        write_name(&w->json, "process_name", process, name);
        write_sort_index(&w->json, "process_sort_index", process, process.pid);
    }
    if (has_host(w)) {
        thread_id host = {w->host_pid, 0};
        snprintf(name, sizeof name, "%s%shost", of, blank);
        write_name(&w->json, "process_name", host, name);
        write_sort_index(&w->json, "process_sort_index", host, w->host_pid);
    }
    for (uint32_t q = 0; q < w->program->queue_count; q++) {
        rp_queue_kind kind = w->program->queues[q].kind;
        uint32_t more = w->threads[q].tid - queue_threads[kind].tid;
        write_name(&w->json, "thread_name", w->threads[q], rp_queue_kind_text(kind));
        write_sort_index(&w->json, "thread_sort_index", w->threads[q],
                         queue_threads[kind].sort_index + more);
    }
}

static void write_layers(rp_json *json, const rp_stage *stage)
{
    char text[48] = "none";
    if (stage->layer_begin < stage->layer_end) {
        snprintf(text, sizeof text, "%" PRIu32 "-%" PRIu32, stage->layer_begin,
                 stage->layer_end - 1);
    }
    rp_json_member_string(json, "layers", text);
    if ((stage->roles & RP_STAGE_HEAD) != 0) {
        rp_json_member_bool(json, "head", true);
    }
}

static void write_slice(writer *w, uint32_t index)
{
    const rp_op *op = &w->program->ops[index];
    rp_json *json = &w->json;
    char name[RP_OP_NAME_SIZE];
    rp_op_name(op, name);
    begin_event(json, "X", name);
    rp_json_member_string(json, "cat", category(op->kind));
    write_place(json, w->threads[w->queue_of[index]], w->timeline->start_ps[index]);
    rp_json_key(json, "dur");
    rp_json_us(json, w->timeline->end_ps[index] - w->timeline->start_ps[index]);
    rp_json_key(json, "args");
    rp_json_begin_object(json);
    if (rp_op_kind_class(op->kind) != RP_CLASS_HOST) {
        rp_json_member_uint(json, "stage", op->stage);
        rp_json_member_uint(json, "mb", op->microbatch);
        write_layers(json, &w->program->stages[op->stage]);
    }
    rp_json_member_uint(json, "iter", op->iteration);
    rp_json_member_uint(json, "op", index);
    rp_json_end_object(json);
    rp_json_end_object(json);
}

static void write_flow(writer *w, const event *e)
{
    bool is_end = e->type == EVENT_FLOW_END;
    uint32_t op = is_end ? w->waiter_of[e->index] : rp_wait_op(w->program->waits[e->index]);
    rp_json *json = &w->json;
    begin_event(json, is_end ? "f" : "s", "data");
    rp_json_member_string(json, "cat", "flow");
    rp_json_member_uint(json, "id", w->flow_base + e->index);
    write_place(json, w->threads[w->queue_of[op]], e->time_ps);
    if (is_end) {
        rp_json_member_string(json, "bp", "e");
    }
    rp_json_end_object(json);
}

static void write_iteration(writer *w, const event *e)
{
    char name[32];
    snprintf(name, sizeof name, "iteration %" PRIu32, e->index);
    begin_event(&w->json, "i", name);
    write_place(&w->json, (thread_id){w->pid_base, 0}, e->time_ps);
    rp_json_member_string(&w->json, "s", w->name == NULL ? "g" : "p");
    rp_json_end_object(&w->json);
}

/* Writes only the last change at a moment; steps in between have no duration. */
static void write_counter(writer *w, size_t at)
{
    const event *e = &w->events[at];
    const rp_buffer *buffer = &w->program->buffers[e->index];
    bool on_host = buffer->place == RP_PLACE_HOST;
    size_t row = on_host ? w->program->gpu_count : buffer->place;
    uint64_t *live = &w->live[row * RP_BUFFER_KIND_COUNT];
    uint64_t amount = w->bytes_known ? buffer->bytes : 1;
    live[buffer->kind] += e->type == EVENT_ALLOC ? amount : 0 - amount;
    const event *next = at + 1 < w->event_count ? e + 1 : NULL;
    if (next != NULL && next->time_ps == e->time_ps && next->place == e->place &&
        (next->type == EVENT_ALLOC || next->type == EVENT_FREE)) {
        return;
    }
    rp_json *json = &w->json;
    begin_event(json, "C", w->bytes_known ? "live bytes" : "live buffers");
    write_place(json, (thread_id){on_host ? w->host_pid : w->pid_base + buffer->place, 0},
                e->time_ps);
    rp_json_key(json, "args");
    rp_json_begin_object(json);
    for (int kind = 0; kind < RP_BUFFER_KIND_COUNT; kind++) {
        if (w->kind_used[kind]) {
            rp_json_member_uint(json, rp_buffer_kind_text((rp_buffer_kind)kind), live[kind]);
        }
    }
    rp_json_end_object(json);
    rp_json_end_object(json);
}

static void write_event(writer *w, size_t at)
{
    const event *e = &w->events[at];
    switch ((event_type)e->type) {
    case EVENT_SLICE:
        write_slice(w, e->index);
        break;
    case EVENT_FLOW_START:
    case EVENT_FLOW_END:
        write_flow(w, e);
        break;
    case EVENT_ALLOC:
    case EVENT_FREE:
        write_counter(w, at);
        break;
    case EVENT_ITERATION:
        write_iteration(w, e);
        break;
    default:
        break;
    }
}

static void write_head(rp_json *json, const rp_trace_fact *facts, size_t fact_count)
{
    rp_json_begin_object(json);
    rp_json_member_string(json, "displayTimeUnit", "ms");
    rp_json_key(json, "otherData");
    rp_json_begin_object(json);
    for (size_t i = 0; i < fact_count; i++) {
        rp_json_member_string(json, facts[i].key, facts[i].value);
    }
    rp_json_end_object(json);
    rp_json_key(json, "traceEvents");
    rp_json_begin_array(json);
}

/* Appends the events of a timeline to the document `json`. */
static rp_status write_part(writer *w, rp_json *json)
{
    RP_TRY(rp_arena_create(&w->arena));
    rp_status status = assign_threads(w);
    if (status == RP_OK) {
        status = collect_events(w);
    }
    w->json = *json;
    if (status == RP_OK) {
        write_processes(w);
    }
    for (size_t i = 0; status == RP_OK && i < w->event_count; i++) {
        write_event(w, i);
    }
    *json = w->json;
    rp_arena_destroy(w->arena);
    return status;
}

rp_status rp_trace_write_parts(const rp_trace_part *parts, size_t part_count,
                               const rp_trace_fact *facts, size_t fact_count, FILE *stream)
{
    rp_json json;
    uint32_t pid = 0;
    uint32_t flow = 0;
    rp_json_begin_document(&json, stream, 2);
    write_head(&json, facts, fact_count);
    for (size_t i = 0; i < part_count; i++) {
        writer w = {.timeline = parts[i].timeline,
                    .program = parts[i].timeline->program,
                    .name = parts[i].name,
                    .pid_base = pid,
                    .flow_base = flow};
        RP_TRY(write_part(&w, &json));
        pid = w.host_pid + FIRST_HOST_PID;
        flow += w.program->wait_count;
    }
    rp_json_end_array(&json);
    rp_json_end_object(&json);
    rp_json_end_document(&json);
    return RP_OK;
}

rp_status rp_trace_write(const rp_timeline *timeline, const rp_trace_fact *facts, size_t fact_count,
                         FILE *stream)
{
    const rp_trace_part part = {timeline, NULL};
    return rp_trace_write_parts(&part, 1, facts, fact_count, stream);
}
