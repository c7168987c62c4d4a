/** @file graphs.h  CUDA graphs of operators that come again (--graphs). Not for other modules.
 *
 * An op's operators are noted as words (exec/operators/calls.h) instead of being launched. A run of
 * them is launched when the op ends, or meets what has to come after them and is not an operator
 * that repeats: a read, a copy, a collective, the sum of squares, a step of Adam, an operator that
 * reads or writes host memory (ids, labels, losses: other addresses in every step). So everything
 * is enqueued in the order it was asked for, nothing but operators is ever captured, and all
 * else that an op does on the host is done each time.
 *
 * A run is looked up by all of its words: operators, sizes, scalars, addresses in the GPU's arena.
 * The first time it is launched one by one, which also loads modules and chooses cuBLAS's
 * algorithms; the second time it is captured; from then on it is one launch. Plans give
 * tensors the same places in all programs of a training run, mostly in all iterations: runs repeat.
 * Any difference is another run: no graph is ever updated.
 *
 * Bounded: so many runs, words and captured operators per queue; what is beyond is launched one by
 * one, and then runs that a program has not used go before the next one. All go with the lane or
 * the memory whose addresses they have. A graph that cannot be made ends the use of graphs with one
 * warning: the operators of a capture have not been done, and are launched one by one.
 */
#pragma once

#include "common/base/mem.h"
#include "exec/gpu/calls.h"
#include "exec/run/driver.h"

struct rpexec_gpu;

/** Of one queue of a GPU; stays between programs. */
typedef struct rpexec_gpu_graphs rpexec_gpu_graphs;

/** @retval RP_OK, RP_NO_MEMORY */
rp_status rpexec_gpu_graphs_open(const rpexec_cuda_calls *calls, rp_arena *arena,
                                 rpexec_gpu_graphs **graphs_out);

/** Destroys all graphs and forgets all runs: what they work on is not what it was, or comes to an
 * end. Nothing may be under way. NULL is allowed. */
void rpexec_gpu_graphs_clear(rpexec_gpu_graphs *graphs);

/**
 * Before a program; nothing is under way.
 * @param lane whose operators they are, in `stream`
 */
void rpexec_gpu_graphs_begin(rpexec_gpu_graphs *graphs, rpexec_driver *driver,
                             const struct rpexec_gpu *gpu, rpexec_lane *lane, void *stream);

/** @return the lane that `perform` gets, for the operators of rpexec_noting_operators. */
rpexec_lane *rpexec_gpu_graphs_lane(rpexec_gpu_graphs *graphs);

/** Launches what has been noted. NULL is allowed. */
void rpexec_gpu_graphs_flush(rpexec_gpu_graphs *graphs);

/** Adds what has been launched. NULL is allowed. */
void rpexec_gpu_graphs_count(const rpexec_gpu_graphs *graphs, rpexec_graph_counts *counts);
