/** @file explain.h  Why a run takes as long as it does: where every GPU-second goes, what the
 * critical path runs through, and how much a faster resource would help.
 *
 * **Attribution.** The *cause* of an op's start is defined in common/timeline/walk.h. Before a
 * GPU's first op that takes time it fills, after its last one it drains. Every gap between is
 * explained backwards from the op after it. The time that the cause itself ran, clipped to the gap,
 * is charged to what the cause is: an upload, a download, a transfer between GPUs, the host, or
 * another GPU's compute (dependency). What is left of the gap is explained by the cause's own
 * cause, and so on. A transfer that waits for its copy engine is charged as if it ran. A transfer
 * that a memory limit has held back (a control wait for an earlier op of its own GPU's compute: two
 * stages and two inputs per GPU at most) is charged to memory for as long as it could have run
 * before. What nothing in the program explains, where dispatch is modelled, is the host's: it had
 * not issued the op yet; so is the part of a compute op in which its GPU waited for the rest of its
 * launches. All of it is integers: the sum is GPUs times makespan.
 *
 * **Blame** sums the same gaps by the resource that was in use: whose compute, whose link. That is
 * what GPUs wait for directly; what limits them in the end, rpsim_explain_first_cause says.
 */
#pragma once

#include "common/base/reason.h"
#include "common/schedule/even.h"
#include "common/timeline/walk.h"
#include "sim/engine/hardware_engine.h"

/** X(enumerator, JSON key, words). Nothing else enumerates what GPU time goes to. */
#define RPSIM_SHARE_LIST(X)                                                                        \
    X(FORWARD, "forward", "forward")                                                               \
    X(BACKWARD, "backward", "backward")                                                            \
    X(RECOMPUTE, "recompute", "recompute")                                                         \
    X(UPDATE, "update", "optimizer step on the GPU")                                               \
    X(UPLOAD_PARAMS, "wait_upload_params", "waiting for parameter uploads")                        \
    X(UPLOAD_ACT, "wait_upload_act", "waiting for activation and gradient uploads")                \
    X(DOWNLOAD, "wait_download", "waiting for downloads")                                          \
    X(PEER, "wait_peer", "waiting for transfers between GPUs")                                     \
    X(HOST, "wait_host", "waiting for the host (optimizer, refresh, collect)")                     \
    X(DISPATCH, "wait_dispatch", "waiting for the host to dispatch (clone modules, launch)")       \
    X(DEPENDENCY, "wait_dependency", "waiting for another GPU's compute")                          \
    X(MEMORY, "wait_memory", "waiting for memory (two inputs and two stages per GPU)")             \
    X(FILL, "fill", "fill, before the GPU's first op")                                             \
    X(DRAIN, "drain", "drain, after the GPU's last op")

typedef enum rp_share {
#define RPSIM_SHARE_ENUM(name, key, words) RPSIM_SHARE_##name,
    RPSIM_SHARE_LIST(RPSIM_SHARE_ENUM)
#undef RPSIM_SHARE_ENUM
        RPSIM_SHARE_COUNT
} rp_share;

/** Kinds of resources; the first three are one per GPU. Those that ops use one at a time come
 * first: a timeline says when. Links that GPUs share come last: which of them limits a transfer no
 * timeline says, so time is never charged to them, only elasticities name them. */
typedef enum rpsim_resource_kind {
    RPSIM_RESOURCE_COMPUTE,
    RPSIM_RESOURCE_LINK_UP,   /**< host to GPU */
    RPSIM_RESOURCE_LINK_DOWN, /**< GPU to host */
    RPSIM_RESOURCE_HOST,
    RPSIM_RESOURCE_PEER,     /**< hops, peer transfers and collectives */
    RPSIM_RESOURCE_MEMORY,   /**< limits on what is in flight */
    RPSIM_RESOURCE_DISPATCH, /**< the host that clones modules and launches (dispatch.h) */
    RPSIM_RESOURCE_TIMED_COUNT,
    RPSIM_RESOURCE_BEFORE_SHARED = RPSIM_RESOURCE_TIMED_COUNT - 1,
#define RPSIM_RESOURCE_ENUM(name, key, one, all) RPSIM_RESOURCE_##name,
    RP_SHARED_LIST(RPSIM_RESOURCE_ENUM)
#undef RPSIM_RESOURCE_ENUM
        RPSIM_RESOURCE_KIND_COUNT
} rpsim_resource_kind;

/** @return true where GPUs share resources of the kind (RP_SHARED_LIST). */
static inline bool rpsim_resource_is_shared(rpsim_resource_kind kind)
{
    return kind >= RPSIM_RESOURCE_TIMED_COUNT && kind < RPSIM_RESOURCE_KIND_COUNT;
}

/** @return the resource kind of a shared link. */
static inline rpsim_resource_kind rpsim_resource_of_shared(rp_shared kind)
{
    return (rpsim_resource_kind)(RPSIM_RESOURCE_TIMED_COUNT + (int)kind);
}

/** @return the number of a resource of a machine with `gpus` GPUs: an index into arrays of
 * rpsim_resource_count; `gpu` is ignored for those that all GPUs share. Not for shared links. */
static inline uint32_t rpsim_resource(rpsim_resource_kind kind, uint32_t gpu, uint32_t gpus)
{
    uint32_t own = (uint32_t)RPSIM_RESOURCE_HOST;
    uint32_t row = (uint32_t)kind;
    return row < own ? row * gpus + gpu : own * gpus + row - own;
}

/** @return the number of resources of a machine with `gpus` GPUs, shared links apart. */
static inline uint32_t rpsim_resource_count(uint32_t gpus)
{
    return rpsim_resource(RPSIM_RESOURCE_TIMED_COUNT, 0, gpus);
}

/** A piece of the critical path; the next one begins where it ends. */
typedef struct rpsim_segment {
    uint32_t op;
    uint32_t resource; /**< that was in use */
    int64_t start_ps;
    int64_t end_ps;
    rp_delay reason;
} rpsim_segment;

/** Everything lives in the arena it was made in. */
typedef struct rpsim_explanation {
    uint32_t gpus;
    int64_t makespan_ps;
    int64_t share_ps[RPSIM_SHARE_COUNT];        /**< sums to gpus * makespan_ps */
    int64_t (*gpu_share_ps)[RPSIM_SHARE_COUNT]; /**< [gpu] each sums to makespan_ps */
    int64_t drain_sums_ps;   /**< of all drains, in which a collective of the GPU, or a sum over
                                  servers, is under way; 0 of asynchronous programs */
    int64_t *blame_ps;       /**< [resource] idle time between a GPU's ops */
    uint32_t segment_count;  /**< of the critical path */
    rpsim_segment *segments; /**< from 0 to makespan_ps, none empty */
    int64_t *path_ps;        /**< [resource] sums to makespan_ps */
    int64_t path_kind_ps[RP_OP_KIND_COUNT]; /**< ops of each kind on the path */
    int64_t path_hop_ps;                    /**< hops on it; with the kinds the makespan */
} rpsim_explanation;

/** A run to explain. */
typedef struct rpsim_explain_case {
    const rp_timeline *timeline;
    const rp_stage_times *times;      /**< stage fidelity, otherwise NULL */
    const rpsim_compute_costs *costs; /**< hardware fidelity, otherwise NULL */
    const rp_machine *machine;        /**< hardware fidelity, otherwise NULL */
    const double *factors;            /**< [op_count] of compute times, or NULL: none */
} rpsim_explain_case;

/**
 * Attribution and critical path. Time is linear in ops and waits, times the length of the chains of
 * causes within a gap.
 * @param c timeline made by the engine of its fidelity
 * @param arena owns what explanation_out points to
 * @retval RP_OK, RP_NO_MEMORY, RP_INPUT (GPU time above 106 days; logged), RP_BROKEN (the shares do
 * not sum to GPUs times makespan; logged)
 */
rp_status rpsim_explain(const rpsim_explain_case *c, rp_arena *arena,
                        rpsim_explanation *explanation_out, rp_reason *reason);

/**
 * Communication of a run at hardware fidelity.
 * @param total_ps_out the time that its transfers and collectives take, each by itself, waiting for
 *        copy engines not included
 * @param exposed_ps_out the time that GPUs wait for these, summed over GPUs: between their ops, by
 *        the attribution, and behind their last one drain_sums_ps. Fill and the rest of drain are
 *        not in it
 */
void rpsim_explain_communication(const rp_timeline *timeline, const rpsim_explanation *explanation,
                                 int64_t *total_ps_out, int64_t *exposed_ps_out);

/** @return the resource for which GPUs wait most between their ops (blame_ps), the lowest on ties;
 * UINT32_MAX where no GPU is ever idle between its ops. */
uint32_t rpsim_explain_most_blamed(const rpsim_explanation *explanation);

/** Most GPUs for which elasticities of single GPUs are worth their simulations; likewise for shared
 * links. */
#define RPSIM_MAX_SINGLE 64u

/**
 * Elasticities: by how many percent the step shortens per percent of speed of a resource, by
 * simulating the same program with it 1 % faster and 1 % slower. A step is the steady-state period
 * where it is known (RP_STEADY_ITERATIONS and more), otherwise the makespan. NaN: not modelled.
 */
typedef struct rpsim_sensitivity {
    double step_ps;
    double links;       /**< of all GPUs, both directions */
    double compute;     /**< all GPUs */
    double host;        /**< its memory: optimizer, refresh and collect */
    double dispatch;    /**< cloning of modules, where dispatch is modelled */
    double peer;        /**< hops at stage fidelity, otherwise collectives where there are any */
    double *link_of;    /**< [gpu]; NULL at stage fidelity and with many GPUs */
    double *compute_of; /**< [gpu]; NULL with many GPUs */
    double shared[RP_SHARED_COUNT];         /**< all links of a kind; NaN: there are none */
    uint32_t shared_count[RP_SHARED_COUNT]; /**< links of a kind */
    double *shared_of[RP_SHARED_COUNT];     /**< [number]; NULL: none or many */
} rpsim_sensitivity;

/**
 * Computes all elasticities with 4 (GPUs + 2) simulations, two more for each shared link and each
 * kind of them, less at stage fidelity; with more than
 * RPSIM_MAX_SINGLE GPUs those of single GPUs are left out.
 * @param arena owns what sensitivity_out points to
 * @retval RP_OK, RP_NO_MEMORY, or what a simulation returned
 */
rp_status rpsim_explain_sensitivity(const rpsim_explain_case *c, rp_arena *arena,
                                    rpsim_sensitivity *sensitivity_out, rp_reason *reason);

/** Factor over the average of all GPUs above which one of them is named alone. */
#define RPSIM_STANDS_OUT 1.1

/** Resource that limits the step first. */
typedef struct rpsim_first_cause {
    rpsim_resource_kind kind; /**< RPSIM_RESOURCE_KIND_COUNT: nothing that is modelled does */
    uint32_t gpu;             /**< whose it is, for compute and links; which one, if shared */
    bool stands_out;          /**< above RPSIM_STANDS_OUT times the average of all GPUs */
    double elasticity;        /**< of it alone */
    double group_elasticity;  /**< of all resources of the kind; links: both directions */
    uint32_t group_count;     /**< number of resources of the kind */
} rpsim_first_cause;

/**
 * The first cause: of GPU compute, links, host, hops and shared links the one with the largest
 * elasticity (ties in that order), and of these the GPU with the largest one (ties: the lowest GPU;
 * where single GPUs are left out, the one with most time on the critical path). The direction of a
 * link is the one with more time on the critical path, up on ties. A faster resource is what helps,
 * so this sees through chains: in a pipeline every GPU waits for its neighbour, but it is the
 * slowest GPU that all of them wait for.
 */
rpsim_first_cause rpsim_explain_first_cause(const rpsim_explanation *explanation,
                                            const rpsim_sensitivity *sensitivity);
