#include "tests/reference/slow_hardware.h"

#include "tests/reference/slow_flows.h"

#include <math.h>
#include <stdlib.h>

#define MAX_FLOWS 256

static void flow(slow_hardware *h, slow_hardware_op *op)
{
    bool nothing = op->bytes == 0 || op->link_count == 0;
    op->state = nothing ? SLOW_ARRIVED : SLOW_FLOWING;
    op->left = op->bytes;
    op->order = h->events++;
}

static void take_time(slow_hardware *h, slow_hardware_op *op, slow_op_state state, int64_t ps)
{
    op->state = state;
    op->due_ps = h->now_ps + ps;
    op->order = h->events++;
}

static void take_engine(slow_hardware *h, slow_hardware_op *op)
{
    h->engine_taken[op->engine] = true;
    op->start_ps = h->now_ps;
    if (h->latency_ps > 0) {
        take_time(h, op, SLOW_LATENT, h->latency_ps);
    } else {
        flow(h, op);
    }
}

static bool may_start(const slow_hardware *h, int number)
{
    const slow_hardware_op *op = &h->ops[number];
    if (op->state != SLOW_IDLE) {
        return false;
    }
    if (number > 0 && op[-1].queue == op->queue && op[-1].state != SLOW_ENDED) {
        return false;
    }
    for (int w = 0; w < op->wait_count; w++) {
        if (h->ops[op->waits[w]].state != SLOW_ENDED) {
            return false;
        }
    }
    return true;
}

/* The time at which the previous op of the queue and all ops for which this op waits have ended and
 * been noticed. */
static int64_t noticed_ps(const slow_hardware *h, int number)
{
    const slow_hardware_op *op = &h->ops[number];
    bool first = number == 0 || op[-1].queue != op->queue;
    int64_t ps = first ? 0 : op[-1].end_ps + h->gap_ps;
    for (int w = 0; w < op->wait_count; w++) {
        int64_t after_ps = h->ops[op->waits[w]].end_ps + h->wake_ps;
        ps = after_ps > ps ? after_ps : ps;
    }
    return ps;
}

static void begin(slow_hardware *h, slow_hardware_op *op)
{
    op->start_ps = h->now_ps;
    if (op->compute_ps >= 0) {
        take_time(h, op, SLOW_BUSY, op->compute_ps);
    } else if (op->engine == SLOW_NO_ENGINE) {
        flow(h, op);
    } else if (!h->engine_taken[op->engine]) {
        take_engine(h, op);
    } else {
        op->state = SLOW_ASKED;
        op->order = h->events++;
    }
}

static void start(slow_hardware *h, int number)
{
    if (!may_start(h, number)) {
        return;
    }
    int64_t ps = noticed_ps(h, number);
    if (ps > h->now_ps) {
        take_time(h, &h->ops[number], SLOW_LATE, ps - h->now_ps);
    } else {
        begin(h, &h->ops[number]);
    }
}

static bool is_timed(slow_op_state state)
{
    return state == SLOW_BUSY || state == SLOW_LATENT || state == SLOW_LATE;
}

/* @return the first op in `state` by its order, among timed ops only if it is due now; -1: none */
static int first_in(const slow_hardware *h, slow_op_state state, int engine)
{
    int first = -1;
    for (int i = 0; i < h->op_count; i++) {
        const slow_hardware_op *op = &h->ops[i];
        if (op->state == state && (engine == SLOW_NO_ENGINE || op->engine == engine) &&
            (!is_timed(state) || op->due_ps == h->now_ps) &&
            (first < 0 || op->order < h->ops[first].order)) {
            first = i;
        }
    }
    return first;
}

static void end(slow_hardware *h, int number)
{
    slow_hardware_op *op = &h->ops[number];
    op->state = SLOW_ENDED;
    op->end_ps = h->now_ps;
    if (op->engine != SLOW_NO_ENGINE) {
        h->engine_taken[op->engine] = false;
        int next = first_in(h, SLOW_ASKED, op->engine);
        if (next >= 0) {
            take_engine(h, &h->ops[next]);
        }
    }
    if (number + 1 < h->op_count && h->ops[number + 1].queue == op->queue) {
        start(h, number + 1);
    }
    for (int i = 0; i < h->op_count; i++) {
        for (int w = 0; w < h->ops[i].wait_count; w++) {
            if (h->ops[i].waits[w] == number) {
                start(h, i);
            }
        }
    }
}

static void set_speeds(slow_hardware *h)
{
    slow_flow flows[MAX_FLOWS] = {0};
    int numbers[MAX_FLOWS];
    int count = 0;
    for (int i = 0; i < h->op_count; i++) {
        if (h->ops[i].state == SLOW_FLOWING) {
            if (count == MAX_FLOWS) {
                abort();
            }
            flows[count] = (slow_flow){
                .links = h->ops[i].links, .link_count = h->ops[i].link_count, .started = 1};
            numbers[count++] = i;
        }
    }
    slow_flows_fill(h->capacities_Bps, h->link_count, flows, count);
    for (int i = 0; i < count; i++) {
        h->ops[numbers[i]].speed = flows[i].rate / 1e12L;
    }
}

static int64_t arrival_ps(const slow_hardware *h, const slow_hardware_op *op)
{
    return h->now_ps + (int64_t)floorl(op->left / op->speed + 0.5L);
}

/* Lets all flows arrive whose end is now. */
static void let_arrive(slow_hardware *h)
{
    set_speeds(h);
    for (int i = 0; i < h->op_count; i++) {
        slow_hardware_op *op = &h->ops[i];
        if (op->state == SLOW_FLOWING && arrival_ps(h, op) <= h->now_ps) {
            op->state = SLOW_ARRIVED;
        }
    }
}

/* Deals with a single event of this instant. @return false if there was none */
static bool step(slow_hardware *h)
{
    const slow_op_state timed[] = {SLOW_BUSY, SLOW_LATENT, SLOW_LATE};
    int number = -1;
    for (int i = 0; i < 3; i++) {
        int other = first_in(h, timed[i], SLOW_NO_ENGINE);
        bool earlier = number < 0 || (other >= 0 && h->ops[other].order < h->ops[number].order);
        number = other >= 0 && earlier ? other : number;
    }
    number = number >= 0 ? number : first_in(h, SLOW_ARRIVED, SLOW_NO_ENGINE);
    if (number < 0) {
        return false;
    }
    switch ((int)h->ops[number].state) {
    case SLOW_LATENT:
        flow(h, &h->ops[number]);
        break;
    case SLOW_LATE:
        begin(h, &h->ops[number]);
        break;
    default:
        end(h, number);
        break;
    }
    return true;
}

/* Moves the clock to the next event. @return false if there is none */
static bool pass_time(slow_hardware *h)
{
    int64_t next_ps = INT64_MAX;
    for (int i = 0; i < h->op_count; i++) {
        const slow_hardware_op *op = &h->ops[i];
        int64_t ps = INT64_MAX;
        if (is_timed(op->state)) {
            ps = op->due_ps;
        } else if (op->state == SLOW_FLOWING) {
            ps = arrival_ps(h, op);
        }
        next_ps = ps < next_ps ? ps : next_ps;
    }
    if (next_ps == INT64_MAX) {
        return false;
    }
    for (int i = 0; i < h->op_count; i++) {
        if (h->ops[i].state == SLOW_FLOWING) {
            bool arrives = arrival_ps(h, &h->ops[i]) == next_ps;
            h->ops[i].left -= h->ops[i].speed * (long double)(next_ps - h->now_ps);
            h->ops[i].state = arrives ? SLOW_ARRIVED : SLOW_FLOWING;
        }
    }
    h->now_ps = next_ps;
    return true;
}

int slow_hardware_run(slow_hardware *h)
{
    for (int i = 0; i < h->op_count; i++) {
        start(h, i);
    }
    do {
        do {
            let_arrive(h);
        } while (step(h));
    } while (pass_time(h));
    int ended = 0;
    for (int i = 0; i < h->op_count; i++) {
        ended += h->ops[i].state == SLOW_ENDED ? 1 : 0;
    }
    return ended;
}
