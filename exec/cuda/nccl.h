/** @file nccl.h  The table of exec/gpu/nccl.h, filled with NCCL, which is loaded when it is wanted.
 *
 * As with cuBLAS (cublas.h) rpexec must start where there is no libnccl.so.2. Where there was no
 * nccl.h either when rpexec was built, there is no table.
 */
#pragma once

#include "exec/gpu/nccl.h"

/** @return the table, or NULL: built without nccl.h. */
const rpexec_nccl_calls *rpexec_cuda_nccl(void);

/** @return the meaning of an error from RPEXEC_NCCL_ERRORS on. */
const char *rpexec_cuda_nccl_text(int error);
