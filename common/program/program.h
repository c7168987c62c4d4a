/** @file program.h  The schedule IR: the ops of each GPU and of the host, their order and their
 * waits. It has no times.
 *
 * A program is a set of in-order queues. An op starts when the op before it in its queue and all
 * ops that it waits for have ended. This is the model of CUDA streams and events, and a
 * discrete-event simulator needs no more. Ops are stored queue after queue; an op's number is its
 * index in `ops`. Simulator and executor run exactly this program; the result of a run is an
 * rp_timeline.
 */
#pragma once

#include "common/base/mem.h"
#include "common/base/status.h"
#include "common/base/text.h"
#include "common/program/dtype.h"
#include "common/program/limits.h"
#include "common/program/op_kinds.h"
#include "common/program/traits.h"

#include <stdbool.h>
#include <stdint.h>

/** Roles of a stage. A pipeline's stage has both layer roles, each of RoundPipe's stages only
 * one. */
enum {
    RP_STAGE_FORWARD_LAYERS = 1,  /**< its FORWARD computes its layers */
    RP_STAGE_BACKWARD_LAYERS = 2, /**< its BACKWARD (and RECOMPUTE) computes its layers */
    RP_STAGE_HEAD = 4,            /**< final norm, LM head and loss: part of FORWARD and BACKWARD */
};

typedef struct rp_stage {
    uint32_t layer_begin; /**< transformer layers [layer_begin, layer_end) */
    uint32_t layer_end;
    uint32_t roles; /**< RP_STAGE_* */
} rp_stage;

enum {
    /**
     * The next op of the queue follows without a gap: the group of joined ops starts as late as its
     * last op's waits demand. RoundPipe's pre-work is joined to its backward (schedules.md 7).
     */
    RP_OP_JOIN = 1,
    /**
     * A forward that runs together with the backward behind it (DualPipeV, schedules.md 4): the
     * pair starts when both may start, and their results exist when both are done. Lowered programs
     * never have it, as their own order and waits give the overlap.
     */
    RP_OP_OVERLAP = 2,
};

typedef struct rp_op {
    uint32_t microbatch; /**< for HOST ops the layer: rp_op_layer */
    uint32_t wait_begin; /**< its waits are waits[wait_begin .. next op's wait_begin) */
    uint16_t stage;      /**< index into stages; 0 for HOST ops */
    uint16_t iteration;
    uint8_t kind;  /**< rp_op_kind */
    uint8_t flags; /**< RP_OP_JOIN, RP_OP_OVERLAP */
    uint16_t part; /**< rp_op_layer; for collectives rp_op_repeat; 0: all layers, or a single
                      collective */
} rp_op;

/** @return the layer that an op works on. Passes and boundary tensors: 0 is all of the stage;
 * lowered programs may go layer by layer, 1 to layers, with the head as layers + 1 and the
 * embedding in the first layer's op. HOST ops: 0 is the embedding, or all. Collectives have 0. */
static inline uint32_t rp_op_layer(const rp_op *op)
{
    rp_op_class op_class = rp_op_kinds[op->kind].op_class;
    uint32_t layer = op_class == RP_CLASS_COLLECTIVE ? 0 : op->part;
    return op_class == RP_CLASS_HOST ? op->microbatch : layer;
}

/** @return number of successive collectives of a group that an op stands for, which share its
 * bytes; 1 for other ops. */
static inline uint32_t rp_op_repeat(const rp_op *op)
{
    bool several = rp_op_kinds[op->kind].op_class == RP_CLASS_COLLECTIVE && op->part != 0;
    return several ? op->part : 1;
}

/** @return false for ops of the host and updates, which belong to all microbatches. */
static inline bool rp_op_has_microbatch(const rp_op *op)
{
    return rp_op_kinds[op->kind].op_class != RP_CLASS_HOST && !rp_op_kind_is_update(op->kind);
}

/**
 * A wait: the number of an op in another queue. A *data* wait means that the waiting op uses a
 * boundary tensor of that op (the tensor changes GPUs: stage fidelity adds a hop); a *control* wait
 * (top bit set) is only an ordering and free.
 */
typedef uint32_t rp_wait;
#define RP_WAIT_CONTROL UINT32_C(0x80000000)

static inline uint32_t rp_wait_op(rp_wait wait)
{
    return wait & ~RP_WAIT_CONTROL;
}

static inline bool rp_wait_is_control(rp_wait wait)
{
    return (wait & RP_WAIT_CONTROL) != 0;
}

#define RP_PLACE_HOST UINT16_C(0xffff)

/** X(enumerator, name in program text). Tape: tensors of a forward or recompute that its backward
 * needs. */
#define RP_BUFFER_KIND_LIST(X)                                                                     \
    X(ACTIVATION, "activation")                                                                    \
    X(GRADIENT, "gradient")                                                                        \
    X(WEIGHT, "weight")                                                                            \
    X(TAPE, "tape")                                                                                \
    X(TEMPORARY, "temporary")                                                                      \
    X(LOGITS, "logits")                                                                            \
    X(OPTIMIZER, "optimizer")

typedef enum rp_buffer_kind {
#define RP_BUFFER_ENUM(name, text) RP_BUFFER_##name,
    RP_BUFFER_KIND_LIST(RP_BUFFER_ENUM)
#undef RP_BUFFER_ENUM
        RP_BUFFER_KIND_COUNT
} rp_buffer_kind;

/** Memory that lives from the start of alloc_op to the end of free_op. */
typedef struct rp_buffer {
    uint64_t bytes; /**< 0 if the size is unknown (no model given) */
    uint32_t alloc_op;
    /** Never before alloc_op: in its queue and not earlier, or after an op that waits for it. */
    uint32_t free_op;
    uint16_t place;  /**< GPU index or RP_PLACE_HOST */
    uint16_t kind;   /**< rp_buffer_kind */
    uint32_t unused; /**< 0 */
} rp_buffer;

typedef struct rp_queue {
    uint32_t op_begin; /**< its ops are ops[op_begin .. op_end) */
    uint32_t op_end;
    uint16_t gpu;  /**< 0 for host queues */
    uint16_t kind; /**< rp_queue_kind */
} rp_queue;

/** X(enumerator, name): when a stage's recompute may run (cli.md --recompute). Selective: backwards
 * themselves compute parts of each layer again (rp_stack.selective), and no op does. */
#define RP_RECOMPUTE_LIST(X)                                                                       \
    X(NONE, "none")                                                                                \
    X(WAIT, "wait")                                                                                \
    X(EARLY, "early")                                                                              \
    X(SELECTIVE, "selective")

typedef enum rp_recompute {
#define RP_RECOMPUTE_ENUM(name, text) RP_RECOMPUTE_##name,
    RP_RECOMPUTE_LIST(RP_RECOMPUTE_ENUM)
#undef RP_RECOMPUTE_ENUM
        RP_RECOMPUTE_COUNT
} rp_recompute;

/** @return whether whole forwards run again, in ops of their own. */
static inline bool rp_recompute_has_ops(rp_recompute recompute)
{
    return recompute == RP_RECOMPUTE_WAIT || recompute == RP_RECOMPUTE_EARLY;
}

/** Everything is owned by `arena` and read-only once rp_program_check has accepted it. */
typedef struct rp_program {
    rp_arena *arena;
    const char *schedule; /**< name of the schedule that made it: a label, nothing depends on it */
    rp_traits traits;
    uint32_t gpu_count;
    /** GPUs that run this program, a multiple of gpu_count: GPU g stands for all GPUs with the rest
     * g. 0: gpu_count, as in all programs that are written or hashed. */
    uint32_t ranks;
    uint32_t microbatch_count; /**< per iteration */
    uint32_t iteration_count;
    uint32_t layer_count;
    rp_recompute recompute;
    bool asynchronous; /**< iterations follow each other without an optimizer barrier */
    uint32_t stage_count;
    rp_stage *stages;
    uint32_t forward_count; /**< forward_chain[i] needs forward_chain[i - 1] of the microbatch */
    uint16_t *forward_chain;
    uint32_t backward_count; /**< backward_chain[j] needs backward_chain[j - 1] and its forward */
    uint16_t *backward_chain;
    uint32_t queue_count;
    rp_queue *queues;
    uint32_t op_count;
    rp_op *ops; /**< op_count + 1 entries; the last entry only closes the waits */
    /**
     * Lowered programs: bytes that each op moves (transfers, collectives) or works on (host ops,
     * UPDATE), 0 for other compute ops. NULL: a compute schedule, whose data waits stand for the
     * transfers.
     */
    uint64_t *op_bytes;
    rp_dtype dtype; /**< lowered programs: type of the weights, gradients and activations that ops
                       move */
    /** [microbatch_count] sequences of each microbatch; NULL: all as in the cost table. */
    uint32_t *sequences;
    uint32_t wait_count;
    rp_wait *waits;
    uint32_t buffer_count;
    rp_buffer *buffers;
} rp_program;

/** @return GPUs that run the program (rp_program.ranks). */
static inline uint32_t rp_program_ranks(const rp_program *program)
{
    return program->ranks != 0 ? program->ranks : program->gpu_count;
}

/** @return "none", "wait", "early" or "selective"; static. */
const char *rp_recompute_text(rp_recompute recompute);

/** @return whether `text` is such a name; the mode is in *recompute_out then. */
bool rp_recompute_parse(const char *text, rp_recompute *recompute_out);

/** @return the buffer kind's name in program text; static. `kind` must be in range. */
const char *rp_buffer_kind_text(rp_buffer_kind kind);

/** Writes "2F0" (stage, kind, microbatch; PyTorch's notation) into `text`, "2F0/5" for its layer 5
 * only, "2F0@1" in iteration 1. */
#define RP_OP_NAME_SIZE 48
void rp_op_name(const rp_op *op, char text[static RP_OP_NAME_SIZE]);

/** @return the queue that holds op `op`, by binary search. `op` < op_count. */
uint32_t rp_program_queue_of(const rp_program *program, uint32_t op);

/** @return whether backward stages are separate stages (RoundPipe), not those of a pipeline. */
bool rp_program_has_separate_backward(const rp_program *program);

/** @return whether the program has ops of a kind for which `is` returns true. */
bool rp_program_has(const rp_program *program, bool (*is)(rp_op_kind kind));

/** @return true for a forward of the head, which gives the loss. */
static inline bool rp_program_gives_loss(const rp_program *program, const rp_op *op)
{
    return rp_op_kind_is_forward(op->kind) &&
           (program->stages[op->stage].roles & RP_STAGE_HEAD) != 0;
}

/** @return whether the program recomputes, or runs forward, layer by layer (recompute grain
 * layer). */
bool rp_program_has_layer_grain(const rp_program *program);

/** Creates an empty program with its own arena. @retval RP_OK, RP_NO_MEMORY */
rp_status rp_program_create(rp_program **program_out);

/** Destroys a program. NULL is allowed. */
void rp_program_destroy(rp_program *program);

/**
 * Checks a program against all invariants, in this order: header, stages and chains, queues, ops
 * (kind fits the queue and the placement of weights, indices in range, joined groups whole), waits
 * (in range, other queue, sorted, no duplicates, data waits only between GPUs), each F/R/B/I/W
 * exactly once and as the chains demand, every data dependency covered by a wait or by queue order,
 * matched SEND/RECV, buffer lifetimes, no cycles. The first violation is logged with the op's name,
 * number and queue, each rule with a message of its own (RP_RULE_LIST in check_internal.h). Time
 * and memory are linear in ops and waits.
 * @retval RP_OK, RP_INVALID_PROGRAM, RP_NO_MEMORY
 */
rp_status rp_program_check(const rp_program *program);

/** @return 64-bit hash of all content but the schedule's name; equal programs have equal hashes on
 * every machine. */
uint64_t rp_program_hash(const rp_program *program);

/** Version of the text form. Version 1 had no traits, which followed from the program's name. */
#define RP_PROGRAM_VERSION 2u

/**
 * Writes the text form (described at the head of text.c); reading it back gives an equal program.
 * Errors of the stream stay with it: rp_output_commit (common/base/text.h) names the file.
 */
void rp_program_write(const rp_program *program, FILE *stream);

/**
 * Reads the text form.
 * @param name file name for messages
 * @param text NUL-terminated, `length` bytes
 * @retval RP_OK (the program is checked), RP_INPUT ("name:line: cause"), RP_INVALID_PROGRAM,
 *         RP_NO_MEMORY
 */
rp_status rp_program_read(const char *name, const char *text, size_t length,
                          rp_program **program_out);

/**
 * As rp_program_read, from a file. A program that breaks a rule counts as bad input, not as a
 * failed run.
 * @retval RP_OK, RP_INPUT (logged), RP_IO, RP_NO_MEMORY
 */
rp_status rp_program_read_file(const char *path, rp_program **program_out);

/** @return all-reduces of a boundary per layer and direction; a backward's number includes those of
 * its recompute. */
static inline uint32_t rp_sharding_reduces(const rp_sharding *sharding, bool backward,
                                           rp_recompute recompute)
{
    bool again = backward && rp_recompute_has_ops(recompute);
    return (backward ? sharding->backward_reduces : sharding->forward_reduces) +
           (again ? sharding->forward_reduces : 0);
}

/**
 * The last layers of a model keep their gathered weights between their forward and their backward,
 * if few weights are used between: those of the forward and backward of the layers behind, and of
 * their recompute.
 * @param weight_bytes [layers + 2] embedding, blocks, head
 * @return the first layer that keeps them; layers + 2: no layer does
 */
uint32_t rp_sharding_kept_from(const rp_sharding *sharding, rp_recompute recompute,
                               const uint64_t *weight_bytes, uint32_t layers,
                               uint32_t element_bytes);

/** @return the number of successive all-reduces of a boundary at the end of a stage's pass under
 * tensor parallelism: those of its layers, of the embedding and of the head.
 * @param recompute RP_RECOMPUTE_NONE: the pass has none */
uint32_t rp_program_stage_reduces(const rp_program *program, const rp_sharding *sharding,
                                  uint32_t stage, bool backward, rp_recompute recompute);

/** @return number of successive collectives that an op stands for. */
uint32_t rp_program_op_reduces(const rp_program *program, uint32_t op);
