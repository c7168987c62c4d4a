/** @file driver.h  The services that the executor needs of a backend: memories, in-order queues,
 * events.
 *
 * An event is the completion of an op; every op of the program has an event. Each GPU has a thread
 * that submits its ops, in an order in which everything that an op waits for has been submitted
 * before it. A queue, a CUDA stream or a thread, performs its ops in order, each after the events
 * that it waits for.
 */
#pragma once

#include "common/machine/machine.h"
#include "common/program/traits.h"
#include "common/timeline/timeline.h"
#include "exec/operators/collective.h"
#include "exec/operators/operators.h"
#include "exec/plan/plan.h"

typedef struct rpexec_driver rpexec_driver;

/** Resources that a backend keeps between programs: contexts, streams, memory that stays pinned. */
typedef struct rpexec_devices rpexec_devices;

/** Ways in which GPUs exchange data. */
typedef enum rpexec_transport {
    RPEXEC_TRANSPORT_AUTO,   /**< collectives by NCCL if it is available, otherwise copies */
    RPEXEC_TRANSPORT_COPY,   /**< copies, over host memory if peers do not reach each other */
    RPEXEC_TRANSPORT_STAGED, /**< copies over host memory */
    RPEXEC_TRANSPORT_NCCL,   /**< everything by NCCL, or not at all */
} rpexec_transport;

/** Their names in that order, as choices of an option (common/cli/options.h). */
#define RPEXEC_TRANSPORTS "auto|copy|staged|nccl"

/** @return its name; static. */
const char *rpexec_transport_text(rpexec_transport transport);

/** Implementations of attention's forward on GPUs. */
typedef enum rpexec_attention_by {
    RPEXEC_ATTENTION_OWN,   /**< our own kernels */
    RPEXEC_ATTENTION_AUTO,  /**< cuDNN if it agrees with them and is faster when the run begins */
    RPEXEC_ATTENTION_CUDNN, /**< cuDNN, or not at all */
} rpexec_attention_by;

/** Their names in that order, as choices of an option (common/cli/options.h). */
#define RPEXEC_ATTENTIONS "own|auto|cudnn"

/** @return its name; static. */
const char *rpexec_attention_text(rpexec_attention_by by);

/** Findings about attention. Texts live as long as the devices. */
typedef struct rpexec_attention_report {
    const char *by;  /**< for people: "own", or "cudnn" and its version */
    const char *why; /**< with AUTO, the reason for our own; NULL: it is not ours, or was not
                          asked */
    double own_s;    /**< median time of a forward of the largest microbatch on the first GPU, when
                          the run began; NaN: not tried */
    double cudnn_s;
} rpexec_attention_report;

/** Devices that a training run works on. */
typedef struct rpexec_devices_config {
    uint32_t gpus;
    bool half_accumulation; /**< fp16: products add up in fp16 */
    bool is_virtual;        /**< all GPUs are parts of one device */
    uint64_t stage_bytes;   /**< bytes of a piece of a staged copy; 0: 2 MiB */
    uint32_t peer_wait_ms;  /**< longest wait for a copy that tries peer access; 0: 10 s */
    uint64_t pin_bytes;     /**< host memory that is pinned at a time, in whole pages; 0: 1 GiB */
    bool graphs;            /**< repeated operators are launched as CUDA graphs */
    rpexec_attention_by attention;
    rpexec_transport transport;
    bool collectives; /**< the programs have collectives: with AUTO, NCCL is worth its memory only
                           then */
    rp_layout layout; /**< pipelines: collectives run in its groups; zero: over all GPUs */
} rpexec_devices_config;

/** Counts of launches on devices. */
typedef struct rpexec_graph_counts {
    uint64_t captures; /**< graphs made */
    uint64_t launches; /**< launches of graphs */
    uint64_t replaced; /**< operators in these graphs, which were not launched singly */
    uint64_t single;   /**< operators that were launched singly */
} rpexec_graph_counts;

/** Host memory that copies start from and go to. */
typedef struct rpexec_pinned {
    void *memory;
    uint64_t bytes;
} rpexec_pinned;

#define RPEXEC_PINNED_ARRAYS 2u

/** Bytes of host memory that are pinned, and pageable bytes, whose copies are slower. */
typedef struct rpexec_pinning {
    uint64_t pinned_bytes;
    uint64_t pageable_bytes;
} rpexec_pinning;

/** Settings of a backend's machine for a run. */
typedef struct rpexec_driver_config {
    const rpexec_plan *plan;
    rpexec_devices *devices;                    /**< from `attach`; NULL: the backend has none */
    rpexec_pinned pinned[RPEXEC_PINNED_ARRAYS]; /**< arrays to pin, the same in all programs of a
                                                     run */
    const rp_machine *machine; /**< machine whose links limit copies; NULL: they are not limited */
    uint64_t delay_seed;       /**< with delay_us: the seed of random delays before ops */
    uint32_t delay_us;         /**< longest delay before an op; 0: none */
    uint32_t delay_classes;    /**< 1 << rp_op_class of the ops that are delayed; 0: all */
    uint32_t watchdog_s;       /**< a run in which no op ends for so many seconds is given up; 0:
                                    never */
    bool (*excused)(void *context); /**< true while the run waits for other processes, which have
                                         their own limit: it is not given up; NULL: there are none.
                                         @param context as for `perform` */
    bool bound;     /**< host: GPU g's threads run only on core g modulo the cores */
    bool poison;    /**< memory that no tensor has yet is filled with NaN */
    bool unbounded; /**< GPUs: ops are enqueued as soon as possible, however many earlier ops of
                         their queue have not ended */
} rpexec_driver_config;

/**
 * Performs an op: the host's backend calls it when the queue comes to the op, CUDA's when the op is
 * submitted, to enqueue kernels and copies.
 * @retval RP_OK, anything else ends the run
 */
typedef rp_status (*rpexec_perform)(void *context, uint32_t op, rpexec_lane *lane);

typedef struct rpexec_driver_type {
    const rpexec_operators *const *operators; /**< [RP_DTYPE_COUNT] by storage type */
    uint64_t chunk; /**< elements that collectives sum at a time, for which the plan has scratch */
    /**
     * Takes hold of devices for a training run; NULL (with `detach`): the backend needs none.
     * @param devices_out given back with `detach`, after the last driver has been closed
     * @param gpu_bytes_out bytes of each GPU's memory that arenas may have; 0: not limited
     * @retval RP_OK, RP_USAGE (there are not as many devices; logged), RP_TOOL, RP_NO_MEMORY
     */
    rp_status (*attach)(const rpexec_devices_config *config, rpexec_devices **devices_out,
                        uint64_t *gpu_bytes_out);
    void (*detach)(rpexec_devices *devices);
    /** Counts of launches since `attach`, all 0 without graphs; NULL: the backend has none. */
    void (*graphs)(const rpexec_devices *devices, rpexec_graph_counts *counts_out);
    /** Findings about attention, known from the first `open` on; NULL: the backend has none. */
    void (*attention)(const rpexec_devices *devices, rpexec_attention_report *report_out);
    /** @return the GPUs' way of exchange, for people: "copy", "staged", "nccl" and its version; set
     * if `attach` is */
    const char *(*transport)(const rpexec_devices *devices);
    /** @return pinned and other bytes of the last program's arrays; NULL: the backend has none */
    rpexec_pinning (*pinning)(const rpexec_devices *devices);
    /**
     * Sets up memories of plan->arena_bytes and a queue for each queue of the program.
     * @param perform called for every op with `context`
     * @param driver_out closed by the caller with `close`
     * @retval RP_OK, RP_NO_MEMORY, RP_TOOL (logged)
     */
    rp_status (*open)(const rpexec_driver_config *config, rpexec_perform perform, void *context,
                      rpexec_driver **driver_out);
    /** @return the operators for the lanes that `perform` gets; NULL: they are `operators`. */
    const rpexec_operators *const *(*operators_of)(const rpexec_driver *driver);
    /** @return the memory of a place of the plan: a GPU's arena, or pinned host memory. */
    unsigned char *(*memory)(rpexec_driver *driver, uint32_t place);
    /**
     * Host memory that operators on GPUs can read and write, too; zeroed. Until `close`.
     * @retval RP_OK, RP_NO_MEMORY, RP_TOOL (logged)
     */
    rp_status (*shared)(rpexec_driver *driver, uint64_t bytes, void *memory_out);
    /** Copies while nothing is submitted, and returns when it is done; writes zeroes if `from` is
     * NULL.
     * @retval RP_OK, RP_TOOL (logged) */
    rp_status (*transfer)(rpexec_driver *driver, void *to, const void *from, uint64_t bytes);
    /** @return a copy of `bytes` of a GPU's memory, taken after the operators before it, which the
     * host may read until the next call for the same op; NULL if the run has failed. */
    const void *(*read)(rpexec_driver *driver, uint32_t op, const void *from, uint64_t bytes);
    /** @return the rotary tables that operators of `op` read (rpexec_compute.rotary). */
    const float *(*rotary)(rpexec_driver *driver, uint32_t op);
    /** Copies between two memories in the queue of `op`, throttled as its link is. */
    void (*copy)(rpexec_driver *driver, uint32_t op, void *to, const void *from, uint64_t bytes);
    /**
     * Takes part in a collective in the queue of `op`, as the op's GPU's rank in its group of the
     * collective's axis.
     * @param moved_out bytes that have come from other GPUs
     * @retval RP_OK, RP_BROKEN (another rank has failed, or has come to another collective)
     */
    rp_status (*collective)(rpexec_driver *driver, uint32_t op, const rpexec_collective *collective,
                            uint64_t *moved_out);
    /**
     * Puts the sum of two GPUs' arrays into both: an all-reduce of `rank` 0 and 1, each in the
     * queue of its own `op`. In a layout each copy and rank has its own pair.
     * @retval RP_OK, RP_BROKEN (the other GPU has failed)
     */
    rp_status (*sum_pair)(rpexec_driver *driver, uint32_t op, uint32_t rank, uint64_t count,
                          void *array);
    /** `perform` of `op` is about to wait for other GPUs' ops (true), or has done so (false). NULL:
     * nobody needs to know. */
    void (*aside)(rpexec_driver *driver, uint32_t op, bool waits);
    /** Submits an op to its queue. @retval RP_OK, or why the run has failed */
    rp_status (*submit)(rpexec_driver *driver, uint32_t op);
    /** Waits until an op, which is or will be submitted, has ended. @retval RP_OK, or why the run
     * has failed, which `finish` logs */
    rp_status (*wait)(rpexec_driver *driver, uint32_t op);
    /** Waits until everything that has been submitted is done. @retval as submit */
    rp_status (*finish)(rpexec_driver *driver, rp_timeline *timeline);
    /** After `finish`: the same program may be submitted once more; memories stay as they are.
     * @retval RP_OK, RP_TOOL (logged) */
    rp_status (*rewind)(rpexec_driver *driver);
    /** Makes the run fail: everybody stops as soon as possible. The first status stays. */
    void (*fail)(rpexec_driver *driver, rp_status status);
    void (*close)(rpexec_driver *driver);
} rpexec_driver_type;

/** Common parts of drivers (driver.c). */

/** @return the host's clock. */
int64_t rpexec_driver_now_ns(void);

/** @return the operators for the lanes that a driver's `perform` gets. */
const rpexec_operators *rpexec_driver_operators(const rpexec_driver_type *type,
                                                const rpexec_driver *driver, rp_dtype dtype);

/** @return an op that `op` waits for and that has not happened yet; op_count: none. @param happened
 * [op] whether it has */
uint32_t rpexec_driver_missing(const rp_program *program, const bool *happened, uint32_t op);

/** @return true if `op` waits for `other`. */
bool rpexec_driver_waits_for(const rp_program *program, uint32_t op, uint32_t other);

/** Sleeps as config->delay_us and its classes say before `op`. */
void rpexec_driver_delay(const rpexec_driver_config *config, uint32_t op);

/** @return true if a run is to be given up: no op has ended for config->watchdog_s, and nothing
 * excuses that. @param last_end_ns time of the last end or excuse, which is updated */
bool rpexec_driver_is_idle(const rpexec_driver_config *config, void *context, int64_t *last_end_ns);

/** Logs that `op` has failed, unless another process has failed. */
void rpexec_driver_log_failure(const rpexec_plan *plan, uint32_t op, rp_status status);

/** Logs that a queue's next op, `op`, waits for the op `other`, or for `text` if that is
 * op_count. */
void rpexec_driver_log_wait(const rpexec_plan *plan, uint32_t queue, uint32_t op, uint32_t other,
                            const char *text);
