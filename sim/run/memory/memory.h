/** @file memory.h  Memory that a run holds: bytes over time per GPU and on the host.
 *
 * A buffer of the program lives from the start of its first op to the end of its last op; at the
 * same instant memory is freed before it is allocated. To a GPU's buffers come the CUDA context,
 * the workspace and the allocator's overhead, to the host's what a model has there all the time.
 * The allocator is otherwise perfect: no fragments; on the host nothing else runs.
 */
#pragma once

#include "common/inputs/platform.h"
#include "common/timeline/timeline.h"

/** Memory that there is, and its part that is taken before any buffer. */
typedef struct rpsim_memory_limits {
    uint64_t gpu_bytes;       /**< usable per GPU */
    uint64_t gpu_fixed_bytes; /**< context and workspace */
    double gpu_overhead;      /**< of the allocator, as a fraction of the buffers' bytes */
    uint64_t host_bytes;      /**< of all servers together; 0: unknown, nothing overflows */
    uint64_t host_fixed_bytes;
    uint32_t host_servers;
} rpsim_memory_limits;

#define RPSIM_OOM_REASON_SIZE 256

/** Most parts of a need: the kinds of buffers, and what is always there. */
#define RPSIM_NEED_PARTS 8u

/** Need of the place that overflows most, at its worst moment. */
typedef struct rpsim_memory_need {
    bool host;
    uint32_t gpu;         /**< where it is not the host */
    bool step;            /**< while that GPU steps its parameters */
    uint64_t need_bytes;  /**< 0: everything fits */
    uint64_t limit_bytes; /**< below need_bytes, but where segments of an allocator are short */
    struct {
        const char *name;      /**< static */
        uint64_t bytes;        /**< overhead included */
    } parts[RPSIM_NEED_PARTS]; /**< largest first */
    uint32_t part_count;
} rpsim_memory_need;

/** Zeroed: not modelled. */
typedef struct rpsim_memory {
    bool known;
    bool fits; /**< as far as limits are known */
    uint32_t gpu_count;
    uint64_t *peak_gpu_bytes; /**< [gpu_count] fixed bytes and overhead included */
    uint64_t peak_host_bytes;
    /* Memory of the host, and its part that is taken all the time, as in the limits. */
    uint64_t host_bytes;
    uint64_t host_fixed_bytes;
    uint32_t host_servers;
    /** Which buffer, when, by how much; of the host need and limit; "" where everything fits. Of
     * several places that overflow, the one that does so first. */
    char oom_reason[RPSIM_OOM_REASON_SIZE];
    rpsim_memory_need need; /**< where it does not fit */
} rpsim_memory;

/**
 * "needs 118.1 of 25.3 GB on GPU 0: optimizer 72.1, …" in one line: as many parts as have a place.
 * @param columns at most so many characters, as far as need and limit allow
 */
void rpsim_memory_say_need(const rpsim_memory_need *need, uint32_t columns, char *text,
                           size_t size);

/**
 * Limits of a platform's GPUs and of the servers that `gpus` successive GPUs are in. Host memory is
 * that of these servers together: what lies there is spread over them (common/machine/machine.h).
 */
rpsim_memory_limits rpsim_memory_limits_of(const rp_platform *platform, const rp_traits *traits,
                                           uint32_t gpus);

/** @return true where the host's part is within its limit, or that is unknown. */
bool rpsim_memory_host_fits(const rpsim_memory *memory);

/** Makes need and limit of the host the reason why the run does not fit. */
void rpsim_memory_blame_host(rpsim_memory *memory);

/** Copies a result into another arena. @retval RP_OK, RP_NO_MEMORY */
rp_status rpsim_memory_copy(const rpsim_memory *memory, rp_arena *arena, rpsim_memory *copy_out);

/**
 * Follows the buffers of the timeline's program through the run. Time and scratch memory are linear
 * in their number.
 * @param arena owns memory_out->peak_gpu_bytes
 * @param memory_out not known where the program has no buffers with bytes
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpsim_memory_measure(const rp_timeline *timeline, const rpsim_memory_limits *limits,
                               rp_arena *arena, rpsim_memory *memory_out);
