/** @file families.h  Families of tests; each function returns the number of failed trials. */
#pragma once

#include "exec/cuda/tests/trial.h"

/** Norms, operators on single values, Adam, squares. */
int test_values(rp_dtype dtype);

/** Embedding and loss. */
int test_tokens(rp_dtype dtype);

/** Matrix products, by our own kernels or by cuBLAS. */
int test_products(rp_dtype dtype);

/** Routing and all operators on gathered rows. */
int test_experts(rp_dtype dtype);

/** Refusals of operators. */
int test_refusals(rp_dtype dtype);

/** Attention, forward and backward. */
int test_attention(rp_dtype dtype);

/** Attention for a single shape. @param rounded weights are rounded to 16 bits before they are
 * summed, and tensors have to be aligned to 16 bytes @param logarithms additional error that
 * logarithms of sums may have */
int test_attention_of(rp_dtype dtype, rpexec_attention_sizes sizes, bool rounded,
                      double logarithms);

/** Attention with cuDNN's forward, if cuDNN is installed. */
int test_cudnn(rp_dtype dtype);
