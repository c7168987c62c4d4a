/** @file chakra.h  Chakra execution traces (MLCommons, et_def.proto; formats.md 3), the input of
 * ASTRA-sim. Each rank has a file PREFIX.RANK.et with a GlobalMetadata and then Nodes, each
 * preceded by its length.
 *
 * The export contains the ops of a timeline. A rank is a GPU; the host's ops are CPU nodes of rank
 * 0. Computations are COMP nodes, uploads MEM_LOAD, downloads MEM_STORE, transfers to peers SEND
 * and RECV, collectives COLL. Every order, including that of a queue, is in data_deps, since
 * readers look at nothing else. A wait for an op of another rank becomes a SEND and a RECV; at
 * stage fidelity the SEND takes the hop, otherwise the time is in the transfers. A collective
 * synchronises its ranks by itself: its parts wait only for their own rank. Readers have a single
 * communication of a rank in flight at a time. A collective that is in flight while another rank
 * needs a SEND of the same rank would never end, so a collective comes after all SENDs and
 * collectives of its rank that had ended when it began. Chakra's times are whole microseconds, so
 * attributes keep the exact time: rp_ns, and rp_ps for the part below a nanosecond. If the host has
 * not launched an op yet, that delay is a CPU node before the op. */
#pragma once

#include "common/formats/protobuf.h"
#include "common/inputs/platform.h"
#include "common/timeline/timeline.h"

/** Numbers of node types and collectives in et_def.proto. */
typedef enum rpsim_chakra_type {
    RPSIM_CHAKRA_INVALID = 0,
    RPSIM_CHAKRA_METADATA = 1,
    RPSIM_CHAKRA_MEM_LOAD = 2,
    RPSIM_CHAKRA_MEM_STORE = 3,
    RPSIM_CHAKRA_COMP = 4,
    RPSIM_CHAKRA_SEND = 5,
    RPSIM_CHAKRA_RECV = 6,
    RPSIM_CHAKRA_COLL = 7,
} rpsim_chakra_type;

typedef enum rpsim_chakra_collective {
    RPSIM_CHAKRA_ALL_REDUCE = 0,
    RPSIM_CHAKRA_REDUCE = 1,
    RPSIM_CHAKRA_ALL_GATHER = 2,
    RPSIM_CHAKRA_GATHER = 3,
    RPSIM_CHAKRA_SCATTER = 4,
    RPSIM_CHAKRA_BROADCAST = 5,
    RPSIM_CHAKRA_ALL_TO_ALL = 6,
    RPSIM_CHAKRA_REDUCE_SCATTER = 7,
    RPSIM_CHAKRA_REDUCE_SCATTER_BLOCK = 8,
    RPSIM_CHAKRA_BARRIER = 9,
} rpsim_chakra_collective;

/** Field numbers of et_def.proto. */
enum {
    RPSIM_CHAKRA_NODE_ID = 1,
    RPSIM_CHAKRA_NODE_NAME = 2,
    RPSIM_CHAKRA_NODE_TYPE = 3,
    RPSIM_CHAKRA_NODE_CTRL_DEPS = 4,
    RPSIM_CHAKRA_NODE_DATA_DEPS = 5,
    RPSIM_CHAKRA_NODE_START = 6,
    RPSIM_CHAKRA_NODE_DURATION = 7,
    RPSIM_CHAKRA_NODE_ATTRIBUTE = 10,
    RPSIM_CHAKRA_ATTRIBUTE_NAME = 1,
    RPSIM_CHAKRA_ATTRIBUTE_INT32 = 7,
    RPSIM_CHAKRA_ATTRIBUTE_INT64 = 9,
    RPSIM_CHAKRA_ATTRIBUTE_UINT32 = 11,
    RPSIM_CHAKRA_ATTRIBUTE_UINT64 = 13,
    RPSIM_CHAKRA_ATTRIBUTE_BOOL = 27,
    RPSIM_CHAKRA_ATTRIBUTE_STRING = 29,
};

/** Most ranks of an export: each has an open file. */
#define RPSIM_CHAKRA_MAX_RANKS 512u

/* ---- export ---------------------------------------------------------------------------------- */

typedef struct rpsim_chakra_export rpsim_chakra_export;

/** Form of the host's ops and of late launches. */
typedef enum rpsim_chakra_host {
    RPSIM_CHAKRA_HOST_KEEP,  /**< CPU nodes: ops of rank 0, and late launches */
    RPSIM_CHAKRA_HOST_DELAY, /**< nodes on the GPU that waits for them, as long as it waits; there
                                are no CPU nodes */
} rpsim_chakra_host;

/**
 * Prepares a timeline for export. The GPUs of a layout with D copies and T parts of a layer become
 * ranks of their own: rank (GPU x D + copy) x T + part.
 * @param timeline borrowed
 * @param hop_ps time of a boundary tensor between ranks if the program is not lowered
 * @param boundary_bytes bytes of a boundary tensor; if unknown it is 0 and 1 is written, since a
 * message has a size
 * @param export_out lives in `arena`
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpsim_chakra_prepare(const rp_timeline *timeline, int64_t hop_ps, uint64_t boundary_bytes,
                               rpsim_chakra_host host, rp_arena *arena,
                               rpsim_chakra_export **export_out);

/** @return true if some duration is not a whole number of microseconds. */
bool rpsim_chakra_loses_precision(const rpsim_chakra_export *export);

/**
 * Appends a rank's file to `file`, parents before children.
 * @retval RP_OK, RP_NO_MEMORY, RP_BROKEN (the timeline's program has a cycle; logged)
 */
rp_status rpsim_chakra_encode(rpsim_chakra_export *export, uint32_t rank, rp_arena *arena,
                              rp_text *file);

/** The open files: a file for each rank, and for layouts a file of process groups. */
typedef struct rpsim_chakra_files {
    rp_output *outputs; /**< [count] */
    uint32_t count;
    rp_output groups; /**< PREFIX.groups.json if there is a layout, otherwise zero */
} rpsim_chakra_files;

/**
 * Opens PREFIX.RANK.et for each rank and PREFIX.groups.json for the groups of a layout; the files
 * appear only when they are written.
 * @param gpus GPUs of the program, each of which stands for all GPUs of the layout
 * @param files_out to be given to rpsim_chakra_discard, also after a failure
 * @retval RP_OK, RP_USAGE (more than RPSIM_CHAKRA_MAX_RANKS), RP_INPUT (logged), RP_NO_MEMORY
 */
rp_status rpsim_chakra_open(const char *prefix, uint32_t gpus, const rp_layout *layout,
                            rp_arena *arena, rpsim_chakra_files *files_out);

/**
 * Encodes all ranks, then writes them.
 * @param timeline with as many ranks as there are files; other parameters as in
 * rpsim_chakra_prepare
 * @retval RP_OK, RP_IO (logged), RP_NO_MEMORY, RP_BROKEN
 */
rp_status rpsim_chakra_write(const rp_timeline *timeline, int64_t hop_ps, uint64_t boundary_bytes,
                             rpsim_chakra_host host, rp_arena *arena, rpsim_chakra_files *files);

/** Drops the files that were not written; a zeroed structure is allowed. */
void rpsim_chakra_discard(rpsim_chakra_files *files);

/* ---- import ---------------------------------------------------------------------------------- */

/** A node of a trace that was read. */
typedef struct rpsim_chakra_node {
    uint64_t id;
    int64_t ps;       /**< duration, or RPSIM_CHAKRA_BY_SIZE */
    uint64_t bytes;   /**< bytes of a transfer or collective */
    uint64_t group;   /**< hash of a collective's pg_name, 0 without */
    const char *name; /**< not terminated by NUL; borrowed from the file's bytes */
    uint32_t name_length;
    uint32_t rank;
    uint32_t dependency_begin; /**< index of its first dependency, data and control together */
    uint32_t dependency_count;
    uint32_t partner; /**< of a RECV: its SEND; of a COLL: a number that all members of the
                         collective share */
    int32_t source, destination, tag; /**< of SEND and RECV */
    uint8_t type;                     /**< rpsim_chakra_type */
    uint8_t collective;               /**< rpsim_chakra_collective */
    bool on_cpu;
    bool exact; /**< has rp_ns: the time is that of the export, and the node competes with no other
                 */
} rpsim_chakra_node;

/** Time of a node whose duration follows from its bytes. */
#define RPSIM_CHAKRA_BY_SIZE INT64_C(-1)

/** The traces of a job, rank after rank; zero-initialise. */
typedef struct rpsim_chakra_trace {
    rpsim_chakra_node *nodes; /**< counted block; sorted by rank and id after linking */
    uint32_t node_count;
    uint32_t node_capacity;
    uint64_t *dependencies; /**< counted block; ids, after linking indices of nodes */
    uint32_t dependency_count;
    uint32_t dependency_capacity;
    uint32_t *rank_begin; /**< counted block, [rank_count + 1]: the nodes of rank r begin at
                             rank_begin[r] */
    const char **names;   /**< counted block, [rank_count]: file names for messages; borrowed */
    uint32_t rank_count;
    uint32_t rank_capacity;
    uint32_t meeting_count; /**< number of collectives, counted by linking */
} rpsim_chakra_trace;

/**
 * Adds the next rank's file. Unknown attributes and fields are skipped.
 * @param name name of the file, for messages; must outlive the trace
 * @param bytes `length` bytes, must outlive the trace
 * @retval RP_OK
 * @retval RP_INPUT logged as "name: byte N: cause; valid …", or for a node "name: node ID (NAME):
 * …"
 * @retval RP_NO_MEMORY
 */
rp_status rpsim_chakra_add(rpsim_chakra_trace *trace, const char *name, const void *bytes,
                           size_t length);

/**
 * Finds parents and partners: each id must occur once in a rank, and dependencies must be in the
 * same rank. SENDs and RECVs of the same ranks and tag must be equal in number, and are matched in
 * order. All ranks of a process group must have the same collectives in the same order.
 * @retval RP_OK, RP_INPUT (logged), RP_NO_MEMORY
 */
rp_status rpsim_chakra_link(rpsim_chakra_trace *trace, rp_arena *arena);

/** Frees the trace's memory. */
void rpsim_chakra_fini(rpsim_chakra_trace *trace);

/** Bytes per second of nodes that have a size and no duration. */
typedef struct rpsim_chakra_rates {
    double memory; /**< MEM_LOAD and MEM_STORE */
    double peer;   /**< SEND */
    /** Through each rank. A size is the bytes that a rank contributes: reduce-scatter and
     * all-to-all move (n - 1) / n of it, all-reduce twice that, all-gather n - 1 times the size, a
     * barrier nothing, all others the size. */
    double collective;
} rpsim_chakra_rates;

/** @return the platform's rates: for memory its host link, for peers its peer links or else the
 * host link, for collectives its collective rate or else the rate of peers. */
rpsim_chakra_rates rpsim_chakra_platform_rates(const rp_platform *platform);

/** The work that ran on a rank. */
typedef struct rpsim_chakra_rank {
    uint32_t nodes;
    int64_t compute_ps; /**< sum of the times of computations */
    int64_t cpu_ps;
    int64_t memory_ps;
    int64_t send_ps;
    int64_t collective_ps;
    int64_t end_ps; /**< end of its last node */
} rpsim_chakra_rank;

/**
 * Runs the traces. A node starts when its parents have ended. A RECV also waits for the end of its
 * SEND, and takes no time unless it has an exact time. A collective starts when all its ranks can
 * start it. Nodes without exact times take turns on their rank, first come, first served: at any
 * time at most one computation on the GPU, one on the CPU, and one load, store, send and collective
 * each.
 * @param trace linked
 * @param ranks_out [rank_count], lives in `arena`
 * @retval RP_OK, RP_INPUT (nodes wait for each other, or times are too long; logged), RP_NO_MEMORY
 */
rp_status rpsim_chakra_run(const rpsim_chakra_trace *trace, const rpsim_chakra_rates *rates,
                           rp_arena *arena, rpsim_chakra_rank **ranks_out,
                           int64_t *makespan_ps_out);
