/** @file nccl.h  The table of exec/gpu/nccl.h, filled with NCCL, which is loaded when a run asks
 * for it.
 *
 * As with cuBLAS (cublas.h), rpexec must start without libnccl.so.2. If rpexec was built without
 * nccl.h, there is no table.
 */
#pragma once

#include "exec/gpu/nccl.h"

/** @return the table, or NULL: built without nccl.h. */
const rpexec_nccl_calls *rpexec_cuda_nccl(void);

/** @return the meaning of an error from RPEXEC_NCCL_ERRORS on. */
const char *rpexec_cuda_nccl_text(int error);
