/** @file chakra_internal.h  Declarations for the export in chakra.h. Not for other modules. */
#pragma once

#include "sim/interchange/chakra.h"

#define RPSIM_CHAKRA_NO_OP UINT32_MAX
#define RPSIM_CHAKRA_PS_PER_US 1000000

struct rpsim_chakra_export {
    const rp_timeline *timeline; /* of the program that is exported (rpsim_chakra_expand) */
    const rp_program *program;
    rpsim_chakra_host host;
    uint32_t tail; /* op that stands for the host's work at the end, or NO_OP */
    int64_t hop_ps;
    uint64_t boundary_bytes;
    uint32_t *queue_of;     /* [op] */
    uint32_t *consumer_of;  /* [wait] op that waits */
    uint32_t *out_begin;    /* [op + 1]: out_waits[out_begin[op] ..) are messages from op */
    uint32_t *out_waits;    /* [wait] */
    uint32_t *peer_wait;    /* [op] of a SEND or RECV of the program: the wait that joins them */
    uint32_t *engine_after; /* [op] op of another queue that held its copy engine, or
                               RPSIM_CHAKRA_NO_OP */
    int64_t *delay_ps;      /* [op] from when what it waits for is done to its start */
    uint32_t *before_begin; /* [op + 1]: a collective comes after before[before_begin[op] ..) */
    uint32_t *before;       /* an op, or op_count + a wait whose SEND it is */
};

/** Makes the program of the exported ranks, with the times that its ops had: all GPUs of a layout,
 * collectives whose parts wait for their own rank alone, and with `drops_host` no ops of the host.
 * @param timeline_out in `arena`, or `from` where there is nothing to do
 * @param tail_out an op of the host's work behind the last op of all GPUs, or NO_OP
 * @retval RP_OK, RP_NO_MEMORY, RP_BROKEN */
rp_status rpsim_chakra_expand(const rp_timeline *from, bool drops_host, rp_arena *arena,
                              const rp_timeline **timeline_out, uint32_t *tail_out);

/** Numbers collectives of all GPUs: the k-th ones of the GPUs are parts of one.
 * @param ordinal_out [op] k, or NO_OP
 * @param count_out [gpu] of its collectives
 * @param most_out the largest of these
 * @retval RP_OK, RP_NO_MEMORY */
rp_status rpsim_chakra_index_meetings(const rp_program *program, rp_arena *arena,
                                      uint32_t **ordinal_out, uint32_t **count_out,
                                      uint32_t *most_out);

/** Finds what has to come before each collective (`before`).
 * @retval RP_OK, RP_NO_MEMORY */
rp_status rpsim_chakra_order_collectives(rpsim_chakra_export *x, rp_arena *arena);

/** @return the GPU of an op's queue; 0 for the host's. */
uint32_t rpsim_chakra_rank_of(const rpsim_chakra_export *x, uint32_t op);

/** @return the last op of the group that an overlapped forward begins; of all others the op. */
uint32_t rpsim_chakra_result_op(const rp_program *program, uint32_t op);

/** @return true where the wait of `op` for `target` becomes a SEND and a RECV of its own. An op
 * that waits for a peer's SEND waits for the RECV, too. */
bool rpsim_chakra_is_message(const rpsim_chakra_export *x, uint32_t op, uint32_t target);
