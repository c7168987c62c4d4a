/** @file calibrate.h  Rates of links and memory, and times of starting an op, measured on a run's
 * own backend and devices (trial.h), before or after the run itself.
 *
 * **Links.** Every piece size is copied a few times in a row, the first time not counting: up and
 * down of each GPU alone, of each GPU in both directions at once, of all GPUs at once in one
 * direction and in both, and from each GPU to the next if GPUs reach each other. Sizes grow
 * fourfold from 64 KiB up to 256 MiB, as long as memory and the time for it (some 2 s) last. A line
 * is fitted over the sizes: time = overhead + bytes / rate.
 *
 * **Starting.** Ops that move and compute nothing follow each other in one queue, or wait for each
 * other from queue to queue there and back; on GPUs all of them are enqueued before the first
 * begins, on the host each lasts until the thread that waits for it is asleep.
 *
 * **Memory.** All GPUs at once perform the work of UPDATE, a sum of squares, Adam and zeroed
 * gradients, several times, the first time not counting. Each works on the values of its share of
 * the model, at most the larger of 2^24 / GPUs and 2^22. The rate is RP_GPU_ADAM_BYTES for each
 * value over the median time, as rpsim counts. A run's own UPDATEs are a poorer measure: they wait
 * for each other, and not every run has them.
 *
 * **Network.** Processes of a run sum arrays of 16 KiB to 16 MiB, several times each, without a
 * limit, and again with the limit of the run. A line is fitted over the sizes: time = overhead +
 * bytes that leave a process / rate.
 */
#pragma once

#include "exec/measure/trial.h"
#include "exec/processes/processes.h"

#include <stdio.h>

/** X(enumerator, name in links.csv). */
#define RPEXEC_WAY_LIST(X)                                                                         \
    X(UP, "up")                                                                                    \
    X(DOWN, "down")                                                                                \
    X(PEER, "peer")

typedef enum rpexec_way {
#define RPEXEC_WAY_ENUM(name, text) RPEXEC_WAY_##name,
    RPEXEC_WAY_LIST(RPEXEC_WAY_ENUM)
#undef RPEXEC_WAY_ENUM
        RPEXEC_WAY_COUNT
} rpexec_way;

/** X(enumerator, name in links.csv): other copies at the same time. */
#define RPEXEC_BESIDE_LIST(X)                                                                      \
    X(NOTHING, "alone")                                                                            \
    X(BACK, "both")                                                                                \
    X(ALL, "all")                                                                                  \
    X(ALL_BACK, "all-both")

typedef enum rpexec_beside {
#define RPEXEC_BESIDE_ENUM(name, text) RPEXEC_BESIDE_##name,
    RPEXEC_BESIDE_LIST(RPEXEC_BESIDE_ENUM)
#undef RPEXEC_BESIDE_ENUM
        RPEXEC_BESIDE_COUNT
} rpexec_beside;

/** A row of links.csv. */
typedef struct rpexec_link_row {
    rpexec_way way;
    rpexec_beside beside;
    uint32_t gpu; /**< of a transfer between GPUs the sender; the next GPU receives */
    uint32_t repetitions;
    uint64_t bytes;
    double median_s; /**< seconds of a copy */
    double least_s;  /**< seconds of the shortest copy; not in links.csv */
} rpexec_link_row;

/** A straight line through medians. */
typedef struct rpexec_link_fit {
    double Bps;        /**< 0: not measured */
    double overhead_s; /**< seconds for each copy beside its bytes, at least 0 */
} rpexec_link_fit;

typedef struct rpexec_link_rates {
    rpexec_link_row *rows;
    uint32_t row_count;
    /** Rates of a single GPU; the median if GPUs differ. */
    rpexec_link_fit fits[RPEXEC_WAY_COUNT][RPEXEC_BESIDE_COUNT];
} rpexec_link_rates;

/** Seconds from the end of an op to the start of the next op; 0: not measured. */
typedef struct rpexec_starts {
    uint32_t gap_count; /**< samples */
    double gap_s;       /**< median in the same queue; the other times are medians, too */
    uint32_t wake_count;
    double wake_s; /**< from a queue to another queue of the same GPU */
    uint32_t far_count;
    double far_s;    /**< to a queue of another GPU */
    double submit_s; /**< between ops that the host has enqueued one after the other; not measured
                          on the host, which begins each op when the op before has ended */
} rpexec_starts;

/**
 * Fits the line of least relative deviations that begins in [0, most_overhead_s]. It minimises the
 * sum of the deviations, not of their squares, so that an outlier counts only by its distance.
 * @param count at least 1; with a single point the line goes through it and 0
 * @param bytes positive, @param seconds positive
 * @param most_overhead_s at least 0; INFINITY where no bound is known
 */
rpexec_link_fit rpexec_link_fit_of(uint32_t count, const double *bytes, const double *seconds,
                                   double most_overhead_s);

/**
 * Measures links.
 * @param peers whether GPUs copy to each other
 * @param rates_out in `arena`
 * @retval RP_OK, RP_NO_MEMORY, RP_TOOL, RP_BROKEN (a copy has failed; logged)
 */
rp_status rpexec_calibrate_links(const rpexec_site *site, bool peers, rp_arena *arena,
                                 rpexec_link_rates *rates_out);

/**
 * Measures the memory of GPUs that all work at once.
 * @param arena for the time of the call
 * @param Bps_out of each GPU; 0: there is not enough memory to measure
 * @retval as above
 */
rp_status rpexec_calibrate_memory(const rpexec_site *site, rp_arena *arena, double *Bps_out);

/** Measures the times of starting an op. @retval as above */
rp_status rpexec_calibrate_starts(const rpexec_site *site, rp_arena *arena,
                                  rpexec_starts *starts_out);

/**
 * Measures sums over the processes of a run, all of which call it: the unlimited rate at which
 * bytes leave each process, and the overhead of a sum beside its bytes. With --network-gb-per-s the
 * overhead is measured on the limited network: while the last bytes of the network card are on
 * their way to the threads that wait for them, the card has nothing to send.
 * @param processes NULL: there is a single process, and nothing is measured
 * @param arena for the time of the call
 * @retval RP_OK, RP_NO_MEMORY, RP_BROKEN (a process is gone)
 */
rp_status rpexec_calibrate_network(rpexec_processes *processes, rp_arena *arena,
                                   rpexec_link_fit *fit_out);

/**
 * Gets the times of starting from a run's own compute ops, with all other ops of the run at work:
 * from the last end that each of them waited for.
 * @param skip iterations at the beginning that do not count
 * @param arena for the time of the call
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpexec_starts_of_run(const rpexec_plan *plan, const rp_timeline *timeline, uint32_t skip,
                               rp_arena *arena, rpexec_starts *starts_out);

/** Writes links.csv: way, beside, gpu, bytes, repetitions, median_us, gb_per_s. */
void rpexec_links_write(const rpexec_link_rates *rates, FILE *stream);

/** Writes starts.csv, whose second column tells times of separate measurements (idle) from times in
 * the run (run); samples and median_us follow. */
void rpexec_starts_write(const rpexec_starts *idle, const rpexec_starts *run, FILE *stream);
