/** @file linear.h  The linear layers of a block, with adapters on some or all of them. Used only in
 * exec/model.
 *
 * y = x W^T + bias + scale (x A^T) B^T. With LoRA W and the bias are frozen: they have no
 * gradients. A bias comes first, and products add to it, so that the sum is rounded only once. In a
 * layer of experts, rows are gathered and each goes through its expert's matrices.
 */
#pragma once

#include "exec/model/layers.h"

/** Rows that go through a linear layer. */
typedef struct rpexec_rows {
    uint64_t count;
    const rpexec_routing *routing; /**< routing of gathered rows; NULL: all rows have the same
                                        matrix */
} rpexec_rows;

/** y[rows, out] = base + the layer of x[rows, in]; base is the operator `linear`'s, for gathered
 * rows NULL or y. Keeps scale x A^T in h[rows, rank] of the layer. */
void rpexec_linear_forward(const rpexec_compute *compute, const void *weights,
                           rpexec_block_tensor which, rpexec_rows rows, const void *x,
                           const void *base, void *y, void *h);

/** y[rows, out] += the bias of a layer whose y is the sum of the ranks' parts, since no rank adds
 * that bias in its forward. Does nothing if the layer has no bias or belongs to experts, or without
 * ranks.
 */
void rpexec_linear_end_sum(const rpexec_compute *compute, const void *weights,
                           rpexec_block_tensor which, uint64_t rows, void *y);

/** dweights[rows] += gradients of the gathered rows' weights from the biases that are multiplied by
 * these weights, the biases of down. Does nothing for other layers, without biases, or if another
 * rank adds them. */
void rpexec_linear_row_weights(const rpexec_compute *compute, const void *weights,
                               rpexec_block_tensor which, rpexec_rows rows, const void *dy,
                               float *dweights);

/** dx[rows, in] (+)= gradient of x. Keeps scale dy B in dh[rows, rank] of the layer. */
void rpexec_linear_input(const rpexec_compute *compute, const void *weights,
                         rpexec_block_tensor which, rpexec_rows rows, const void *dy, bool add,
                         void *dx, void *dh);

/** Adds the gradients of the layer's trained matrices: of W, or of A and B from h and dh.
 * @param gradients gradients of the layer's trained values */
void rpexec_linear_weight(const rpexec_compute *compute, void *gradients, rpexec_block_tensor which,
                          rpexec_rows rows, const void *dy, const void *x, const void *h,
                          const void *dh);
