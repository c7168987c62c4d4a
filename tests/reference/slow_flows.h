/* A deliberately slow and obvious solution of flows that share links max-min fairly: after every
 * start and every end, all rates of all flows are filled from zero. It is the oracle of
 * tests/common/machine/network.c and shares no code with sim/. Time is in long double seconds. */
#pragma once

typedef struct slow_flow {
    double bytes, start_s;
    const int *links; /* each at most once */
    int link_count;
    /* Results and state */
    long double end_s;
    long double left; /* bytes */
    long double rate; /* bytes per second */
    int started, ended, fixed;
} slow_flow;

/* Sets the rate of every flow that has started and not ended. */
void slow_flows_fill(const double *capacities_Bps, int link_count, slow_flow *flows,
                     int flow_count);

/* Sets end_s of every flow. bytes >= 0; a flow of 0 bytes or without links ends at its start. */
void slow_flows_run(const double *capacities_Bps, int link_count, slow_flow *flows, int flow_count);
