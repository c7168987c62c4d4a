/** @file op_kinds.h  Kinds of ops and of queues, a row each, and functions that read the rows.
 *
 * A new op kind is a row of op_rows.inc. Code that runs, times, explains or draws ops asks for a
 * property in the row, not for a kind: rp_op_kind_is_pass(kind), rp_op_kinds[kind].way.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef enum rp_op_class {
    RP_CLASS_COMPUTE,    /**< runs on a GPU's compute queue, belongs to a stage and a microbatch */
    RP_CLASS_TRANSFER,   /**< moves bytes between a GPU and the host or a peer */
    RP_CLASS_COLLECTIVE, /**< all ranks take part */
    RP_CLASS_HOST,       /**< runs on a host queue, belongs to an iteration */
} rp_op_class;

/** X(enumerator, category in Chrome traces, node of Chakra, rate of a thread that does it
 * (rp_machine)). Ways of transfers: host to GPU, GPU to host, to a peer, and from a peer, whose own
 * op has carried the bytes. Ops that are no transfers have way NONE. */
#define RP_OP_WAY_LIST(X)                                                                          \
    X(NONE, "", COMP, host_Bps)                                                                    \
    X(UP, "H2D", MEM_LOAD, upload_Bps)                                                             \
    X(DOWN, "D2H", MEM_STORE, download_Bps)                                                        \
    X(OUT, "P2P", SEND, peer_Bps)                                                                  \
    X(IN, "P2P", RECV, upload_Bps)

typedef enum rp_op_way {
#define RP_WAY_ENUM(name, ...) RP_WAY_##name,
    RP_OP_WAY_LIST(RP_WAY_ENUM)
#undef RP_WAY_ENUM
} rp_op_way;

/** Tensors that ops compute for a microbatch, move or reduce. */
enum {
    RP_TENSOR_ACTIVATION = 1, /**< of a stage's boundary, token ids included */
    RP_TENSOR_GRADIENT = 2,   /**< of a stage's boundary */
    RP_TENSOR_PARAMS = 4,
    RP_TENSOR_PARAM_GRADIENT = 8,
    RP_TENSOR_BOUNDARY = RP_TENSOR_ACTIVATION | RP_TENSOR_GRADIENT,
    RP_TENSOR_GRADIENTS = RP_TENSOR_GRADIENT | RP_TENSOR_PARAM_GRADIENT,
    RP_TENSOR_SUMS = RP_TENSOR_BOUNDARY | RP_TENSOR_PARAM_GRADIENT,
    RP_TENSOR_ALL = RP_TENSOR_SUMS | RP_TENSOR_PARAMS,
    RP_TENSOR_SAVED =
        16, /**< what a forward keeps for its backward: tapes, or recomputes' inputs */
    RP_TENSOR_NONE = 0,
};

/** Part of a training step that an op computes; transfers and sums of its results belong to
 * none. */
typedef enum rp_op_phase {
    RP_PHASE_NONE,
    RP_PHASE_FORWARD,
    RP_PHASE_RECOMPUTE, /**< forward again */
    RP_PHASE_BACKWARD,
    RP_PHASE_STEP, /**< step of the optimizer */
    RP_PHASE_COUNT
} rp_op_phase;

/** Effects of a collective on the tensors of its members. */
enum {
    RP_GROUP_REDUCES = 1,   /**< sums them; each member has a part of the sum */
    RP_GROUP_GATHERS = 2,   /**< each member gets the parts of all */
    RP_GROUP_EXCHANGES = 4, /**< each member sends every other member a part of its own tensor */
    RP_GROUP_ALL = RP_GROUP_REDUCES | RP_GROUP_GATHERS,
};

/** X(enumerator, rate in rp_machine): rates of the host ops that have their own rate; other host
 * ops share one. */
#define RP_HOST_RATE_LIST(X)                                                                       \
    X(ADAM, adam_Bps)                                                                              \
    X(REFRESH, refresh_Bps)                                                                        \
    X(COLLECT, collect_Bps)

typedef enum rp_host_rate {
    RP_HOST_RATE_SHARED,
#define RP_HOST_RATE_ENUM(name, ...) RP_HOST_RATE_##name,
    RP_HOST_RATE_LIST(RP_HOST_RATE_ENUM)
#undef RP_HOST_RATE_ENUM
        RP_HOST_RATE_COUNT
} rp_host_rate;

/** X(enumerator, name in program text, carrier of its ops, thread and row in Chrome traces). Each
 * GPU has a queue of each kind, except that the host has a single queue of each kind that its
 * processors carry. Members of a tensor group share each layer; a data group has the copies of a
 * stage, an expert group the copies that share experts, and a replica group the copies with the
 * same experts. The collectives of the peer queue join all GPUs. The network joins hosts whose GPUs
 * run copies of the program (rp_layout.data_parallel with weights in host memory). */
#define RP_QUEUE_KIND_LIST(X)                                                                      \
    X(COMPUTE, "compute", COMPUTE, 0, 0)                                                           \
    X(PARAM_UPLOAD, "param-upload", LINK_UP, 1, 1)                                                 \
    X(ACT_UPLOAD, "act-upload", LINK_UP, 6, 2)                                                     \
    X(DOWNLOAD, "download", LINK_DOWN, 2, 3)                                                       \
    X(PEER, "peer", PEER, 3, 4)                                                                    \
    X(DISPATCH, "dispatch", HOST, 0, 0)                                                            \
    X(OPTIMIZER, "optimizer", HOST, 1, 1)                                                          \
    X(RECEIVE, "peer-receive", PEER, 4, 5)                                                         \
    X(TENSOR, "tensor-group", PEER, 5, 6)                                                          \
    X(DATA, "data-group", PEER, 7, 7)                                                              \
    X(NETWORK, "network", HOST, 2, 2)                                                              \
    X(EXPERT, "expert-group", PEER, 8, 8)                                                          \
    X(REPLICA, "replica-group", PEER, 9, 9)                                                        \
    X(SAVED_UPLOAD, "saved-upload", LINK_UP, 10, 10)                                               \
    X(SAVED_DOWNLOAD, "saved-download", LINK_DOWN, 11, 11)

typedef enum rp_queue_kind {
#define RP_QUEUE_ENUM(name, ...) RP_QUEUE_##name,
    RP_QUEUE_KIND_LIST(RP_QUEUE_ENUM)
#undef RP_QUEUE_ENUM
        RP_QUEUE_KIND_COUNT
} rp_queue_kind;

/** Part of a machine that carries the ops of a queue. */
typedef enum rp_carrier {
    RP_CARRIER_COMPUTE,
    RP_CARRIER_LINK_UP,
    RP_CARRIER_LINK_DOWN,
    RP_CARRIER_PEER,
    RP_CARRIER_HOST,
} rp_carrier;

typedef enum rp_op_kind {
#define OP(name, ...) RP_OP_##name,
#include "common/program/op_rows.inc"
#undef OP
    RP_OP_KIND_COUNT
} rp_op_kind;

/** Row of a kind. */
typedef struct rp_op_row {
    const char *text;    /**< name in program text */
    const char *meaning; /**< a few words */
    rp_op_class op_class;
    rp_op_way way;
    uint16_t queues;   /**< bit i: may stand in a queue of rp_queue_kind i */
    uint16_t tensors;  /**< RP_TENSOR_* that it computes, moves or sums */
    uint8_t phase;     /**< rp_op_phase */
    uint8_t group;     /**< RP_GROUP_* of a collective; otherwise 0 */
    uint8_t host_rate; /**< rp_host_rate of a host op */
    uint8_t unfit;     /**< bit i: programs of rp_placement i use it only in queues of groups */
} rp_op_row;

/** [rp_op_kind]. */
extern const rp_op_row rp_op_kinds[RP_OP_KIND_COUNT];

/** Refuses to compile unless ROWS(X), the X(enumerator, ...) of another table, has as many rows as
 * there are kinds. */
#define RP_OP_ROW(...) +1
#define RP_OP_ROWS_CHECK(ROWS)                                                                     \
    _Static_assert(0 ROWS(RP_OP_ROW) == RP_OP_KIND_COUNT, "a table has not one row per op kind")

/* ---- properties of a kind ---------------------------------------------------------------------
 *
 * `kind` must be in range.
 */

/** @return the kind's name in program text, "F" for a forward; static. */
const char *rp_op_kind_text(rp_op_kind kind);

/** @return whether `text` is such a name; the kind is in *kind_out then. */
bool rp_op_kind_parse(const char *text, rp_op_kind *kind_out);

/** @return a few words on the effect of the kind; static. */
const char *rp_op_kind_meaning(rp_op_kind kind);

/** @return the class of the kind. */
static inline rp_op_class rp_op_kind_class(rp_op_kind kind)
{
    return rp_op_kinds[kind].op_class;
}

/** @return true for ops that run layers, or the head, forward for the first time. */
static inline bool rp_op_kind_is_forward(rp_op_kind kind)
{
    return rp_op_kinds[kind].phase == RP_PHASE_FORWARD;
}

/** @return true for ops that run layers forward again, for the backward that follows. */
static inline bool rp_op_kind_is_recompute(rp_op_kind kind)
{
    return rp_op_kinds[kind].phase == RP_PHASE_RECOMPUTE;
}

/** @return true for ops that give gradients of activations, of weights or both: B, I and W. */
static inline bool rp_op_kind_is_backward(rp_op_kind kind)
{
    return rp_op_kinds[kind].phase == RP_PHASE_BACKWARD;
}

/** @return true for B and I, which give the boundary gradient. */
static inline bool rp_op_kind_goes_back(rp_op_kind kind)
{
    return rp_op_kind_is_backward(kind) && (rp_op_kinds[kind].tensors & RP_TENSOR_GRADIENT) != 0;
}

/** @return true for B, which gives the gradients of the weights as well. */
static inline bool rp_op_kind_is_full_backward(rp_op_kind kind)
{
    return rp_op_kind_is_backward(kind) && rp_op_kinds[kind].tensors == RP_TENSOR_GRADIENTS;
}

/** @return true for I, which leaves the gradients of the weights to another op. */
static inline bool rp_op_kind_leaves_weights(rp_op_kind kind)
{
    return rp_op_kind_is_backward(kind) &&
           (rp_op_kinds[kind].tensors & RP_TENSOR_PARAM_GRADIENT) == 0;
}

/** @return true for W, which gives the gradients of weights that another op has left. */
static inline bool rp_op_kind_is_weight_part(rp_op_kind kind)
{
    return rp_op_kind_is_backward(kind) && (rp_op_kinds[kind].tensors & RP_TENSOR_GRADIENT) == 0;
}

/** @return true for the ops of the compute queue that work on a stage and a microbatch. The other
 * ops of that queue (U) stream their bytes through the GPU's memory. */
static inline bool rp_op_kind_is_pass(rp_op_kind kind)
{
    return rp_op_kinds[kind].op_class == RP_CLASS_COMPUTE &&
           rp_op_kinds[kind].phase != RP_PHASE_STEP;
}

/** @return true for steps of the optimizer on the GPU: they belong to no microbatch. */
static inline bool rp_op_kind_is_update(rp_op_kind kind)
{
    return rp_op_kinds[kind].op_class == RP_CLASS_COMPUTE &&
           rp_op_kinds[kind].phase == RP_PHASE_STEP;
}

/** @return true for host ops whose bytes go through the network's port: no thread works on them. */
static inline bool rp_op_kind_uses_port(rp_op_kind kind)
{
    return (rp_op_kinds[kind].queues >> RP_QUEUE_NETWORK & 1) != 0;
}

/** @return true for host ops that add gradients of GPUs to the master gradients. */
static inline bool rp_op_kind_collects(rp_op_kind kind)
{
    return rp_op_kinds[kind].op_class == RP_CLASS_HOST &&
           (rp_op_kinds[kind].tensors & RP_TENSOR_PARAM_GRADIENT) != 0 &&
           !rp_op_kind_uses_port(kind);
}

/** @return true for ops in which GPUs, or hosts, sum tensors or hand them to each other. */
static inline bool rp_op_kind_is_joint(rp_op_kind kind)
{
    return rp_op_kinds[kind].op_class == RP_CLASS_COLLECTIVE || rp_op_kind_uses_port(kind);
}

/** @return true for transfers in direction `way` of one of `tensors` (RP_TENSOR_*). */
static inline bool rp_op_kind_moves(rp_op_kind kind, rp_op_way way, uint32_t tensors)
{
    return rp_op_kinds[kind].way == way && (rp_op_kinds[kind].tensors & tensors) != 0;
}

/** @return true for transfers to a peer; the peer's op has the same bytes. */
static inline bool rp_op_kind_sends(rp_op_kind kind)
{
    return rp_op_kinds[kind].way == RP_WAY_OUT;
}

/** @return true for the receiving ends of transfers from a peer. */
static inline bool rp_op_kind_receives(rp_op_kind kind)
{
    return rp_op_kinds[kind].way == RP_WAY_IN;
}

/** @return true for transfers that bring weights to a GPU. */
static inline bool rp_op_kind_uploads_weights(rp_op_kind kind)
{
    return rp_op_kind_moves(kind, RP_WAY_UP, RP_TENSOR_PARAMS);
}

/** @return true for transfers that bring gradients of weights to a GPU, which adds to them. */
static inline bool rp_op_kind_uploads_sums(rp_op_kind kind)
{
    return rp_op_kind_moves(kind, RP_WAY_UP, RP_TENSOR_PARAM_GRADIENT);
}

/** @return true for transfers that take gradients of weights to the host. */
static inline bool rp_op_kind_downloads_sums(rp_op_kind kind)
{
    return rp_op_kind_moves(kind, RP_WAY_DOWN, RP_TENSOR_PARAM_GRADIENT);
}

/** @return true for transfers of weights and of their gradients. */
static inline bool rp_op_kind_moves_parameters(rp_op_kind kind)
{
    return rp_op_kinds[kind].op_class == RP_CLASS_TRANSFER &&
           (rp_op_kinds[kind].tensors & (RP_TENSOR_PARAMS | RP_TENSOR_PARAM_GRADIENT)) != 0;
}

/** @return true for transfers of what a forward has saved for its backward. */
static inline bool rp_op_kind_moves_saved(rp_op_kind kind)
{
    return (rp_op_kinds[kind].tensors & RP_TENSOR_SAVED) != 0;
}

/** @return the number of times that a ring takes a collective's data around: twice for an
 * all-reduce, which is a reduce-scatter and an all-gather. */
static inline uint32_t rp_op_kind_passes(rp_op_kind kind)
{
    return rp_op_kinds[kind].group == RP_GROUP_ALL ? 2 : 1;
}

/** @return true for queues of a group's collectives. */
static inline bool rp_queue_kind_is_group(rp_queue_kind kind)
{
    return kind == RP_QUEUE_TENSOR || kind == RP_QUEUE_DATA || kind == RP_QUEUE_EXPERT ||
           kind == RP_QUEUE_REPLICA;
}

/** @return the queue kind's name in program text; static. */
const char *rp_queue_kind_text(rp_queue_kind kind);

/** @return the carrier of the queue's ops. */
rp_carrier rp_queue_kind_carrier(rp_queue_kind kind);

/** @return whether each GPU has such a queue; otherwise the host has a single queue of the kind. */
bool rp_queue_kind_on_gpu(rp_queue_kind kind);
