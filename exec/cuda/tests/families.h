/** @file families.h  The tests' families; each returns how many trials have failed. */
#pragma once

#include "exec/cuda/tests/trial.h"

/** Norms, values one at a time, Adam, finite. */
int test_values(rpexec_dtype dtype);

/** Embedding and loss. */
int test_tokens(rpexec_dtype dtype);

/** Matrix products, by our own kernels or by cuBLAS. */
int test_products(rpexec_dtype dtype);

/** Routing and everything with gathered rows. */
int test_experts(rpexec_dtype dtype);

/** What is refused. */
int test_refusals(rpexec_dtype dtype);

/** Attention, forward and backward. */
int test_attention(rpexec_dtype dtype);
