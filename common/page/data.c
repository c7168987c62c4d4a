/* Ops of a run for the page's script, which data.js reads.
 *
 * Numbers are written as LEB128 (seven bits a byte, the lowest first; the top bit tells that more
 * bytes follow), and numbers that may be negative in zigzag order (0, -1, 1, -2, …). First come the
 * columns in the order of COLUMN_LIST, each with a number for each op. The critical path follows,
 * with three numbers a piece: op (relative to the piece before), duration and step. Then come, for
 * each GPU and for the host, the number of steps of its memory and two numbers a step: time
 * (relative to the step before) and change in bytes. All of it is compressed by zlib and written in
 * base64.
 *
 * Times are whole picoseconds, or nanoseconds if a double cannot count the picoseconds exactly.
 */
#include "common/base/log.h"
#include "common/base/text.h"
#include "common/page/page_internal.h"
#include "common/timeline/gantt_boxes.h"

#include <stdlib.h>
#include <zlib.h>

#define EXACT_PS (INT64_C(1) << 53)

/* ---- numbers --------------------------------------------------------------------------------- */

typedef struct packer {
    rp_text bytes;
    rp_status status;
} packer;

static void put(packer *p, uint64_t value)
{
    char bytes[10];
    size_t length = 0;
    do {
        bytes[length++] = (char)((value & 0x7f) | (value > 0x7f ? 0x80 : 0));
        value >>= 7;
    } while (value != 0);
    if (p->status == RP_OK) {
        p->status = rp_text_append(&p->bytes, bytes, length);
    }
}

static void put_signed(packer *p, int64_t value)
{
    uint64_t twice = (uint64_t)value << 1;
    put(p, value < 0 ? ~twice : twice);
}

static int64_t unit_of(const rp_timeline *timeline)
{
    int64_t last_ps = 0;
    for (uint32_t op = 0; op < timeline->program->op_count; op++) {
        last_ps = timeline->end_ps[op] > last_ps ? timeline->end_ps[op] : last_ps;
    }
    return last_ps < EXACT_PS ? 1 : 1000;
}

/* ---- ops ------------------------------------------------------------------------------------- */

/* An op with the data that its columns need. */
typedef struct op_view {
    const rp_page_run *run;
    const rp_page_causes *causes;
    int64_t unit_ps;
    uint32_t index;
    bool first; /* of its queue */
} op_view;

static int64_t time_of(const op_view *v, const int64_t *times_ps, uint32_t op)
{
    return times_ps[op] / v->unit_ps;
}

/* Start of the op relative to the end of the op before it in its queue. */
static int64_t gap_of(const op_view *v)
{
    const rp_timeline *t = v->run->timeline;
    int64_t before = v->first ? 0 : time_of(v, t->end_ps, v->index - 1);
    return time_of(v, t->start_ps, v->index) - before;
}

static int64_t duration_of(const op_view *v)
{
    const rp_timeline *t = v->run->timeline;
    return time_of(v, t->end_ps, v->index) - time_of(v, t->start_ps, v->index);
}

static int64_t held_of(const op_view *v)
{
    const int64_t *held_ps = v->run->timeline->held_ps;
    return held_ps != NULL ? time_of(v, held_ps, v->index) : 0;
}

static int64_t bytes_of(const op_view *v)
{
    const uint64_t *bytes = v->run->timeline->program->op_bytes;
    return bytes != NULL ? (int64_t)bytes[v->index] : 0;
}

/* Index of the cause relative to the op's own, which is never 0 because no op waits for itself; 0:
 * no cause. */
static int64_t cause_of(const op_view *v)
{
    uint32_t cause = v->causes->cause_of[v->index];
    return cause == UINT32_MAX ? 0 : (int64_t)cause - (int64_t)v->index;
}

/* X(column, its value for the op `op` that `v` views). */
#define COLUMN_LIST(X)                                                                             \
    X(gap, gap_of(v))                                                                              \
    X(duration, duration_of(v))                                                                    \
    X(held, held_of(v))                                                                            \
    X(kind, op->kind)                                                                              \
    X(colour, (int64_t)rp_gantt_colour_of(v->run->timeline->program, op))                          \
    X(stage, op->stage)                                                                            \
    X(microbatch, op->microbatch)                                                                  \
    X(iteration, op->iteration)                                                                    \
    X(layer, op->part)                                                                             \
    X(bytes, bytes_of(v))                                                                          \
    X(cause, cause_of(v))                                                                          \
    X(reason, v->causes->reason_of[v->index])

#define VALUE(name, value)                                                                         \
    static int64_t column_##name(const op_view *v, const rp_op *op)                                \
    {                                                                                              \
        (void)op;                                                                                  \
        (void)v;                                                                                   \
        return value;                                                                              \
    }
COLUMN_LIST(VALUE)

static const struct {
    const char *name;
    int64_t (*value)(const op_view *v, const rp_op *op);
} columns[] = {
#define COLUMN(name, value) {#name, column_##name},
    COLUMN_LIST(COLUMN)};

#define COLUMN_COUNT (sizeof columns / sizeof columns[0])

static void put_ops(packer *p, const rp_page_run *run, const rp_page_causes *causes,
                    int64_t unit_ps)
{
    const rp_program *program = run->timeline->program;
    op_view view = {.run = run, .causes = causes, .unit_ps = unit_ps};
    for (size_t c = 0; c < COLUMN_COUNT; c++) {
        for (uint32_t q = 0; q < program->queue_count; q++) {
            const rp_queue *queue = &program->queues[q];
            for (uint32_t op = queue->op_begin; op < queue->op_end; op++) {
                view.index = op;
                view.first = op == queue->op_begin;
                put_signed(p, columns[c].value(&view, &program->ops[op]));
            }
        }
    }
}

/* Each piece ends at its own rounded time, so that rounding errors do not add up. */
static void put_path(packer *p, const rp_page_causes *causes, int64_t unit_ps)
{
    int64_t at_ps = 0;
    int64_t op = 0;
    for (uint32_t i = 0; i < causes->piece_count; i++) {
        const rp_page_piece *piece = &causes->pieces[i];
        int64_t begin = at_ps / unit_ps;
        at_ps += piece->duration_ps;
        put_signed(p, (int64_t)piece->op - op);
        put_signed(p, at_ps / unit_ps - begin);
        put_signed(p, (int64_t)piece->step);
        op = piece->op;
    }
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Bytes that are allocated (positive) or freed (negative) at a moment. */
typedef struct change {
    int64_t time_ps;
    int64_t bytes;
    uint32_t place; /* number of the GPU; the host follows the last GPU */
} change;

static int compare_changes(const void *a, const void *b)
{
    const change *x = a;
    const change *y = b;
    if (x->place != y->place) {
        return x->place < y->place ? -1 : 1;
    }
    return x->time_ps < y->time_ps ? -1 : x->time_ps > y->time_ps;
}

/* Gives the changes sorted by place, then by time. */
static rp_status collect_changes(const rp_timeline *t, rp_arena *arena, change **changes_out)
{
    const rp_program *p = t->program;
    change *changes = NULL;
    RP_TRY(rp_arena_alloc(arena, 2 * (size_t)p->buffer_count, sizeof *changes, &changes));
    for (uint32_t i = 0; i < p->buffer_count; i++) {
        const rp_buffer *b = &p->buffers[i];
        uint32_t place = b->place == RP_PLACE_HOST ? p->gpu_count : b->place;
        bool lives = t->end_ps[b->free_op] > t->start_ps[b->alloc_op];
        int64_t bytes = lives ? (int64_t)b->bytes : 0;
        changes[2 * i] = (change){t->start_ps[b->alloc_op], bytes, place};
        changes[2 * i + 1] = (change){t->end_ps[b->free_op], -bytes, place};
    }
    qsort(changes, 2 * (size_t)p->buffer_count, sizeof *changes, compare_changes);
    *changes_out = changes;
    return RP_OK;
}

/* Changes at the same moment become a single step, or no step if they cancel. */
static void put_place(packer *p, const change *changes, size_t count, int64_t unit_ps)
{
    int64_t before = 0;
    uint64_t steps = 0;
    packer body = {.status = RP_OK};
    for (size_t i = 0; i < count;) {
        int64_t sum = 0;
        int64_t time_ps = changes[i].time_ps;
        for (; i < count && changes[i].time_ps == time_ps; i++) {
            sum += changes[i].bytes;
        }
        if (sum != 0) {
            put_signed(&body, time_ps / unit_ps - before);
            put_signed(&body, sum);
            before = time_ps / unit_ps;
            steps++;
        }
    }
    put_signed(p, (int64_t)steps);
    if (p->status == RP_OK && body.bytes.length > 0) {
        p->status = body.status != RP_OK
                        ? body.status
                        : rp_text_append(&p->bytes, body.bytes.bytes, body.bytes.length);
    }
    rp_text_fini(&body.bytes);
}

static rp_status put_memory(packer *p, const rp_timeline *t, int64_t unit_ps, rp_arena *arena)
{
    change *changes = NULL;
    size_t count = 2 * (size_t)t->program->buffer_count;
    size_t at = 0;
    RP_TRY(collect_changes(t, arena, &changes));
    for (uint32_t place = 0; place <= t->program->gpu_count; place++) {
        size_t begin = at;
        while (at < count && changes[at].place == place) {
            at++;
        }
        put_place(p, changes + begin, at - begin, unit_ps);
    }
    return p->status;
}

/* ---- compressed text ------------------------------------------------------------------------- */

static void write_base64(const unsigned char *bytes, size_t length, FILE *stream)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < length; i += 3) {
        size_t left = length - i;
        uint32_t group = (uint32_t)bytes[i] << 16;
        group |= left > 1 ? (uint32_t)bytes[i + 1] << 8 : 0;
        group |= left > 2 ? (uint32_t)bytes[i + 2] : 0;
        putc(digits[group >> 18], stream);
        putc(digits[group >> 12 & 63], stream);
        putc(left > 1 ? digits[group >> 6 & 63] : '=', stream);
        putc(left > 2 ? digits[group & 63] : '=', stream);
    }
}

static rp_status write_compressed(const rp_text *bytes, rp_arena *arena, FILE *stream)
{
    uLongf length = compressBound((uLong)bytes->length);
    unsigned char *packed = NULL;
    RP_TRY(rp_arena_alloc_raw(arena, length, 1, &packed));
    if (compress2(packed, &length, (const Bytef *)bytes->bytes, (uLong)bytes->length,
                  Z_BEST_COMPRESSION) != Z_OK) {
        rp_log_error("out of memory for the ops of a page");
        return RP_NO_MEMORY;
    }
    write_base64(packed, length, stream);
    return RP_OK;
}

rp_status rp_page_write_ops(const rp_page_run *run, const rp_page_causes *causes, rp_arena *arena,
                            FILE *stream)
{
    packer p = {.status = RP_OK};
    int64_t unit_ps = unit_of(run->timeline);
    put_ops(&p, run, causes, unit_ps);
    put_path(&p, causes, unit_ps);
    rp_status status = put_memory(&p, run->timeline, unit_ps, arena);
    status = status == RP_OK ? p.status : status;
    status = status == RP_OK ? write_compressed(&p.bytes, arena, stream) : status;
    rp_text_fini(&p.bytes);
    return status;
}

/* ---- names ----------------------------------------------------------------------------------- */

static void write_kinds(rp_json *json)
{
    rp_json_key(json, "kinds");
    rp_json_begin_array(json);
    for (uint32_t k = 0; k < RP_OP_KIND_COUNT; k++) {
        rp_json_begin_object(json);
        rp_json_member_string(json, "text", rp_op_kind_text((rp_op_kind)k));
        rp_json_member_string(json, "meaning", rp_op_kind_meaning((rp_op_kind)k));
        rp_json_member_bool(json, "host", rp_op_kind_class((rp_op_kind)k) == RP_CLASS_HOST);
        rp_json_end_object(json);
    }
    rp_json_end_array(json);
}

static void write_texts(rp_json *json, const char *key, const char *const *texts, size_t count)
{
    rp_json_key(json, key);
    rp_json_begin_array(json);
    for (size_t i = 0; i < count; i++) {
        rp_json_string(json, texts[i]);
    }
    rp_json_end_array(json);
}

static void write_names(rp_json *json)
{
    const char *names[COLUMN_COUNT];
    for (size_t c = 0; c < COLUMN_COUNT; c++) {
        names[c] = columns[c].name;
    }
#define SECOND(name, text, ...) text,
    static const char *const queues[] = {RP_QUEUE_KIND_LIST(SECOND)};
    static const char *const reasons[] = {RP_DELAY_LIST(SECOND)};
    static const char *const colours[] = {RP_GANTT_COLOUR_LIST(SECOND)};
#define FILL(name, text, fill, ink) fill,
    static const char *const fills[] = {RP_GANTT_COLOUR_LIST(FILL)};
#define INK(name, text, fill, ink) ink,
    static const char *const inks[] = {RP_GANTT_COLOUR_LIST(INK)};
    write_kinds(json);
    write_texts(json, "columns", names, COLUMN_COUNT);
    write_texts(json, "queueKinds", queues, RP_QUEUE_KIND_COUNT);
    write_texts(json, "reasons", reasons, RP_DELAY_COUNT);
    write_texts(json, "colours", colours, RP_GANTT_COLOUR_COUNT);
    write_texts(json, "fills", fills, RP_GANTT_COLOUR_COUNT);
    write_texts(json, "inks", inks, RP_GANTT_COLOUR_COUNT);
}

static void write_stages(const rp_program *p, rp_json *json)
{
    rp_json_key(json, "stages");
    rp_json_begin_array(json);
    for (uint32_t s = 0; s < p->stage_count; s++) {
        rp_json_begin_array(json);
        rp_json_uint(json, p->stages[s].layer_begin);
        rp_json_uint(json, p->stages[s].layer_end);
        rp_json_uint(json, (p->stages[s].roles & RP_STAGE_HEAD) != 0);
        rp_json_end_array(json);
    }
    rp_json_end_array(json);
}

static void write_queues(const rp_program *p, rp_json *json)
{
    rp_json_key(json, "queues");
    rp_json_begin_array(json);
    for (uint32_t q = 0; q < p->queue_count; q++) {
        const rp_queue *queue = &p->queues[q];
        bool on_gpu = rp_queue_kind_on_gpu((rp_queue_kind)queue->kind);
        rp_json_begin_array(json);
        rp_json_uint(json, queue->kind);
        rp_json_int(json, on_gpu ? (int64_t)queue->gpu : -1);
        rp_json_uint(json, queue->op_begin);
        rp_json_uint(json, queue->op_end);
        rp_json_end_array(json);
    }
    rp_json_end_array(json);
}

static bool knows_memory(const rp_program *p)
{
    bool known = false;
    for (uint32_t i = 0; i < p->buffer_count; i++) {
        known = known || p->buffers[i].bytes != 0;
    }
    return known;
}

static void write_run(const rp_page_run *run, const rp_page_causes *causes, rp_json *json)
{
    const rp_program *p = run->timeline->program;
    rp_json_begin_object(json);
    rp_json_member_string(json, "name", run->name);
    rp_json_member_int(json, "unitPs", unit_of(run->timeline));
    rp_json_member_uint(json, "ops", p->op_count);
    rp_json_member_uint(json, "gpus", p->gpu_count);
    rp_json_member_uint(json, "pieces", causes->piece_count);
    rp_json_member_bool(json, "knowsCauses", causes->known);
    rp_json_member_bool(json, "knowsMemory", !run->memory.hidden && knows_memory(p));
    rp_json_member_uint(json, "gpuFixedBytes", run->memory.gpu_fixed_bytes);
    rp_json_member_double(json, "gpuOverhead", run->memory.gpu_overhead);
    rp_json_member_uint(json, "gpuBytes", run->memory.gpu_bytes);
    rp_json_member_uint(json, "hostFixedBytes", run->memory.host_fixed_bytes);
    rp_json_member_uint(json, "hostBytes", run->memory.host_bytes);
    rp_json_key(json, "gpuPeaks");
    rp_json_begin_array(json);
    for (uint32_t gpu = 0; run->memory.gpu_peaks != NULL && gpu < p->gpu_count; gpu++) {
        rp_json_uint(json, run->memory.gpu_peaks[gpu]);
    }
    rp_json_end_array(json);
    rp_json_member_string(json, "peaksAre", run->memory.peaks_are);
    write_stages(p, json);
    write_queues(p, json);
    rp_json_end_object(json);
}

void rp_page_write_head(const rp_page *page, const rp_page_causes *causes, rp_json *json)
{
    rp_json_begin_object(json);
    rp_json_member_bool(json, "together", page->together);
    rp_json_member_uint(json, "first", page->first);
    write_names(json);
    rp_json_key(json, "runs");
    rp_json_begin_array(json);
    for (uint32_t i = 0; i < page->run_count; i++) {
        write_run(&page->runs[i], &causes[i], json);
    }
    rp_json_end_array(json);
    rp_json_end_object(json);
}
