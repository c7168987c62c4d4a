/** @file bounds.h  Lower bounds on the makespan of a step: a limit that no schedule can beat, and
 * the part of it that is the schedule's own choice.
 *
 * A bound holds for a class of schedules (RPSIM_BOUND_CLASS_LIST). The bound of a class is the
 * largest of its terms, and a run's own bound is the largest of all terms, since the run is in
 * every class.
 *
 * **Times.** Layer times are those that the engine gave the run's own ops: its number formats, its
 * loss, its slices of sequences and, in data-parallel systems, the time lost to collectives. An op
 * takes the sum of its layers' times. (A recompute loses nothing to collectives; but RAMP, which
 * alone adds recompute at hardware fidelity, is for pipelines, and these have no collectives.) The
 * engine rounds each sum once. A layer's rounded time less the slack of 1 ps is at most its exact
 * time less 1/2, so n >= 1 of them add up to at most the rounded sum. An input part of a backward
 * is a difference of two rounded times and has twice the slack.
 *
 * **ANY**: any schedule of the same work: the same layers and microbatches on the same number of
 * GPUs, each op on a single GPU, the same amount of recompute. An op is a forward, recompute or
 * backward of one layer for one microbatch; if the run splits backwards, each part is an op. Any
 * cut into stages, any placement, any order.
 *  - WORK: the compute (with updates of resident weights) divided by the GPUs, rounded up; or the
 *    pigeonhole bound if it is larger: some GPU runs q + 1 of the q N + 1 longest ops, which take
 *    at least as long as the q + 1 shortest of them.
 *  - CHAIN: the ops of a microbatch that wait for each other, without hops, since all of them may
 *    be on the same GPU. Early recompute is not part of the chain. With early recompute the forward
 *    of RoundPipe's head stage has no edge from the last layer's forward (schedules.md 7), so the
 *    chain contains the longer of that forward and all forwards before it, for the number of layers
 *    in the head stage that makes this least.
 *
 * **SAME**: any schedule with the semantics of the run: a synchronous step; the same recompute
 * mode; every layer's weights are on a single GPU per round and direction (RoundPipe with R rounds;
 * a pipeline has R = 1 and both directions of a layer on the same GPU). Any partition, also with a
 * fused head stage, any placement and order.
 *  - RAMP: the work with the fill and the drain that no order avoids. Proof below.
 *  - LINKS: weights and gradients of all rounds over all host links. Hardware fidelity, offloaded
 *    weights. A layer goes up once per round and direction, a fused layer once per round.
 *  - HOST: the largest bound on the compute so far, then at least one layer's gradients into the
 *    master gradients, and the optimizer; in a synchronous step also the refresh of the working
 *    weights. Hardware fidelity, offloaded weights.
 *
 * **PLACED**: any order of the run's own ops on their GPUs, with the same edges.
 *  - OPS: the longest path through data edges; and for each GPU the sum of the earliest possible
 *    start of any of its ops, its work and the least time that must follow its last op.
 *  - TRANSFERS: the same for copy engines, host queues and links; a link moves its bytes at its
 *    whole capacity. Hardware fidelity.
 *  - MEMORY: a buffer of b bytes lives at least as long as t, the path from its first to its last
 *    op; the sum of b t over all buffers of a GPU is at most its memory times the makespan.
 *    Hardware fidelity, runs that fit.
 *
 * **Proof of RAMP.** A round's microbatches go through units in a fixed order: the forward of layer
 * 0, 1, ..., L - 1, the head, the backward of layer L - 1, ..., 0, each on a single GPU. Let c(g)
 * be the least number of changes of the GPU, over all rounds, before GPU g's first unit. In each
 * round at most c + 1 GPUs come up after c changes or fewer, so in all rounds at most R (c + 1)
 * GPUs do; sorted by c(g), GPU k (from 0) has c >= j = floor(k / R). c changes take at least c
 * units and c hops, so the GPU's first op cannot begin before head(k) = F(0) + ... + F(j - 1) + j
 * hops. By the same argument read backwards, tail(k) = B(0) + ... + B(j - 1) + j hops of backward
 * must follow GPU k's last op. With recompute that waits, these layers' recompute is added; if
 * backwards are split, tail(k) is 0, since a weight part may come last. If n GPUs work at all, each
 * of them idle for its head and its tail,
 *
 *     n T >= work + sum over k < n of (head(k) + tail(k)),
 *
 * and T is at least the least of this over n <= N. In pipelines both directions of a layer are on
 * the same GPU: c changes before its first forward are c changes after its last backward, so head
 * and tail belong to the same GPU, which has whole layers only. If u is the shortest layer's work,
 * the sum over k of floor((T - head(k) - tail(k)) / u) must be at least L. Three details:
 *  - A fused head stage (the last layers' forward inside the head's backward stage) recomputes
 *    nothing. For each number of fused layers the work is that of the ops that remain, but the
 *    stage's work for at least M / min(N, R) microbatches is on a single GPU. The bound is the
 *    least over all numbers.
 *  - Early recompute may begin before the unit's dependencies: a GPU that begins with the recompute
 *    of a backward stage, of length r, begins after F - r, F being the time of all forwards before
 *    it. If r <= F / 2 that is at least F / 2, so head(k) is cut at F / 2. At most one stage has a
 *    longer recompute, and its own work (recompute and backward of more than half of the forwards'
 *    time) is then on min(N, R) GPUs: the bound is the lesser of the two cases. If the head stage's
 *    own pre-work is more than F / 2, the R GPUs that run it count with head 0.
 *  - Stages without work change the GPU without a unit, which only adds hops.
 */
#pragma once

#include "common/base/reason.h"
#include "common/lower/lower.h"
#include "sim/engine/hardware_engine.h"
#include "sim/engine/stage_engine.h"
#include "sim/run/memory/memory.h"

/** X(enumerator, words): the schedules for which a bound holds. */
#define RPSIM_BOUND_CLASS_LIST(X)                                                                  \
    X(ANY, "any schedule of the same work")                                                        \
    X(SAME, "any schedule with the same semantics")                                                \
    X(PLACED, "any order of the same ops on the same GPUs")

typedef enum rpsim_bound_class {
#define RPSIM_BOUND_CLASS_ENUM(name, words) RPSIM_BOUND_CLASS_##name,
    RPSIM_BOUND_CLASS_LIST(RPSIM_BOUND_CLASS_ENUM)
#undef RPSIM_BOUND_CLASS_ENUM
        RPSIM_BOUND_CLASS_COUNT
} rpsim_bound_class;

/** X(enumerator, JSON key, class, words). This is the only list of the terms. */
#define RPSIM_BOUND_LIST(X)                                                                        \
    X(WORK, "work", ANY, "the compute, shared by all GPUs")                                        \
    X(CHAIN, "chain", ANY, "one microbatch from its first op to its last")                         \
    X(RAMP, "ramp", SAME, "the compute with the fill and drain that no order avoids")              \
    X(LINKS, "links", SAME, "weights and gradients over all host links")                           \
    X(HOST, "host", SAME, "the compute, then the optimizer on the host")                           \
    X(OPS, "ops", PLACED, "the longest path, or a GPU's ops and what must surround them")          \
    X(TRANSFERS, "transfers", PLACED, "what one engine, queue or link has to move")                \
    X(MEMORY, "memory", PLACED, "what is held, for how long, against what fits")

typedef enum rpsim_bound_term {
#define RPSIM_BOUND_ENUM(name, key, of_class, words) RPSIM_BOUND_##name,
    RPSIM_BOUND_LIST(RPSIM_BOUND_ENUM)
#undef RPSIM_BOUND_ENUM
        RPSIM_BOUND_COUNT
} rpsim_bound_term;

/** The bounds of a run. */
typedef struct rpsim_bounds {
    int64_t ps[RPSIM_BOUND_COUNT]; /**< 0: not known, or not modelled */
} rpsim_bounds;

/** @return the largest term of a class; on ties the first. */
rpsim_bound_term rpsim_bounds_term(const rpsim_bounds *bounds, rpsim_bound_class of_class);

/** @return the bound for a class, its largest term; 0 if none is known. */
int64_t rpsim_bounds_of_class(const rpsim_bounds *bounds, rpsim_bound_class of_class);

/** @return the run's own bound, the largest of all terms. */
int64_t rpsim_bounds_best(const rpsim_bounds *bounds);

/** Microbatches with the same layer times. */
typedef struct rpsim_bound_size {
    const rp_costs *costs; /**< hop_ps is not read */
    uint32_t microbatches;
} rpsim_bound_size;

/** The work of a run, apart from its schedule. */
typedef struct rpsim_bound_work {
    uint32_t gpus;
    const rpsim_bound_size *sizes;
    uint32_t size_count;
    int64_t busy_ps; /**< all compute of the run */
    int64_t hop_ps;  /**< least time of a boundary tensor from GPU to GPU */
    /** Error by which rounding may make a layer time too long, in ps: 0 at stage fidelity. */
    int64_t slack_ps;
    rp_recompute recompute;
    bool separate_backward;
    bool splits;           /**< some backwards are in two parts */
    double overlap_saving; /**< as in rp_costs if the run has overlapping pairs; otherwise 0 */
    uint32_t rounds; /**< R; 0: no RAMP, because R is unknown or every microbatch may be on its own
                        GPU */
    /** Offloaded weights at hardware fidelity; NULL: no LINKS, no HOST. */
    const rp_sizes *bytes;
    bool gradients_up;   /**< from the second round on, the accumulated gradients go up with the
                            weights */
    double upload_Bps;   /**< links of all GPUs together */
    double download_Bps; /**< links of all GPUs together */
    /** Rate of host ops on all nodes together, in bytes of their memory traffic per second. */
    double adam_Bps;
    double refresh_Bps;
    double collect_Bps;
    bool asynchronous;
} rpsim_bound_work;

/**
 * Computes the terms of the classes ANY and SAME. Time is proportional to layers * (layers + GPUs).
 * @param bounds_out the other terms are not touched
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpsim_bounds_of_work(const rpsim_bound_work *work, rpsim_bounds *bounds_out);

/**
 * Computes OPS of the class PLACED for one iteration at stage fidelity: a lower bound on the
 * makespan of any order of the same ops on the same GPUs with the same data edges and hops.
 * Programs with early recompute have no edge into their pre-work, and neither has the bound. Cost:
 * a pass over the placement, then time linear in stages for each distinct placement of a
 * microbatch.
 * @param producers the program's producers (rp_program_check_but_cycles, rp_producers_create)
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpsim_lower_bound(const rp_producers *producers, const rp_stage_times *times,
                            int64_t *bound_ps_out);

/**
 * Computes the terms of the class PLACED at hardware fidelity. Time is linear in ops, waits and
 * buffers.
 * @param program lowered, one step
 * @param limits NULL: no MEMORY, for example because the run does not fit
 * @param bounds_out the other terms are not touched
 * @retval RP_OK, RP_INPUT (as rp_machine_network), RP_NO_MEMORY
 */
rp_status rpsim_bounds_of_program(const rp_program *program, const rpsim_compute_costs *costs,
                                  const rp_machine *machine, const rpsim_memory_limits *limits,
                                  rpsim_bounds *bounds_out, rp_reason *reason);
