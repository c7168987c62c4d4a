#include "common/program/expand.h"

#include "common/base/log.h"
#include "common/program/assembly.h"

typedef struct expansion {
    const rp_program *folded;
    rp_arena *scratch;
    rp_assembly *assembly;
    uint32_t copies;    /* GPUs of the whole program for each GPU of the folded program */
    uint32_t tensor;    /* of these, GPUs that share each layer */
    rp_handle *handles; /* [op][copy] */
    bool *on_gpu;       /* [op] */
} expansion;

static rp_status check_sizes(const rp_program *p, uint32_t copies)
{
    uint64_t gpus = (uint64_t)p->gpu_count * copies;
    uint64_t microbatches = (uint64_t)p->microbatch_count * copies;
    if (gpus > RP_MAX_GPUS || microbatches > RP_MAX_MICROBATCHES) {
        rp_log_error("{data_parallel}, {tensor_parallel}: a program of %llu GPUs and %llu "
                     "microbatches, one for each rank; valid are up to %u and %u",
                     (unsigned long long)gpus, (unsigned long long)microbatches, RP_MAX_GPUS,
                     RP_MAX_MICROBATCHES);
        return RP_USAGE;
    }
    return RP_OK;
}

/* Number, among the microbatches of the step, of a microbatch of a copy's rank; layers of the
 * host's ops and updates have no such number and stay. */
static uint32_t microbatch_of(const expansion *e, const rp_op *op, uint32_t copy)
{
    uint32_t in_step = copy / e->tensor * e->folded->microbatch_count + op->microbatch;
    return rp_op_has_microbatch(op) ? in_step * e->tensor + copy % e->tensor : op->microbatch;
}

static uint32_t copies_of_queue(const expansion *e, uint32_t queue)
{
    return rp_queue_kind_on_gpu((rp_queue_kind)e->folded->queues[queue].kind) ? e->copies : 1;
}

static rp_status create_queues(expansion *e)
{
    const rp_program *p = e->folded;
    rp_queue *queues = NULL;
    uint32_t count = 0;
    RP_TRY(rp_arena_alloc(e->scratch, (size_t)p->queue_count * e->copies, sizeof *queues, &queues));
    for (uint32_t q = 0; q < p->queue_count; q++) {
        for (uint32_t copy = 0; copy < copies_of_queue(e, q); copy++) {
            queues[count] = p->queues[q];
            queues[count++].gpu = (uint16_t)(p->queues[q].gpu * copies_of_queue(e, q) + copy);
        }
    }
    return rp_assembly_create(e->scratch, queues, count, &e->assembly, NULL);
}

static rp_status add_ops(expansion *e)
{
    const rp_program *p = e->folded;
    uint32_t queue = 0;
    for (uint32_t q = 0; q < p->queue_count; q++) {
        uint32_t copies = copies_of_queue(e, q);
        for (uint32_t copy = 0; copy < copies; copy++, queue++) {
            for (uint32_t i = p->queues[q].op_begin; i < p->queues[q].op_end; i++) {
                rp_op op = p->ops[i];
                rp_handle *at = &e->handles[(size_t)i * e->copies + copy];
                op.microbatch = microbatch_of(e, &op, copy);
                e->on_gpu[i] = copies > 1;
                RP_TRY(rp_assembly_add(e->assembly, queue, &op, p->op_bytes[i], at));
            }
        }
    }
    return RP_OK;
}

static rp_status add_waits(expansion *e, uint32_t op, uint32_t copy)
{
    const rp_program *p = e->folded;
    for (uint32_t w = p->ops[op].wait_begin; w < p->ops[op + 1].wait_begin; w++) {
        uint32_t target = rp_wait_op(p->waits[w]);
        bool of_all = !e->on_gpu[op] && e->on_gpu[target];
        uint32_t begin = of_all || !e->on_gpu[target] ? 0 : copy;
        uint32_t end = of_all ? e->copies : begin + 1;
        for (uint32_t other = begin; other < end; other++) {
            RP_TRY(rp_assembly_wait(e->assembly, e->handles[(size_t)op * e->copies + copy],
                                    e->handles[(size_t)target * e->copies + other],
                                    rp_wait_is_control(p->waits[w])));
        }
    }
    return RP_OK;
}

static rp_status finish(const expansion *e, rp_arena *arena, rp_program *full)
{
    const rp_program *p = e->folded;
    *full = *p;
    full->arena = arena;
    full->traits.layout = (rp_layout){0};
    full->gpu_count = p->gpu_count * e->copies;
    full->microbatch_count = p->microbatch_count * e->copies;
    full->buffer_count = 0;
    full->buffers = NULL;
    RP_TRY(rp_arena_alloc(arena, full->microbatch_count, sizeof(uint32_t), &full->sequences));
    for (uint32_t i = 0; i < full->microbatch_count; i += e->tensor) {
        full->sequences[i] = p->sequences[i / e->tensor % p->microbatch_count];
    }
    return rp_assembly_finish(e->assembly, full);
}

static rp_status expand(expansion *e, rp_arena *arena, rp_program *full)
{
    const rp_program *p = e->folded;
    size_t handles = (size_t)p->op_count * e->copies;
    RP_TRY(rp_arena_alloc(e->scratch, handles, sizeof *e->handles, &e->handles));
    RP_TRY(rp_arena_alloc(e->scratch, p->op_count, sizeof *e->on_gpu, &e->on_gpu));
    RP_TRY(create_queues(e));
    RP_TRY(add_ops(e));
    for (uint32_t i = 0; i < p->op_count; i++) {
        for (uint32_t copy = 0; copy < (e->on_gpu[i] ? e->copies : 1); copy++) {
            RP_TRY(add_waits(e, i, copy));
        }
    }
    return finish(e, arena, full);
}

rp_status rp_program_expand(const rp_program *folded, uint32_t servers, rp_arena *arena,
                            rp_program **program_out)
{
    const rp_layout *layout = &folded->traits.layout;
    expansion e = {.folded = folded,
                   .copies = rp_layout_gpus(layout) / servers,
                   .tensor = rp_layout_tensor(layout)};
    rp_program *full = NULL;
    RP_TRY(check_sizes(folded, e.copies));
    RP_TRY(rp_arena_alloc(arena, 1, sizeof *full, &full));
    RP_TRY(rp_arena_create(&e.scratch));
    rp_status status = expand(&e, arena, full);
    rp_arena_destroy(e.scratch);
    *program_out = status == RP_OK ? full : NULL;
    return status;
}
