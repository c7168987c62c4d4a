/* Makes the programs that Chakra traces describe. In them each rank is a GPU, no part of a
 * collective waits for another rank, and with RPSIM_CHAKRA_HOST_DELAY the host has no ops. */
#include "common/program/assembly.h"
#include "sim/interchange/chakra_internal.h"

typedef struct builder {
    const rp_timeline *from;
    const rp_program *p;
    bool drops_host;
    uint32_t copies;     /* ranks that a GPU of `p` stands for */
    uint32_t *queue_of;  /* [op] */
    uint32_t *ordinal;   /* [op] number of a collective among those of its GPU, or NO_OP */
    uint32_t *met_count; /* [gpu] number of its collectives */
    uint32_t met_most;
    uint32_t *met;      /* [gpu][ordinal] op */
    uint32_t *frontier; /* [op of the host - host_begin][gpu] last op that it needs, or NO_OP */
    uint32_t host_begin;
    uint32_t host_end;
    rp_assembly *assembly;
    rp_handle *handles; /* [op][copy]; ops of the host have only the first */
} builder;

static bool on_gpu(const builder *b, uint32_t op)
{
    return rp_queue_kind_on_gpu((rp_queue_kind)b->p->queues[b->queue_of[op]].kind);
}

static uint32_t gpu_of(const builder *b, uint32_t op)
{
    return on_gpu(b, op) ? b->p->queues[b->queue_of[op]].gpu : 0;
}

static bool is_meeting(const rp_program *p, const rp_queue *queue, uint32_t op)
{
    return queue->kind == RP_QUEUE_PEER &&
           rp_op_kind_class((rp_op_kind)p->ops[op].kind) == RP_CLASS_COLLECTIVE;
}

rp_status rpsim_chakra_index_meetings(const rp_program *p, rp_arena *arena, uint32_t **ordinal_out,
                                      uint32_t **count_out, uint32_t *most_out)
{
    *most_out = 0;
    RP_TRY(rp_arena_alloc(arena, p->op_count, sizeof(uint32_t), ordinal_out));
    RP_TRY(rp_arena_alloc(arena, p->gpu_count, sizeof(uint32_t), count_out));
    for (uint32_t q = 0; q < p->queue_count; q++) {
        const rp_queue *queue = &p->queues[q];
        for (uint32_t i = queue->op_begin; i < queue->op_end; i++) {
            bool meets = is_meeting(p, queue, i);
            (*ordinal_out)[i] = meets ? (*count_out)[queue->gpu]++ : RPSIM_CHAKRA_NO_OP;
            *most_out = meets && (*count_out)[queue->gpu] > *most_out ? (*count_out)[queue->gpu]
                                                                      : *most_out;
        }
    }
    return RP_OK;
}

/* A GPU's part of an op's collective; NO_OP if it has no part. */
static uint32_t part_of(const builder *b, uint32_t op, uint32_t gpu)
{
    uint32_t k = b->ordinal[op];
    return k != RPSIM_CHAKRA_NO_OP && k < b->met_count[gpu] ? b->met[(size_t)gpu * b->met_most + k]
                                                            : RPSIM_CHAKRA_NO_OP;
}

static rp_status index_program(builder *b, rp_arena *arena)
{
    const rp_program *p = b->p;
    RP_TRY(rp_arena_alloc(arena, p->op_count, sizeof(uint32_t), &b->queue_of));
    RP_TRY(rpsim_chakra_index_meetings(p, arena, &b->ordinal, &b->met_count, &b->met_most));
    RP_TRY(rp_arena_alloc(arena, (size_t)p->gpu_count * b->met_most, sizeof(uint32_t), &b->met));
    b->host_begin = p->op_count;
    for (uint32_t q = 0; q < p->queue_count; q++) {
        const rp_queue *queue = &p->queues[q];
        bool host = !rp_queue_kind_on_gpu((rp_queue_kind)queue->kind);
        for (uint32_t i = queue->op_begin; i < queue->op_end; i++) {
            b->queue_of[i] = q;
            b->host_begin = host && i < b->host_begin ? i : b->host_begin;
            b->host_end = host ? i + 1 : b->host_end;
            if (b->ordinal[i] != RPSIM_CHAKRA_NO_OP) {
                b->met[(size_t)queue->gpu * b->met_most + b->ordinal[i]] = i;
            }
        }
    }
    return RP_OK;
}

/* ---- without the host ------------------------------------------------------------------------ */

/* Adds an op to a frontier, which keeps the op of each GPU that ends last. */
static void add_to_frontier(const builder *b, uint32_t *frontier, uint32_t op)
{
    uint32_t *kept = &frontier[gpu_of(b, op)];
    if (*kept == RPSIM_CHAKRA_NO_OP || b->from->end_ps[op] > b->from->end_ps[*kept]) {
        *kept = op;
    }
}

static uint32_t *frontier_of(const builder *b, uint32_t op)
{
    return &b->frontier[(size_t)(op - b->host_begin) * b->p->gpu_count];
}

static void merge_frontier(const builder *b, uint32_t *frontier, uint32_t op)
{
    if (on_gpu(b, op)) {
        add_to_frontier(b, frontier, op);
        return;
    }
    for (uint32_t gpu = 0; gpu < b->p->gpu_count; gpu++) {
        uint32_t other = frontier_of(b, op)[gpu];
        if (other != RPSIM_CHAKRA_NO_OP) {
            add_to_frontier(b, frontier, other);
        }
    }
}

static bool can_merge(const builder *b, const uint8_t *done, uint32_t op)
{
    const rp_program *p = b->p;
    bool can = true;
    for (uint32_t w = p->ops[op].wait_begin; w < p->ops[op + 1].wait_begin; w++) {
        uint32_t target = rp_wait_op(p->waits[w]);
        can = can && (on_gpu(b, target) || done[target - b->host_begin] != 0);
    }
    return can;
}

/* Finds the frontier of each host op: goes through each queue as far as possible, and repeats until
 * no op is left. */
static rp_status find_frontiers(builder *b, rp_arena *arena)
{
    const rp_program *p = b->p;
    size_t count = b->host_end > b->host_begin ? b->host_end - b->host_begin : 0;
    uint8_t *done = NULL;
    RP_TRY(rp_arena_alloc(arena, count, 1, &done));
    RP_TRY(rp_arena_alloc(arena, count * p->gpu_count, sizeof(uint32_t), &b->frontier));
    for (size_t i = 0; i < count * p->gpu_count; i++) {
        b->frontier[i] = RPSIM_CHAKRA_NO_OP;
    }
    for (bool goes_on = true; goes_on;) {
        goes_on = false;
        for (uint32_t i = b->host_begin; i < b->host_end; i++) {
            bool first = i == p->queues[b->queue_of[i]].op_begin;
            if (on_gpu(b, i) || done[i - b->host_begin] != 0 ||
                (!first && done[i - 1 - b->host_begin] == 0) || !can_merge(b, done, i)) {
                continue;
            }
            if (!first) {
                merge_frontier(b, frontier_of(b, i), i - 1);
            }
            for (uint32_t w = p->ops[i].wait_begin; w < p->ops[i + 1].wait_begin; w++) {
                merge_frontier(b, frontier_of(b, i), rp_wait_op(p->waits[w]));
            }
            done[i - b->host_begin] = 1;
            goes_on = true;
        }
    }
    return RP_OK;
}

/* ---- waits ----------------------------------------------------------------------------------- */

static rp_handle handle(const builder *b, uint32_t op, uint32_t copy)
{
    return b->handles[(size_t)op * b->copies + (on_gpu(b, op) ? copy : 0)];
}

/* Adds a wait. A collective begins when all its parts can, and its parts end together. So if a part
 * waits for an op of another GPU, that GPU's part waits for it instead; and instead of another
 * GPU's part an op waits for its own GPU's part. */
static rp_status link_ops(const builder *b, uint32_t op, uint32_t copy, uint32_t target,
                          bool control)
{
    const int64_t *end_ps = b->from->end_ps;
    if (gpu_of(b, op) != gpu_of(b, target) || !on_gpu(b, op)) {
        uint32_t there = part_of(b, op, gpu_of(b, target));
        uint32_t here = part_of(b, target, gpu_of(b, op));
        if (there != RPSIM_CHAKRA_NO_OP) {
            op = there;
            control = true;
        } else if (here != RPSIM_CHAKRA_NO_OP && here != op && end_ps[here] == end_ps[target]) {
            target = here;
        }
    }
    return rp_assembly_wait(b->assembly, handle(b, op, copy), handle(b, target, copy), control);
}

static rp_status add_wait(const builder *b, uint32_t op, uint32_t copy, rp_wait wait)
{
    uint32_t target = rp_wait_op(wait);
    bool control = rp_wait_is_control(wait);
    if (!on_gpu(b, target) && b->drops_host) {
        for (uint32_t gpu = 0; gpu < b->p->gpu_count; gpu++) {
            uint32_t needed = frontier_of(b, target)[gpu];
            if (needed != RPSIM_CHAKRA_NO_OP) {
                RP_TRY(link_ops(b, op, copy, needed, true));
            }
        }
        return RP_OK;
    }
    uint32_t copies = on_gpu(b, target) && !on_gpu(b, op) ? b->copies : 1;
    for (uint32_t other = copy; other < copy + copies; other++) { /* the host waits for all */
        RP_TRY(link_ops(b, op, other, target, control));
    }
    return RP_OK;
}

/* ---- the program ----------------------------------------------------------------------------- */

static rp_status add_queues(builder *b, rp_arena *arena, uint32_t *first_compute_out)
{
    const rp_program *p = b->p;
    rp_queue *queues = NULL;
    uint32_t count = 0;
    size_t handles = (size_t)p->op_count * b->copies;
    RP_TRY(rp_arena_alloc(arena, handles, sizeof *b->handles, &b->handles));
    RP_TRY(rp_arena_alloc(arena, (size_t)p->queue_count * b->copies, sizeof *queues, &queues));
    for (int pass = 0; pass < 2; pass++) {
        count = 0;
        for (uint32_t q = 0; q < p->queue_count; q++) {
            const rp_queue *queue = &p->queues[q];
            bool gpu = rp_queue_kind_on_gpu((rp_queue_kind)queue->kind);
            if (!gpu && b->drops_host) {
                continue;
            }
            for (uint32_t copy = 0; copy < (gpu ? b->copies : 1); copy++, count++) {
                queues[count] = *queue;
                queues[count].gpu = (uint16_t)(gpu ? queue->gpu * b->copies + copy : 0);
                bool first = queue->kind == RP_QUEUE_COMPUTE && queues[count].gpu == 0;
                *first_compute_out = first ? count : *first_compute_out;
                for (uint32_t i = queue->op_begin; pass == 1 && i < queue->op_end; i++) {
                    RP_TRY(rp_assembly_add(b->assembly, count, &p->ops[i], p->op_bytes[i],
                                           &b->handles[(size_t)i * b->copies + copy]));
                }
            }
        }
        if (pass == 0) {
            RP_TRY(rp_assembly_create(arena, queues, count, &b->assembly, NULL));
        }
    }
    return RP_OK;
}

static rp_status add_waits(const builder *b)
{
    const rp_program *p = b->p;
    for (uint32_t i = 0; i < p->op_count; i++) {
        uint32_t copies = on_gpu(b, i) ? b->copies : b->drops_host ? 0 : 1;
        for (uint32_t copy = 0; copy < copies; copy++) {
            for (uint32_t w = p->ops[i].wait_begin; w < p->ops[i + 1].wait_begin; w++) {
                RP_TRY(add_wait(b, i, copy, p->waits[w]));
            }
        }
    }
    return RP_OK;
}

/* If the host works after the last op of all GPUs, adds an op of GPU 0 for that work, so that the
 * run takes the same time. */
static rp_status add_tail(const builder *b, uint32_t compute_queue, rp_arena *arena,
                          rp_handle *tail_out, int64_t *begin_ps_out, int64_t *end_ps_out)
{
    const rp_program *p = b->p;
    const int64_t *ends_ps = b->from->end_ps;
    uint32_t *last = NULL;
    RP_TRY(rp_arena_alloc(arena, p->gpu_count, sizeof *last, &last));
    for (uint32_t gpu = 0; gpu < p->gpu_count; gpu++) {
        last[gpu] = RPSIM_CHAKRA_NO_OP;
    }
    *begin_ps_out = *end_ps_out = 0;
    for (uint32_t i = 0; i < p->op_count; i++) {
        *end_ps_out = ends_ps[i] > *end_ps_out ? ends_ps[i] : *end_ps_out;
        if (on_gpu(b, i)) {
            *begin_ps_out = ends_ps[i] > *begin_ps_out ? ends_ps[i] : *begin_ps_out;
            add_to_frontier(b, last, i);
        }
    }
    *tail_out = RP_NO_HANDLE;
    if (!b->drops_host || *end_ps_out == *begin_ps_out) {
        return RP_OK;
    }
    rp_op op = {.kind = RP_OP_UPDATE, .iteration = (uint16_t)(p->iteration_count - 1)};
    RP_TRY(rp_assembly_add(b->assembly, compute_queue, &op, 0, tail_out));
    for (uint32_t gpu = 0; gpu < p->gpu_count; gpu++) {
        for (uint32_t copy = 0; last[gpu] != RPSIM_CHAKRA_NO_OP && copy < b->copies; copy++) {
            RP_TRY(rp_assembly_wait(b->assembly, *tail_out, handle(b, last[gpu], copy), true));
        }
    }
    return RP_OK;
}

static rp_status copy_times(const builder *b, rp_timeline *timeline)
{
    for (uint32_t i = 0; i < b->p->op_count; i++) {
        uint32_t copies = on_gpu(b, i) ? b->copies : b->drops_host ? 0 : 1;
        for (uint32_t copy = 0; copy < copies; copy++) {
            uint32_t op = rp_assembly_number(b->assembly, handle(b, i, copy));
            timeline->start_ps[op] = b->from->start_ps[i];
            timeline->end_ps[op] = b->from->end_ps[i];
        }
    }
    return RP_OK;
}

rp_status rpsim_chakra_expand(const rp_timeline *from, bool drops_host, rp_arena *arena,
                              const rp_timeline **timeline_out, uint32_t *tail_out)
{
    const rp_program *p = from->program;
    builder b = {.from = from,
                 .p = p,
                 .drops_host = drops_host,
                 .copies = rp_layout_gpus(&p->traits.layout)};
    rp_program *full = NULL;
    rp_timeline *timeline = NULL;
    rp_handle tail = RP_NO_HANDLE;
    int64_t tail_begin_ps = 0;
    int64_t tail_end_ps = 0;
    uint32_t compute_queue = 0;
    *timeline_out = from;
    *tail_out = RPSIM_CHAKRA_NO_OP;
    if (p->op_bytes == NULL) {
        return RP_OK;
    }
    RP_TRY(index_program(&b, arena));
    if (b.met_most == 0 && b.copies == 1 && !drops_host) {
        return RP_OK;
    }
    RP_TRY(find_frontiers(&b, arena));
    RP_TRY(add_queues(&b, arena, &compute_queue));
    RP_TRY(add_waits(&b));
    RP_TRY(add_tail(&b, compute_queue, arena, &tail, &tail_begin_ps, &tail_end_ps));
    RP_TRY(rp_arena_alloc(arena, 1, sizeof *full, &full));
    *full = *p;
    full->arena = arena;
    full->buffer_count = 0;
    full->gpu_count = p->gpu_count * b.copies;
    RP_TRY(rp_assembly_finish(b.assembly, full));
    RP_TRY(rp_arena_alloc(arena, 1, sizeof *timeline, &timeline));
    *timeline = (rp_timeline){.program = full};
    RP_TRY(rp_arena_alloc(arena, full->op_count, sizeof(int64_t), &timeline->start_ps));
    RP_TRY(rp_arena_alloc(arena, full->op_count, sizeof(int64_t), &timeline->end_ps));
    RP_TRY(copy_times(&b, timeline));
    if (tail != RP_NO_HANDLE) {
        *tail_out = rp_assembly_number(b.assembly, tail);
        timeline->start_ps[*tail_out] = tail_begin_ps;
        timeline->end_ps[*tail_out] = tail_end_ps;
    }
    *timeline_out = timeline;
    return RP_OK;
}
