/* The lowering's second pass: the waits of each op. */
#include "common/lower/lower_internal.h"

static const rp_op *unit_op(const rp_lowering *l, const rp_lower_unit *unit)
{
    return &l->schedule->ops[unit->last];
}

static rp_status data(rp_lowering *l, rp_handle op, rp_handle target)
{
    return rp_assembly_wait(l->assembly, op, target, false);
}

static rp_status control(rp_lowering *l, rp_handle op, rp_handle target)
{
    return rp_assembly_wait(l->assembly, op, target, true);
}

static const rp_lower_unit *forward_unit(const rp_lowering *l, const rp_op *op, uint32_t position)
{
    return &l->units[l->unit_of[l->producers.forward_at[rp_producers_forward_index(
        &l->producers, op->iteration, position, op->microbatch)]]];
}

static const rp_lower_unit *backward_unit(const rp_lowering *l, const rp_op *op, uint32_t position)
{
    return &l->units[l->unit_of[l->producers.backward_at[rp_producers_backward_index(
        &l->producers, op->iteration, position, op->microbatch)]]];
}

/* ---- tensors --------------------------------------------------------------------------------- */

/* The download that put a separate backward stage's input into host memory; the forward stage that
 * computed the input made it. The head's stage continues the last forward stage, unless it
 * recomputes layers. */
rp_handle rp_lower_saved_input(const rp_lowering *l, const rp_op *op, uint32_t position)
{
    const rp_program *p = l->schedule;
    uint32_t own = l->producers.forward_position[op->stage];
    if (own != RP_NO_OP) { /* a pipeline's stage: the input of its own forward */
        return own == 0 ? RP_NO_HANDLE : forward_unit(l, op, own - 1)->down_out;
    }
    rp_handle inside = l->saved[rp_lower_saved_index(l, op->iteration, position, op->microbatch)];
    if (inside != RP_NO_HANDLE || p->forward_count == 0) {
        return inside;
    }
    if (rp_producers_continues_forward(&p->stages[op->stage])) {
        return forward_unit(l, op, p->forward_count - 1)->down_out;
    }
    uint32_t begin = 0;
    uint32_t end = 0;
    rp_lower_layers(l, op->stage, true, &begin, &end);
    for (uint32_t s = 0; s < p->forward_count; s++) {
        uint32_t from = 0;
        uint32_t to = 0;
        rp_lower_layers(l, p->forward_chain[s], false, &from, &to);
        if (to == begin && from < to) {
            return forward_unit(l, op, s)->down_out;
        }
    }
    return RP_NO_HANDLE; /* the embedding's input is token ids */
}

/* Lets an op that uses a boundary tensor wait for its arrival. It also waits for a peer's SEND,
 * though the RECV has done so already: the tensor's buffer lives from the SEND on, and the check of
 * lives follows only short chains of waits (common/program/check_order.c). */
static rp_status take_boundary(rp_lowering *l, const rp_lower_unit *unit, rp_handle user,
                               rp_handle arrival, rp_handle sent)
{
    RP_TRY(data(l, arrival, sent));
    RP_TRY(data(l, user, arrival));
    return unit->received ? control(l, user, sent) : RP_OK;
}

static rp_status connect_forward(rp_lowering *l, const rp_lower_unit *unit)
{
    const rp_op *op = unit_op(l, unit);
    uint32_t position = l->producers.forward_position[op->stage];
    RP_TRY(rp_lower_connect_layers(l, unit));
    if (position != 0) {
        const rp_lower_unit *from = forward_unit(l, op, position - 1);
        if (unit->up_act == RP_NO_HANDLE) {
            return data(l, unit->compute_first, from->compute_last); /* same GPU */
        }
        return take_boundary(l, unit, unit->compute_first, unit->up_act, from->down_out);
    }
    return data(l, unit->compute_first, unit->up_act);
}

static rp_status connect_backward(rp_lowering *l, const rp_lower_unit *unit)
{
    const rp_op *op = unit_op(l, unit);
    uint32_t position = l->producers.backward_position[op->stage];
    RP_TRY(rp_lower_connect_layers(l, unit));
    if (l->offload && unit->part_count == 0) {
        RP_TRY(data(l, unit->up_act, rp_lower_saved_input(l, op, position)));
        RP_TRY(data(l, unit->compute_first, unit->up_act));
    }
    if (position != 0) {
        const rp_lower_unit *from = backward_unit(l, op, position - 1);
        bool wait = l->schedule->recompute == RP_RECOMPUTE_WAIT;
        rp_handle end = unit->part_count != 0    ? unit->parts[0].last
                        : unit->split_count != 0 ? unit->splits[0].last
                                                 : unit->compute_last;
        rp_handle user = wait ? unit->compute_first : end;
        return take_boundary(l, unit, user, unit->up_grad, from->down_out);
    }
    return RP_OK;
}

/* Lets downloads wait for the compute ops that produce their tensors. */
static rp_status connect_downloads(rp_lowering *l, const rp_lower_unit *unit)
{
    const rp_program *p = l->schedule;
    const rp_op *op = unit_op(l, unit);
    RP_TRY(data(l, unit->down_out, rp_lower_result(unit)));
    bool forward = l->producers.forward_position[op->stage] != RP_NO_OP;
    forward = forward && unit->part_count == 0;
    for (uint32_t j = 0; l->separate && forward && j < p->backward_count; j++) {
        if (rp_lower_begins_inside(l, p->backward_chain[j], op->stage)) {
            size_t index = rp_lower_saved_index(l, op->iteration, j, op->microbatch);
            RP_TRY(data(l, l->saved[index], unit->compute_last));
        }
    }
    return RP_OK;
}

/* ---- two inputs and two outputs in flight (executor.md 1.3) ---------------------------------- */

/* The second unit before `unit` that may have transfers, among the `before` units before it; NULL:
 * there is none.
 */
static const rp_lower_unit *second_before(const rp_lowering *l, const rp_lower_unit *unit,
                                          uint32_t before)
{
    uint32_t found = 0;
    for (uint32_t i = 1; i <= before; i++) {
        found += rp_lower_is_weight(l, unit - i) ? 0 : 1;
        if (found == 2) {
            return unit - i;
        }
    }
    return NULL;
}

static rp_status limit_flight(rp_lowering *l, const rp_lower_unit *unit, uint32_t before)
{
    const rp_lower_unit *earlier = second_before(l, unit, before);
    if (earlier == NULL) {
        return RP_OK;
    }
    rp_handle upload = unit->up_act != RP_NO_HANDLE ? unit->up_act : unit->up_grad;
    if (!unit->received) { /* the receiver of a SEND has room at any time */
        RP_TRY(control(l, upload, earlier->compute_last));
    }
    return control(l, unit->compute_first, earlier->down_last);
}

static rp_status connect_units(rp_lowering *l)
{
    for (uint32_t gpu = 0; gpu < l->schedule->gpu_count; gpu++) {
        uint32_t begin = 0;
        uint32_t end = 0;
        if (l->job_begin[gpu + 1] > l->job_begin[gpu]) {
            const rp_lower_job *last = &l->jobs[l->job_begin[gpu + 1] - 1];
            begin = l->jobs[l->job_begin[gpu]].first_unit;
            end = last->first_unit + last->unit_count;
        }
        rp_lower_flight flight = {RP_NO_HANDLE, RP_NO_HANDLE, RP_NO_HANDLE, RP_NO_HANDLE};
        rp_handle reduce = RP_NO_HANDLE; /* of the unit before: its group meets before the next */
        for (uint32_t i = begin; i < end; i++) {
            const rp_lower_unit *unit = &l->units[i];
            if (rp_lower_is_weight(l, unit)) {
                flight.compute = unit->compute_last;
                continue;
            }
            RP_TRY(control(l, unit->compute_first, reduce));
            reduce = unit->reduce != RP_NO_HANDLE ? unit->reduce : reduce;
            RP_TRY(l->jobs[unit->job].backward ? connect_backward(l, unit)
                                               : connect_forward(l, unit));
            RP_TRY(connect_downloads(l, unit));
            if (unit->part_count != 0 && l->offload) {
                RP_TRY(rp_lower_issue_layers(l, unit, &flight));
                continue;
            }
            RP_TRY(limit_flight(l, unit, i - begin));
            rp_lower_issue(unit, &flight);
        }
    }
    return RP_OK;
}

/* ---- jobs, calls and the host ---------------------------------------------------------------- */

/* @return whether a process steps by itself: it is the only process and steps synchronously. It
 * hands out no stage before all weights are refreshed, and collects nothing before all stages are
 * handed out. */
static bool steps_by_itself(const rp_lowering *l)
{
    return l->schedule->traits.one_dispatcher && !l->schedule->asynchronous;
}

/* Lets a job wait for the step before. Weights: the refresh of the previous step has reached the
 * stage's last layer. Gradient slots: the previous step has collected the stage's first layer,
 * which it collects last. */
static rp_status fence(rp_lowering *l, const rp_lower_job *job)
{
    if (job->iteration == 0) {
        return RP_OK;
    }
    uint32_t count = l->config->sizes.layers + 2;
    size_t row = (size_t)(job->iteration - 1u) * count;
    uint32_t begin = 0;
    uint32_t end = 0;
    rp_lower_layers(l, job->stage, job->backward, &begin, &end);
    if (end > begin) {
        uint32_t refreshed = steps_by_itself(l) ? count : end;
        RP_TRY(control(l, job->params_first, l->refresh[row + refreshed - 1]));
    }
    return job->backward && end > begin ? control(l, job->params_first, l->collect[row + begin])
                                        : RP_OK;
}

/* Lets a call begin when the loss of the previous call's last microbatch is on the host. Calls of
 * the same step may overlap instead, and so do the rounds of a call. */
static rp_status begin_call(rp_lowering *l, const rp_lower_job *job)
{
    const rp_program *p = l->schedule;
    bool first_job = p->forward_count == 0
                         ? l->producers.backward_position[job->stage] == 0
                         : !job->backward && l->producers.forward_position[job->stage] == 0;
    uint32_t rounds = l->config->call_rounds;
    bool overlaps =
        l->schedule->traits.overlapping_rounds || (rounds != 0 && job->call % rounds != 0);
    if (!first_job || (job->iteration == 0 && job->call == 0) || (job->call > 0 && overlaps)) {
        return RP_OK;
    }
    uint32_t iteration = job->call > 0 ? job->iteration : job->iteration - 1u;
    uint32_t call = job->call > 0 ? job->call - 1 : l->calls - 1;
    uint32_t position = l->separate ? p->forward_count : p->forward_count - 1;
    uint32_t head_job = l->job_of[rp_lower_job_index(l, iteration, call, position)];
    const rp_lower_job *head = &l->jobs[head_job];
    const rp_lower_unit *last = &l->units[head->first_unit + head->unit_count - 1];
    const rp_lower_unit *first = &l->units[job->first_unit];
    RP_TRY(control(l, job->params_first, last->forward));
    return control(l, first->up_act, last->forward);
}

static rp_status connect_job(rp_lowering *l, const rp_lower_job *job, uint32_t before)
{
    const rp_lower_unit *first = &l->units[job->first_unit];
    RP_TRY(data(l, first->compute_first, job->params_last));
    if (before >= 2) {
        const rp_lower_job *earlier = job - 2;
        const rp_lower_unit *last = &l->units[earlier->first_unit + earlier->unit_count - 1];
        RP_TRY(control(l, job->params_first, last->compute_last));
    }
    RP_TRY(fence(l, job));
    RP_TRY(begin_call(l, job));
    if (job->param_grads_up != RP_NO_HANDLE) {
        uint32_t position = l->schedule->forward_count + l->producers.backward_position[job->stage];
        const rp_lower_job *earlier =
            &l->jobs[l->job_of[rp_lower_job_index(l, job->iteration, job->call - 1, position)]];
        RP_TRY(data(l, job->param_grads_up, earlier->param_grads_down));
    }
    const rp_lower_unit *last = &l->units[job->first_unit + job->unit_count - 1];
    return data(l, job->param_grads_down, last->compute_last);
}

/* The refresh of an asynchronous step waits for every upload of the step: weights may be shared. */
static rp_status wait_for_uploads(rp_lowering *l, uint32_t iteration, rp_handle refresh)
{
    for (uint32_t k = 0; k < l->job_count; k++) {
        if (l->jobs[k].iteration == iteration) {
            RP_TRY(control(l, refresh, l->jobs[k].params_last));
        }
    }
    return RP_OK;
}

/* The first collection waits until the step's last backward stage is on its GPU. */
static rp_status wait_for_last_job(rp_lowering *l, uint32_t iteration)
{
    const rp_program *p = l->schedule;
    uint32_t count = l->config->sizes.layers + 2;
    uint32_t position = p->forward_count + p->backward_count - 1;
    uint32_t job = l->job_of[rp_lower_job_index(l, iteration, l->calls - 1, position)];
    return control(l, l->collect[(size_t)iteration * count + count - 1], l->jobs[job].params_first);
}

static rp_status connect_host(rp_lowering *l)
{
    const rp_program *p = l->schedule;
    uint32_t count = l->config->sizes.layers + 2;
    /* The last call has accumulated the gradients of the others; overlapping calls have a slot
     * each. */
    uint32_t first_call = l->schedule->traits.overlapping_rounds ? 0 : l->calls - 1;
    for (uint32_t i = 0; i < p->iteration_count; i++) {
        size_t row = (size_t)i * count;
        if (p->asynchronous) {
            RP_TRY(wait_for_uploads(l, i, l->refresh[row]));
        } else if (steps_by_itself(l)) {
            RP_TRY(wait_for_last_job(l, i));
        }
        for (uint32_t j = 0; j < p->backward_count; j++) {
            uint32_t begin = 0;
            uint32_t end = 0;
            rp_lower_layers(l, p->backward_chain[j], true, &begin, &end);
            for (uint32_t call = first_call; call < l->calls; call++) {
                uint32_t job = l->job_of[rp_lower_job_index(l, i, call, p->forward_count + j)];
                for (uint32_t layer = begin; layer < end; layer++) {
                    RP_TRY(data(l, l->collect[row + layer], l->jobs[job].param_grads_down));
                }
            }
        }
    }
    return RP_OK;
}

/* Resident weights: the step of an iteration comes after all its ops and before those of the next.
 */
static rp_status connect_barriers(rp_lowering *l)
{
    uint32_t count = l->config->sizes.layers + 2;
    for (uint32_t gpu = 0; gpu < l->schedule->gpu_count; gpu++) {
        for (uint32_t k = l->job_begin[gpu] + 1; k < l->job_begin[gpu + 1]; k++) {
            const rp_lower_unit *unit = &l->units[l->jobs[k].first_unit];
            if (l->jobs[k].iteration != l->jobs[k - 1].iteration) {
                rp_handle step = l->refresh[(size_t)l->jobs[k - 1].iteration * count];
                uint32_t iteration = l->jobs[k - 1].iteration;
                for (rp_lower_family f = RP_LOWER_DENSE; f < RP_LOWER_FAMILIES; f++) {
                    size_t index = rp_lower_family_index(l, iteration, gpu, f);
                    RP_TRY(control(l, step, l->updated[index]));
                    RP_TRY(control(l, unit->gather[f], step));
                }
                RP_TRY(control(l, unit->compute_first, step));
            }
        }
    }
    return RP_OK;
}

rp_status rp_lower_add_waits(rp_lowering *l)
{
    RP_TRY(connect_units(l));
    if (!l->offload) {
        return connect_barriers(l);
    }
    for (uint32_t gpu = 0; gpu < l->schedule->gpu_count; gpu++) {
        for (uint32_t k = l->job_begin[gpu]; k < l->job_begin[gpu + 1]; k++) {
            RP_TRY(connect_job(l, &l->jobs[k], k - l->job_begin[gpu]));
        }
    }
    return connect_host(l);
}
