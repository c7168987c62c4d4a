/** @file chakra.h  Chakra execution traces (MLCommons, et_def.proto; formats.md 3), what
 * ASTRA-sim runs: one file PREFIX.RANK.et per rank, a GlobalMetadata and then Nodes, each behind
 * its length.
 *
 * Exported are the ops of a timeline. A rank is a GPU; the host's ops are CPU nodes of rank 0.
 * Computations are COMP nodes, uploads MEM_LOAD, downloads MEM_STORE, transfers to peers SEND and
 * RECV, collectives COLL. Every order is in data_deps, that of a queue, too, since readers look at
 * nothing else. A wait for an op of another rank becomes a SEND and a RECV; at stage fidelity the
 * SEND takes the hop, otherwise the time is in the transfers. A collective synchronises its ranks
 * by itself: its parts wait for their own rank alone. Readers have one communication of a rank in
 * flight at a time, so that a collective that holds this place while another rank needs a SEND of
 * the same rank would never end: it comes after all SENDs and collectives of its rank that were
 * over when it began. Times are whole microseconds there,
 * so attributes keep them exactly: rp_ns, and rp_ps for what is below a nanosecond. What delays an
 * op and is no op, the host that has not launched it yet, is a CPU node before it.
 */
#pragma once

#include "common/formats/protobuf.h"
#include "common/inputs/platform.h"
#include "common/timeline/timeline.h"

/** Node types and collectives as et_def.proto numbers them. */
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

/** Most ranks that are exported: each has a file that is open. */
#define RPSIM_CHAKRA_MAX_RANKS 512u

/* ---- export ---------------------------------------------------------------------------------- */

typedef struct rpsim_chakra_export rpsim_chakra_export;

/** Form of the host's ops and of late launches. */
typedef enum rpsim_chakra_host {
    RPSIM_CHAKRA_HOST_KEEP,  /**< CPU nodes; ops of rank 0 */
    RPSIM_CHAKRA_HOST_DELAY, /**< nodes on the GPU that waits for them, as long as it waits: there
                                  are no CPU nodes */
} rpsim_chakra_host;

/**
 * Prepares a timeline for export. The GPUs of a layout become ranks of their own, rank
 * (GPU x D + copy) x T + part of D copies and T parts of a layer.
 * @param timeline borrowed
 * @param hop_ps what a boundary tensor takes between ranks where the program is not lowered
 * @param boundary_bytes of such a tensor; 0 where it is unknown: then 1, since a message has a size
 * @param export_out in `arena`
 * @retval RP_OK, RP_NO_MEMORY
 */
rp_status rpsim_chakra_prepare(const rp_timeline *timeline, int64_t hop_ps, uint64_t boundary_bytes,
                               rpsim_chakra_host host, rp_arena *arena,
                               rpsim_chakra_export **export_out);

/** @return true where some duration is no whole number of microseconds. */
bool rpsim_chakra_loses_precision(const rpsim_chakra_export *export);

/**
 * Appends a rank's file to `file`, parents before children.
 * @retval RP_OK, RP_NO_MEMORY, RP_BROKEN (the timeline's program has a cycle; logged)
 */
rp_status rpsim_chakra_encode(rpsim_chakra_export *export, uint32_t rank, rp_arena *arena,
                              rp_text *file);

/** Files that are open: one per rank, and one of process groups. */
typedef struct rpsim_chakra_files {
    rp_output *outputs; /**< [count] */
    uint32_t count;
    rp_output groups; /**< of layouts, otherwise zero */
} rpsim_chakra_files;

/**
 * Opens PREFIX.RANK.et for each rank and PREFIX.groups.json for the groups of a layout; nothing
 * appears there before it is written.
 * @param gpus of the program, each of which stands for those of the layout
 * @param files_out rpsim_chakra_discard, also after a failure
 * @retval RP_OK, RP_USAGE (more than RPSIM_CHAKRA_MAX_RANKS), RP_INPUT (logged), RP_NO_MEMORY
 */
rp_status rpsim_chakra_open(const char *prefix, uint32_t gpus, const rp_layout *layout,
                            rp_arena *arena, rpsim_chakra_files *files_out);

/**
 * Encodes all ranks, then writes them.
 * @param timeline of as many ranks as there are files; otherwise as rpsim_chakra_prepare
 * @retval RP_OK, RP_IO (logged), RP_NO_MEMORY, RP_BROKEN
 */
rp_status rpsim_chakra_write(const rp_timeline *timeline, int64_t hop_ps, uint64_t boundary_bytes,
                             rpsim_chakra_host host, rp_arena *arena, rpsim_chakra_files *files);

/** Drops what was not written; zeroes are allowed. */
void rpsim_chakra_discard(rpsim_chakra_files *files);

/* ---- import ---------------------------------------------------------------------------------- */

/** A node as it was read. */
typedef struct rpsim_chakra_node {
    uint64_t id;
    int64_t ps;       /**< time that it takes; RPSIM_CHAKRA_BY_SIZE */
    uint64_t bytes;   /**< of transfers and collectives */
    uint64_t group;   /**< hash of a collective's pg_name, 0 without */
    const char *name; /**< not ended by NUL; borrowed from the file's bytes */
    uint32_t name_length;
    uint32_t rank;
    uint32_t dependency_begin; /**< its dependencies, data and control */
    uint32_t dependency_count;
    uint32_t partner; /**< of a RECV: its SEND; of a COLL: what all its members share */
    int32_t source, destination, tag; /**< of SEND and RECV */
    uint8_t type;                     /**< rpsim_chakra_type */
    uint8_t collective;               /**< rpsim_chakra_collective */
    bool on_cpu;
    bool exact; /**< has rp_ns: happened so, and competes with nothing */
} rpsim_chakra_node;

/** The time follows from the bytes. */
#define RPSIM_CHAKRA_BY_SIZE INT64_C(-1)

/** The traces of a job, rank after rank; zero-initialise. */
typedef struct rpsim_chakra_trace {
    rpsim_chakra_node *nodes; /**< counted block; linked: by rank and id */
    uint32_t node_count;
    uint32_t node_capacity;
    uint64_t *dependencies; /**< counted block; ids, and linked: indices of nodes */
    uint32_t dependency_count;
    uint32_t dependency_capacity;
    uint32_t *rank_begin; /**< counted block, [rank_count + 1]: nodes of rank r are from
                               rank_begin[r] on */
    const char **names;   /**< counted block, [rank_count]: files, for messages; borrowed */
    uint32_t rank_count;
    uint32_t rank_capacity;
    uint32_t meeting_count; /**< linked: collectives, each of several ranks */
} rpsim_chakra_trace;

/**
 * Adds the next rank's file. Attributes and fields that it does not know are skipped.
 * @param name of the file, for messages; must outlive the trace
 * @param bytes `length` bytes, must outlive the trace
 * @retval RP_OK
 * @retval RP_INPUT logged as "name: byte N: cause; valid …", or for a node "name: node ID (NAME):
 * …"
 * @retval RP_NO_MEMORY
 */
rp_status rpsim_chakra_add(rpsim_chakra_trace *trace, const char *name, const void *bytes,
                           size_t length);

/**
 * Finds parents and partners: each id once in a rank, dependencies in the same rank, as many RECVs
 * as SENDs of the same ranks and tag (the first takes what the first sends), and collectives of one
 * process group as often and in the same order on each of its ranks.
 * @retval RP_OK, RP_INPUT (logged), RP_NO_MEMORY
 */
rp_status rpsim_chakra_link(rpsim_chakra_trace *trace, rp_arena *arena);

/** Gives the memory back. */
void rpsim_chakra_fini(rpsim_chakra_trace *trace);

/** Bytes per second where a node has a size and no duration. */
typedef struct rpsim_chakra_rates {
    double memory;     /**< MEM_LOAD and MEM_STORE */
    double peer;       /**< SEND */
    double collective; /**< through each rank; sizes are what one rank brings: reduce-scatter moves
                            (n - 1) / n of it, all-reduce twice that, all-gather n - 1 times it, the
                            others all of it */
} rpsim_chakra_rates;

/** @return the platform's: its host link, its peers or else that link, its collectives or else its
 * peers. */
rpsim_chakra_rates rpsim_chakra_platform_rates(const rp_platform *platform);

/** Work that ran on a rank. */
typedef struct rpsim_chakra_rank {
    uint32_t nodes;
    int64_t compute_ps; /**< sums of times */
    int64_t cpu_ps;
    int64_t memory_ps;
    int64_t send_ps;
    int64_t collective_ps;
    int64_t end_ps; /**< of its last node */
} rpsim_chakra_rank;

/**
 * Runs the traces. A node starts when its parents have ended, a RECV when its SEND has, too, and
 * takes no time but its own exact one; a collective when all its ranks can. Nodes without exact
 * times take turns on their rank: one computation on the GPU, one on the CPU, one load, store, send
 * and collective each at a time, first come first served.
 * @param trace linked
 * @param ranks_out [rank_count] in `arena`
 * @retval RP_OK, RP_INPUT (nodes wait for each other, or times are too long; logged), RP_NO_MEMORY
 */
rp_status rpsim_chakra_run(const rpsim_chakra_trace *trace, const rpsim_chakra_rates *rates,
                           rp_arena *arena, rpsim_chakra_rank **ranks_out,
                           int64_t *makespan_ps_out);
