/** @file chakra_internal.h  Declarations for the export in chakra.h. Not for other modules. */
#pragma once

#include "sim/interchange/chakra.h"

#define RPSIM_CHAKRA_NO_OP UINT32_MAX
#define RPSIM_CHAKRA_PS_PER_US 1000000

struct rpsim_chakra_export {
    const rp_timeline *timeline;
    const rp_program *program;
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
};

/** @return the GPU of an op's queue; 0 for the host's. */
uint32_t rpsim_chakra_rank_of(const rpsim_chakra_export *x, uint32_t op);

/** @return the last op of the group that an overlapped forward begins; of all others the op. */
uint32_t rpsim_chakra_result_op(const rp_program *program, uint32_t op);

/** @return true where the wait of `op` for `target` becomes a SEND and a RECV of its own. An op
 * that waits for a peer's SEND waits for the RECV, too. */
bool rpsim_chakra_is_message(const rpsim_chakra_export *x, uint32_t op, uint32_t target);
