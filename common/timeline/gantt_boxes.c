#include "common/timeline/gantt_boxes.h"

#define FIRST_CAPACITY 1024u

/* Neighbouring short ops that become a single box. */
typedef struct run {
    int64_t begin_ps;
    int64_t end_ps;
    int64_t busy_ps[RP_GANTT_COLOUR_COUNT];
    uint32_t ops;
    uint32_t microbatch;
} run;

static rp_status add_box(rp_gantt_boxes *boxes, rp_gantt_box box)
{
    if (boxes->count == boxes->capacity) {
        size_t capacity = boxes->capacity == 0 ? FIRST_CAPACITY : 2 * boxes->capacity;
        RP_TRY(rp_mem_resize(&boxes->boxes, capacity * sizeof box));
        boxes->capacity = capacity;
    }
    boxes->boxes[boxes->count++] = box;
    return RP_OK;
}

rp_gantt_colour rp_gantt_colour_of(const rp_program *program, const rp_op *op)
{
    static const rp_gantt_colour of_kind[] = {
#define OP(name, colour, ...) [RP_OP_##name] = RP_GANTT_##colour,
#include "common/program/op_rows.inc"
#undef OP
    };
    const rp_stage *stage = &program->stages[op->stage];
    rp_gantt_colour colour = of_kind[op->kind];
    bool layers = stage->layer_begin < stage->layer_end;
    bool forward = colour == RP_GANTT_FORWARD;
    bool own = layers && (!forward || (stage->roles & RP_STAGE_FORWARD_LAYERS) != 0);
    bool head = (stage->roles & RP_STAGE_HEAD) != 0 && (forward || colour == RP_GANTT_BACKWARD);
    return head && !own ? RP_GANTT_HEAD : colour;
}

static rp_status end_run(rp_gantt_boxes *boxes, uint32_t row, run *r)
{
    if (r->ops == 0) {
        return RP_OK;
    }
    rp_gantt_box box = {r->begin_ps, r->end_ps, row, r->microbatch, RP_GANTT_IDLE};
    int64_t busy_ps = 0;
    for (int c = 0; c < RP_GANTT_COLOUR_COUNT; c++) {
        busy_ps += r->busy_ps[c];
        box.colour = r->busy_ps[c] > r->busy_ps[box.colour] ? (rp_gantt_colour)c : box.colour;
    }
    if (busy_ps < (r->end_ps - r->begin_ps) / 2) {
        box.end_ps = r->begin_ps + busy_ps; /* mostly idle time must not look busy */
    }
    if (r->ops > 1) {
        box.microbatch = RP_GANTT_NO_LABEL;
        boxes->has_merged = true;
    }
    *r = (run){0};
    return add_box(boxes, box);
}

static rp_status add_op(const rp_timeline *timeline, uint32_t index, uint32_t row, int64_t least_ps,
                        rp_gantt_boxes *boxes, run *r)
{
    const rp_op *op = &timeline->program->ops[index];
    int64_t begin_ps = timeline->start_ps[index];
    int64_t end_ps = timeline->end_ps[index];
    if (begin_ps == end_ps) {
        return RP_OK;
    }
    rp_gantt_colour colour = rp_gantt_colour_of(timeline->program, op);
    bool is_short = end_ps - begin_ps < least_ps;
    if (end_ps - r->begin_ps > least_ps) {
        RP_TRY(end_run(boxes, row, r));
    }
    /* Pre-work has no number, as the backward that follows shows the same number. */
    bool unnamed = colour == RP_GANTT_HOST || (op->flags & RP_OP_JOIN) != 0;
    uint32_t label = unnamed ? RP_GANTT_NO_LABEL : op->microbatch;
    if (!is_short) {
        return add_box(boxes, (rp_gantt_box){begin_ps, end_ps, row, label, colour});
    }
    if (r->ops++ == 0) {
        r->begin_ps = begin_ps;
        r->microbatch = label;
    }
    r->end_ps = end_ps;
    r->busy_ps[colour] += end_ps - begin_ps;
    return RP_OK;
}

static bool takes_time(const rp_timeline *timeline, const rp_queue *queue)
{
    for (uint32_t op = queue->op_begin; op < queue->op_end; op++) {
        if (timeline->start_ps[op] != timeline->end_ps[op]) {
            return true;
        }
    }
    return false;
}

rp_gantt_window rp_gantt_window_of(const rp_timeline *timeline, uint32_t first, uint32_t last)
{
    const rp_program *program = timeline->program;
    rp_gantt_window window = {.first = first, .last = last, .begin_ps = INT64_MAX};
    for (uint32_t q = 0; q < program->queue_count; q++) {
        const rp_queue *queue = &program->queues[q];
        bool computes = queue->kind == RP_QUEUE_COMPUTE;
        if (!computes && queue->kind != RP_QUEUE_OPTIMIZER) {
            continue;
        }
        for (uint32_t i = queue->op_begin; i < queue->op_end; i++) {
            if (program->ops[i].iteration < first || program->ops[i].iteration > last) {
                continue;
            }
            int64_t begin_ps = timeline->start_ps[i];
            int64_t end_ps = timeline->end_ps[i];
            window.begin_ps = begin_ps < window.begin_ps ? begin_ps : window.begin_ps;
            window.end_ps = end_ps > window.end_ps ? end_ps : window.end_ps;
            window.busy_ps += computes ? end_ps - begin_ps : 0;
        }
    }
    window.begin_ps = window.begin_ps < window.end_ps ? window.begin_ps : 0;
    return window;
}

rp_status rp_gantt_boxes_collect(const rp_timeline *timeline, const rp_gantt_window *window,
                                 int64_t least_ps, rp_gantt_boxes *boxes_out)
{
    const rp_program *program = timeline->program;
    boxes_out->rows = program->gpu_count;
    for (uint32_t q = 0; q < program->queue_count; q++) {
        const rp_queue *queue = &program->queues[q];
        bool on_host = queue->kind == RP_QUEUE_OPTIMIZER;
        if (on_host ? !takes_time(timeline, queue) : queue->kind != RP_QUEUE_COMPUTE) {
            continue;
        }
        boxes_out->has_host |= on_host;
        uint32_t row = on_host ? program->gpu_count : queue->gpu;
        run r = {0};
        for (uint32_t op = queue->op_begin; op < queue->op_end; op++) {
            uint32_t iteration = program->ops[op].iteration;
            if (iteration >= window->first && iteration <= window->last) {
                RP_TRY(add_op(timeline, op, row, least_ps, boxes_out, &r));
            }
        }
        RP_TRY(end_run(boxes_out, row, &r));
    }
    boxes_out->rows += boxes_out->has_host ? 1 : 0;
    for (size_t i = 0; i < boxes_out->count; i++) {
        boxes_out->boxes[i].begin_ps -= window->begin_ps;
        boxes_out->boxes[i].end_ps -= window->begin_ps;
    }
    return RP_OK;
}

void rp_gantt_boxes_fini(rp_gantt_boxes *boxes)
{
    rp_mem_release(&boxes->boxes);
    *boxes = (rp_gantt_boxes){0};
}
