/* exec/cuda/cudnn.c with the emulator's library: refusals and their reasons, engines that are
 * passed over, lists of addresses that come again or are too many; and the emulator's own refusals
 * of wrong descriptions. */
#include "common/base/log.h"
#include "exec/cuda/cudnn.h"
#include "exec/cuda/emulator/cudnn_internal.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VALUE(name) RPEXEC_CUDNN_##name

static int failed;

static void expect(bool well, const char *what)
{
    if (!well) {
        printf("cudnn: %s\n", what);
        failed++;
    }
}

static rp_arena *arena;
static _Alignas(16) unsigned char workspace[4096];

static const rpexec_attention_sizes sizes = {2, 3, 4, 2, 8, 0, 0, 0};
enum { QUERIES = 2 * 3 * 4 * 8, KEYS = 2 * 3 * 2 * 8, ROWS = 2 * 3 * 4 };

/* @return objects left, by a function of the library that cuDNN does not have */
static unsigned left(void)
{
    void *library = dlopen(getenv("RPEXEC_CUDNN"), RTLD_NOW);
    unsigned (*function)(void) = NULL;
    void *address = library != NULL ? dlsym(library, "emulated_cudnn_left") : NULL;
    memcpy(&function, &address, sizeof function);
    return function != NULL ? function() : 1;
}

static rpexec_cudnn *open_one(rp_dtype dtype, size_t workspace_bytes)
{
    rpexec_cudnn *c = NULL;
    const char *why = "";
    expect(rpexec_cudnn_open(dtype, NULL, workspace, workspace_bytes, arena, &c, &why) == RP_OK,
           why);
    return c;
}

static void refused(rpexec_cudnn *c, const rpexec_attention_sizes *s, const char *text)
{
    const char *why = "";
    bool well = rpexec_cudnn_plan_for(c, s, &why) == RP_TOOL && strstr(why, text) != NULL &&
                !rpexec_cudnn_has(c, s);
    expect(well, text);
    if (!well) {
        printf("cudnn: it says %s\n", why);
    }
}

static void test_refusals(void)
{
    rpexec_attention_sizes odd = sizes;
    rpexec_attention_sizes window = sizes;
    rpexec_attention_sizes capped = sizes;
    const char *why = "";
    rpexec_cudnn *c = NULL;
    odd.head_dim = 12;
    window.window = 2;
    capped.cap = 30;
    setenv("EMULATED_CUDNN", "absent", 1);
    expect(rpexec_cudnn_open(RP_DTYPE_BF16, NULL, workspace, sizeof workspace, arena, &c, &why) ==
                   RP_TOOL &&
               c == NULL && strstr(why, "cudnnCreate") != NULL,
           "a machine without a device has a handle");
    setenv("EMULATED_CUDNN", "loose", 1);
    c = open_one(RP_DTYPE_BF16, sizeof workspace);
    refused(c, &sizes, "bits may differ from run to run");
    unsetenv("EMULATED_CUDNN");
    refused(c, &odd, "no engine");
    refused(c, &window, "a sliding window");
    refused(c, &capped, "a soft cap of scores");
    expect(rpexec_cudnn_plan_for(c, &sizes, &why) == RP_OK && rpexec_cudnn_has(c, &sizes),
           "no plan after refusals");
    rpexec_cudnn_close(c);
    c = open_one(RP_DTYPE_F32, sizeof workspace);
    refused(c, &sizes, "fp32; valid are bf16 and fp16");
    rpexec_cudnn_close(c);
    c = open_one(RP_DTYPE_F16, 255);
    refused(c, &sizes, "256 bytes of workspace, and there are 255");
    rpexec_cudnn_close(c);
    c = open_one(RP_DTYPE_F16, sizeof workspace);
    rpexec_attention_sizes more = sizes;
    for (more.sequences = 1; more.sequences <= 16; more.sequences++) {
        expect(rpexec_cudnn_plan_for(c, &more, &why) == RP_OK, "not 16 shapes");
    }
    refused(c, &more, "more than 16 shapes");
    rpexec_cudnn_close(c);
    expect(left() == 0, "objects are left after refusals");
}

typedef struct tensors {
    uint16_t q[QUERIES], k[KEYS], v[KEYS], o[QUERIES + 8];
    float logsumexp[ROWS];
} tensors;

/* NaN is larger than everything. */
static double larger(double a, double b)
{
    return isnan(a) || b <= a ? a : b;
}

/* The error against attention computed in double, a head at a time. */
static double error_of(const tensors *t, const uint16_t *o, const float *logsumexp)
{
    static float q[QUERIES], k[KEYS], v[KEYS], got[QUERIES];
    double worst = 0;
    rpexec_widen(RP_DTYPE_BF16, QUERIES, t->q, q);
    rpexec_widen(RP_DTYPE_BF16, KEYS, t->k, k);
    rpexec_widen(RP_DTYPE_BF16, KEYS, t->v, v);
    rpexec_widen(RP_DTYPE_BF16, QUERIES, o, got);
    for (int row = 0; row < ROWS; row++) {
        int token = row / 4 % 3;
        int first = row / 12 * 3;
        int kv_head = row % 4 / 2;
        double sum = 0;
        double out[8] = {0};
        for (int key = 0; key <= token; key++) {
            const float *other = k + ((first + key) * 2 + kv_head) * 8;
            const float *value = v + ((first + key) * 2 + kv_head) * 8;
            double score = 0;
            for (int i = 0; i < 8; i++) {
                score += (double)q[row * 8 + i] * (double)other[i] / sqrt(8);
            }
            sum += exp(score);
            for (int i = 0; i < 8; i++) {
                out[i] += exp(score) * (double)value[i];
            }
        }
        worst = larger(worst, fabs((double)logsumexp[row] - log(sum)) * 1000);
        for (int i = 0; i < 8; i++) {
            worst = larger(worst, fabs((double)got[row * 8 + i] - out[i] / sum));
        }
    }
    return worst; /* of o, or 1000 times the error of logsumexp */
}

/* Calls with more lists of addresses than are kept, repeatedly and once in reverse order: each call
 * must give its own result. */
static void test_addresses(void)
{
    enum { CALLS = 2100 };
    const char *why = "";
    tensors *t = NULL;
    uint16_t *outs = NULL;
    rpexec_cudnn *c = open_one(RP_DTYPE_BF16, sizeof workspace);
    expect(rpexec_cudnn_plan_for(c, &sizes, &why) == RP_OK, why);
    expect(rp_arena_alloc(arena, 1, sizeof *t, &t) == RP_OK &&
               rp_arena_alloc(arena, CALLS, QUERIES * sizeof *outs, &outs) == RP_OK,
           "no memory");
    uint16_t *const filled[] = {t->q, t->k, t->v};
    const uint64_t counts[] = {QUERIES, KEYS, KEYS};
    for (uint32_t i = 0; i < 3; i++) {
        float wide[QUERIES];
        for (uint64_t k = 0; k < counts[i]; k++) {
            wide[k] = sinf((float)(k * (i + 3)));
        }
        rpexec_narrow(RP_DTYPE_BF16, counts[i], wide, filled[i]);
    }
    for (uint32_t i = 0; i < 4 * CALLS; i++) {
        uint32_t place = i / CALLS == 2 ? CALLS - 1 - i % CALLS : i % CALLS;
        uint16_t *o = outs + (size_t)place * QUERIES;
        memset(o, 0xff, QUERIES * sizeof *o);
        memset(t->logsumexp, 0xff, sizeof t->logsumexp);
        rp_status status = rpexec_cudnn_attention(c, &sizes, t->q, t->k, t->v, o, t->logsumexp);
        double error = status == RP_OK ? error_of(t, o, t->logsumexp) : (double)NAN;
        if (!(error < 0.02)) {
            printf("cudnn: call %u is off by %g\n", i, error);
            failed++;
            break;
        }
    }
    rpexec_attention_sizes other = sizes;
    other.seq_len++;
    expect(rpexec_cudnn_attention(c, &sizes, t->q, t->k, t->v, t->o + 1, t->logsumexp) == RP_BROKEN,
           "tensors that are not aligned"); /* logged on stderr, like the next refusal */
    expect(rpexec_cudnn_attention(c, &other, t->q, t->k, t->v, t->o, t->logsumexp) == RP_BROKEN,
           "a shape without a plan");
    expect(left() < 2048 + 80 + 2, "lists of addresses that are not given back");
    rpexec_cudnn_close(c);
    expect(left() == 0, "objects are left after calls");
}

/* ---- the emulator ---------------------------------------------------------------------------- */

static const rpexec_cudnn_functions *f;

static rpexec_cudnn_object tensor_of(int64_t id, int64_t rows, int64_t columns, bool is_virtual)
{
    rpexec_cudnn_object t = NULL;
    const unsigned type = VALUE(DATA_FLOAT);
    const int64_t dims[] = {1, 1, rows, columns};
    const int64_t strides[] = {rows * columns, rows * columns, columns, 1};
    const int64_t alignment = 16;
    expect(f->BackendCreateDescriptor(VALUE(BACKEND_TENSOR_DESCRIPTOR), &t) == 0 &&
               f->BackendSetAttribute(t, VALUE(ATTR_TENSOR_DATA_TYPE), VALUE(TYPE_DATA_TYPE), 1,
                                      &type) == 0 &&
               f->BackendSetAttribute(t, VALUE(ATTR_TENSOR_DIMENSIONS), VALUE(TYPE_INT64), 4,
                                      dims) == 0 &&
               f->BackendSetAttribute(t, VALUE(ATTR_TENSOR_STRIDES), VALUE(TYPE_INT64), 4,
                                      strides) == 0 &&
               f->BackendSetAttribute(t, VALUE(ATTR_TENSOR_UNIQUE_ID), VALUE(TYPE_INT64), 1, &id) ==
                   0 &&
               f->BackendSetAttribute(t, VALUE(ATTR_TENSOR_BYTE_ALIGNMENT), VALUE(TYPE_INT64), 1,
                                      &alignment) == 0 &&
               (!is_virtual || f->BackendSetAttribute(t, VALUE(ATTR_TENSOR_IS_VIRTUAL),
                                                      VALUE(TYPE_BOOLEAN), 1, &is_virtual) == 0) &&
               f->BackendFinalize(t) == 0,
           "a tensor is refused");
    return t;
}

static rpexec_cudnn_object make(unsigned type)
{
    rpexec_cudnn_object object = NULL;
    expect(f->BackendCreateDescriptor(type, &object) == 0, "an object is refused");
    return object;
}

static unsigned set_object(rpexec_cudnn_object object, unsigned name, rpexec_cudnn_object part)
{
    return f->BackendSetAttribute(object, name, VALUE(TYPE_BACKEND_DESCRIPTOR), 1, &part);
}

/* Makes an operation y = mode(x) and tries to finalize it. */
static rpexec_cudnn_object operation(unsigned mode, rpexec_cudnn_object x, rpexec_cudnn_object y,
                                     unsigned *status_out)
{
    const unsigned fp32 = VALUE(DATA_FLOAT);
    rpexec_cudnn_object kind = make(VALUE(BACKEND_POINTWISE_DESCRIPTOR));
    rpexec_cudnn_object op = make(VALUE(BACKEND_OPERATION_POINTWISE_DESCRIPTOR));
    expect(f->BackendSetAttribute(kind, VALUE(ATTR_POINTWISE_MODE), VALUE(TYPE_POINTWISE_MODE), 1,
                                  &mode) == 0 &&
               f->BackendSetAttribute(kind, VALUE(ATTR_POINTWISE_MATH_PREC), VALUE(TYPE_DATA_TYPE),
                                      1, &fp32) == 0 &&
               set_object(op, VALUE(ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR), kind) ==
                   VALUE(STATUS_BAD_PARAM_NOT_FINALIZED) &&
               f->BackendFinalize(kind) == 0 &&
               set_object(op, VALUE(ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR), kind) == 0 &&
               set_object(op, VALUE(ATTR_OPERATION_POINTWISE_XDESC), x) == 0 &&
               set_object(op, VALUE(ATTR_OPERATION_POINTWISE_YDESC), y) == 0,
           "an operation is refused");
    *status_out = f->BackendFinalize(op);
    return op;
}

static unsigned graph_of(rpexec_cudnn_handle handle, rpexec_cudnn_object *operations, int64_t count)
{
    rpexec_cudnn_object graph = make(VALUE(BACKEND_OPERATIONGRAPH_DESCRIPTOR));
    expect(f->BackendSetAttribute(graph, VALUE(ATTR_OPERATIONGRAPH_HANDLE), VALUE(TYPE_HANDLE), 1,
                                  &handle) == 0 &&
               f->BackendSetAttribute(graph, VALUE(ATTR_OPERATIONGRAPH_OPS),
                                      VALUE(TYPE_BACKEND_DESCRIPTOR), count, operations) == 0,
           "a graph is refused");
    return f->BackendFinalize(graph);
}

/* Refusals of the emulator's library, which is as strict as cuDNN. */
static void test_emulator(void)
{
    rpexec_cudnn_handle handle = NULL;
    const int64_t number = 4;
    const int32_t narrow = 4;
    unsigned status = 0;
    expect(f->Create(&handle) == 0, "no handle");
    rpexec_cudnn_object t = make(VALUE(BACKEND_TENSOR_DESCRIPTOR));
    expect(f->BackendSetAttribute(t, VALUE(ATTR_TENSOR_UNIQUE_ID), VALUE(TYPE_INT32), 1, &narrow) ==
               VALUE(STATUS_BAD_PARAM_ATTRIBUTE_TYPE),
           "an attribute of another type");
    expect(f->BackendSetAttribute(t, VALUE(ATTR_TENSOR_DIMENSIONS), VALUE(TYPE_INT64), 1,
                                  &number) != 0,
           "too few elements");
    expect(f->BackendSetAttribute(t, VALUE(ATTR_MATMUL_COMP_TYPE), VALUE(TYPE_DATA_TYPE), 1,
                                  &narrow) != 0,
           "an attribute of another object");
    expect(f->BackendFinalize(t) != 0, "a tensor without attributes");
    rpexec_cudnn_object x = tensor_of(1, 4, 8, false);
    rpexec_cudnn_object y = tensor_of(2, 4, 8, true);
    rpexec_cudnn_object z = tensor_of(3, 4, 8, false);
    rpexec_cudnn_object twin = tensor_of(1, 4, 8, false);
    rpexec_cudnn_object wide = tensor_of(5, 4, 16, false);
    expect(f->BackendSetAttribute(x, VALUE(ATTR_TENSOR_UNIQUE_ID), VALUE(TYPE_INT64), 1, &number) !=
               0,
           "a change of what is finalized");
    rpexec_cudnn_object first = operation(VALUE(POINTWISE_EXP), x, y, &status);
    expect(status == 0, "exp");
    rpexec_cudnn_object second = operation(VALUE(POINTWISE_LOG), y, z, &status);
    expect(status == 0, "log");
    (void)operation(VALUE(POINTWISE_EXP), x, wide, &status);
    expect(status != 0, "tensors of other shapes");
    (void)operation(VALUE(POINTWISE_ADD), x, z, &status);
    expect(status != 0, "a sum of one");
    rpexec_cudnn_object clash = operation(VALUE(POINTWISE_LOG), y, twin, &status);
    rpexec_cudnn_object in_order[] = {first, second};
    rpexec_cudnn_object reversed[] = {second, first};
    rpexec_cudnn_object same_id[] = {first, clash};
    expect(graph_of(handle, in_order, 2) == 0, "a graph");
    expect(graph_of(handle, reversed, 2) != 0, "a result that is read before it is there");
    expect(graph_of(handle, in_order, 1) != 0, "a result that nobody wants");
    expect(graph_of(handle, same_id, 2) != 0, "two tensors with one id");
}

int main(void)
{
    const char *why = "";
    size_t version = 0;
    if (rp_arena_create(&arena) != RP_OK) {
        return 1;
    }
    setenv("EMULATED_CUDNN", "old", 1);
    expect(!rpexec_cudnn_load(&f, &version, &why) && strstr(why, "cuDNN 9.11 is too old") != NULL,
           "a version that is too old");
    char file[1024];
    snprintf(file, sizeof file, "%s",
             getenv("RPEXEC_CUDNN") != NULL ? getenv("RPEXEC_CUDNN") : "unset");
    setenv("RPEXEC_CUDNN", "/nowhere/libcudnn.so.9", 1);
    expect(!rpexec_cudnn_load(&f, &version, &why) &&
               strstr(why, "/nowhere/libcudnn.so.9") != NULL &&
               strstr(why, "RPEXEC_CUDNN names a file") != NULL,
           "a file that is not there");
    setenv("RPEXEC_CUDNN", file, 1);
    unsetenv("EMULATED_CUDNN");
    expect(rpexec_cudnn_load(&f, &version, &why) && version == 91900, why);
    test_refusals();
    test_addresses();
    test_emulator();
    rp_arena_destroy(arena);
    printf("cudnn: %d failed\n", failed);
    return failed > 0;
}
