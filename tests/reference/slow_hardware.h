/* A deliberately slow and obvious simulation of ops on hardware: streams, copy engines, latency and
 * links shared max-min fairly. After every step all ops are looked at and all rates are filled from
 * zero (slow_flows.h). It is the oracle of tests/sim/engine/hardware_reference.c and shares no code
 * with sim/. The rules are those of sim/engine/hardware_engine.h and
 * common/machine/network/network.h:
 *
 *  - An op begins when the one before it in its queue and all it waits for have ended, the gap
 *    after the former and the wake after the latter.
 *  - One that needs a copy engine asks for it then and gets it first come, first served; after the
 *    latency it flows. It keeps the engine until it has ended.
 *  - A flow ends at the picosecond nearest to the end that its rate implies.
 *  - At one instant: timed events by the order in which they were set, then ends of flows by the
 *    order of their starts. An end passes the copy engine on, then starts its queue's next op, then
 *    what waits for it by number. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#define SLOW_NO_ENGINE (-1)
#define SLOW_MAX_ENGINES 64

typedef enum slow_op_state {
    SLOW_IDLE,
    SLOW_LATE,    /* all has ended; starting takes its time */
    SLOW_ASKED,   /* waits for its copy engine */
    SLOW_LATENT,  /* has it; its latency runs */
    SLOW_BUSY,    /* computes */
    SLOW_FLOWING, /* on its links */
    SLOW_ARRIVED, /* has flowed; its end is to be dealt with */
    SLOW_ENDED,
} slow_op_state;

typedef struct slow_hardware_op {
    int queue; /* ops are sorted by queue, numbered from 0 */
    int engine;
    int64_t compute_ps; /* negative: it flows */
    double bytes;
    int links[16];
    int link_count;
    const int *waits; /* numbers of ops */
    int wait_count;
    /* Results and state */
    int64_t start_ps, end_ps;
    slow_op_state state;
    int64_t due_ps;    /* of a timed event */
    int64_t order;     /* of the event, the start of the flow, or the request */
    long double left;  /* bytes */
    long double speed; /* bytes per picosecond */
} slow_hardware_op;

typedef struct slow_hardware {
    slow_hardware_op *ops;
    int op_count;
    int64_t latency_ps; /* of every copy */
    int64_t gap_ps;     /* from the end of an op to the next one of its queue */
    int64_t wake_ps;    /* and to what waits for it */
    const double *capacities_Bps;
    int link_count;
    /* State */
    int64_t now_ps, events;
    bool engine_taken[SLOW_MAX_ENGINES];
} slow_hardware;

/* Sets start_ps and end_ps of all ops. Returns how many have ended: all, or there is a deadlock. */
int slow_hardware_run(slow_hardware *hardware);
