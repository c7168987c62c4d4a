/* A deliberately slow and obvious simulation of ops on hardware: streams, copy engines, latency
 * and links shared max-min fairly. After every step it looks at all ops and fills all rates from
 * zero (slow_flows.h). It is the oracle of tests/sim/engine/hardware_reference.c and shares no code
 * with sim/. The rules are those of sim/engine/hardware_engine.h and
 * common/machine/network/network.h:
 *
 *  - An op begins a gap after the end of the previous op of its queue, and a wake after the end of
 *    each op for which it waits.
 *  - An op that needs a copy engine asks for it then; engines are given first come, first served.
 *    After the latency the op flows, and it keeps the engine until it has ended.
 *  - A flow ends at the picosecond nearest to the end that its rate implies.
 *  - At the same instant, timed events come first, in the order in which they were set, then ends
 *    of flows in the order of their starts. An end passes the copy engine on, then starts its
 *    queue's next op, then the ops that wait for it, by number. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define SLOW_NO_ENGINE (-1)
#define SLOW_MAX_ENGINES 64

typedef enum slow_op_state {
    SLOW_IDLE,
    SLOW_LATE,    /* all ops before it have ended; starting takes time */
    SLOW_ASKED,   /* waits for its copy engine */
    SLOW_LATENT,  /* has its copy engine; its latency runs */
    SLOW_BUSY,    /* computes */
    SLOW_FLOWING, /* flows on its links */
    SLOW_ARRIVED, /* has flowed; its end is still to be handled */
    SLOW_ENDED,
} slow_op_state;

typedef struct slow_hardware_op {
    int queue; /* ops are sorted by queue, numbered from 0 */
    int engine;
    int64_t compute_ps; /* negative: the op is a copy and flows */
    double bytes;
    int links[16];
    int link_count;
    const int *waits; /* numbers of ops */
    int wait_count;
    /* Results and state */
    int64_t start_ps, end_ps;
    slow_op_state state;
    int64_t due_ps;    /* time of a timed event */
    int64_t order;     /* place in the order of events, of starts of flows, or of requests */
    long double left;  /* bytes */
    long double speed; /* bytes per picosecond */
} slow_hardware_op;

typedef struct slow_hardware {
    slow_hardware_op *ops;
    int op_count;
    int64_t latency_ps; /* latency of every copy */
    int64_t gap_ps;     /* from the end of an op to the start of the next op of its queue */
    int64_t wake_ps;    /* from the end of an op to the start of an op that waits for it */
    const double *capacities_Bps;
    int link_count;
    /* State */
    int64_t now_ps, events;
    bool engine_taken[SLOW_MAX_ENGINES];
} slow_hardware;

/* Sets start_ps and end_ps of all ops. @return the number of ops that have ended; fewer than all: a
 * deadlock */
int slow_hardware_run(slow_hardware *hardware);
