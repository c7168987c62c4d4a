/** @file cublas.h  Matrix products by cuBLASLt, which is loaded when the first lane asks for it.
 *
 * rpexec must start on machines without CUDA libraries, and a static cuBLAS would be larger than
 * everything else together; so libcublasLt is opened with dlopen. Descriptors and the algorithm of
 * each shape are made once and kept; a product is then a single call.
 */
#pragma once

#include "exec/cuda/kernels/kernels.h"
#include "exec/cuda/lane.h"

/**
 * Opens cuBLASLt for a lane on the current device. The lane's dtype, stream, sm_count,
 * half_accumulation and workspace must be set.
 * @retval RP_OK, RP_NO_MEMORY, RP_TOOL (logged with the names of the library and of missing
 *         functions)
 */
rp_status rpexec_cublas_open(const rpexec_lane *lane, rp_arena *arena, rpexec_cublas **cublas_out);

/** Releases the descriptors and the handle; NULL is allowed. */
void rpexec_cublas_close(rpexec_cublas *cublas);

/**
 * c = the product's base, if it has one, plus the product of `a` and `b`, which are single
 * matrices, not those of all experts. fp32 accumulates in fp32 without TF32; 16 bits in fp32,
 * partial sums too, unless the lane has half_accumulation. Tensors must be aligned to 16 bytes if
 * their sizes are multiples of 16 bytes.
 * @retval RP_OK, RP_TOOL (logged)
 */
rp_status rpexec_cublas_product(rpexec_lane *lane, const rpexec_cuda_products *product,
                                const void *a, const void *b, void *c);
