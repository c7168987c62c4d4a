/* Benchmark: events of the link model (common/machine/network/network.h) with 64, 512 and 4096
 * concurrent flows on 64 routes of a server with 8 GPUs below two PCIe switches.
 *
 * Usage: bench_network [REPETITIONS [EVENTS]] > network.csv
 * In an event a flow ends and another flow, of another size and on another route, starts in its
 * place, so that the rates of all 64 routes change. Columns: flows, median and least nanoseconds of
 * CPU time (the machine may be busy) per event over the repetitions, and the ratio of the median to
 * the median for 64 flows. Each repetition makes a fresh network, and the sizes take turns. The
 * first repetition is a warm-up, as are the first events of each repetition. */
#include "common/machine/network/network.h"
#include "common/base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define GPUS 8u
#define ROUTES 64u
#define LINKS (2 * GPUS + 4 + 2)
#define MAX_REPETITIONS 101
#define SIZES 3u

static uint64_t random_state;

static uint64_t next_random(void) /* xorshift64* */
{
    random_state ^= random_state >> 12;
    random_state ^= random_state << 25;
    random_state ^= random_state >> 27;
    return random_state * UINT64_C(2685821657736338717) >> 16;
}

static double cpu_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void require(rp_status status)
{
    if (status != RP_OK) {
        fprintf(stderr, "bench: %s\n", rp_status_text(status));
        exit(1);
    }
}

/* GPU g: up 2 g, down 2 g + 1. Switch s: up 16 + 2 s, down 17 + 2 s. Memory: in 20, out 21. Routes:
 * all 56 ordered pairs of GPUs, and from memory to each GPU. */
static void make_route(rp_network *network, uint32_t from, uint32_t to)
{
    uint32_t links[4];
    uint32_t count = 0;
    uint32_t switches = 2 * GPUS;
    if (from < GPUS) {
        links[count++] = 2 * from;
        if (from / 4 != to / 4) {
            links[count++] = switches + 2 * (from / 4);
        }
    } else {
        links[count++] = switches + 5;
    }
    if (from == GPUS || from / 4 != to / 4) {
        links[count++] = switches + 2 * (to / 4) + 1;
    }
    links[count++] = 2 * to + 1;
    uint32_t route;
    require(rp_network_route(network, links, count, &route));
}

static rp_network *make_server(void)
{
    double capacities[LINKS];
    for (uint32_t i = 0; i < LINKS; i++) {
        capacities[i] = i < 2 * GPUS + 4 ? 25e9 + 1e8 * i : 90e9;
    }
    rp_network *network = NULL;
    require(rp_network_create(capacities, LINKS, RP_PICOSECONDS, &network, NULL));
    for (uint32_t from = 0; from <= GPUS; from++) {
        for (uint32_t to = 0; to < GPUS; to++) {
            if (from != to) {
                make_route(network, from, to);
            }
        }
    }
    return network;
}

static void start_flow(rp_network *network, uint32_t route, int64_t now_ps)
{
    double bytes = 1e6 + (double)(next_random() % 64000000);
    require(rp_network_start(network, route, bytes, now_ps, 0));
}

static void pass_events(rp_network *network, uint64_t events)
{
    for (uint64_t i = 0; i < events; i++) {
        rp_completion done;
        if (!rp_network_pop(network, rp_network_next(network), &done)) {
            require(RP_BROKEN);
        }
        start_flow(network, (uint32_t)(next_random() % ROUTES), done.time_ticks);
    }
}

static double run_once(uint32_t flows, uint64_t events)
{
    random_state = 20261122;
    rp_network *network = make_server();
    for (uint32_t i = 0; i < flows; i++) {
        start_flow(network, i % ROUTES, 0);
    }
    pass_events(network, events / 10);
    double begin_s = cpu_s();
    pass_events(network, events);
    double took_s = cpu_s() - begin_s;
    rp_network_destroy(network);
    return 1e9 * took_s / (double)events;
}

static int compare_doubles(const void *a, const void *b)
{
    double left = *(const double *)a;
    double right = *(const double *)b;
    return (left > right) - (left < right);
}

int main(int argc, char **argv)
{
    int repetitions = argc > 1 ? atoi(argv[1]) : 7;
    int events = argc > 2 ? atoi(argv[2]) : 200000;
    if (repetitions < 1 || repetitions > MAX_REPETITIONS || events < 10) {
        fprintf(stderr, "bench: valid repetitions are 1 to %d, events from 10\n", MAX_REPETITIONS);
        return 2;
    }
    static const uint32_t sizes[SIZES] = {64, 512, 4096};
    static double ns[SIZES][MAX_REPETITIONS];
    for (int k = -1; k < repetitions; k++) { /* the first repetition is the warm-up */
        for (size_t i = 0; i < SIZES; i++) {
            ns[i][k < 0 ? 0 : k] = run_once(sizes[i], (uint64_t)events);
        }
    }
    double first_ns = 0;
    puts("flows,routes,events,repetitions,median_ns_per_event,min_ns_per_event,vs_64_flows");
    for (size_t i = 0; i < SIZES; i++) {
        qsort(ns[i], (size_t)repetitions, sizeof ns[i][0], compare_doubles);
        double median = ns[i][repetitions / 2];
        first_ns = i == 0 ? median : first_ns;
        printf("%" PRIu32 ",%u,%d,%d,%.1f,%.1f,%.3f\n", sizes[i], ROUTES, events, repetitions,
               median, ns[i][0], median / first_ns);
    }
    return 0;
}
