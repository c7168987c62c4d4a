/** @file linear.h  The linear layers of a block with the adapters that some or all have. Inside of
 * exec/model.
 *
 * y = x W^T + bias + scale (x A^T) B^T. With LoRA W and the bias are frozen: they have no
 * gradients. A bias comes first, and products add to it: one rounding. Where the experts have the
 * layer, rows are gathered ones and each goes through its expert's matrices.
 */
#pragma once

#include "exec/model/layers.h"

/** Rows that go through a linear layer. */
typedef struct rpexec_rows {
    uint64_t count;
    const rpexec_routing *routing; /**< of gathered rows; NULL: all have the same matrix */
} rpexec_rows;

/** y[rows, out] = base + the layer of x[rows, in]; base is as of the operator `linear`, and NULL or
 * y of gathered rows. Keeps scale x A^T in h[rows, rank] of the layer. */
void rpexec_linear_forward(const rpexec_compute *compute, const void *weights,
                           rpexec_block_tensor which, rpexec_rows rows, const void *x,
                           const void *base, void *y, void *h);

/** y[rows, out] += the bias of a layer whose parts ranks have summed to y: none of them has added
 * it in its forward. Nothing where the layer has no bias, it is the experts', or there are no
 * ranks.
 */
void rpexec_linear_end_sum(const rpexec_compute *compute, const void *weights,
                           rpexec_block_tensor which, uint64_t rows, void *y);

/** dweights[rows] += gradients of the gathered rows' weights, where the layer's biases come with
 * them: those of down. Nothing where it has none, or another rank adds them. */
void rpexec_linear_row_weights(const rpexec_compute *compute, const void *weights,
                               rpexec_block_tensor which, rpexec_rows rows, const void *dy,
                               float *dweights);

/** dx[rows, in] (+)= gradient of x. Keeps scale dy B in dh[rows, rank] of the layer. */
void rpexec_linear_input(const rpexec_compute *compute, const void *weights,
                         rpexec_block_tensor which, rpexec_rows rows, const void *dy, bool add,
                         void *dx, void *dh);

/** Adds the gradients of what is trained: of W, or of A and B from h and dh.
 * @param gradients of the layer, what is trained of it */
void rpexec_linear_weight(const rpexec_compute *compute, void *gradients, rpexec_block_tensor which,
                          rpexec_rows rows, const void *dy, const void *x, const void *h,
                          const void *dh);
