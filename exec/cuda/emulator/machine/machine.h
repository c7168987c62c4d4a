/** @file machine.h  Devices on a CPU: streams are threads, memory is the host's.
 *
 * Below the emulator, whose CUDA and NCCL are calls of this, and below the table of
 * exec/gpu/calls.h that unit tests of exec/gpu take (tests/support/fake/cuda.h). Streams have
 * bounded in-order queues, events count their records. Functions give 0 or one of CUDA's errors.
 *
 * Misuse that CUDA would not notice, or would notice on some machines only, is an error here: a
 * wait for an event that has never been recorded, a stream or an event of another context than the
 * current one, a context current in two threads, a copy from a device that is not reached, or one
 * that crosses the end of pinned memory.
 */
#pragma once

#include "exec/cuda/emulator/include/cuda_runtime_api.h"
#include "exec/gpu/calls.h"

/** Calls that fail on a machine without graphs. */
typedef enum emulated_graph_call {
    EMULATED_ALL_WORK,
    EMULATED_BEGIN_FAILS,
    EMULATED_LAUNCH_FAILS, /**< the first one of a capture */
    EMULATED_END_FAILS,
    EMULATED_MAKE_FAILS,
} emulated_graph_call;

/** Copies between devices that say they reach each other. */
typedef enum emulated_peer_copies {
    EMULATED_PEERS_COPY,
    EMULATED_PEERS_SPOIL, /**< one byte, on the way from a device to one with a lower number */
    EMULATED_PEERS_HANG,  /**< so do they on that way, until emulator_unstick */
} emulated_peer_copies;

/** Properties of the machine. One at a time in a process. */
typedef struct emulated_machine {
    int devices; /**< 0: none; 8 at most */
    bool green;  /**< the fake's devices can be split; the emulator's always */
    bool peers;  /**< devices reach each other */
    emulated_peer_copies peer_copies;
    bool unpinnable;            /**< cudaHostRegister fails */
    uint64_t most_pinned;       /**< it fails beyond so many bytes in all; 0: not limited */
    uint64_t most_bytes;        /**< of a GPU's memory at once; 0: not limited */
    uint64_t seed;              /**< of the delays */
    uint32_t delay_us;          /**< longest delay before what a stream does, one time in 16;
                                     0: none */
    bool often;                 /**< one time in 2 */
    bool late_beside;           /**< only in streams that are no queue's */
    uint32_t fail_at;           /**< this copy fails, from 1 on; 0: none */
    emulated_graph_call graphs; /**< the call of them that fails */
    double copy_Bps;        /**< of copies; down to the host half of it; 0: as fast as it goes */
    uint32_t copy_us;       /**< with copy_Bps: added to the time of each copy */
    uint32_t stick_at;      /**< a stream never gets beyond this copy; 0: none */
    bool nccl;              /**< there is NCCL; in the emulator it is a library of its own */
    bool nccl_refuses;      /**< which makes no communicators */
    bool nccl_rounds;       /**< sums are rounded after every addition, in the order of a ring;
                                 otherwise as the driver's own ranks add */
    uint32_t nccl_fail_at;  /**< this ncclGroupEnd fails, from 1 on; 0: none */
    uint32_t nccl_lose_at;  /**< this kernel of NCCL's never begins; 0: none */
    uint32_t nccl_error_at; /**< nor does this one, and NCCL says so; 0: none */
    void (*asked)(void);    /**< called whenever an event is asked whether it has happened */
} emulated_machine;

/** The machine from now on, with nothing counted. Until the first call it is as the environment
 * says: EMULATED_DEVICES (1 without), EMULATED_PEERS (not empty: they reach each other),
 * EMULATED_DELAY_US. */
void emulator_set_machine(const emulated_machine *machine);

/** @return the machine of this moment. */
const emulated_machine *emulator_machine(void);

/** Lets the stream that is stuck go on. */
void emulator_unstick(void);

/** @return true where a stream is stuck. */
bool emulator_is_stuck(void);

/** Numbers that are 0 when a machine is set, but for EMULATED_LEFT. */
typedef enum emulated_count {
    EMULATED_LEFT,         /**< streams, events, graphs, communicators, contexts and memories that
                                have not been given back */
    EMULATED_COPIES,       /**< enqueued */
    EMULATED_RECORDS,      /**< the most of events that a stream which computes had in its queue */
    EMULATED_REFUSED_PINS, /**< calls of cudaHostRegister that have failed */
    EMULATED_CAPTURES,     /**< that became graphs */
    EMULATED_GRAPHS,       /**< launches of them */
    EMULATED_IN_GRAPHS,    /**< launches that these contained */
    EMULATED_OPERATORS,    /**< of the fake, launched one by one */
    EMULATED_KEPT,         /**< graphs that have not been destroyed */
    EMULATED_GROUPS,       /**< of NCCL */
    EMULATED_KERNELS,      /**< of NCCL, enqueued */
    EMULATED_STREAMS,      /**< made */
    EMULATED_SUMS,         /**< additions and roundings of the fake's collectives */
    EMULATED_GREENS,       /**< green contexts that the fake has made */
    EMULATED_RANGES,       /**< begun; a million more for each one inside of another one of its
                                thread, or without a name */
    EMULATED_PLANS,        /**< of attention that were asked for */
    EMULATED_TRIALS,       /**< of attention */
    EMULATED_PLANNED,      /**< lanes that have plans for attention now */
    EMULATED_COUNTS,
} emulated_count;

/** @return the number now, and the number before `more` was added. */
uint32_t emulator_counted(emulated_count what);
uint32_t emulator_count(emulated_count what, int more);

/* ---- contexts and memory (memory.c) ---------------------------------------------------------- */

/** @return the part that the calling thread's calls are about; may be set. */
rpexec_cuda_part *emulator_here(void);

/** As `enter` and `leave` of calls.h. */
int emulator_enter(const rpexec_cuda_part *part);
int emulator_leave(const rpexec_cuda_part *part);

/** @return true where a thread has entered the context. */
bool emulator_is_current(const void *context);

/** As the functions of calls.h. */
bool emulator_reach(int device, int peer);
bool emulator_reaches(int device,
                      int of); /**< since that has been called; of -1, the host: always */
int emulator_memory_take(uint64_t bytes, void **memory_out);
int emulator_host_take(uint64_t bytes, void **memory_out);
int emulator_give(void *memory); /**< also what has been pinned */
int emulator_host_pin(void *memory, uint64_t bytes);
int emulator_copy(void *to, const void *from, uint64_t bytes, void *stream);
int emulator_fill(void *to, int byte, uint64_t bytes, void *stream);

/** @return whose memory it is: -1 the host's, pinned; -2 nobody's that is known. */
int emulator_owner(const void *address);

/** @return true where kernels of a device reach the address, or it is NULL. */
bool emulator_is_reached(int device, const void *address);

/** @return an error's meaning, in CUDA's words. */
const char *emulator_text(int error);

/* ---- streams and events (streams.c) ---------------------------------------------------------- */

/** @return the part of a device that a stream belongs to. */
const rpexec_cuda_part *emulator_part_of(const void *stream);

/** It is a queue's. @param computes operators of layers run in it */
void emulator_stream_of_queue(void *stream, bool computes);

/** As the functions of calls.h. */
int emulator_stream_create(const rpexec_cuda_part *part, void **stream_out);
int emulator_stream_destroy(void *stream); /**< after all that is in it */
int emulator_stream_wait(void *stream, void *event);
int emulator_stream_synchronize(void *stream);
int emulator_event_create(void **event_out);
int emulator_event_destroy(void *event);
int emulator_event_record(void *event, void *stream);
int emulator_event_query(void *event);
int emulator_event_synchronize(void *event);
int emulator_event_elapsed(float *ms_out, void *from, void *to);

/** Waits until the streams have performed everything. */
void emulator_wait_idle(void);

/** Bytes of arguments that something enqueued may have. */
#define EMULATOR_ARGUMENTS 1536u

/** Something that a stream does. */
typedef struct emulated_work {
    void (*run)(const void *arguments);
    bool (*can)(const void *arguments); /**< asked when a graph with it is launched; NULL: it can */
    const void *arguments;              /**< copied */
    size_t bytes;                       /**< of them, EMULATOR_ARGUMENTS at most */
} emulated_work;

/** Has the work done when the stream comes to it, or notes it where this thread captures the
 * stream. */
int emulator_launch(void *stream, const emulated_work *work);

/* ---- captures and graphs (graphs.c) ---------------------------------------------------------- */

/** @return true where this thread captures: the call is not permitted, and the capture is no longer
 * valid. */
bool emulator_breaks_capture(void);

/** @return the same, of a capture that goes on. */
bool emulator_is_capturing(void);

/** As the functions of calls.h. */
int emulator_capture_begin(void *stream);
int emulator_capture_end(void *stream, void **captured_out);
int emulator_captured_destroy(void *captured);
int emulator_graph_make(void *captured, void **graph_out);
int emulator_graph_launch(void *graph, void *stream);
int emulator_graph_destroy(void *graph);

/** NCCL's calls (nccl.c). */
extern const rpexec_nccl_calls emulator_nccl;
