#include "common/timeline/gantt_boxes.h"

#define FIRST_CAPACITY 1024u

/* Neighbouring short ops that become one box. */
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

static rp_gantt_colour forward_colour(const rp_stage *stage)
{
    bool layers = stage->layer_begin < stage->layer_end;
    bool own = (stage->roles & RP_STAGE_FORWARD_LAYERS) != 0 && layers;
    return (stage->roles & RP_STAGE_HEAD) != 0 && !own ? RP_GANTT_HEAD : RP_GANTT_FORWARD;
}

static rp_gantt_colour backward_colour(const rp_stage *stage)
{
    bool layers = stage->layer_begin < stage->layer_end;
    return (stage->roles & RP_STAGE_HEAD) != 0 && !layers ? RP_GANTT_HEAD : RP_GANTT_BACKWARD;
}

static rp_gantt_colour colour_of(const rp_program *program, const rp_op *op)
{
    static const rp_gantt_colour of_kind[RP_OP_KIND_COUNT] = {
        [RP_OP_RECOMPUTE] = RP_GANTT_RECOMPUTE,
        [RP_OP_BACKWARD_WEIGHT] = RP_GANTT_WEIGHT,
        [RP_OP_UPDATE] = RP_GANTT_HOST,
    };
    rp_op_class op_class = rp_op_kind_class(op->kind);
    if (op_class == RP_CLASS_HOST) {
        return RP_GANTT_HOST;
    }
    if (op_class != RP_CLASS_COMPUTE) {
        return RP_GANTT_TRANSFER;
    }
    if (op->kind == RP_OP_FORWARD) {
        return forward_colour(&program->stages[op->stage]);
    }
    bool backward = op->kind == RP_OP_BACKWARD || op->kind == RP_OP_BACKWARD_INPUT;
    return backward ? backward_colour(&program->stages[op->stage]) : of_kind[op->kind];
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
        box.end_ps = r->begin_ps + busy_ps; /* mostly idle must not look busy */
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
    rp_gantt_colour colour = colour_of(timeline->program, op);
    bool is_short = end_ps - begin_ps < least_ps;
    if (end_ps - r->begin_ps > least_ps) {
        RP_TRY(end_run(boxes, row, r));
    }
    /* Pre-work is followed by the backward that has the same number. */
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

rp_status rp_gantt_boxes_collect(const rp_timeline *timeline, int64_t least_ps,
                                 rp_gantt_boxes *boxes_out)
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
            RP_TRY(add_op(timeline, op, row, least_ps, boxes_out, &r));
        }
        RP_TRY(end_run(boxes_out, row, &r));
    }
    boxes_out->rows += boxes_out->has_host ? 1 : 0;
    return RP_OK;
}

void rp_gantt_boxes_fini(rp_gantt_boxes *boxes)
{
    rp_mem_release(&boxes->boxes);
    *boxes = (rp_gantt_boxes){0};
}
