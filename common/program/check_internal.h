/** @file check_internal.h  Inside of the validator: rules and shared state. Not for other modules.
 */
#pragma once

#include "common/program/producers.h"

/* X(rule, message). Each violated invariant is reported by exactly one rule. */
#define RP_RULE_LIST(X)                                                                            \
    X(SIZES, "GPUs, microbatches, iterations and layers must be at least 1 and in range")          \
    X(MODE, "unknown recompute mode")                                                              \
    X(TRAITS, "unknown placement of weights or number of their versions")                          \
    X(STAGE_LAYERS, "a stage's layers must lie inside the model, begin before end")                \
    X(STAGE_ROLES, "a stage must have known roles")                                                \
    X(STAGE_UNUSED, "a stage must be in a chain")                                                  \
    X(CHAIN_STAGE, "a chain must name existing stages, each once")                                 \
    X(CHAIN_LAYERS, "the chains must cover the layers once, forward ascending, backward "          \
                    "descending")                                                                  \
    X(CHAIN_HEAD, "exactly the first backward stage holds the head")                               \
    X(CHAIN_SHARDED, "stages of a data-parallel system have both directions")                      \
    X(QUEUE_RANGE, "the queues must cover the ops one after the other")                            \
    X(QUEUE_GPU, "a queue must belong to an existing GPU")                                         \
    X(QUEUE_TWICE, "a GPU has one queue of each kind")                                             \
    X(QUEUE_MISSING, "a GPU must have a compute queue, also where it has no ops")                  \
    X(OP_KIND, "unknown op kind")                                                                  \
    X(OP_QUEUE, "this kind of op does not run on this kind of queue")                              \
    X(OP_PLACEMENT, "this kind of op does not fit the placement of weights")                       \
    X(OP_STAGE, "the op's stage does not exist")                                                   \
    X(OP_MICROBATCH, "the op's microbatch does not exist")                                         \
    X(OP_ITERATION, "the op's iteration does not exist")                                           \
    X(OP_FLAGS, "unknown op flags")                                                                \
    X(OP_LAYER, "only compute ops and activations of lowered programs may name a layer, one of "   \
                "their stage's")                                                                   \
    X(UPDATE_ORDER, "after an update of weights its GPU runs ops of later iterations only")        \
    X(JOIN_END, "a joined op must be followed by an op of its queue")                              \
    X(JOIN_OTHER, "a joined op must be followed by the same stage, microbatch and iteration")      \
    X(OVERLAP_SHAPE, "an overlapped op must be a forward, followed by a backward of other work, "  \
                     "and in no lowered program")                                                  \
    X(UNIT_SHAPE, "a backward must be preceded by just the pre-work that its stage needs")         \
    X(UNIT_LAYERS, "a unit that goes layer by layer must take its stage's layers in order, each "  \
                   "recomputed right before its backward, or all before the first")                \
    X(PREWORK_ALONE, "pre-work must be joined to its backward")                                    \
    X(WAIT_RANGE, "the waits must cover the list of waits one after the other")                    \
    X(WAIT_TARGET, "the op waited for does not exist")                                             \
    X(WAIT_SELF, "an op must not wait for its own queue, whose order holds anyway")                \
    X(WAIT_ORDER, "waits must be ascending and without repetition")                                \
    X(WAIT_DATA, "a data wait must be for a result that the op needs")                             \
    X(RUNS_TWICE, "this part of the work runs a second time")                                      \
    X(NEVER_RUNS, "a part of the work never runs")                                                 \
    X(NEEDS, "the op must come after the op whose result it needs")                                \
    X(RECV_MATCH, "a RECV must wait for exactly one SEND of its microbatch on another GPU")        \
    X(SEND_MATCH, "every SEND must be received exactly once")                                      \
    X(SAVED_MATCH,                                                                                 \
      "saved tensors that leave a GPU must come back once, for the backward that needs "           \
      "them")                                                                                      \
    X(BUFFER_OP, "a buffer must be allocated and freed by existing ops")                           \
    X(BUFFER_PLACE, "a buffer must lie on an existing GPU or the host")                            \
    X(BUFFER_KIND, "unknown buffer kind")                                                          \
    X(BUFFER_LIFE, "a buffer must not be freed before it is allocated")                            \
    X(CYCLE, "the op never starts: its waits form a cycle")

typedef enum rp_rule {
#define RP_RULE_ENUM(name, message) RP_RULE_##name,
    RP_RULE_LIST(RP_RULE_ENUM)
#undef RP_RULE_ENUM
} rp_rule;

typedef struct rp_checker {
    const rp_program *program;
    rp_arena *arena;
    rp_producers producers;
    uint32_t sends;
    uint32_t receives;
    uint32_t saved; /**< transfers of saved tensors */
} rp_checker;

/** @return the message of a rule; tests check that each can be provoked. */
const char *rp_rule_message(rp_rule rule);

/** Logs "program: WHAT NUMBER: message". @return RP_INVALID_PROGRAM */
rp_status rp_check_violated(rp_rule rule, const char *what, uint32_t number);

/** Logs the rule with the op's number, name and queue. @return RP_INVALID_PROGRAM */
rp_status rp_check_violated_op(const rp_checker *checker, rp_rule rule, uint32_t op);

/** Checks the work: each part runs once, in whole units, after the results that it needs; SEND and
 * RECV match. */
rp_status rp_check_work(rp_checker *checker);

/** @return whether an op may name the layer that it names. */
bool rp_check_names_layer(const rp_program *program, const rp_op *op);

/**
 * Checks the unit that begins with op `first`, which names a layer: it takes the layers of its
 * stage in order, each once, and each after the results that it needs.
 * @param last_out the unit's last op
 */
rp_status rp_check_layered_unit(const rp_checker *checker, const rp_queue *queue, uint32_t first,
                                uint32_t *last_out);

/** As rp_check_layered_unit, for a unit whose recompute, of all its layers at once, is op
 * `first`. */
rp_status rp_check_recomputed_unit(const rp_checker *checker, const rp_queue *queue, uint32_t first,
                                   uint32_t *last_out);

/** Lowered programs: checks that ops [first, last], which recompute a layer and run its backward,
 * come after the op whose output is that layer's input. */
rp_status rp_check_layer_input(const rp_checker *checker, const rp_queue *queue, uint32_t first,
                               uint32_t last);

/**
 * Lowered programs: checks that the unit of ops [first, last] comes after the results that it
 * needs. They reach it through a chain of transfers, each of which has a data wait for the transfer
 * before it.
 */
rp_status rp_check_lowered_needs(const rp_checker *checker, const rp_queue *queue, uint32_t first,
                                 uint32_t last);

/** Checks buffers: their ops and places exist, and they are freed after they are allocated. */
rp_status rp_check_buffers(const rp_checker *checker);

/** Checks that waits and queue order form no cycle: every op can start. */
rp_status rp_check_acyclic(const rp_checker *checker);
