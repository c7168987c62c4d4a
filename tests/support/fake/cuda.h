/** @file cuda.h  The calls that the GPU driver makes of CUDA, done with threads and host memory.
 *
 * Streams are threads with bounded in-order queues, events count their records, device memory is
 * the host's, operators are the host backend's, performed when the stream comes to them. Misuse
 * that CUDA would not notice, or would notice on some machines only, is an error here: a wait for
 * an event that has never been recorded, a stream or an event of another context than the current
 * one, a context current in two threads, host memory that operators cannot reach, a copy from a
 * device that is not reached.
 */
#pragma once

#include "exec/gpu/calls.h"
#include "exec/gpu/driver.h"

/** Calls that fail on a machine without graphs. */
typedef enum rp_fake_graph_call {
    RP_FAKE_ALL_WORK,
    RP_FAKE_BEGIN_FAILS,
    RP_FAKE_OPERATOR_FAILS, /**< the first one of a capture */
    RP_FAKE_END_FAILS,
    RP_FAKE_MAKE_FAILS,
} rp_fake_graph_call;

/** States of cuDNN on a machine that AUTO can meet. */
typedef enum rp_fake_cudnn {
    RP_FAKE_CUDNN_ABSENT,
    RP_FAKE_CUDNN_FASTER,
    RP_FAKE_CUDNN_SLOWER,
    RP_FAKE_CUDNN_DIFFERS,  /**< its results are half as far off again as they may be */
    RP_FAKE_CUDNN_RESTLESS, /**< they differ from run to run */
    RP_FAKE_CUDNN_NAN,      /**< they are not comparable */
    RP_FAKE_CUDNN_NO_SHAPE, /**< there is no plan */
    RP_FAKE_CUDNN_FAILS,    /**< the trial does */
} rp_fake_cudnn;

/** Copies between devices that say they reach each other. */
typedef enum rp_fake_peer_copies {
    RP_FAKE_PEERS_COPY,
    RP_FAKE_PEERS_SPOIL, /**< one byte, on the way from a device to one with a lower number */
    RP_FAKE_PEERS_HANG,  /**< so do they on that way, until rp_fake_cuda_unstick */
} rp_fake_peer_copies;

/** Properties of the machine. One at a time in a process. */
typedef struct rp_fake_cuda {
    int devices; /**< 0: none */
    bool green;  /**< devices can be split */
    bool peers;  /**< devices reach each other */
    rp_fake_peer_copies peer_copies;
    bool unpinnable;      /**< cudaHostRegister fails */
    uint64_t most_pinned; /**< it fails beyond so many bytes in all; 0: not limited */
    uint64_t most_bytes;  /**< of a GPU's memory at once; 0: not limited */
    uint64_t seed;        /**< of the delays */
    uint32_t delay_us;    /**< longest delay before what a stream does, one time in 16; 0: none */
    bool often;           /**< one time in 2 */
    bool late_beside;     /**< only in streams beside the queues', which have no lane */
    uint32_t fail_at;     /**< this copy fails, from 1 on; 0: none */
    rp_fake_graph_call graphs; /**< the call of them that fails */
    double copy_Bps;           /**< of copies; down to the host half of it; 0: as fast as it goes */
    uint32_t copy_us;          /**< with copy_Bps: added to the time of each copy */
    uint32_t stick_at;         /**< a stream never gets beyond this copy; 0: none */
    bool nccl;                 /**< there is NCCL */
    bool nccl_refuses;         /**< which makes no communicators */
    bool nccl_rounds; /**< sums are rounded after every addition, in the order of a ring; otherwise
                         as the driver's own ranks add */
    uint32_t nccl_fail_at;  /**< this ncclGroupEnd fails, from 1 on; 0: none */
    uint32_t nccl_lose_at;  /**< this kernel of NCCL's never begins; 0: none */
    rp_fake_cudnn cudnn;    /**< on the last device; the others' is FASTER, but for ABSENT */
    bool cudnn_on_first;    /**< it is on the first device instead */
    void (*asked)(void);    /**< called whenever an event is asked whether it has happened */
    uint32_t nccl_error_at; /**< nor does this one, and NCCL says so; 0: none */
} rp_fake_cuda;

/** A driver on such a machine. `attach` works on what was given last. */
const rpexec_driver_type *rp_fake_cuda_driver(const rp_fake_cuda *machine);

/** Lets the stream that is stuck go on, and waits until all streams are gone. */
void rp_fake_cuda_unstick(void);

/** @return copies that have been enqueued since rp_fake_cuda_driver. */
uint32_t rp_fake_cuda_copies(void);

/** @return the most records of events that a stream which computes has had in its queue at a time
 * since rp_fake_cuda_driver. */
uint32_t rp_fake_cuda_most_records(void);

/** Launches since rp_fake_cuda_driver. */
typedef struct rp_fake_cuda_launches {
    uint32_t captures; /**< that became graphs */
    uint32_t graphs;
    uint32_t in_graphs; /**< operators of graphs that were launched */
    uint32_t operators; /**< launched one by one */
    uint32_t kept;      /**< graphs that have not been destroyed */
} rp_fake_cuda_launches;

rp_fake_cuda_launches rp_fake_cuda_launched(void);

/** @return calls of cudaHostRegister that have failed since rp_fake_cuda_driver. */
uint32_t rp_fake_cuda_refused_pins(void);

/** @return ranges begun since rp_fake_cuda_driver; a million more for each one inside of another
 * one of its thread, or without a name. */
uint32_t rp_fake_cuda_ranges(void);

/** @return green contexts made since rp_fake_cuda_driver. */
uint32_t rp_fake_cuda_greens(void);

/** @return additions and roundings of collectives that have been enqueued since
 * rp_fake_cuda_driver. */
uint32_t rp_fake_cuda_sums(void);

/** Questions about attention since rp_fake_cuda_driver. */
typedef struct rp_fake_attention {
    uint32_t plans; /**< asked for */
    uint32_t trials;
    uint32_t lanes; /**< that have plans now */
} rp_fake_attention;

rp_fake_attention rp_fake_attention_asked(void);

/** @return kernels of NCCL that have been enqueued since rp_fake_cuda_driver. */
uint32_t rp_fake_nccl_kernels(void);

/** @return streams, events, graphs, communicators and memories that have not been given back. */
uint32_t rp_fake_cuda_left(void);
