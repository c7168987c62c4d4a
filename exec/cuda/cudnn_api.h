/** @file cudnn_api.h  The part of cuDNN's backend interface (version 9) that rpexec calls.
 *
 * It is declared here and not taken from cudnn.h, so that every build of rpexec can use a library
 * that is present at run time: cuDNN often comes without its header (for instance as a part of
 * PyTorch), and every libcudnn.so.9 has the numbers below. exec/cuda/tests/cudnn_header.c compares
 * them, and the functions, with NVIDIA's header if it is installed.
 */
#pragma once

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

/** cudnnHandle_t and cudnnBackendDescriptor_t; all of cuDNN's enumerations are passed as unsigned.
 */
typedef struct cudnnContext *rpexec_cudnn_handle;
typedef void *rpexec_cudnn_object;

/** X(name after CUDNN_, value). */
#define RPEXEC_CUDNN_VALUES(X)                                                                     \
    X(STATUS_SUCCESS, 0)                                                                           \
    X(STATUS_BAD_PARAM, 2000)                                                                      \
    X(STATUS_BAD_PARAM_NOT_FINALIZED, 2004)                                                        \
    X(STATUS_BAD_PARAM_SHAPE_MISMATCH, 2008)                                                       \
    X(STATUS_BAD_PARAM_ATTRIBUTE_TYPE, 2010)                                                       \
    X(STATUS_NOT_SUPPORTED, 3000)                                                                  \
    X(DATA_FLOAT, 0)                                                                               \
    X(DATA_HALF, 2)                                                                                \
    X(DATA_INT32, 4)                                                                               \
    X(DATA_BFLOAT16, 9)                                                                            \
    X(DATA_BOOLEAN, 11)                                                                            \
    X(TYPE_HANDLE, 0)                                                                              \
    X(TYPE_DATA_TYPE, 1)                                                                           \
    X(TYPE_BOOLEAN, 2)                                                                             \
    X(TYPE_INT64, 3)                                                                               \
    X(TYPE_VOID_PTR, 6)                                                                            \
    X(TYPE_HEUR_MODE, 8)                                                                           \
    X(TYPE_NUMERICAL_NOTE, 11)                                                                     \
    X(TYPE_POINTWISE_MODE, 14)                                                                     \
    X(TYPE_BACKEND_DESCRIPTOR, 15)                                                                 \
    X(TYPE_REDUCTION_OPERATOR_TYPE, 18)                                                            \
    X(TYPE_INT32, 23)                                                                              \
    X(TYPE_CHAR, 24)                                                                               \
    X(BACKEND_POINTWISE_DESCRIPTOR, 0)                                                             \
    X(BACKEND_ENGINE_DESCRIPTOR, 2)                                                                \
    X(BACKEND_ENGINECFG_DESCRIPTOR, 3)                                                             \
    X(BACKEND_ENGINEHEUR_DESCRIPTOR, 4)                                                            \
    X(BACKEND_EXECUTION_PLAN_DESCRIPTOR, 5)                                                        \
    X(BACKEND_OPERATION_POINTWISE_DESCRIPTOR, 13)                                                  \
    X(BACKEND_OPERATIONGRAPH_DESCRIPTOR, 15)                                                       \
    X(BACKEND_VARIANT_PACK_DESCRIPTOR, 16)                                                         \
    X(BACKEND_TENSOR_DESCRIPTOR, 17)                                                               \
    X(BACKEND_MATMUL_DESCRIPTOR, 18)                                                               \
    X(BACKEND_OPERATION_MATMUL_DESCRIPTOR, 19)                                                     \
    X(BACKEND_REDUCTION_DESCRIPTOR, 21)                                                            \
    X(BACKEND_OPERATION_REDUCTION_DESCRIPTOR, 22)                                                  \
    X(BACKEND_DEVICEPROP_DESCRIPTOR, 38)                                                           \
    X(POINTWISE_ADD, 0)                                                                            \
    X(POINTWISE_MUL, 1)                                                                            \
    X(POINTWISE_DIV, 6)                                                                            \
    X(POINTWISE_SUB, 9)                                                                            \
    X(POINTWISE_EXP, 13)                                                                           \
    X(POINTWISE_LOG, 15)                                                                           \
    X(POINTWISE_CMP_GE, 303)                                                                       \
    X(POINTWISE_GEN_INDEX, 501)                                                                    \
    X(POINTWISE_BINARY_SELECT, 601)                                                                \
    X(REDUCE_TENSOR_ADD, 0)                                                                        \
    X(REDUCE_TENSOR_MAX, 3)                                                                        \
    X(HEUR_MODE_A, 3)                                                                              \
    X(NUMERICAL_NOTE_DOWN_CONVERT_INPUTS, 1)                                                       \
    X(NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION, 2)                                               \
    X(NUMERICAL_NOTE_NONDETERMINISTIC, 4)                                                          \
    X(ATTR_POINTWISE_MODE, 0)                                                                      \
    X(ATTR_POINTWISE_MATH_PREC, 1)                                                                 \
    X(ATTR_POINTWISE_AXIS, 9)                                                                      \
    X(ATTR_ENGINEHEUR_MODE, 200)                                                                   \
    X(ATTR_ENGINEHEUR_OPERATION_GRAPH, 201)                                                        \
    X(ATTR_ENGINEHEUR_RESULTS, 202)                                                                \
    X(ATTR_ENGINEHEUR_DEVICEPROP, 204)                                                             \
    X(ATTR_ENGINECFG_ENGINE, 300)                                                                  \
    X(ATTR_EXECUTION_PLAN_HANDLE, 400)                                                             \
    X(ATTR_EXECUTION_PLAN_ENGINE_CONFIG, 401)                                                      \
    X(ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, 402)                                                     \
    X(ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, 405)                                                \
    X(ATTR_EXECUTION_PLAN_DEVICEPROP, 407)                                                         \
    X(ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, 750)                                                 \
    X(ATTR_OPERATION_POINTWISE_XDESC, 751)                                                         \
    X(ATTR_OPERATION_POINTWISE_BDESC, 752)                                                         \
    X(ATTR_OPERATION_POINTWISE_YDESC, 753)                                                         \
    X(ATTR_OPERATION_POINTWISE_TDESC, 758)                                                         \
    X(ATTR_OPERATIONGRAPH_HANDLE, 800)                                                             \
    X(ATTR_OPERATIONGRAPH_OPS, 801)                                                                \
    X(ATTR_TENSOR_BYTE_ALIGNMENT, 900)                                                             \
    X(ATTR_TENSOR_DATA_TYPE, 901)                                                                  \
    X(ATTR_TENSOR_DIMENSIONS, 902)                                                                 \
    X(ATTR_TENSOR_STRIDES, 903)                                                                    \
    X(ATTR_TENSOR_UNIQUE_ID, 906)                                                                  \
    X(ATTR_TENSOR_IS_VIRTUAL, 907)                                                                 \
    X(ATTR_TENSOR_IS_BY_VALUE, 908)                                                                \
    X(ATTR_VARIANT_PACK_UNIQUE_IDS, 1000)                                                          \
    X(ATTR_VARIANT_PACK_DATA_POINTERS, 1001)                                                       \
    X(ATTR_VARIANT_PACK_WORKSPACE, 1003)                                                           \
    X(ATTR_ENGINE_NUMERICAL_NOTE, 1303)                                                            \
    X(ATTR_MATMUL_COMP_TYPE, 1500)                                                                 \
    X(ATTR_OPERATION_MATMUL_ADESC, 1520)                                                           \
    X(ATTR_OPERATION_MATMUL_BDESC, 1521)                                                           \
    X(ATTR_OPERATION_MATMUL_CDESC, 1522)                                                           \
    X(ATTR_OPERATION_MATMUL_DESC, 1523)                                                            \
    X(ATTR_REDUCTION_OPERATOR, 1600)                                                               \
    X(ATTR_REDUCTION_COMP_TYPE, 1601)                                                              \
    X(ATTR_OPERATION_REDUCTION_XDESC, 1610)                                                        \
    X(ATTR_OPERATION_REDUCTION_YDESC, 1611)                                                        \
    X(ATTR_OPERATION_REDUCTION_DESC, 1612)                                                         \
    X(ATTR_DEVICEPROP_JSON_REPRESENTATION, 2702)

enum {
#define RPEXEC_CUDNN_VALUE(name, value) RPEXEC_CUDNN_##name = (value),
    RPEXEC_CUDNN_VALUES(RPEXEC_CUDNN_VALUE)
#undef RPEXEC_CUDNN_VALUE
};

/** X(result, name after cudnn, parameters). */
#define RPEXEC_CUDNN_FUNCTIONS(X)                                                                  \
    X(size_t, GetVersion, (void))                                                                  \
    X(const char *, GetErrorString, (unsigned status))                                             \
    X(void, GetLastErrorString, (char *text, size_t bytes))                                        \
    X(unsigned, Create, (rpexec_cudnn_handle * handle))                                            \
    X(unsigned, Destroy, (rpexec_cudnn_handle handle))                                             \
    X(unsigned, SetStream, (rpexec_cudnn_handle handle, cudaStream_t stream))                      \
    X(unsigned, BackendCreateDescriptor, (unsigned type, rpexec_cudnn_object *object))             \
    X(unsigned, BackendDestroyDescriptor, (rpexec_cudnn_object object))                            \
    X(unsigned, BackendFinalize, (rpexec_cudnn_object object))                                     \
    X(unsigned, BackendSetAttribute,                                                               \
      (rpexec_cudnn_object object, unsigned name, unsigned type, int64_t count,                    \
       const void *elements))                                                                      \
    X(unsigned, BackendGetAttribute,                                                               \
      (const rpexec_cudnn_object object, unsigned name, unsigned type, int64_t room,               \
       int64_t *count, void *elements))                                                            \
    X(unsigned, BackendExecute,                                                                    \
      (rpexec_cudnn_handle handle, rpexec_cudnn_object plan, rpexec_cudnn_object pack))

/** The functions of an opened library. */
typedef struct rpexec_cudnn_functions {
#define RPEXEC_CUDNN_MEMBER(result, name, parameters) result(*name) parameters;
    RPEXEC_CUDNN_FUNCTIONS(RPEXEC_CUDNN_MEMBER)
#undef RPEXEC_CUDNN_MEMBER
} rpexec_cudnn_functions;
