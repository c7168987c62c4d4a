#include "tests/reference/slow_flows.h"

#include <math.h>

static int uses(const slow_flow *flow, int link)
{
    for (int i = 0; i < flow->link_count; i++) {
        if (flow->links[i] == link) {
            return 1;
        }
    }
    return 0;
}

/* The rate of each flow on `link` that has no rate yet, if these flows shared the rest of the
 * link's capacity; infinite if there is no such flow. */
static long double share(const double *capacities, const slow_flow *flows, int flow_count, int link)
{
    long double left = capacities[link];
    int open = 0;
    for (int i = 0; i < flow_count; i++) {
        if (flows[i].started && !flows[i].ended && uses(&flows[i], link)) {
            left -= flows[i].fixed ? flows[i].rate : 0;
            open += !flows[i].fixed;
        }
    }
    return open > 0 ? left / open : (long double)INFINITY;
}

void slow_flows_fill(const double *capacities, int link_count, slow_flow *flows, int flow_count)
{
    for (int i = 0; i < flow_count; i++) {
        flows[i].fixed = 0;
    }
    for (;;) {
        long double least = INFINITY;
        int bottleneck = -1;
        for (int link = 0; link < link_count; link++) {
            long double of_link = share(capacities, flows, flow_count, link);
            if (of_link < least) {
                least = of_link;
                bottleneck = link;
            }
        }
        if (bottleneck < 0) {
            return;
        }
        for (int i = 0; i < flow_count; i++) {
            slow_flow *flow = &flows[i];
            if (flow->started && !flow->ended && !flow->fixed && uses(flow, bottleneck)) {
                flow->rate = least;
                flow->fixed = 1;
            }
        }
    }
}

/* The time until the next start or end; INFINITY if there is none. */
static long double next_step(const slow_flow *flows, int flow_count, long double now)
{
    long double step = INFINITY;
    for (int i = 0; i < flow_count; i++) {
        if (!flows[i].started) {
            step = fminl(step, flows[i].start_s - now);
        } else if (!flows[i].ended) {
            step = fminl(step, flows[i].left / flows[i].rate);
        }
    }
    return step;
}

static void start_flows(slow_flow *flows, int flow_count, long double now)
{
    for (int i = 0; i < flow_count; i++) {
        slow_flow *flow = &flows[i];
        if (!flow->started && flow->start_s <= now) {
            flow->started = 1;
            flow->left = flow->bytes;
            flow->ended = flow->bytes == 0 || flow->link_count == 0;
            flow->end_s = flow->start_s;
        }
    }
}

static void serve_flows(slow_flow *flows, int flow_count, long double now, long double step)
{
    for (int i = 0; i < flow_count; i++) {
        slow_flow *flow = &flows[i];
        if (flow->started && !flow->ended) {
            flow->ended = flow->left / flow->rate <= step;
            flow->left -= flow->rate * step;
            flow->end_s = now + step;
        }
    }
}

void slow_flows_run(const double *capacities, int link_count, slow_flow *flows, int flow_count)
{
    for (int i = 0; i < flow_count; i++) {
        flows[i].started = 0;
        flows[i].ended = 0;
    }
    long double now = 0;
    for (;;) {
        start_flows(flows, flow_count, now);
        slow_flows_fill(capacities, link_count, flows, flow_count);
        long double step = next_step(flows, flow_count, now);
        if (isinf(step)) {
            return;
        }
        serve_flows(flows, flow_count, now, step);
        now += step;
    }
}
