/** @file memory.h  The memory that a run holds: bytes over time on each GPU and on the host.
 *
 * A buffer of the program lives from the start of its first op to the end of its last op; at the
 * same instant memory is freed before it is allocated. The CUDA context, the workspace and the
 * allocator's overhead are added to a GPU's buffers, and the memory that the model always takes on
 * the host is added to the host's buffers. Apart from its overhead the allocator is perfect (no
 * fragments), and nothing else runs on the host.
 */
#pragma once

#include "common/inputs/platform.h"
#include "common/program/limits.h"
#include "common/timeline/timeline.h"

/** The memory available, and the part of it that is taken before any buffer. */
typedef struct rpsim_memory_limits {
    uint64_t gpu_bytes; /**< usable per GPU; the least if they are listed */
    uint32_t listed;    /**< GPUs of a node in each_bytes; 0: all have gpu_bytes */
    uint64_t each_bytes[RP_LISTED_GPUS];
    uint32_t inner; /**< listed GPUs that a GPU of the program stands for, in a row; 0: one */
    uint32_t outer; /**< repetitions of all of these; 0: none */
    uint64_t gpu_fixed_bytes; /**< context and workspace */
    double gpu_overhead;      /**< the allocator's overhead as a fraction of the buffers' bytes */
    /** Bytes that the allocator of a stack reserves per byte of live buffers, and of logits; 0: not
     * modelled */
    double gpu_reserve, logit_reserve;
    uint64_t host_bytes; /**< bytes of all servers together; 0: unknown, nothing overflows */
    uint64_t host_fixed_bytes;
    uint32_t host_servers;
} rpsim_memory_limits;

#define RPSIM_OOM_REASON_SIZE 256

/** Most parts of a need: the kinds of buffers, and the fixed bytes. */
#define RPSIM_NEED_PARTS 8u

/** The need of the place that overflows most, at its worst moment. */
typedef struct rpsim_memory_need {
    bool host;
    uint32_t gpu;         /**< set if `host` is false */
    bool step;            /**< the worst moment is while that GPU steps its parameters */
    uint64_t need_bytes;  /**< 0: everything fits */
    uint64_t limit_bytes; /**< below need_bytes, unless an allocator is short of segments */
    struct {
        const char *name;      /**< a static string */
        uint64_t bytes;        /**< overhead included */
    } parts[RPSIM_NEED_PARTS]; /**< the parts of the need, largest first */
    uint32_t part_count;
} rpsim_memory_need;

/** Memory of a run. If it is zeroed, memory is not modelled. */
typedef struct rpsim_memory {
    bool known;
    bool fits; /**< as far as limits are known */
    uint32_t gpu_count;
    uint64_t *peak_gpu_bytes; /**< [gpu_count] fixed bytes and overhead included */
    uint64_t gpu_fixed_bytes; /**< of these bytes: context, workspace, communicators */
    /** [gpu_count] most that PyTorch's allocator takes for them, without fixed bytes, and at most
     * as much as there is; NULL: not modelled */
    uint64_t *reserved_gpu_bytes;
    uint64_t peak_host_bytes;
    /* Memory of the host, and the part of it that is always taken, as in the limits. */
    uint64_t host_bytes;
    uint64_t host_fixed_bytes;
    uint32_t host_servers;
    /** Which buffer overflows, when, and by how many bytes; for the host need and limit; "" if
     * everything fits. If several places overflow, it is about the first in time. */
    char oom_reason[RPSIM_OOM_REASON_SIZE];
    rpsim_memory_need need; /**< set if the run does not fit */
} rpsim_memory;

/**
 * "needs 118.1 of 25.3 GB on GPU 0: optimizer 72.1, …" in one line, with as many parts as fit into
 * it.
 * @param columns most characters of the line, unless need and limit alone take more
 */
void rpsim_memory_say_need(const rpsim_memory_need *need, uint32_t columns, char *text,
                           size_t size);

/**
 * The limits of a platform's GPUs and of the servers that `gpus` successive GPUs are in. Host
 * memory is the sum over these servers, since data on the host is spread over them
 * (common/machine/machine.h).
 */
rpsim_memory_limits rpsim_memory_limits_of(const rp_platform *platform, const rp_traits *traits,
                                           uint32_t gpus);

/** @return usable bytes of a GPU of the program: of the smallest GPU that it stands for.
 * @param gpus GPUs of the program */
uint64_t rpsim_memory_limit(const rpsim_memory_limits *limits, uint32_t gpu, uint32_t gpus);

/** @return true if the host's part is within its limit, or the limit is unknown. */
bool rpsim_memory_host_fits(const rpsim_memory *memory);

/** Gives the host's need and limit as the reason why the run does not fit. */
void rpsim_memory_blame_host(rpsim_memory *memory);

/** Copies a result into another arena. @retval RP_OK, RP_NO_MEMORY */
rp_status rpsim_memory_copy(const rpsim_memory *memory, rp_arena *arena, rpsim_memory *copy_out);

/**
 * Follows the buffers of the timeline's program through the run. Time and scratch memory are linear
 * in the number of buffers.
 * @param arena owns memory_out->peak_gpu_bytes
 * @param memory_out `known` is false if the program has no buffers with bytes
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpsim_memory_measure(const rp_timeline *timeline, const rpsim_memory_limits *limits,
                               rp_arena *arena, rpsim_memory *memory_out);
