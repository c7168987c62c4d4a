/** @file machine.h  Devices on a CPU: streams are threads, memory is the host's.
 *
 * It is the base of the emulator, whose CUDA and NCCL call these functions, and of the table of
 * exec/gpu/calls.h for unit tests of exec/gpu (tests/support/fake/cuda.h). Streams have bounded
 * in-order queues, events count their records. Functions return 0 or a CUDA error.
 *
 * Misuse that CUDA would not notice, or would notice only on some machines, is an error here: a
 * wait for an event that has never been recorded, a stream or event whose context is not the
 * current context, a context current in two threads, a copy from a device that is not reached, or a
 * copy that crosses the end of pinned memory.
 */
#pragma once

#include "exec/cuda/emulator/include/cuda_runtime_api.h"
#include "exec/gpu/calls.h"

/** Calls that fail on a machine without graphs. */
typedef enum emulated_graph_call {
    EMULATED_ALL_WORK,
    EMULATED_BEGIN_FAILS,
    EMULATED_LAUNCH_FAILS, /**< the first launch of a capture fails */
    EMULATED_END_FAILS,
    EMULATED_MAKE_FAILS,
} emulated_graph_call;

/** Behaviour of copies between devices that report to reach each other. */
typedef enum emulated_peer_copies {
    EMULATED_PEERS_COPY,
    EMULATED_PEERS_SPOIL, /**< a byte is changed in copies from a device to a device with a lower
                               number */
    EMULATED_PEERS_HANG,  /**< copies in that direction hang until emulator_unstick */
} emulated_peer_copies;

/** Properties of the machine. A process has a single machine at a time. */
typedef struct emulated_machine {
    int devices; /**< number of devices, at most 8; 0: none */
    bool green;  /**< the fake's devices can be split; the emulator's devices always can */
    bool peers;  /**< devices reach each other */
    emulated_peer_copies peer_copies;
    bool unpinnable;            /**< cudaHostRegister fails */
    uint64_t most_pinned;       /**< total bytes beyond which it fails; 0: not limited */
    uint64_t most_bytes;        /**< most bytes of a GPU's memory in use; 0: not limited */
    uint64_t seed;              /**< seed of the delays */
    uint32_t delay_us;          /**< longest delay in us before a stream's work, in 1 of 16 cases;
                                     0: none */
    bool often;                 /**< delays in 1 of 2 cases */
    bool late_beside;           /**< delays only in streams that do not belong to a queue */
    uint32_t fail_at;           /**< number of the copy that fails, from 1 on; 0: none */
    emulated_graph_call graphs; /**< the call of graphs that fails */
    double copy_Bps;        /**< rate of copies, halved for copies to the host; 0: not limited */
    uint32_t copy_us;       /**< with copy_Bps: us added to the time of each copy */
    uint32_t stick_at;      /**< number of the copy at which a stream stops; 0: none */
    bool nccl;              /**< there is NCCL; in the emulator it is a separate library */
    bool nccl_refuses;      /**< NCCL makes no communicators */
    bool nccl_rounds;       /**< sums are rounded after every addition, in the order of a ring;
                                 otherwise NCCL adds like the driver's own ranks */
    uint32_t nccl_fail_at;  /**< number of the ncclGroupEnd that fails, from 1 on; 0: none */
    uint32_t nccl_lose_at;  /**< number of NCCL's kernel that never begins; 0: none */
    uint32_t nccl_error_at; /**< number of a kernel that never begins, with an error reported by
                                 NCCL; 0: none */
    void (*asked)(void);    /**< called at each query of an event */
} emulated_machine;

/** Sets the machine, with all counts 0. Before the first call the environment sets it:
 * EMULATED_DEVICES (default 1), EMULATED_PEERS (not empty: devices reach each other),
 * EMULATED_DELAY_US. */
void emulator_set_machine(const emulated_machine *machine);

/** @return the current machine. */
const emulated_machine *emulator_machine(void);

/** Lets a stuck stream go on. */
void emulator_unstick(void);

/** @return whether a stream is stuck. */
bool emulator_is_stuck(void);

/** Counts, which become 0 when a machine is set, except EMULATED_LEFT. */
typedef enum emulated_count {
    EMULATED_LEFT,         /**< streams, events, graphs, communicators, contexts and memories that
                                have not been released */
    EMULATED_COPIES,       /**< enqueued copies */
    EMULATED_RECORDS,      /**< most records of events that a computing stream had in its queue */
    EMULATED_REFUSED_PINS, /**< calls of cudaHostRegister that have failed */
    EMULATED_CAPTURES,     /**< captures that became graphs */
    EMULATED_GRAPHS,       /**< launches of graphs */
    EMULATED_IN_GRAPHS,    /**< launches contained in these */
    EMULATED_OPERATORS,    /**< operators of the fake that were launched singly */
    EMULATED_KEPT,         /**< graphs that have not been destroyed */
    EMULATED_GROUPS,       /**< groups of NCCL */
    EMULATED_KERNELS,      /**< enqueued kernels of NCCL */
    EMULATED_STREAMS,      /**< streams that were made */
    EMULATED_SUMS,         /**< additions and roundings of the fake's collectives */
    EMULATED_GREENS,       /**< green contexts that the fake has made */
    EMULATED_RANGES,       /**< ranges that were begun; a range inside another range of its thread,
                                or without a name, counts a million more */
    EMULATED_PLANS,        /**< requests for plans of attention */
    EMULATED_TRIALS,       /**< trials of attention */
    EMULATED_PLANNED,      /**< lanes that have plans for attention now */
    EMULATED_COUNTS,
} emulated_count;

/** @return the current count, and the count before `more` was added. */
uint32_t emulator_counted(emulated_count what);
uint32_t emulator_count(emulated_count what, int more);

/* ---- contexts and memory (memory.c) ---------------------------------------------------------- */

/** @return the part to which the calling thread's calls apply; may be set. */
rpexec_cuda_part *emulator_here(void);

/** Behave as `enter` and `leave` of calls.h. */
int emulator_enter(const rpexec_cuda_part *part);
int emulator_leave(const rpexec_cuda_part *part);

/** @return whether a thread has entered the context. */
bool emulator_is_current(const void *context);

/** Behave as the functions of calls.h. */
bool emulator_reach(int device, int peer);
bool emulator_reaches(int device, int of); /**< whether emulator_reach was called; the host, -1, is
                                              always reached */
int emulator_memory_take(uint64_t bytes, void **memory_out);
int emulator_host_take(uint64_t bytes, void **memory_out);
int emulator_give(void *memory); /**< also pinned memory */
int emulator_host_pin(void *memory, uint64_t bytes);
int emulator_copy(void *to, const void *from, uint64_t bytes, void *stream);
int emulator_fill(void *to, int byte, uint64_t bytes, void *stream);

/** @return the device of the memory: -1 for pinned memory of the host, -2 for unknown memory. */
int emulator_owner(const void *address);

/** @return whether kernels of a device reach the address; true for NULL. */
bool emulator_is_reached(int device, const void *address);

/** @return an error's meaning, in CUDA's words. */
const char *emulator_text(int error);

/* ---- streams and events (streams.c) ---------------------------------------------------------- */

/** @return the part of a device that a stream belongs to. */
const rpexec_cuda_part *emulator_part_of(const void *stream);

/** Notes that a stream belongs to a queue. @param computes operators of layers run in it */
void emulator_stream_of_queue(void *stream, bool computes);

/** Behave as the functions of calls.h. */
int emulator_stream_create(const rpexec_cuda_part *part, void **stream_out);
int emulator_stream_destroy(void *stream); /**< after all work in it */
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

/** Most bytes of arguments of enqueued work. */
#define EMULATOR_ARGUMENTS 1536u

/** Work of a stream. */
typedef struct emulated_work {
    void (*run)(const void *arguments);
    bool (*can)(const void *arguments); /**< called when a graph with the work is launched: whether
                                             it can run; NULL: always */
    const void *arguments;              /**< copied */
    size_t bytes;                       /**< size of the arguments, at most EMULATOR_ARGUMENTS */
} emulated_work;

/** Enqueues the work in the stream, or adds it to the capture if this thread captures the
 * stream. */
int emulator_launch(void *stream, const emulated_work *work);

/* ---- captures and graphs (graphs.c) ---------------------------------------------------------- */

/** @return true if this thread captures: then the call is not permitted, and the capture becomes
 * invalid. */
bool emulator_breaks_capture(void);

/** @return whether this thread captures; the capture stays valid. */
bool emulator_is_capturing(void);

/** Behave as the functions of calls.h. */
int emulator_capture_begin(void *stream);
int emulator_capture_end(void *stream, void **captured_out);
int emulator_captured_destroy(void *captured);
int emulator_graph_make(void *captured, void **graph_out);
int emulator_graph_launch(void *graph, void *stream);
int emulator_graph_destroy(void *graph);

/** NCCL's calls (nccl.c). */
extern const rpexec_nccl_calls emulator_nccl;
