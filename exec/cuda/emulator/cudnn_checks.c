/* Checks of the emulator's cuDNN when objects are finalized: shapes, types, order. */
#include "exec/cuda/emulator/cudnn_internal.h"

#include <stddef.h>

#define VALUE(name) RPEXEC_CUDNN_##name

/* ---- shapes ---------------------------------------------------------------------------------- */

static int64_t dim(const emulated_cudnn *tensor, int axis)
{
    return (int64_t)emulated_cudnn_word(tensor, VALUE(ATTR_TENSOR_DIMENSIONS), axis);
}

bool emulated_cudnn_is_virtual(const emulated_cudnn *tensor)
{
    return emulated_cudnn_word(tensor, VALUE(ATTR_TENSOR_IS_VIRTUAL), 0) != 0;
}

static unsigned type_of(const emulated_cudnn *tensor)
{
    return (unsigned)emulated_cudnn_word(tensor, VALUE(ATTR_TENSOR_DATA_TYPE), 0);
}

static bool spreads(const emulated_cudnn *from, const emulated_cudnn *to)
{
    bool does = true;
    for (int i = 0; i < EMULATED_AXES; i++) {
        does &= dim(from, i) == dim(to, i) || dim(from, i) == 1;
    }
    return does;
}

emulated_ports emulated_cudnn_ports(const emulated_cudnn *op)
{
    switch (op->type) {
    case VALUE(BACKEND_OPERATION_MATMUL_DESCRIPTOR):
        return (emulated_ports){
            .from = {emulated_cudnn_part(op, VALUE(ATTR_OPERATION_MATMUL_ADESC), 0),
                     emulated_cudnn_part(op, VALUE(ATTR_OPERATION_MATMUL_BDESC), 0)},
            .to = emulated_cudnn_part(op, VALUE(ATTR_OPERATION_MATMUL_CDESC), 0)};
    case VALUE(BACKEND_OPERATION_REDUCTION_DESCRIPTOR):
        return (emulated_ports){
            .from = {emulated_cudnn_part(op, VALUE(ATTR_OPERATION_REDUCTION_XDESC), 0)},
            .to = emulated_cudnn_part(op, VALUE(ATTR_OPERATION_REDUCTION_YDESC), 0)};
    default:
        return (emulated_ports){
            .from = {emulated_cudnn_part(op, VALUE(ATTR_OPERATION_POINTWISE_XDESC), 0),
                     emulated_cudnn_part(op, VALUE(ATTR_OPERATION_POINTWISE_BDESC), 0),
                     emulated_cudnn_part(op, VALUE(ATTR_OPERATION_POINTWISE_TDESC), 0)},
            .to = emulated_cudnn_part(op, VALUE(ATTR_OPERATION_POINTWISE_YDESC), 0)};
    }
}

static const char *check_tensor(const emulated_cudnn *t)
{
    uint64_t alignment = emulated_cudnn_word(t, VALUE(ATTR_TENSOR_BYTE_ALIGNMENT), 0);
    bool well = alignment >= 4 && (alignment & (alignment - 1)) == 0;
    for (int i = 0; i < EMULATED_AXES; i++) {
        well &= dim(t, i) > 0 && (int64_t)emulated_cudnn_word(t, VALUE(ATTR_TENSOR_STRIDES), i) > 0;
    }
    well &= !emulated_cudnn_is_virtual(t) ||
            emulated_cudnn_word(t, VALUE(ATTR_TENSOR_IS_BY_VALUE), 0) == 0;
    return well ? NULL : "such a tensor";
}

/* c[s, h, i, k] = a[s, h, i, j] b[s, of h, j, k]. */
static bool product_fits(const emulated_cudnn *a, const emulated_cudnn *b, const emulated_cudnn *c)
{
    return dim(a, 0) == dim(b, 0) && dim(a, 0) == dim(c, 0) && dim(a, 1) % dim(b, 1) == 0 &&
           dim(a, 1) == dim(c, 1) && dim(a, 2) == dim(c, 2) && dim(a, 3) == dim(b, 2) &&
           dim(b, 3) == dim(c, 3) && type_of(a) == type_of(b);
}

static bool values_fit(const emulated_cudnn *op, const emulated_ports *p)
{
    const emulated_cudnn *kind =
        emulated_cudnn_part(op, VALUE(ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR), 0);
    unsigned mode = (unsigned)emulated_cudnn_word(kind, VALUE(ATTR_POINTWISE_MODE), 0);
    unsigned precision = (unsigned)emulated_cudnn_word(kind, VALUE(ATTR_POINTWISE_MATH_PREC), 0);
    bool compares = mode == VALUE(POINTWISE_CMP_GE);
    bool alone = mode == VALUE(POINTWISE_EXP) || mode == VALUE(POINTWISE_LOG) ||
                 mode == VALUE(POINTWISE_GEN_INDEX);
    bool chooses = mode == VALUE(POINTWISE_BINARY_SELECT);
    bool fits =
        spreads(p->from[0], p->to) && alone == (p->from[1] == NULL) &&
        chooses == (p->from[2] != NULL) && (alone || spreads(p->from[1], p->to)) &&
        (!chooses || (spreads(p->from[2], p->to) && type_of(p->from[2]) == VALUE(DATA_BOOLEAN))) &&
        compares == (type_of(p->to) == VALUE(DATA_BOOLEAN)) &&
        precision == (compares ? VALUE(DATA_BOOLEAN) : VALUE(DATA_FLOAT));
    bool has_axis = emulated_cudnn_attribute(kind, VALUE(ATTR_POINTWISE_AXIS)) != NULL;
    return fits && has_axis == (mode == VALUE(POINTWISE_GEN_INDEX));
}

static const char *check_operation(const emulated_cudnn *op)
{
    emulated_ports p = emulated_cudnn_ports(op);
    bool fits = true;
    if (op->type == VALUE(BACKEND_OPERATION_MATMUL_DESCRIPTOR)) {
        const emulated_cudnn *kind = emulated_cudnn_part(op, VALUE(ATTR_OPERATION_MATMUL_DESC), 0);
        fits = product_fits(p.from[0], p.from[1], p.to) &&
               emulated_cudnn_word(kind, VALUE(ATTR_MATMUL_COMP_TYPE), 0) == VALUE(DATA_FLOAT);
    } else if (op->type == VALUE(BACKEND_OPERATION_REDUCTION_DESCRIPTOR)) {
        fits = spreads(p.to, p.from[0]) && dim(p.to, 3) == 1 && dim(p.to, 2) == dim(p.from[0], 2);
    } else {
        fits = values_fit(op, &p);
    }
    return fits ? NULL : "tensors that do not fit";
}

/* ---- graphs ---------------------------------------------------------------------------------- */

static bool is_operation(unsigned type)
{
    return type == VALUE(BACKEND_OPERATION_MATMUL_DESCRIPTOR) ||
           type == VALUE(BACKEND_OPERATION_REDUCTION_DESCRIPTOR) ||
           type == VALUE(BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
}

/* @return the tensor's number; EMULATED_MOST_TENSORS: another tensor has the same id, or there are
 *         too many */
static uint32_t number_of(emulated_tensors *all, const emulated_cudnn *t)
{
    for (uint32_t i = 0; i < all->count; i++) {
        if (all->list[i] == t) {
            return i;
        }
        if (emulated_cudnn_word(all->list[i], VALUE(ATTR_TENSOR_UNIQUE_ID), 0) ==
            emulated_cudnn_word(t, VALUE(ATTR_TENSOR_UNIQUE_ID), 0)) {
            return EMULATED_MOST_TENSORS;
        }
    }
    all->list[all->count] = t;
    return all->count < EMULATED_MOST_TENSORS - 1 ? all->count++ : EMULATED_MOST_TENSORS;
}

/* A tensor that is read must be in memory or have been written before, and no tensor may be written
 * twice. */
static bool add_operation(emulated_tensors *all, const emulated_cudnn *op)
{
    emulated_ports p = emulated_cudnn_ports(op);
    for (int i = 0; i < 3 && p.from[i] != NULL; i++) {
        uint32_t from = number_of(all, p.from[i]);
        if (from == EMULATED_MOST_TENSORS ||
            emulated_cudnn_is_virtual(p.from[i]) != all->written[from]) {
            return false;
        }
        all->read[from] = true;
    }
    uint32_t to = number_of(all, p.to);
    if (to == EMULATED_MOST_TENSORS || all->written[to] || all->read[to]) {
        return false;
    }
    all->written[to] = true;
    return true;
}

bool emulated_cudnn_collect(const emulated_cudnn *graph, emulated_tensors *all)
{
    const emulated_attribute *ops = emulated_cudnn_attribute(graph, VALUE(ATTR_OPERATIONGRAPH_OPS));
    bool well = true;
    for (int64_t i = 0; well && i < ops->count; i++) {
        const emulated_cudnn *op = emulated_cudnn_part(graph, VALUE(ATTR_OPERATIONGRAPH_OPS), i);
        well = is_operation(op->type) && add_operation(all, op);
    }
    for (uint32_t i = 0; well && i < all->count; i++) {
        well = !emulated_cudnn_is_virtual(all->list[i]) ||
               all->read[i]; /* every result must be used */
    }
    return well;
}

static const char *check_graph(const emulated_cudnn *graph)
{
    emulated_tensors all = {.count = 0};
    return emulated_cudnn_collect(graph, &all) ? NULL : "such a graph";
}

static const char *check_pack(const emulated_cudnn *pack)
{
    const emulated_attribute *ids =
        emulated_cudnn_attribute(pack, VALUE(ATTR_VARIANT_PACK_UNIQUE_IDS));
    const emulated_attribute *memory =
        emulated_cudnn_attribute(pack, VALUE(ATTR_VARIANT_PACK_DATA_POINTERS));
    bool well = ids->count == memory->count;
    for (int64_t i = 0; well && i < ids->count; i++) {
        well = memory->words[i] != 0;
        for (int64_t k = 0; k < i; k++) {
            well &= ids->words[k] != ids->words[i];
        }
    }
    return well ? NULL : "such a variant pack";
}

const char *emulated_cudnn_check(const emulated_cudnn *o)
{
    return is_operation(o->type)                                 ? check_operation(o)
           : o->type == VALUE(BACKEND_TENSOR_DESCRIPTOR)         ? check_tensor(o)
           : o->type == VALUE(BACKEND_OPERATIONGRAPH_DESCRIPTOR) ? check_graph(o)
           : o->type == VALUE(BACKEND_VARIANT_PACK_DESCRIPTOR)   ? check_pack(o)
                                                                 : NULL;
}
