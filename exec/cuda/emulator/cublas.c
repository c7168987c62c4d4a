/* cuBLASLt on a CPU, a separate library that exec/cuda/cublas.c opens (RPEXEC_CUBLASLT). It also
 * fails, to test the ways without it: shapes with the inner size 37 are "not supported". Other
 * shapes have three algorithms, of which the first two cannot be launched if the inner size is 40,
 * and none if it is 24. */
#include "exec/operators/dtype.h"

#include <cublasLt.h>
#include <pthread.h>
#include <string.h>

struct emulated_object {
    bool used;
    cublasComputeType_t compute;
    int32_t turned[2];
    cudaDataType_t type;
    uint64_t rows, columns;
    int64_t pitch;
};

enum { OBJECTS = 4096, UNSUPPORTED = 37, TWO_FAIL = 40, ALL_FAIL = 24, ALGORITHMS = 3 };
static struct emulated_object objects[OBJECTS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards `used` */

static cublasStatus_t make(struct emulated_object **object)
{
    int i = 0;
    pthread_mutex_lock(&lock);
    while (i < OBJECTS && objects[i].used) {
        i++;
    }
    if (i < OBJECTS) {
        objects[i] = (struct emulated_object){.used = true};
        *object = &objects[i];
    }
    pthread_mutex_unlock(&lock);
    return i < OBJECTS ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

static cublasStatus_t drop(struct emulated_object *object)
{
    pthread_mutex_lock(&lock);
    bool used = object->used;
    object->used = false;
    pthread_mutex_unlock(&lock);
    return used ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    return make(handle);
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    return drop(handle);
}

const char *cublasLtGetStatusString(cublasStatus_t status)
{
    return status == CUBLAS_STATUS_SUCCESS         ? "success"
           : status == CUBLAS_STATUS_NOT_SUPPORTED ? "not supported"
                                                   : "invalid";
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *product, cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    cublasStatus_t status = make(product);
    (void)scale;
    (*product)->compute = compute;
    return status;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product)
{
    return drop(product);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product,
                                              cublasLtMatmulDescAttributes_t attribute,
                                              const void *value, size_t bytes)
{
    if (bytes != sizeof(int32_t)) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (attribute != CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET) {
        memcpy(&product->turned[attribute == CUBLASLT_MATMUL_DESC_TRANSB], value, bytes);
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType_t type,
                                          uint64_t rows, uint64_t columns, int64_t pitch)
{
    cublasStatus_t status = make(layout);
    (*layout)->type = type;
    (*layout)->rows = rows;
    (*layout)->columns = columns;
    (*layout)->pitch = pitch;
    return pitch < (int64_t)rows ? CUBLAS_STATUS_INVALID_VALUE : status;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    return drop(layout);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference)
{
    return make(preference);
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
    return drop(preference);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void *value, size_t bytes)
{
    size_t right = attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES ? 8 : 4;
    (void)value;
    return preference->used && bytes == right ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

/* op(x) is rows x columns. */
static uint64_t rows_of(const struct emulated_object *x, int32_t turned)
{
    return turned == CUBLAS_OP_T ? x->columns : x->rows;
}

static uint64_t columns_of(const struct emulated_object *x, int32_t turned)
{
    return turned == CUBLAS_OP_T ? x->rows : x->columns;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int requested,
                                              cublasLtMatmulHeuristicResult_t results[], int *found)
{
    uint64_t inner = columns_of(a, product->turned[0]);
    bool fits = handle->used && preference->used && requested >= 1 &&
                rows_of(a, product->turned[0]) == c->rows &&
                rows_of(b, product->turned[1]) == inner &&
                columns_of(b, product->turned[1]) == c->columns && c == d;
    *found = !fits || inner == UNSUPPORTED ? 0 : requested < ALGORITHMS ? requested : ALGORITHMS;
    for (int i = 0; i < *found; i++) {
        results[i] = (cublasLtMatmulHeuristicResult_t){.algo = {{(uint64_t)i}}};
    }
    return !fits    ? CUBLAS_STATUS_INVALID_VALUE
           : *found ? CUBLAS_STATUS_SUCCESS
                    : CUBLAS_STATUS_NOT_SUPPORTED;
}

static rp_dtype dtype_of(const struct emulated_object *x)
{
    return x->type == CUDA_R_32F   ? RP_DTYPE_F32
           : x->type == CUDA_R_16F ? RP_DTYPE_F16
                                   : RP_DTYPE_BF16;
}

static float value_at(const struct emulated_object *x, const void *values, uint64_t row,
                      uint64_t column)
{
    float value;
    const void *from = rpexec_element_const(dtype_of(x), values, column * (uint64_t)x->pitch + row);
    if (dtype_of(x) == RP_DTYPE_F32) {
        memcpy(&value, from, sizeof value);
    } else {
        rpexec_widen(dtype_of(x), 1, from, &value);
    }
    return value;
}

static float scalar(const struct emulated_object *product, const void *value)
{
    float result;
    if (product->compute == CUBLAS_COMPUTE_32F) {
        memcpy(&result, value, sizeof result);
    } else {
        rpexec_widen(RP_DTYPE_F16, 1, value, &result);
    }
    return result;
}

/* A product with copies of its descriptors, which may be destroyed before a graph with the
 * product. */
typedef struct job {
    struct emulated_object a_layout, b_layout, d_layout;
    bool a_turned, b_turned;
    uint64_t inner;
    float alpha, beta;
    const void *a, *b, *c;
    void *d;
} job;

static void multiply(const void *arguments)
{
    const job *p = arguments;
    const struct emulated_object *to = &p->d_layout;
    for (uint64_t j = 0; j < to->columns; j++) {
        for (uint64_t i = 0; i < to->rows; i++) {
            float sum = 0;
            for (uint64_t k = 0; k < p->inner; k++) {
                sum += value_at(&p->a_layout, p->a, p->a_turned ? k : i, p->a_turned ? i : k) *
                       value_at(&p->b_layout, p->b, p->b_turned ? j : k, p->b_turned ? k : j);
            }
            sum *= p->alpha;
            if (p->beta != 0) {
                sum += p->beta * value_at(to, p->c, i, j);
            }
            void *at = rpexec_element(dtype_of(to), p->d, j * (uint64_t)to->pitch + i);
            if (dtype_of(to) == RP_DTYPE_F32) {
                memcpy(at, &sum, sizeof sum);
            } else {
                rpexec_narrow(dtype_of(to), 1, &sum, at);
            }
        }
    }
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t product,
                              const void *alpha, const void *a, cublasLtMatrixLayout_t a_layout,
                              const void *b, cublasLtMatrixLayout_t b_layout, const void *beta,
                              const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t *algorithm, void *workspace,
                              size_t workspace_bytes, cudaStream_t stream)
{
    job p = {.a_layout = *a_layout,
             .b_layout = *b_layout,
             .d_layout = *d_layout,
             .a_turned = product->turned[0] == CUBLAS_OP_T,
             .b_turned = product->turned[1] == CUBLAS_OP_T,
             .inner = columns_of(a_layout, product->turned[0]),
             .alpha = scalar(product, alpha),
             .beta = scalar(product, beta),
             .a = a,
             .b = b,
             .c = c,
             .d = d};
    (void)handle;
    if (algorithm->data[0] >= ALGORITHMS || p.inner == ALL_FAIL ||
        (p.inner == TWO_FAIL && algorithm->data[0] < 2)) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    if (c_layout != d_layout || workspace == NULL || workspace_bytes == 0) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    return emulated_launch(stream, multiply, &p, sizeof p) == cudaSuccess
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_INVALID_VALUE;
}
