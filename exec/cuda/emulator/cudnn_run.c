/* Computes the results of a graph of cuDNN's operations, operation by operation. */
#include "common/base/mem.h"
#include "exec/cuda/emulator/cudnn_internal.h"
#include "exec/operators/dtype.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define VALUE(name) RPEXEC_CUDNN_##name

/* A tensor's values, dense. */
typedef struct array {
    const emulated_cudnn *tensor;
    int64_t dims[EMULATED_AXES];
    float *values;
} array;

typedef struct arrays {
    const emulated_job *job;
    array list[EMULATED_MOST_TENSORS];
    uint32_t count;
} arrays;

static uint64_t count_of(const array *a)
{
    return (uint64_t)(a->dims[0] * a->dims[1] * a->dims[2] * a->dims[3]);
}

static array *array_of(arrays *all, const emulated_cudnn *tensor)
{
    for (uint32_t i = 0; i < all->count; i++) {
        if (all->list[i].tensor == tensor) {
            return &all->list[i];
        }
    }
    array *a = &all->list[all->count++];
    *a = (array){.tensor = tensor};
    for (int i = 0; i < EMULATED_AXES; i++) {
        a->dims[i] = (int64_t)emulated_cudnn_word(tensor, VALUE(ATTR_TENSOR_DIMENSIONS), i);
    }
    if (rp_mem_resize(&a->values, count_of(a) * sizeof *a->values) != RP_OK) {
        abort();
    }
    return a;
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* The 16-bit type of a tensor; F32 for fp32 and for whole numbers, which fp32 holds. */
static rp_dtype dtype_of(const emulated_cudnn *tensor)
{
    unsigned type = (unsigned)emulated_cudnn_word(tensor, VALUE(ATTR_TENSOR_DATA_TYPE), 0);
    return type == VALUE(DATA_HALF)       ? RP_DTYPE_F16
           : type == VALUE(DATA_BFLOAT16) ? RP_DTYPE_BF16
                                          : RP_DTYPE_F32;
}

static void get(rp_dtype dtype, const void *from, float *to)
{
    if (dtype == RP_DTYPE_F32) {
        memcpy(to, from, sizeof *to);
    } else {
        rpexec_widen(dtype, 1, from, to);
    }
}

static void put(rp_dtype dtype, const float *from, void *to)
{
    if (dtype == RP_DTYPE_F32) {
        memcpy(to, from, sizeof *from);
    } else {
        rpexec_narrow(dtype, 1, from, to);
    }
}

static void split(const array *a, uint64_t index, int64_t at[EMULATED_AXES])
{
    for (int i = EMULATED_AXES - 1; i >= 0; i--) {
        at[i] = (int64_t)(index % (uint64_t)a->dims[i]);
        index /= (uint64_t)a->dims[i];
    }
}

/* Reads an array from memory, or writes it there. A virtual tensor is rounded as if it were
 * stored. */
static void move(const emulated_job *job, array *a, bool writes)
{
    uint64_t id = emulated_cudnn_word(a->tensor, VALUE(ATTR_TENSOR_UNIQUE_ID), 0);
    bool is_virtual = emulated_cudnn_word(a->tensor, VALUE(ATTR_TENSOR_IS_VIRTUAL), 0) != 0;
    rp_dtype dtype = dtype_of(a->tensor);
    uint32_t which = 0;
    while (which < job->count && job->ids[which] != id) {
        which++;
    }
    for (uint64_t i = 0; i < count_of(a); i++) {
        int64_t at[EMULATED_AXES];
        uint64_t offset = 0;
        unsigned char narrow[4];
        split(a, i, at);
        for (int k = 0; k < EMULATED_AXES; k++) {
            offset +=
                (uint64_t)at[k] * emulated_cudnn_word(a->tensor, VALUE(ATTR_TENSOR_STRIDES), k);
        }
        if (is_virtual) {
            put(dtype, &a->values[i], narrow);
            get(dtype, narrow, &a->values[i]);
        } else if (job->memory[which] == NULL) {
            a->values[i] = job->value[which];
        } else if (writes) {
            float value = a->values[i] * job->factor;
            put(dtype, &value, rpexec_element(dtype, job->memory[which], offset));
        } else {
            get(dtype, rpexec_element(dtype, job->memory[which], offset), &a->values[i]);
        }
    }
}

/* ---- operations ------------------------------------------------------------------------------ */

/* The value of an array at a place of a larger array; axes of length 1 are repeated. */
static float spread(const array *a, const int64_t at[EMULATED_AXES])
{
    uint64_t index = 0;
    for (int i = 0; i < EMULATED_AXES; i++) {
        index = index * (uint64_t)a->dims[i] + (uint64_t)(a->dims[i] == 1 ? 0 : at[i]);
    }
    return a->values[index];
}

static float value_of(unsigned mode, float x, float b, float chooser)
{
    switch (mode) {
    case VALUE(POINTWISE_ADD):
        return x + b;
    case VALUE(POINTWISE_MUL):
        return x * b;
    case VALUE(POINTWISE_DIV):
        return x / b;
    case VALUE(POINTWISE_SUB):
        return x - b;
    case VALUE(POINTWISE_EXP):
        return expf(x);
    case VALUE(POINTWISE_LOG):
        return logf(x);
    case VALUE(POINTWISE_CMP_GE):
        return x >= b ? 1.0f : 0.0f;
    case VALUE(POINTWISE_BINARY_SELECT):
        return chooser != 0 ? x : b;
    default:
        abort();
    }
}

static void do_values(const emulated_cudnn *op, const array *const from[3], array *to)
{
    const emulated_cudnn *kind =
        emulated_cudnn_part(op, VALUE(ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR), 0);
    unsigned mode = (unsigned)emulated_cudnn_word(kind, VALUE(ATTR_POINTWISE_MODE), 0);
    uint64_t axis = emulated_cudnn_word(kind, VALUE(ATTR_POINTWISE_AXIS), 0);
    for (uint64_t i = 0; i < count_of(to); i++) {
        int64_t at[EMULATED_AXES];
        split(to, i, at);
        to->values[i] =
            mode == VALUE(POINTWISE_GEN_INDEX)
                ? (float)at[axis]
                : value_of(mode, spread(from[0], at), from[1] != NULL ? spread(from[1], at) : 0,
                           from[2] != NULL ? spread(from[2], at) : 0);
    }
}

/* Head h of c is head h of a times a head of b, which serves a group of successive heads. */
static void do_product(const array *a, const array *b, array *c)
{
    int64_t group = a->dims[1] / b->dims[1];
    for (uint64_t i = 0; i < count_of(c); i++) {
        int64_t at[EMULATED_AXES];
        float sum = 0;
        split(c, i, at);
        const float *row =
            a->values + ((at[0] * a->dims[1] + at[1]) * a->dims[2] + at[2]) * a->dims[3];
        const float *column =
            b->values + (at[0] * b->dims[1] + at[1] / group) * b->dims[2] * b->dims[3] + at[3];
        for (int64_t k = 0; k < a->dims[3]; k++) {
            sum += row[k] * column[k * b->dims[3]];
        }
        c->values[i] = sum;
    }
}

static void do_rows(const emulated_cudnn *op, const array *x, array *y)
{
    const emulated_cudnn *kind = emulated_cudnn_part(op, VALUE(ATTR_OPERATION_REDUCTION_DESC), 0);
    bool most =
        emulated_cudnn_word(kind, VALUE(ATTR_REDUCTION_OPERATOR), 0) == VALUE(REDUCE_TENSOR_MAX);
    int64_t columns = x->dims[3];
    for (uint64_t i = 0; i < count_of(y); i++) {
        const float *row = x->values + i * (uint64_t)columns;
        float result = most ? -INFINITY : 0;
        for (int64_t k = 0; k < columns; k++) {
            result = most ? fmaxf(result, row[k]) : result + row[k];
        }
        y->values[i] = result;
    }
}

static void do_operation(arrays *all, const emulated_cudnn *op)
{
    emulated_ports ports = emulated_cudnn_ports(op);
    const array *from[3] = {NULL, NULL, NULL};
    for (int i = 0; i < 3 && ports.from[i] != NULL; i++) {
        bool is_virtual = emulated_cudnn_word(ports.from[i], VALUE(ATTR_TENSOR_IS_VIRTUAL), 0) != 0;
        array *a = array_of(all, ports.from[i]);
        if (!is_virtual) {
            move(all->job, a, false);
        }
        from[i] = a;
    }
    array *to = array_of(all, ports.to);
    if (op->type == VALUE(BACKEND_OPERATION_MATMUL_DESCRIPTOR)) {
        do_product(from[0], from[1], to);
    } else if (op->type == VALUE(BACKEND_OPERATION_REDUCTION_DESCRIPTOR)) {
        do_rows(op, from[0], to);
    } else {
        do_values(op, from, to);
    }
    move(all->job, to, true);
}

void emulated_cudnn_run(const void *arguments)
{
    const emulated_job *job = arguments;
    arrays all = {.job = job};
    memset(job->workspace, 0xa5, EMULATED_WORKSPACE);
    const emulated_attribute *ops =
        emulated_cudnn_attribute(job->graph, VALUE(ATTR_OPERATIONGRAPH_OPS));
    for (int64_t i = 0; i < ops->count; i++) {
        do_operation(&all, emulated_cudnn_part(job->graph, VALUE(ATTR_OPERATIONGRAPH_OPS), i));
    }
    for (uint32_t i = 0; i < all.count; i++) {
        rp_mem_release(&all.list[i].values);
    }
}
