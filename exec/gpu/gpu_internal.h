/** @file gpu_internal.h  Inside of the GPU driver (exec/gpu). Not for other modules. */
#pragma once

#include "common/base/mem.h"
#include "exec/gpu/driver.h"
#include "exec/gpu/graphs.h"
#include "exec/gpu/turn.h"
#include "exec/run/rank_collective.h"

#include <pthread.h>
#include <stdatomic.h>

/** A GPU of the program, and the resources that stay with it between programs. */
typedef struct rpexec_gpu {
    rpexec_cuda_part part;
    rpexec_gpu_turn turn;               /**< held by the thread inside a part with a context */
    void *streams[RP_QUEUE_KIND_COUNT]; /**< [kind] streams of the kinds of queue that programs had
                                             so far */
    rpexec_lane *lanes[RP_QUEUE_KIND_COUNT];
    rpexec_cuda_lane_shape shapes[RP_QUEUE_KIND_COUNT]; /**< shapes of the lanes */
    rpexec_gpu_graphs *graphs[RP_QUEUE_KIND_COUNT];     /**< with --graphs */
    void *aside; /**< a stream of the whole device, for transfers and NCCL's copies */
    unsigned char *arena;
    uint64_t arena_bytes;
    unsigned char *scratch; /**< for sums of two GPUs' arrays */
    uint64_t scratch_bytes;
    unsigned char *rotary; /**< the model's tables, cosines first */
    uint64_t rotary_bytes;
    void **events; /**< events of ops */
    uint32_t event_count;
    void *base; /**< an event, whose time on the host's clock is base_ns */
    double base_ns;
    void *exchanged;    /**< an event after NCCL's latest work; NULL: NCCL's own order is enough */
    bool has_exchanged; /**< the event has been recorded */
} rpexec_gpu;

typedef struct rpexec_gpu_peers rpexec_gpu_peers;

/** Kinds of exchange between GPUs, each done by NCCL or otherwise. */
typedef enum rpexec_gpu_exchange {
    RPEXEC_GPU_COLLECTIVES,
    RPEXEC_GPU_COPIES, /**< copies of a SEND, and of a sum of two GPUs */
} rpexec_gpu_exchange;

struct rpexec_devices {
    const rpexec_cuda_calls *calls;
    rpexec_devices_config config;
    rp_arena *arena;
    uint32_t count;
    rpexec_gpu *gpus;
    bool *reached;           /**< [gpu][gpu] whether a GPU copies directly from the other's
                                  memory */
    rpexec_gpu_peers *peers; /**< trials of peer access that hang; NULL: none hangs */
    /** [axis][gpu] communicators of NCCL; NULL: the axis has none of its own; all are NULL if NCCL
     * is not used or they were aborted */
    void **communicators[RPEXEC_AXIS_COUNT];
    pthread_mutex_t enqueuing; /**< held while their work is enqueued: the same order on all GPUs */
    bool by_nccl[2];           /**< [rpexec_gpu_exchange] */
    const char *transport;     /**< the transport in use, for people */
    rpexec_attention_report attention;
    rpexec_attention_by attention_by; /**< decided from config.attention: not AUTO, once tried */
    bool attention_tried;
    const char *remedy; /**< advice if memory is full: settings to lower */
    bool is_split;
    atomic_bool graphs_failed; /**< a graph could not be made: there are no more */
    bool abandoned; /**< a thread of a driver has never come back: nothing may be freed */
    rpexec_pinned asked[RPEXEC_PINNED_ARRAYS]; /**< areas to pin: whole pages */
    uint32_t asked_count;
    uint64_t pinned[RPEXEC_PINNED_ARRAYS]; /**< bytes that are pinned, from the beginning of each */
    bool pinning_failed;                   /**< pinning is not tried again */
    unsigned char *host;                   /**< the program's pinned memory */
    uint64_t host_bytes;
};

/** A queue's means for copies in which a stream of the other GPU takes part. Over the host: two
 * halves of pinned memory, so that one fills while the other empties, and streams in which nobody
 * else copies, so that queues wait for each other only if the program says so. */
typedef struct rpexec_gpu_stage {
    unsigned char *memory; /**< NULL: the queue never copies over the host */
    void **streams;        /**< [gpu] streams of the whole device; NULL: reached directly, or by
                                NCCL */
    void *go;              /**< events of the queue's own stream */
    void *own[2];
    void **theirs; /**< [gpu][2] events of the other GPU's stream */
} rpexec_gpu_stage;

typedef struct rpexec_gpu_queue {
    rpexec_driver *driver;
    uint32_t number;
    uint32_t next;      /**< op that is enqueued next, or in the host's queues runs next */
    uint32_t submitted; /**< ops before this number have been submitted */
    uint32_t ended;     /**< ops before this number have been seen to end; only the watchdog moves
                             it */
    bool drained;       /**< all its ops have ended */
    pthread_t thread;
    pthread_cond_t wake;
    uint32_t index;  /**< number of its GPU */
    rpexec_gpu *gpu; /**< NULL: the host's */
    void *stream;
    rpexec_lane *lane;
    rpexec_gpu_graphs *graphs; /**< graphs of the GPU; NULL: operators are launched singly */
    rpexec_gpu_stage stage;
    void *bounce; /**< memory that `read` returns */
    uint64_t bounce_bytes;
} rpexec_gpu_queue;

/** GPUs that do collectives together. */
typedef struct rpexec_gpu_meeting {
    rpexec_axis axis; /**< axis of the group; unused for a pair */
    rpexec_host_group *group;
    rpexec_gpu_queue **queues; /**< [rank] the queue in which the rank is in a collective */
    void **events;             /**< [rank][2] events, of which each serves every other meeting */
    uint32_t *rounds;          /**< [rank] meetings so far */
    uint32_t ranks;
} rpexec_gpu_meeting;

/** Kinds of meetings: an axis each, and pairs. */
enum {
    RPEXEC_GPU_PAIRS = RPEXEC_AXIS_COUNT, /**< meetings of the two GPUs that have the copies of a
                                               tied table */
    RPEXEC_GPU_MEETINGS,
};

struct rpexec_driver {
    rpexec_driver_config config;
    rpexec_perform perform;
    void *context;
    rp_arena *arena;
    rpexec_devices *devices;
    const rpexec_cuda_calls *calls;
    rpexec_gpu_queue *queues;
    uint32_t started; /**< threads that have been started */
    rpexec_gpu_meeting *meetings[RPEXEC_GPU_MEETINGS];
    uint32_t meeting_counts[RPEXEC_GPU_MEETINGS];
    void **shared; /**< pinned memory that `shared` has handed out */
    uint32_t shared_count;
    uint32_t shared_most;
    pthread_mutex_t lock;
    pthread_cond_t moved; /**< something has been enqueued or has ended */
    bool *issued;         /**< [op] it has been enqueued; an op of the host: done */
    void **start_events;  /**< [op] NULL for ops of the host */
    void **end_events;
    int64_t *start_ns; /**< [op] start of the host's ops */
    int64_t *end_ns;
    int64_t begin_ns;
    int64_t last_end_ns;
    int64_t looked_ns; /* time of the watchdog's latest look */
    uint32_t drained;  /**< queues whose ops have all ended */
    bool closing;
    bool hung; /**< the watchdog has given up */
    rp_status status;
    uint32_t failed;         /**< op that failed first; op_count: none has */
    const char *failed_call; /**< call that gave an error first; NULL: none did */
    int failed_error;
    pthread_t failed_thread;
};

/** Notes that a call has given `error`; `finish` logs the first error.
 * @return true if the call succeeded */
bool rpexec_gpu_tried(rpexec_driver *driver, int error, const char *call);

/** Makes the run fail; the first status stays. */
void rpexec_gpu_fail(rpexec_driver *driver, rp_status status);

/** The same while the driver's lock is held. */
void rpexec_gpu_fail_locked(rpexec_driver *driver, rp_status status);

/** Most ops of a compute queue that are enqueued and have not ended. */
#define RPEXEC_GPU_AHEAD 2u

/** Time between two looks of the watchdog. */
#define RPEXEC_GPU_LOOK_NS INT64_C(1000000000)

/** With the driver's lock held: waits for a sign of life, `ns` at most. Once in RPEXEC_GPU_LOOK_NS
 * the watchdog looks, and the run fails when nothing has moved for too long (watchdog.c). */
void rpexec_gpu_watch(rpexec_driver *driver, int64_t ns);

/** Takes the turn of a queue's GPU, and enters it; release ends the turn. */
void rpexec_gpu_hold(rpexec_gpu_queue *queue);
void rpexec_gpu_release(rpexec_gpu_queue *queue);

/** Opens and closes a queue's means to copy over the host or by NCCL.
 * @retval RP_OK, RP_TOOL (logged), RP_NO_MEMORY */
rp_status rpexec_gpu_open_stage(rpexec_gpu_queue *queue);
void rpexec_gpu_close_stage(rpexec_gpu_queue *queue);

/** Enqueues a copy from a GPU's memory into another GPU's in `queue`, which belongs to either. */
void rpexec_gpu_copy_between(rpexec_gpu_queue *queue, uint32_t to_gpu, void *to, uint32_t from_gpu,
                             const void *from, uint64_t bytes);

/** Functions of rpexec_driver_type (copies.c). */
unsigned char *rpexec_gpu_memory(rpexec_driver *driver, uint32_t place);
rp_status rpexec_gpu_shared(rpexec_driver *driver, uint64_t bytes, void *memory_out);
rp_status rpexec_gpu_transfer(rpexec_driver *driver, void *to, const void *from, uint64_t bytes);
const void *rpexec_gpu_read(rpexec_driver *driver, uint32_t op, const void *from, uint64_t bytes);
const float *rpexec_gpu_rotary(rpexec_driver *driver, uint32_t op);
void rpexec_gpu_copy(rpexec_driver *driver, uint32_t op, void *to, const void *from,
                     uint64_t bytes);

/** Collectives (meetings.c). */
rp_status rpexec_gpu_open_meetings(rpexec_driver *driver);
void rpexec_gpu_close_meetings(rpexec_driver *driver);

/** Wakes everybody who waits in a meeting, now and later. */
void rpexec_gpu_abort_meetings(rpexec_driver *driver);
rp_status rpexec_gpu_collective(rpexec_driver *driver, uint32_t op,
                                const rpexec_collective *collective, uint64_t *moved_out);
rp_status rpexec_gpu_sum_pair(rpexec_driver *driver, uint32_t op, uint32_t rank, uint64_t count,
                              void *array);

/** Pins RPEXEC_PINNED_ARRAYS arrays, once in a run, or as much of them as possible, with a warning
 * (pinned.c). */
void rpexec_gpu_pin(rpexec_devices *devices, const rpexec_pinned *arrays);
void rpexec_gpu_unpin(rpexec_devices *devices);

/** @return bytes, of `bytes` from `address` on, that a single copy may take: CUDA refuses a copy of
 * bytes that several calls have pinned, or of both pinned and pageable bytes */
uint64_t rpexec_gpu_pinned_together(const rpexec_devices *devices, const void *address,
                                    uint64_t bytes);

/** Copies in as many parts as pinning needs. @return an error of the calls, 0: none (copies.c) */
int rpexec_gpu_copy_pieces(const rpexec_devices *devices, void *to, const void *from,
                           uint64_t bytes, void *stream);

/** rpexec_driver_type.pinning. */
rpexec_pinning rpexec_gpu_pinning(const rpexec_devices *devices);

/** Finds the pairs of GPUs that reach each other, and tries them: pairs whose copies are wrong,
 * fail or hang count as not reaching each other, with a warning (peers.c).
 * @retval RP_OK, RP_TOOL, RP_NO_MEMORY (logged) */
rp_status rpexec_gpu_find_peers(rpexec_devices *devices);

/** @return false if trials still hang: nothing of the devices may be given back */
bool rpexec_gpu_close_peers(rpexec_devices *devices);

/** Decides how GPUs exchange, and makes NCCL's communicators if they are needed (exchange.c).
 * @retval RP_OK, RP_USAGE, RP_TOOL, RP_NO_MEMORY (logged) */
rp_status rpexec_gpu_open_exchange(rpexec_devices *devices);

/** Names the transport, after rpexec_gpu_find_peers. */
void rpexec_gpu_name_exchange(rpexec_devices *devices);
void rpexec_gpu_close_exchange(rpexec_devices *devices);

/** After a failure: frees threads that wait in NCCL for a GPU that never comes. Work that NCCL has
 * under way is lost, and NCCL cannot be used any more.
 * @return true if NCCL has come back; otherwise GPUs may hang */
bool rpexec_gpu_abort_exchange(rpexec_devices *devices);

/** @return an error that NCCL has met since; 0: none. */
int rpexec_gpu_exchange_error(const rpexec_devices *devices);

/** Enqueues a collective on all GPUs when all of them have come to it. @param queue the queue of
 * the calling thread */
void rpexec_gpu_collect_by_nccl(rpexec_gpu_queue *queue, const rpexec_gpu_meeting *meeting);

/** As rpexec_gpu_copy_between, by NCCL. */
void rpexec_gpu_copy_by_nccl(rpexec_gpu_queue *queue, uint32_t to_gpu, void *to, uint32_t from_gpu,
                             const void *from, uint64_t bytes);

/**
 * Elements that collectives sum at a time. A share of S elements on n GPUs takes ceil(S / chunk) x
 * (2 n) launches of its rank: n - 1 copies, n additions, 1 rounding. With 4 Mi elements an addition
 * of 16 bits moves 4 Mi x (2 + 4 + 4) bytes = 40 MiB, which takes longer than to launch it, and so
 * does the copy of 8 MiB before it: more would save nothing. A rank's share of a block with 50
 * million parameters on 8 GPUs, 6.3 million, is 32 launches (of 65536 elements: 1552). The plan
 * reserves 4 Mi x (4 + 2) bytes = 24 MiB for the chunk, 32 MiB in fp32, for a single collective of
 * a GPU at a time, and less if the longest share is shorter.
 */
#define RPEXEC_GPU_CHUNK (UINT64_C(4) << 20)

/** @return bytes of scratch that `gpu` needs for the sum of a pair; 0: it is in no pair. */
uint64_t rpexec_gpu_pair_scratch(const rpexec_plan *plan, uint32_t gpu);

/** Gets the devices ready for a program: arenas, events, lanes, pinned memory (devices.c).
 * @retval RP_OK, RP_TOOL, RP_NO_MEMORY (logged) */
rp_status rpexec_gpu_prepare(rpexec_driver *driver);

/** Refuses attention by cuDNN as far as possible before there is a program (attention.c).
 * @retval RP_OK, RP_USAGE (logged) */
rp_status rpexec_gpu_open_attention(rpexec_devices *devices);

/** Decides, once in a run, whether cuDNN does attention, and gets the lanes ready for it.
 * @retval RP_OK, RP_USAGE (cuDNN is forced and cannot do it), RP_TOOL, RP_NO_MEMORY (logged) */
rp_status rpexec_gpu_choose_attention(rpexec_driver *driver);

/** rpexec_driver_type.attention. */
void rpexec_gpu_report_attention(const rpexec_devices *devices,
                                 rpexec_attention_report *report_out);

/** Finds the time of each GPU's `base` on the host's clock. @retval RP_OK, RP_TOOL (logged) */
rp_status rpexec_gpu_align(rpexec_devices *devices);

/** @return words to add to the text of `error`: the settings to lower if memory is full, or "". */
const char *rpexec_gpu_remedy(const rpexec_devices *devices, int error);

/** rpexec_gpu_tried before there is a run: logs. @return RP_OK, RP_TOOL */
rp_status rpexec_gpu_check(const rpexec_devices *devices, int error, const char *call);

/** Enters a GPU for the main thread, which takes its turn; leave ends both. */
void rpexec_gpu_visit(const rpexec_devices *devices, rpexec_gpu *gpu);
void rpexec_gpu_leave(const rpexec_devices *devices, rpexec_gpu *gpu);
