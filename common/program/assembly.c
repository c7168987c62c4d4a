#include "common/program/assembly.h"

#include "common/base/log.h"
#include "common/base/reason.h"

#include <stdlib.h>
#include <string.h>

#define BLOCK_OPS 256u
#define BLOCK_WAITS 256u
#define FEW_WAITS 16u /* sorted by insertion: nearly every op has fewer */

typedef struct pending_wait {
    struct pending_wait *next;
    rp_handle target;
    bool control;
} pending_wait;

typedef struct pending_op {
    rp_op op;
    uint64_t bytes;
    pending_wait *waits;
} pending_op;

/* Ops of a queue in blocks that never move. */
typedef struct op_block {
    struct op_block *next;
    pending_op ops[BLOCK_OPS];
} op_block;

typedef struct op_list {
    op_block *first;
    op_block *last;
    uint32_t count;
    op_block **index; /* [block] in a power-of-two sized table */
    uint32_t index_size;
} op_list;

struct rp_assembly {
    rp_arena *arena;
    const rp_queue *queues;
    uint32_t queue_count;
    op_list *lists;
    uint32_t *begins; /* [queue] first op number; set by finish */
    uint64_t op_count;
    uint64_t wait_count;
    rp_reason *reason;         /* receives refusals; the caller's */
    pending_wait *spare_waits; /* the unused rest of the last block of BLOCK_WAITS */
    uint32_t spare_wait_count;
};

static uint32_t handle_queue(rp_handle handle)
{
    return (uint32_t)(handle >> 32);
}

static uint32_t handle_index(rp_handle handle)
{
    return (uint32_t)handle;
}

static pending_op *find_op(const rp_assembly *a, rp_handle handle)
{
    uint32_t index = handle_index(handle);
    return &a->lists[handle_queue(handle)].index[index / BLOCK_OPS]->ops[index % BLOCK_OPS];
}

rp_status rp_assembly_create(rp_arena *arena, const rp_queue *queues, uint32_t queue_count,
                             rp_assembly **assembly_out, rp_reason *reason)
{
    rp_assembly *a = NULL;
    RP_TRY(rp_arena_alloc(arena, 1, sizeof *a, &a));
    *a = (rp_assembly){
        .arena = arena, .queues = queues, .queue_count = queue_count, .reason = reason};
    RP_TRY(rp_arena_alloc(arena, queue_count, sizeof(op_list), &a->lists));
    RP_TRY(rp_arena_alloc(arena, queue_count, sizeof(uint32_t), &a->begins));
    *assembly_out = a;
    return RP_OK;
}

static rp_status grow(rp_assembly *a, op_list *list)
{
    uint32_t block = list->count / BLOCK_OPS;
    if (block == list->index_size) {
        uint32_t size = block == 0 ? 4 : 2 * block;
        op_block **index = NULL;
        RP_TRY(rp_arena_alloc(a->arena, size, sizeof(op_block *), &index));
        if (block != 0) {
            memcpy(index, list->index, block * sizeof(op_block *));
        }
        list->index = index;
        list->index_size = size;
    }
    return rp_arena_alloc(a->arena, 1, sizeof(op_block), &list->index[block]);
}

rp_status rp_assembly_add(rp_assembly *a, uint32_t queue, const rp_op *op, uint64_t bytes,
                          rp_handle *handle_out)
{
    if (a->op_count == RP_MAX_OPS) {
        return rp_refuse(a->reason, RP_USAGE,
                         "the lowered program has too many ops; valid are up to %u: use fewer "
                         "microbatches, stages or iterations",
                         RP_MAX_OPS);
    }
    op_list *list = &a->lists[queue];
    if (list->count % BLOCK_OPS == 0) {
        RP_TRY(grow(a, list));
    }
    rp_handle handle = (rp_handle)queue << 32 | list->count++;
    *find_op(a, handle) = (pending_op){.op = *op, .bytes = bytes};
    a->op_count++;
    *handle_out = handle;
    return RP_OK;
}

rp_status rp_assembly_wait(rp_assembly *a, rp_handle op, rp_handle target, bool control)
{
    if (target == RP_NO_HANDLE || op == RP_NO_HANDLE) {
        return RP_OK;
    }
    pending_op *pending = find_op(a, op);
    for (pending_wait *wait = pending->waits; wait != NULL; wait = wait->next) {
        if (wait->target == target) {
            wait->control = wait->control && control;
            return RP_OK;
        }
    }
    if (a->spare_wait_count == 0) {
        RP_TRY(rp_arena_alloc(a->arena, BLOCK_WAITS, sizeof(pending_wait), &a->spare_waits));
        a->spare_wait_count = BLOCK_WAITS;
    }
    pending_wait *wait = &a->spare_waits[BLOCK_WAITS - a->spare_wait_count--];
    *wait = (pending_wait){pending->waits, target, control};
    pending->waits = wait;
    a->wait_count++;
    return RP_OK;
}

rp_handle rp_assembly_last(const rp_assembly *a, uint32_t queue)
{
    uint32_t count = a->lists[queue].count;
    return count == 0 ? RP_NO_HANDLE : (rp_handle)queue << 32 | (count - 1);
}

uint32_t rp_assembly_number(const rp_assembly *a, rp_handle handle)
{
    return a->begins[handle_queue(handle)] + handle_index(handle);
}

static int compare_waits(const void *left, const void *right)
{
    uint32_t a = rp_wait_op(*(const rp_wait *)left);
    uint32_t b = rp_wait_op(*(const rp_wait *)right);
    return a < b ? -1 : a > b;
}

/* Sorts waits by op. No two waits of an op name the same op, so the order is unique. */
static void sort_waits(rp_wait *waits, uint32_t count)
{
    if (count > FEW_WAITS) {
        qsort(waits, count, sizeof *waits, compare_waits);
        return;
    }
    for (uint32_t i = 1; i < count; i++) {
        rp_wait wait = waits[i];
        uint32_t to = i;
        for (; to > 0 && rp_wait_op(waits[to - 1]) > rp_wait_op(wait); to--) {
            waits[to] = waits[to - 1];
        }
        waits[to] = wait;
    }
}

/* Writes an op's waits. A wait within the op's own queue is dropped if queue order covers it,
 * otherwise it is impossible. */
static rp_status write_waits(const rp_assembly *a, rp_program *p, rp_handle handle,
                             const pending_op *pending)
{
    uint32_t first = p->wait_count;
    for (const pending_wait *wait = pending->waits; wait != NULL; wait = wait->next) {
        if (handle_queue(wait->target) != handle_queue(handle)) {
            p->waits[p->wait_count++] =
                rp_assembly_number(a, wait->target) | (wait->control ? RP_WAIT_CONTROL : 0);
        } else if (handle_index(wait->target) >= handle_index(handle)) {
            char name[RP_OP_NAME_SIZE];
            rp_op_name(&pending->op, name);
            rp_log_error("lowering: %s would wait for a later op of its own queue", name);
            return rp_broken();
        }
    }
    sort_waits(&p->waits[first], p->wait_count - first);
    return RP_OK;
}

static rp_status write_queue(const rp_assembly *a, rp_program *p, uint32_t queue)
{
    p->queues[queue] = (rp_queue){p->op_count, p->op_count + a->lists[queue].count,
                                  a->queues[queue].gpu, a->queues[queue].kind};
    for (uint32_t i = 0; i < a->lists[queue].count; i++) {
        rp_handle handle = (rp_handle)queue << 32 | i;
        const pending_op *pending = find_op(a, handle);
        p->ops[p->op_count] = pending->op;
        p->ops[p->op_count].wait_begin = p->wait_count;
        p->op_bytes[p->op_count] = pending->bytes;
        p->op_count++;
        RP_TRY(write_waits(a, p, handle, pending));
    }
    return RP_OK;
}

rp_status rp_assembly_finish(const rp_assembly *a, rp_program *p)
{
    RP_TRY(rp_arena_alloc(p->arena, a->queue_count, sizeof(rp_queue), &p->queues));
    RP_TRY(rp_arena_alloc_raw(p->arena, a->op_count + 1, sizeof(rp_op), &p->ops));
    RP_TRY(rp_arena_alloc_raw(p->arena, a->op_count, sizeof(uint64_t), &p->op_bytes));
    RP_TRY(rp_arena_alloc_raw(p->arena, a->wait_count, sizeof(rp_wait), &p->waits));
    p->queue_count = a->queue_count;
    p->op_count = p->wait_count = 0;
    uint32_t begin = 0;
    for (uint32_t q = 0; q < a->queue_count; q++) {
        a->begins[q] = begin;
        begin += a->lists[q].count;
    }
    for (uint32_t q = 0; q < a->queue_count; q++) {
        RP_TRY(write_queue(a, p, q));
    }
    p->ops[p->op_count] = (rp_op){.wait_begin = p->wait_count};
    return RP_OK;
}
