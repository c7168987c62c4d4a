/** @file explain.h  Why a run takes as long as it does: the use of every GPU-second, the critical
 * path, and the gain from a faster resource.
 *
 * **Attribution.** The *cause* of an op's start is defined in common/timeline/walk.h. A GPU fills
 * before its first op that takes time, and drains after its last such op. Every gap between is
 * explained backwards from the op after it. The time that the cause itself ran, clipped to the gap,
 * is charged to the kind of the cause: an upload, a download, a transfer between GPUs, the host, or
 * another GPU's compute (dependency). The rest of the gap is explained by the cause's own cause,
 * and so on. A transfer that waits for its copy engine is charged as if it ran. A transfer that a
 * memory limit has held back (a control wait for an earlier op of its own GPU's compute: two stages
 * and two inputs per GPU at most) is charged to memory for the time by which it could have started
 * earlier. If dispatch is modelled, time that nothing in the program explains is charged to the
 * host, which had not issued the op yet; so is the part of a compute op in which its GPU waited for
 * the rest of its launches. All times are integers, and their sum is GPUs times makespan.
 *
 * **Blame** sums the same gaps by the resource that was in use: which GPU's compute, which link.
 * Blame names the resource that GPUs wait for directly; rpsim_explain_first_cause names the
 * resource that limits them in the end.
 */
#pragma once

#include "common/base/reason.h"
#include "common/schedule/even.h"
#include "common/timeline/walk.h"
#include "sim/engine/hardware_engine.h"

/** X(enumerator, JSON key, words). This is the only list of the uses of GPU time. */
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

/** Kinds of resources; each GPU has its own resource of the first three kinds. First come the
 * resources that ops use in turn, as a timeline shows. Last come the links that GPUs share: a
 * timeline does not show which of them limits a transfer, so time is never charged to them, and
 * only elasticities name them. */
typedef enum rpsim_resource_kind {
    RPSIM_RESOURCE_COMPUTE,
    RPSIM_RESOURCE_LINK_UP,   /**< host to GPU */
    RPSIM_RESOURCE_LINK_DOWN, /**< GPU to host */
    RPSIM_RESOURCE_HOST,
    RPSIM_RESOURCE_PEER,     /**< hops, peer transfers and collectives */
    RPSIM_RESOURCE_MEMORY,   /**< limits on the stages and inputs in flight */
    RPSIM_RESOURCE_DISPATCH, /**< the host that clones modules and launches (dispatch.h) */
    RPSIM_RESOURCE_TIMED_COUNT,
    RPSIM_RESOURCE_BEFORE_SHARED = RPSIM_RESOURCE_TIMED_COUNT - 1,
#define RPSIM_RESOURCE_ENUM(name, key, one, all) RPSIM_RESOURCE_##name,
    RP_SHARED_LIST(RPSIM_RESOURCE_ENUM)
#undef RPSIM_RESOURCE_ENUM
        RPSIM_RESOURCE_KIND_COUNT
} rpsim_resource_kind;

/** @return true if GPUs share resources of the kind (RP_SHARED_LIST). */
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
 * rpsim_resource_count; `gpu` is ignored for a resource that all GPUs share. Must not be called for
 * shared links. */
static inline uint32_t rpsim_resource(rpsim_resource_kind kind, uint32_t gpu, uint32_t gpus)
{
    uint32_t own = (uint32_t)RPSIM_RESOURCE_HOST;
    uint32_t row = (uint32_t)kind;
    return row < own ? row * gpus + gpu : own * gpus + row - own;
}

/** @return the number of resources of a machine with `gpus` GPUs, not counting shared links. */
static inline uint32_t rpsim_resource_count(uint32_t gpus)
{
    return rpsim_resource(RPSIM_RESOURCE_TIMED_COUNT, 0, gpus);
}

/** A piece of the critical path; the next piece begins when this piece ends. */
typedef struct rpsim_segment {
    uint32_t op;
    uint32_t resource; /**< the resource in use */
    int64_t start_ps;
    int64_t end_ps;
    rp_delay reason;
} rpsim_segment;

/** Attribution, blame and critical path of a run; all arrays live in the arena given to
 * rpsim_explain. */
typedef struct rpsim_explanation {
    uint32_t gpus;
    int64_t makespan_ps;
    int64_t share_ps[RPSIM_SHARE_COUNT];        /**< sums to gpus * makespan_ps */
    int64_t (*gpu_share_ps)[RPSIM_SHARE_COUNT]; /**< [gpu] each sums to makespan_ps */
    int64_t drain_sums_ps;   /**< part of all drains in which a collective of the GPU, or a sum over
                                servers, is under way; 0 for asynchronous programs */
    int64_t *blame_ps;       /**< [resource] idle time between a GPU's ops */
    uint32_t segment_count;  /**< segments of the critical path */
    rpsim_segment *segments; /**< cover 0 to makespan_ps, each longer than 0 */
    int64_t *path_ps;        /**< [resource] sums to makespan_ps */
    int64_t path_kind_ps[RP_OP_KIND_COUNT]; /**< time of the ops of each kind on the path */
    int64_t path_hop_ps; /**< time of hops on the path; with path_kind_ps it sums to the makespan */
} rpsim_explanation;

/** A run to explain. */
typedef struct rpsim_explain_case {
    const rp_timeline *timeline;
    const rp_stage_times *times;      /**< stage fidelity, otherwise NULL */
    const rpsim_compute_costs *costs; /**< hardware fidelity, otherwise NULL */
    const rp_machine *machine;        /**< hardware fidelity, otherwise NULL */
    const double *factors; /**< [op_count] factors of compute times; NULL: every factor is 1 */
} rpsim_explain_case;

/**
 * Computes attribution and critical path. Time is linear in ops and waits, times the length of the
 * chains of causes within a gap.
 * @param c its timeline was made by the engine of the same fidelity
 * @param arena owns the arrays of explanation_out
 * @retval RP_OK, RP_NO_MEMORY, RP_INPUT (GPU time above 106 days; given as the reason), RP_BROKEN
 * (the shares do not sum to GPUs times makespan; logged)
 */
rp_status rpsim_explain(const rpsim_explain_case *c, rp_arena *arena,
                        rpsim_explanation *explanation_out, rp_reason *reason);

/**
 * Measures the communication of a run at hardware fidelity.
 * @param total_ps_out the sum of the times of its transfers and collectives, without their waiting
 *        for copy engines
 * @param exposed_ps_out the time that GPUs wait for these, summed over GPUs: between their ops by
 *        the attribution, and after their last op drain_sums_ps. It does not include fill and the
 *        rest of drain
 */
void rpsim_explain_communication(const rp_timeline *timeline, const rpsim_explanation *explanation,
                                 int64_t *total_ps_out, int64_t *exposed_ps_out);

/** @return the resource for which GPUs wait most between their ops (blame_ps), the lowest on ties;
 * UINT32_MAX if no GPU is ever idle between its ops. */
uint32_t rpsim_explain_most_blamed(const rpsim_explanation *explanation);

/** Most GPUs, and most shared links of a kind, for which the elasticities of single GPUs and links
 * are worth their simulations. */
#define RPSIM_MAX_SINGLE 64u

/**
 * Elasticities: the percent by which the step shortens per percent of speed of a resource, found by
 * simulating the same program with the resource 1 % faster and 1 % slower. A step is the
 * steady-state period if it is known (RP_STEADY_ITERATIONS and more), otherwise the makespan. NaN:
 * not modelled.
 */
typedef struct rpsim_sensitivity {
    double step_ps;
    double links;       /**< links of all GPUs, both directions */
    double compute;     /**< compute of all GPUs */
    double host;        /**< the host's memory: optimizer, refresh and collect */
    double dispatch;    /**< cloning of modules, if dispatch is modelled */
    double peer;        /**< hops at stage fidelity, otherwise collectives if the program has any */
    double *link_of;    /**< [gpu] both directions of its link; NULL at stage fidelity and with many
                           GPUs */
    double *compute_of; /**< [gpu]; NULL with many GPUs */
    double shared[RP_SHARED_COUNT];         /**< all links of a kind; NaN: no links of the kind */
    uint32_t shared_count[RP_SHARED_COUNT]; /**< number of links of a kind */
    double *shared_of[RP_SHARED_COUNT];     /**< [number] each link; NULL: no links, or too many */
} rpsim_sensitivity;

/**
 * Computes all elasticities with 4 (GPUs + 2) simulations and two more for each shared link and
 * each kind of shared link; stage fidelity needs fewer. With more than RPSIM_MAX_SINGLE GPUs the
 * elasticities of single GPUs are left out.
 * @param arena owns the arrays of sensitivity_out
 * @retval RP_OK, RP_NO_MEMORY, or the status of a simulation that failed
 */
rp_status rpsim_explain_sensitivity(const rpsim_explain_case *c, rp_arena *arena,
                                    rpsim_sensitivity *sensitivity_out, rp_reason *reason);

/** A single GPU or link is named if its elasticity is above this factor times the average. */
#define RPSIM_STANDS_OUT 1.1

/** The resource that limits the step first. */
typedef struct rpsim_first_cause {
    rpsim_resource_kind kind; /**< RPSIM_RESOURCE_KIND_COUNT: no modelled resource limits it */
    uint32_t gpu;             /**< its GPU, for compute and links; the number of a shared link */
    bool stands_out; /**< its elasticity is above RPSIM_STANDS_OUT times the average of all GPUs */
    double elasticity;       /**< of the resource by itself */
    double group_elasticity; /**< of all resources of the kind; links: both directions */
    uint32_t group_count;    /**< number of resources of the kind */
} rpsim_first_cause;

/**
 * Finds the first cause. Its kind has the largest elasticity among GPU compute, links, host,
 * dispatch, hops and shared links (ties in that order). Within the kind it is the GPU or link of
 * the largest elasticity (ties: the lowest number); if single GPUs are left out, the GPU with the
 * most time on the critical path. A link's direction is the direction with more time on the
 * critical path, up on ties. Elasticity measures the gain from a faster resource, so it sees
 * through chains: in a pipeline every GPU waits for its neighbour, but all of them wait for the
 * slowest GPU.
 */
rpsim_first_cause rpsim_explain_first_cause(const rpsim_explanation *explanation,
                                            const rpsim_sensitivity *sensitivity);
