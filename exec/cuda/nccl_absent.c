/* Compiled instead of nccl.c if there is no nccl.h (exec/CMakeLists.txt). */
#include "exec/cuda/nccl.h"

#include <stddef.h>

const rpexec_nccl_calls *rpexec_cuda_nccl(void)
{
    return NULL;
}

const char *rpexec_cuda_nccl_text(int error)
{
    (void)error;
    return "an error of NCCL, without which this was built";
}
