/* A whole decoder in double precision, made of slow_operators.h: its loss and the gradients of all
 * parameters for a batch. Names, shapes and order of the parameters: executor.md section 4.3. */
#pragma once

#include "tests/reference/slow_operators.h"

#include <stddef.h>

typedef struct slow_decoder {
    int layers, hidden, heads, kv_heads, head_dim, intermediate, vocab;
    double theta, eps;
    bool tied, qk_norm, llama; /* llama: the scaled rotation of Llama 3.1 */
} slow_decoder;

#define SLOW_NAME_SIZE 80

/* A parameter [rows, columns]; a vector is a single row. */
typedef struct slow_parameter {
    char name[SLOW_NAME_SIZE]; /* with "model.layers.N." */
    int rows, columns;
    size_t offset; /* index of its first element among the elements of all parameters */
} slow_parameter;

/* All parameters; a tied head has no table of its own. The caller frees the list. */
slow_parameter *slow_decoder_parameters(const slow_decoder *decoder, int *count_out,
                                        size_t *elements_out);

typedef struct slow_batch {
    int sequences, seq_len;
    const int32_t *ids;    /* [sequences][seq_len] */
    const int32_t *labels; /* [sequences][seq_len], or SLOW_IGNORED */
} slow_batch;

/* The loss of weights in the layout of slow_decoder_parameters, averaged over the labels that are
 * not ignored (at least one). @param gradients as long as weights, overwritten; may be NULL */
double slow_decoder_loss(const slow_decoder *decoder, const slow_batch *batch,
                         const double *weights, double *gradients);
