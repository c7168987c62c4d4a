/** @file graphs.h  CUDA graphs of repeated operators (--graphs). Not for other modules.
 *
 * An op's operators are noted as words (exec/operators/calls.h) instead of being launched. A run of
 * operators is launched when the op ends, or before work that has to follow it and is not a
 * repeating operator: a read, a copy, a collective, the sum of squares, a step of Adam, an operator
 * that reads or writes host memory (ids, labels, losses, whose addresses change in every step). So
 * everything is enqueued in the order of calls, only operators are ever captured, and all other
 * work of an op on the host is done each time.
 *
 * A run is looked up by all of its words: operators, sizes, scalars, addresses in the GPU's arena.
 * The first time its operators are launched singly, which also loads modules and chooses cuBLAS's
 * algorithms; the second time it is captured; from then on it is a single launch. Plans give
 * tensors the same places in all programs of a training run, mostly in all iterations: runs repeat.
 * Any difference makes another run: no graph is ever updated.
 *
 * Each queue has a limit of runs, words and captured operators. Operators beyond it are launched
 * singly, and runs that a program has not used are dropped before the next program. All runs are
 * dropped with the lane or the memory whose addresses they have. If a graph cannot be made, no more
 * graphs are used, with a single warning: the operators of a capture have not been done, and are
 * launched singly.
 */
#pragma once

#include "common/base/mem.h"
#include "exec/gpu/calls.h"
#include "exec/run/driver.h"

struct rpexec_gpu;

/** Graphs of a GPU's queue; they stay between programs. */
typedef struct rpexec_gpu_graphs rpexec_gpu_graphs;

/** @retval RP_OK, RP_NO_MEMORY */
rp_status rpexec_gpu_graphs_open(const rpexec_cuda_calls *calls, rp_arena *arena,
                                 rpexec_gpu_graphs **graphs_out);

/** Destroys all graphs and forgets all runs: their memory or lane changes or ends. Nothing may be
 * under way. NULL is allowed. */
void rpexec_gpu_graphs_clear(rpexec_gpu_graphs *graphs);

/**
 * Begins a program; nothing may be under way.
 * @param lane lane that performs the operators, in `stream`
 */
void rpexec_gpu_graphs_begin(rpexec_gpu_graphs *graphs, rpexec_driver *driver,
                             const struct rpexec_gpu *gpu, rpexec_lane *lane, void *stream);

/** @return the lane that `perform` gets, for the operators of rpexec_noting_operators. */
rpexec_lane *rpexec_gpu_graphs_lane(rpexec_gpu_graphs *graphs);

/** Launches the noted operators. NULL is allowed. */
void rpexec_gpu_graphs_flush(rpexec_gpu_graphs *graphs);

/** Adds its launches to `counts`. NULL is allowed. */
void rpexec_gpu_graphs_count(const rpexec_gpu_graphs *graphs, rpexec_graph_counts *counts);
