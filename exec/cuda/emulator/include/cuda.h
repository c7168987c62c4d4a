/** @file cuda.h  The part of CUDA's driver that exec/cuda/green.c calls: it cuts a device into
 * green contexts by the rules of CUDA 13.0's cuda.h. */
#pragma once

#include <cuda_runtime_api.h>

typedef enum CUresult {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_INVALID_CONTEXT = 201,
    CUDA_ERROR_INVALID_RESOURCE_TYPE = 914,
    CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION = 915,
} CUresult;

typedef int CUdevice;
typedef struct emulated_context *CUcontext;
typedef struct emulated_context *CUgreenCtx;
typedef struct CUdevResource *CUdevResourceDesc;
typedef cudaStream_t CUstream;

typedef enum CUdevResourceType {
    CU_DEV_RESOURCE_TYPE_INVALID = 0,
    CU_DEV_RESOURCE_TYPE_SM = 1,
} CUdevResourceType;

typedef struct CUdevResource {
    CUdevResourceType type;
    unsigned int first; /**< first of its multiprocessors; private to the driver */
    struct {
        unsigned int smCount;
    } sm;
} CUdevResource;

enum {
    CU_GREEN_CTX_DEFAULT_STREAM = 1,
    CU_DEV_SM_RESOURCE_SPLIT_IGNORE_SM_COSCHEDULING = 1,
    CU_STREAM_NON_BLOCKING = 1,
};

/* Behave as the driver's functions of the same names. */
CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource *resource, CUdevResourceType type);
CUresult cuDevSmResourceSplitByCount(CUdevResource *result, unsigned int *groups,
                                     const CUdevResource *input, CUdevResource *remaining,
                                     unsigned int flags, unsigned int least);
CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *description, CUdevResource *resources,
                                   unsigned int count);
CUresult cuGreenCtxCreate(CUgreenCtx *green, CUdevResourceDesc description, CUdevice device,
                          unsigned int flags);
CUresult cuGreenCtxDestroy(CUgreenCtx green);
CUresult cuCtxFromGreenCtx(CUcontext *context, CUgreenCtx green);
CUresult cuGreenCtxStreamCreate(CUstream *stream, CUgreenCtx green, unsigned int flags,
                                int priority);
CUresult cuCtxSetCurrent(CUcontext context);
CUresult cuGetErrorName(CUresult result, const char **name);
