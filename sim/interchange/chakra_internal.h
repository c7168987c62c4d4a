/** @file chakra_internal.h  Declarations for the export in chakra.h. Not for other modules. */
#pragma once

#include "sim/interchange/chakra.h"

#define RPSIM_CHAKRA_NO_OP UINT32_MAX
#define RPSIM_CHAKRA_PS_PER_US 1000000

struct rpsim_chakra_export {
    const rp_timeline *timeline; /* timeline of the exported program (rpsim_chakra_expand) */
    const rp_program *program;
    rpsim_chakra_host host;
    uint32_t tail; /* op that stands for the host's work after all GPUs' last op, or NO_OP */
    int64_t hop_ps;
    uint64_t boundary_bytes;
    uint32_t *queue_of;     /* [op] */
    uint32_t *consumer_of;  /* [wait] op that waits */
    uint32_t *out_begin;    /* [op + 1]: out_waits[out_begin[op] ..) are messages from op */
    uint32_t *out_waits;    /* [wait] */
    uint32_t *peer_wait;    /* [op] for a SEND or RECV of the program, the wait that joins them */
    uint32_t *engine_after; /* [op] op of another queue that held its copy engine before, or
                               RPSIM_CHAKRA_NO_OP */
    int64_t *delay_ps;      /* [op] time from the end of all its waits to its start */
    uint32_t *before_begin; /* [op + 1]: a collective comes after before[before_begin[op] ..) */
    uint32_t *before;       /* an op, or op_count + a wait, which stands for the wait's SEND */
};

/** Makes the program of the exported ranks, its ops with the times they had: it has all GPUs of a
 * layout, the parts of its collectives wait only for their own rank, and with `drops_host` it has
 * no ops of the host.
 * @param timeline_out in `arena`, or `from` if there is nothing to change
 * @param tail_out op that stands for the host's work after the last op of all GPUs, or NO_OP
 * @retval RP_OK, RP_NO_MEMORY, RP_BROKEN */
rp_status rpsim_chakra_expand(const rp_timeline *from, bool drops_host, rp_arena *arena,
                              const rp_timeline **timeline_out, uint32_t *tail_out);

/** Numbers the collectives of all GPUs: the k-th collectives of the GPUs are parts of the same
 * collective.
 * @param ordinal_out [op] k, or NO_OP
 * @param count_out [gpu] number of its collectives
 * @param most_out the largest of count_out
 * @retval RP_OK, RP_NO_MEMORY */
rp_status rpsim_chakra_index_meetings(const rp_program *program, rp_arena *arena,
                                      uint32_t **ordinal_out, uint32_t **count_out,
                                      uint32_t *most_out);

/** Finds the nodes that have to come before each collective (`before`).
 * @retval RP_OK, RP_NO_MEMORY */
rp_status rpsim_chakra_order_collectives(rpsim_chakra_export *x, rp_arena *arena);

/** @return the GPU of an op's queue; 0 for the host's queues. */
uint32_t rpsim_chakra_rank_of(const rpsim_chakra_export *x, uint32_t op);

/** @return for an overlapped forward the last op of the group that it begins, for any other op the
 * op itself. */
uint32_t rpsim_chakra_result_op(const rp_program *program, uint32_t op);

/** @return true if the wait of `op` for `target` becomes a SEND and a RECV of its own. It does not
 * if `target` is a SEND of the program, since the op then waits for the RECV too. */
bool rpsim_chakra_is_message(const rpsim_chakra_export *x, uint32_t op, uint32_t target);
