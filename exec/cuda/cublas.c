#include "exec/cuda/cublas.h"

#include "common/base/log.h"
#include "exec/cuda/open_library.h"

#include <cublasLt.h>
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The functions of the library that are used, with the types of its own header. */
#define FUNCTION_LIST(X)                                                                           \
    X(cublasLtCreate)                                                                              \
    X(cublasLtDestroy)                                                                             \
    X(cublasLtGetStatusString)                                                                     \
    X(cublasLtMatmul)                                                                              \
    X(cublasLtMatmulAlgoGetHeuristic)                                                              \
    X(cublasLtMatmulDescCreate)                                                                    \
    X(cublasLtMatmulDescDestroy)                                                                   \
    X(cublasLtMatmulDescSetAttribute)                                                              \
    X(cublasLtMatrixLayoutCreate)                                                                  \
    X(cublasLtMatrixLayoutDestroy)                                                                 \
    X(cublasLtMatmulPreferenceCreate)                                                              \
    X(cublasLtMatmulPreferenceDestroy)                                                             \
    X(cublasLtMatmulPreferenceSetAttribute)

typedef struct functions {
#define MEMBER(name) __typeof__(name) *name;
    FUNCTION_LIST(MEMBER)
#undef MEMBER
} functions;

/* Number of algorithms that cuBLAS is asked for. */
enum { ALGORITHMS = 8 };

/* A shape's product: the arguments of cublasLtMatmul. */
typedef struct shape {
    rpexec_cuda_product which;
    uint64_t rows;
    uint32_t in;
    uint32_t out;
    bool adds;
    bool wide;
    bool used;
    cublasLtMatmulDesc_t product;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algorithms[ALGORITHMS]; /* cuBLAS's own choice first */
    uint32_t algorithm;        /* index of the algorithm in use; those before it cannot be
                                  launched */
    uint32_t algorithms_found; /* if none is left our own kernel is used */
} shape;

/* More shapes than a model has. If there are more, the oldest entries are replaced. */
enum { SHAPES = 256 };

struct rpexec_cublas {
    functions f;
    void *library;
    cublasLtHandle_t handle;
    cublasLtMatmulPreference_t preference;
    shape shapes[SHAPES];
    uint32_t next; /* entry that is replaced next */
};

/* ---- the library ----------------------------------------------------------------------------- */

#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
#define SONAME "libcublasLt.so." TEXT(CUBLAS_VER_MAJOR)

/* The library stays loaded: lanes come and go, and unloading would also unload its kernels from the
 * GPU. */
static void *open_library(void)
{
    return rpexec_open_library("RPEXEC_CUBLASLT", SONAME, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
}

static rp_status load(rpexec_cublas *cublas)
{
    cublas->library = open_library();
    if (cublas->library == NULL) {
        const char *why = dlerror();
        rp_log_error("cuBLAS cannot be opened: %s. Looked for " SONAME
                     " where the system looks and "
                     "in $CUDA_HOME/lib64 (/usr/local/cuda/lib64); RPEXEC_CUBLASLT names a file",
                     why != NULL ? why : "unknown");
        return RP_TOOL;
    }
    static const char *const names[] = {
#define NAME(name) #name,
        FUNCTION_LIST(NAME)
#undef NAME
    };
    void *addresses[sizeof names / sizeof *names];
    _Static_assert(sizeof addresses == sizeof cublas->f, "a table of pointers");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        addresses[i] = dlsym(cublas->library, names[i]);
        if (addresses[i] == NULL) {
            rp_log_error("cuBLAS has no function %s: %s", names[i], dlerror());
            return RP_TOOL;
        }
    }
    memcpy(&cublas->f, addresses, sizeof addresses);
    return RP_OK;
}

static rp_status check(const rpexec_cublas *cublas, cublasStatus_t status, const char *call)
{
    if (status == CUBLAS_STATUS_SUCCESS) {
        return RP_OK;
    }
    rp_log_error("%s: %s", call, cublas->f.cublasLtGetStatusString(status));
    return RP_TOOL;
}

#define CUBLAS_TRY(name, ...) RP_TRY(check(cublas, cublas->f.name(__VA_ARGS__), #name))

/* Partial sums of a split product stay in the type of the computation. */
static rp_status prepare(rpexec_cublas *cublas)
{
    const uint64_t workspace = RPEXEC_CUDA_WORKSPACE;
    const uint32_t reduction = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    CUBLAS_TRY(cublasLtCreate, &cublas->handle);
    CUBLAS_TRY(cublasLtMatmulPreferenceCreate, &cublas->preference);
    CUBLAS_TRY(cublasLtMatmulPreferenceSetAttribute, cublas->preference,
               CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace);
    CUBLAS_TRY(cublasLtMatmulPreferenceSetAttribute, cublas->preference,
               CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reduction, sizeof reduction);
    return RP_OK;
}

rp_status rpexec_cublas_open(const rpexec_lane *lane, rp_arena *arena, rpexec_cublas **cublas_out)
{
    (void)lane;
    rpexec_cublas *cublas;
    RP_TRY(rp_arena_alloc(arena, 1, sizeof *cublas, &cublas));
    rp_status status = load(cublas);
    if (status == RP_OK) {
        status = prepare(cublas);
    }
    if (status != RP_OK) {
        rpexec_cublas_close(cublas);
        return status;
    }
    *cublas_out = cublas;
    return RP_OK;
}

static void forget(rpexec_cublas *cublas, shape *s)
{
    if (s->product != NULL) {
        (void)cublas->f.cublasLtMatmulDescDestroy(s->product);
    }
    cublasLtMatrixLayout_t layouts[] = {s->a, s->b, s->c};
    for (int i = 0; i < 3; i++) {
        if (layouts[i] != NULL) {
            (void)cublas->f.cublasLtMatrixLayoutDestroy(layouts[i]);
        }
    }
    memset(s, 0, sizeof *s);
}

void rpexec_cublas_close(rpexec_cublas *cublas)
{
    if (cublas == NULL) {
        return;
    }
    for (uint32_t i = 0; i < SHAPES; i++) {
        forget(cublas, &cublas->shapes[i]);
    }
    if (cublas->preference != NULL) {
        (void)cublas->f.cublasLtMatmulPreferenceDestroy(cublas->preference);
    }
    if (cublas->handle != NULL) {
        (void)cublas->f.cublasLtDestroy(cublas->handle);
    }
    if (cublas->library != NULL) {
        (void)dlclose(cublas->library);
    }
    memset(cublas, 0, sizeof *cublas);
}

/* ---- shapes ---------------------------------------------------------------------------------- */

static cudaDataType_t data_type(rp_dtype dtype)
{
    return dtype == RP_DTYPE_F32 ? CUDA_R_32F : dtype == RP_DTYPE_F16 ? CUDA_R_16F : CUDA_R_16BF;
}

/* Products accumulate in fp16, unless the result is fp32. */
static bool in_half(const rpexec_lane *lane, bool wide)
{
    return lane->half_accumulation && lane->dtype == RP_DTYPE_F16 && !wide;
}

static rp_status describe(const rpexec_lane *lane, rpexec_cublas *cublas, bool a_turned,
                          bool b_turned, shape *s)
{
    const int32_t a = a_turned ? CUBLAS_OP_T : CUBLAS_OP_N;
    const int32_t b = b_turned ? CUBLAS_OP_T : CUBLAS_OP_N;
    const int32_t sms = (int32_t)lane->sm_count;
    CUBLAS_TRY(cublasLtMatmulDescCreate, &s->product,
               in_half(lane, s->wide) ? CUBLAS_COMPUTE_16F : CUBLAS_COMPUTE_32F,
               in_half(lane, s->wide) ? CUDA_R_16F : CUDA_R_32F);
    CUBLAS_TRY(cublasLtMatmulDescSetAttribute, s->product, CUBLASLT_MATMUL_DESC_TRANSA, &a,
               sizeof a);
    CUBLAS_TRY(cublasLtMatmulDescSetAttribute, s->product, CUBLASLT_MATMUL_DESC_TRANSB, &b,
               sizeof b);
    CUBLAS_TRY(cublasLtMatmulDescSetAttribute, s->product, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET,
               &sms, sizeof sms);
    return RP_OK;
}

/* cuBLAS stores by columns: it sees a row-major matrix [r, c] as a matrix of c rows and r columns.
 * So it computes the transposed result, from the operands in the other order: y^T [out, rows] =
 * weight [out, in] x^T [in, rows]: (in, out) turned, (in, rows) dx^T [in, rows] = weight^T [in,
 * out] dy^T [out, rows]: (in, out), (out, rows) dw^T [in, out] = x^T [in, rows] dy [rows, out]:
 * (in, rows), (out, rows) turned */
static rp_status layouts(const rpexec_lane *lane, rpexec_cublas *cublas, shape *s)
{
    const cudaDataType_t type = data_type(lane->dtype);
    const uint64_t in = s->in;
    const uint64_t out = s->out;
    bool weight = s->which == RPEXEC_CUDA_WEIGHT;
    bool forward = s->which == RPEXEC_CUDA_FORWARD;
    uint64_t second = forward ? in : out;
    uint64_t result = forward ? out : in;
    RP_TRY(describe(lane, cublas, forward, weight, s));
    CUBLAS_TRY(cublasLtMatrixLayoutCreate, &s->a, type, in, weight ? s->rows : out, (int64_t)in);
    CUBLAS_TRY(cublasLtMatrixLayoutCreate, &s->b, type, second, s->rows, (int64_t)second);
    CUBLAS_TRY(cublasLtMatrixLayoutCreate, &s->c, s->wide ? CUDA_R_32F : type, result,
               weight ? out : s->rows, (int64_t)result);
    return RP_OK;
}

/* Alignment in bytes that every tensor's address has by its sizes. */
static uint32_t alignment(const rpexec_lane *lane, const shape *s)
{
    size_t bytes = rp_dtype_bytes(lane->dtype);
    return s->in * bytes % 16 == 0 && s->out * bytes % 16 == 0 ? 16 : (uint32_t)bytes;
}

/* The algorithm depends on the shape only: alignment follows from the sizes, not from the actual
 * addresses. */
static rp_status choose(const rpexec_lane *lane, rpexec_cublas *cublas, shape *s)
{
    static const cublasLtMatmulPreferenceAttributes_t which[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    const uint32_t bytes = alignment(lane, s);
    cublasLtMatmulHeuristicResult_t results[ALGORITHMS];
    int count = 0;
    for (int i = 0; i < 4; i++) {
        CUBLAS_TRY(cublasLtMatmulPreferenceSetAttribute, cublas->preference, which[i], &bytes,
                   sizeof bytes);
    }
    memset(results, 0, sizeof results);
    cublasStatus_t status =
        cublas->f.cublasLtMatmulAlgoGetHeuristic(cublas->handle, s->product, s->a, s->b, s->c, s->c,
                                                 cublas->preference, ALGORITHMS, results, &count);
    for (int i = 0; status == CUBLAS_STATUS_SUCCESS && i < count; i++) {
        if (results[i].state == CUBLAS_STATUS_SUCCESS &&
            results[i].workspaceSize <= RPEXEC_CUDA_WORKSPACE) {
            s->algorithms[s->algorithms_found++] = results[i].algo;
        }
    }
    return status == CUBLAS_STATUS_NOT_SUPPORTED
               ? RP_OK
               : check(cublas, status, "cublasLtMatmulAlgoGetHeuristic");
}

static rp_status shape_of(const rpexec_lane *lane, const rpexec_cuda_products *p, shape **shape_out)
{
    rpexec_cublas *cublas = lane->cublas;
    shape *s = cublas->shapes;
    for (; s < cublas->shapes + SHAPES && s->used; s++) {
        if (s->which == p->which && s->rows == p->rows && s->in == p->in && s->out == p->out &&
            s->adds == (p->base != NULL) && s->wide == p->wide) {
            *shape_out = s;
            return RP_OK;
        }
    }
    if (s == cublas->shapes + SHAPES) {
        s = &cublas->shapes[cublas->next++ % SHAPES];
    }
    forget(cublas, s);
    s->which = p->which;
    s->rows = p->rows;
    s->in = p->in;
    s->out = p->out;
    s->adds = p->base != NULL;
    s->wide = p->wide;
    s->used = true;
    RP_TRY(layouts(lane, cublas, s));
    RP_TRY(choose(lane, cublas, s));
    *shape_out = s;
    return RP_OK;
}

static rp_status by_own_kernel(const rpexec_lane *lane, const rpexec_cuda_products *product,
                               const void *a, const void *b, void *c)
{
    const rpexec_cuda_target target = {
        .stream = lane->stream, .sm_count = lane->sm_count, .dtype = lane->dtype};
    RPEXEC_CUDA_TRY(lane->dtype == RP_DTYPE_F32
                        ? rpexec_cuda_products_fp32(&target, product, a, b, c)
                        : rpexec_cuda_products_half(&target, product, a, b, c));
    return RP_OK;
}

/* Nearly every algorithm that cuBLAS proposes can be launched. If a launch fails, nothing has been
 * computed.
 */
static void warn_once(const rpexec_cublas *cublas, const shape *s, cublasStatus_t status)
{
    static atomic_flag warned = ATOMIC_FLAG_INIT;
    if (!atomic_flag_test_and_set(&warned)) {
        rp_log_warning("cublasLtMatmul: %s, by algorithm %u of %u for a product of [%llu, %u] and "
                       "[%u, %u]; the next is used there and wherever this happens, then our own "
                       "kernel",
                       cublas->f.cublasLtGetStatusString(status), s->algorithm + 1,
                       s->algorithms_found, (unsigned long long)s->rows, s->in, s->out, s->in);
    }
}

rp_status rpexec_cublas_product(rpexec_lane *lane, const rpexec_cuda_products *product,
                                const void *a, const void *b, void *c)
{
    const rpexec_cublas *cublas = lane->cublas;
    shape *s = NULL;
    RP_TRY(shape_of(lane, product, &s));
    if (s->algorithm < s->algorithms_found &&
        ((uintptr_t)a | (uintptr_t)b | (uintptr_t)c | (uintptr_t)product->base) %
                alignment(lane, s) !=
            0) {
        rp_log_error("a product of [%llu, %u] and [%u, %u] has tensors that are not aligned to %u "
                     "bytes",
                     (unsigned long long)s->rows, s->in, s->out, s->in, alignment(lane, s));
        return rp_broken();
    }
    /* 1 and 0 in the type of the computation. */
    const uint16_t half[] = {0, 0x3c00};
    const float single[] = {0.0f, 1.0f};
    const bool halves = in_half(lane, s->wide);
    const void *one = halves ? (const void *)&half[1] : &single[1];
    const void *beta = halves ? (const void *)&half[s->adds] : &single[s->adds];
    for (; s->algorithm < s->algorithms_found; s->algorithm++) {
        cublasStatus_t status = cublas->f.cublasLtMatmul(
            cublas->handle, s->product, one, b, s->a, a, s->b, beta, s->adds ? product->base : c,
            s->c, c, s->c, &s->algorithms[s->algorithm], lane->workspace, RPEXEC_CUDA_WORKSPACE,
            lane->stream);
        if (status == CUBLAS_STATUS_SUCCESS) {
            return RP_OK;
        }
        warn_once(cublas, s, status);
    }
    return by_own_kernel(lane, product, a, b, c);
}
