/* Limits of the machine: ops that it cannot carry. */
#include "common/base/reason.h"
#include "common/machine/machine.h"

#include <inttypes.h>

/* The GPU that sends to a RECV; UINT32_MAX if the RECV waits for no SEND. */
static uint32_t sender_of(const rp_program *p, uint32_t op)
{
    for (uint32_t w = p->ops[op].wait_begin; w < p->ops[op + 1].wait_begin; w++) {
        uint32_t target = rp_wait_op(p->waits[w]);
        if (rp_op_kind_sends(p->ops[target].kind)) {
            return p->queues[rp_program_queue_of(p, target)].gpu;
        }
    }
    return UINT32_MAX;
}

static rp_status check_op(const rp_program *program, const rp_machine *machine,
                          const rp_queue *queue, uint32_t op, rp_reason *reason)
{
    rp_op_kind kind = (rp_op_kind)program->ops[op].kind;
    if ((double)program->op_bytes[op] > RP_MAX_FLOW_BYTES) {
        return rp_refuse(reason, RP_INPUT,
                         "hardware fidelity: op %u moves %" PRIu64 " bytes; valid are up to %g", op,
                         program->op_bytes[op], RP_MAX_FLOW_BYTES);
    }
    if (rp_op_kind_class(kind) == RP_CLASS_COLLECTIVE && !(machine->collective_Bps > 0)) {
        return rp_refuse(
            reason, RP_INPUT,
            "hardware fidelity: op %u is a collective (%s); valid are programs without "
            "any, and platforms that say collective_gb_per_s",
            op, rp_op_kind_text(kind));
    }
    uint32_t from = rp_op_kind_receives(kind) ? sender_of(program, op) : UINT32_MAX;
    bool direct = machine->peer_Bps > 0 &&
                  (machine->peer_pcie || rp_machine_joined(machine, from, queue->gpu));
    if (from != UINT32_MAX && !direct) {
        return rp_refuse(
            reason, RP_INPUT,
            "hardware fidelity: op %u receives from GPU %u, which GPU %u does not reach; "
            "valid are programs whose boundaries go through the host, and platforms "
            "whose 'peer' is pcie or nvlink",
            op, from, queue->gpu);
    }
    return RP_OK;
}

rp_status rp_machine_check(const rp_program *program, const rp_machine *machine, rp_reason *reason)
{
    for (uint32_t q = 0; q < program->queue_count; q++) {
        const rp_queue *queue = &program->queues[q];
        bool compute = queue->kind == RP_QUEUE_COMPUTE;
        for (uint32_t i = queue->op_begin; !compute && i < queue->op_end; i++) {
            RP_TRY(check_op(program, machine, queue, i, reason));
        }
    }
    return RP_OK;
}
