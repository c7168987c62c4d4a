#include "exec/cuda/cudnn_graph.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Most engines that are tried; heuristics name the best first. */
enum { ENGINES = 8, NOTES = 16, AXES = 4 };

/* Short names for cuDNN's values. */
#define VALUE(name) RPEXEC_CUDNN_##name

/* ---- objects --------------------------------------------------------------------------------- */

/* Keeps the first failure, after which cuDNN is not called any more. */
static void check(rpexec_cudnn_plan *p, unsigned status, const char *call, unsigned what)
{
    char more[512] = "";
    if (p->failed || status == VALUE(STATUS_SUCCESS)) {
        return;
    }
    p->failed = true;
    p->f->GetLastErrorString(more, sizeof more);
    for (char *c = more; *c != '\0'; c++) {
        *c = *c == '\n' ? ' ' : *c;
    }
    snprintf(p->why, sizeof p->why, "%s of %u: %s%s%s", call, what, p->f->GetErrorString(status),
             more[0] != '\0' ? ": " : "", more);
}

static rpexec_cudnn_object make(rpexec_cudnn_plan *p, unsigned type)
{
    rpexec_cudnn_object object = NULL;
    if (!p->failed && p->count == RPEXEC_CUDNN_OBJECTS) {
        p->failed = true;
        snprintf(p->why, sizeof p->why, "more than %u objects", RPEXEC_CUDNN_OBJECTS);
    }
    if (!p->failed) {
        check(p, p->f->BackendCreateDescriptor(type, &object), "cudnnBackendCreateDescriptor",
              type);
    }
    if (object != NULL) {
        p->objects[p->count++] = object;
    }
    return object;
}

static void set(rpexec_cudnn_plan *p, rpexec_cudnn_object object, unsigned name, unsigned type,
                int64_t count, const void *elements)
{
    if (!p->failed) {
        check(p, p->f->BackendSetAttribute(object, name, type, count, elements),
              "cudnnBackendSetAttribute", name);
    }
}

static void set_object(rpexec_cudnn_plan *p, rpexec_cudnn_object object, unsigned name,
                       rpexec_cudnn_object value)
{
    set(p, object, name, VALUE(TYPE_BACKEND_DESCRIPTOR), 1, &value);
}

static void set_unsigned(rpexec_cudnn_plan *p, rpexec_cudnn_object object, unsigned name,
                         unsigned type, unsigned value)
{
    set(p, object, name, type, 1, &value);
}

static rpexec_cudnn_object finish(rpexec_cudnn_plan *p, rpexec_cudnn_object object, unsigned type)
{
    if (!p->failed) {
        check(p, p->f->BackendFinalize(object), "cudnnBackendFinalize", type);
    }
    return object;
}

/* ---- tensors --------------------------------------------------------------------------------- */

/* [sequence, head, row, column]. */
typedef struct shape {
    int64_t dims[AXES];
    int64_t strides[AXES];
} shape;

typedef enum place { IN_MEMORY, VIRTUAL, BY_VALUE } place;

static rpexec_cudnn_object tensor(rpexec_cudnn_plan *p, int64_t id, unsigned dtype, const shape *s,
                                  place where)
{
    rpexec_cudnn_object t = make(p, VALUE(BACKEND_TENSOR_DESCRIPTOR));
    const bool yes = true;
    const int64_t alignment = 16;
    set_unsigned(p, t, VALUE(ATTR_TENSOR_DATA_TYPE), VALUE(TYPE_DATA_TYPE), dtype);
    set(p, t, VALUE(ATTR_TENSOR_DIMENSIONS), VALUE(TYPE_INT64), AXES, s->dims);
    set(p, t, VALUE(ATTR_TENSOR_STRIDES), VALUE(TYPE_INT64), AXES, s->strides);
    set(p, t, VALUE(ATTR_TENSOR_UNIQUE_ID), VALUE(TYPE_INT64), 1, &id);
    set(p, t, VALUE(ATTR_TENSOR_BYTE_ALIGNMENT), VALUE(TYPE_INT64), 1, &alignment);
    if (where == VIRTUAL) {
        set(p, t, VALUE(ATTR_TENSOR_IS_VIRTUAL), VALUE(TYPE_BOOLEAN), 1, &yes);
    } else if (where == BY_VALUE) {
        set(p, t, VALUE(ATTR_TENSOR_IS_BY_VALUE), VALUE(TYPE_BOOLEAN), 1, &yes);
    }
    return finish(p, t, VALUE(BACKEND_TENSOR_DESCRIPTOR));
}

/* cuDNN's view [s, h, t, i] of an operator's tensor of tokens x heads x head_dim. */
static shape rows_of(const rpexec_attention_sizes *s, uint32_t heads)
{
    int64_t token = (int64_t)heads * s->head_dim;
    return (shape){.dims = {s->sequences, heads, s->seq_len, s->head_dim},
                   .strides = {s->seq_len * token, s->head_dim, token, 1}};
}

/* A view of the same memory with rows and columns exchanged. */
static shape turned(shape s)
{
    shape t = s;
    t.dims[2] = s.dims[3];
    t.dims[3] = s.dims[2];
    t.strides[2] = s.strides[3];
    t.strides[3] = s.strides[2];
    return t;
}

/* The dense layout of a virtual tensor, as if it were stored. */
static shape dense(const rpexec_attention_sizes *s, int64_t columns)
{
    int64_t rows = s->seq_len * columns;
    return (shape){.dims = {s->sequences, s->heads, s->seq_len, columns},
                   .strides = {s->heads * rows, rows, columns, 1}};
}

static rpexec_cudnn_object in_memory(rpexec_cudnn_plan *p, rpexec_cudnn_tensor which,
                                     unsigned dtype, shape s)
{
    return tensor(p, which + 1, dtype, &s, IN_MEMORY);
}

static rpexec_cudnn_object host_float(rpexec_cudnn_plan *p, rpexec_cudnn_tensor which)
{
    const shape one = {.dims = {1, 1, 1, 1}, .strides = {1, 1, 1, 1}};
    return tensor(p, which + 1, VALUE(DATA_FLOAT), &one, BY_VALUE);
}

/* A virtual tensor; its id only has to be unique. */
static rpexec_cudnn_object between(rpexec_cudnn_plan *p, unsigned dtype, int64_t columns)
{
    const shape s = dense(&p->sizes, columns);
    return tensor(p, 100 + p->count, dtype, &s, VIRTUAL);
}

/* ---- operations ------------------------------------------------------------------------------ */

typedef struct operations {
    rpexec_cudnn_plan *p;
    rpexec_cudnn_object list[16];
    int64_t count;
} operations;

static void add(operations *o, rpexec_cudnn_object operation, unsigned type)
{
    o->list[o->count++] = finish(o->p, operation, type);
}

/* c = a b, added up in fp32. If a has more heads than b, each head of b serves a group of a's
 * heads. */
static rpexec_cudnn_object product(operations *o, rpexec_cudnn_object a, rpexec_cudnn_object b,
                                   rpexec_cudnn_object c)
{
    rpexec_cudnn_plan *p = o->p;
    rpexec_cudnn_object kind = make(p, VALUE(BACKEND_MATMUL_DESCRIPTOR));
    set_unsigned(p, kind, VALUE(ATTR_MATMUL_COMP_TYPE), VALUE(TYPE_DATA_TYPE), VALUE(DATA_FLOAT));
    finish(p, kind, VALUE(BACKEND_MATMUL_DESCRIPTOR));
    rpexec_cudnn_object op = make(p, VALUE(BACKEND_OPERATION_MATMUL_DESCRIPTOR));
    set_object(p, op, VALUE(ATTR_OPERATION_MATMUL_ADESC), a);
    set_object(p, op, VALUE(ATTR_OPERATION_MATMUL_BDESC), b);
    set_object(p, op, VALUE(ATTR_OPERATION_MATMUL_CDESC), c);
    set_object(p, op, VALUE(ATTR_OPERATION_MATMUL_DESC), kind);
    add(o, op, VALUE(BACKEND_OPERATION_MATMUL_DESCRIPTOR));
    return c;
}

/* y = mode(x, b) for each value; with `chooser` y is x for values at which it is true, and b for
 * the others.
 * @param b, @param chooser NULL: none */
static rpexec_cudnn_object values(operations *o, unsigned mode, unsigned computed_in, int64_t axis,
                                  rpexec_cudnn_object x, rpexec_cudnn_object b,
                                  rpexec_cudnn_object chooser, rpexec_cudnn_object y)
{
    rpexec_cudnn_plan *p = o->p;
    rpexec_cudnn_object kind = make(p, VALUE(BACKEND_POINTWISE_DESCRIPTOR));
    set_unsigned(p, kind, VALUE(ATTR_POINTWISE_MODE), VALUE(TYPE_POINTWISE_MODE), mode);
    set_unsigned(p, kind, VALUE(ATTR_POINTWISE_MATH_PREC), VALUE(TYPE_DATA_TYPE), computed_in);
    if (mode == VALUE(POINTWISE_GEN_INDEX)) {
        set(p, kind, VALUE(ATTR_POINTWISE_AXIS), VALUE(TYPE_INT64), 1, &axis);
    }
    finish(p, kind, VALUE(BACKEND_POINTWISE_DESCRIPTOR));
    rpexec_cudnn_object op = make(p, VALUE(BACKEND_OPERATION_POINTWISE_DESCRIPTOR));
    set_object(p, op, VALUE(ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR), kind);
    set_object(p, op, VALUE(ATTR_OPERATION_POINTWISE_XDESC), x);
    if (b != NULL) {
        set_object(p, op, VALUE(ATTR_OPERATION_POINTWISE_BDESC), b);
    }
    if (chooser != NULL) {
        set_object(p, op, VALUE(ATTR_OPERATION_POINTWISE_TDESC), chooser);
    }
    set_object(p, op, VALUE(ATTR_OPERATION_POINTWISE_YDESC), y);
    add(o, op, VALUE(BACKEND_OPERATION_POINTWISE_DESCRIPTOR));
    return y;
}

static rpexec_cudnn_object arithmetic(operations *o, unsigned mode, rpexec_cudnn_object x,
                                      rpexec_cudnn_object b, rpexec_cudnn_object y)
{
    return values(o, mode, VALUE(DATA_FLOAT), 0, x, b, NULL, y);
}

/* The maximum or the sum of each row. */
static rpexec_cudnn_object of_rows(operations *o, unsigned mode, rpexec_cudnn_object x)
{
    rpexec_cudnn_plan *p = o->p;
    rpexec_cudnn_object y = between(p, VALUE(DATA_FLOAT), 1);
    rpexec_cudnn_object kind = make(p, VALUE(BACKEND_REDUCTION_DESCRIPTOR));
    set_unsigned(p, kind, VALUE(ATTR_REDUCTION_OPERATOR), VALUE(TYPE_REDUCTION_OPERATOR_TYPE),
                 mode);
    set_unsigned(p, kind, VALUE(ATTR_REDUCTION_COMP_TYPE), VALUE(TYPE_DATA_TYPE),
                 VALUE(DATA_FLOAT));
    finish(p, kind, VALUE(BACKEND_REDUCTION_DESCRIPTOR));
    rpexec_cudnn_object op = make(p, VALUE(BACKEND_OPERATION_REDUCTION_DESCRIPTOR));
    set_object(p, op, VALUE(ATTR_OPERATION_REDUCTION_XDESC), x);
    set_object(p, op, VALUE(ATTR_OPERATION_REDUCTION_YDESC), y);
    set_object(p, op, VALUE(ATTR_OPERATION_REDUCTION_DESC), kind);
    add(o, op, VALUE(BACKEND_OPERATION_REDUCTION_DESCRIPTOR));
    return y;
}

/* ---- the graph ------------------------------------------------------------------------------- */

/* Keeps scores of keys that are no later than the query, and sets the others to `masked`. */
static rpexec_cudnn_object mask(operations *o, rpexec_cudnn_object scores)
{
    rpexec_cudnn_plan *p = o->p;
    int64_t keys = p->sizes.seq_len;
    rpexec_cudnn_object row = between(p, VALUE(DATA_INT32), keys);
    rpexec_cudnn_object column = between(p, VALUE(DATA_INT32), keys);
    values(o, VALUE(POINTWISE_GEN_INDEX), VALUE(DATA_FLOAT), 2, scores, NULL, NULL, row);
    values(o, VALUE(POINTWISE_GEN_INDEX), VALUE(DATA_FLOAT), 3, scores, NULL, NULL, column);
    rpexec_cudnn_object seen = between(p, VALUE(DATA_BOOLEAN), keys);
    values(o, VALUE(POINTWISE_CMP_GE), VALUE(DATA_BOOLEAN), 0, row, column, NULL, seen);
    return values(o, VALUE(POINTWISE_BINARY_SELECT), VALUE(DATA_FLOAT), 0, scores,
                  host_float(p, RPEXEC_CUDNN_MASKED), seen, between(p, VALUE(DATA_FLOAT), keys));
}

static void describe(operations *o, unsigned dtype)
{
    rpexec_cudnn_plan *p = o->p;
    const rpexec_attention_sizes *s = &p->sizes;
    const unsigned fp32 = VALUE(DATA_FLOAT);
    int64_t keys = s->seq_len;
    rpexec_cudnn_object q = in_memory(p, RPEXEC_CUDNN_Q, dtype, rows_of(s, s->heads));
    rpexec_cudnn_object k = in_memory(p, RPEXEC_CUDNN_K, dtype, turned(rows_of(s, s->kv_heads)));
    rpexec_cudnn_object v = in_memory(p, RPEXEC_CUDNN_V, dtype, rows_of(s, s->kv_heads));
    rpexec_cudnn_object scores = product(o, q, k, between(p, fp32, keys));
    scores = arithmetic(o, VALUE(POINTWISE_MUL), scores, host_float(p, RPEXEC_CUDNN_SCALE),
                        between(p, fp32, keys));
    scores = mask(o, scores);
    rpexec_cudnn_object most = of_rows(o, VALUE(REDUCE_TENSOR_MAX), scores);
    rpexec_cudnn_object weights =
        arithmetic(o, VALUE(POINTWISE_SUB), scores, most, between(p, fp32, keys));
    weights = arithmetic(o, VALUE(POINTWISE_EXP), weights, NULL, between(p, fp32, keys));
    rpexec_cudnn_object sum = of_rows(o, VALUE(REDUCE_TENSOR_ADD), weights);
    rpexec_cudnn_object log = arithmetic(o, VALUE(POINTWISE_LOG), sum, NULL, between(p, fp32, 1));
    const shape of_tokens = {.dims = {s->sequences, s->heads, s->seq_len, 1},
                             .strides = {(int64_t)s->seq_len * s->heads, 1, s->heads, 1}};
    arithmetic(o, VALUE(POINTWISE_ADD), most, log,
               in_memory(p, RPEXEC_CUDNN_LOGSUMEXP, fp32, of_tokens));
    weights = arithmetic(o, VALUE(POINTWISE_DIV), weights, sum, between(p, dtype, keys));
    product(o, weights, v, in_memory(p, RPEXEC_CUDNN_O, dtype, rows_of(s, s->heads)));
}

static void make_graph(const rpexec_cudnn_target *target, unsigned dtype, rpexec_cudnn_plan *p)
{
    operations o = {.p = p};
    describe(&o, dtype);
    p->graph = make(p, VALUE(BACKEND_OPERATIONGRAPH_DESCRIPTOR));
    if (target->handle != NULL) {
        set(p, p->graph, VALUE(ATTR_OPERATIONGRAPH_HANDLE), VALUE(TYPE_HANDLE), 1, &target->handle);
    }
    set(p, p->graph, VALUE(ATTR_OPERATIONGRAPH_OPS), VALUE(TYPE_BACKEND_DESCRIPTOR), o.count,
        o.list);
    finish(p, p->graph, VALUE(BACKEND_OPERATIONGRAPH_DESCRIPTOR));
}

/* ---- plans ----------------------------------------------------------------------------------- */

/* Asks for the engines for the graph, the best first. @return their number */
static int64_t ask(const rpexec_cudnn_target *target, rpexec_cudnn_plan *p,
                   rpexec_cudnn_object configs[ENGINES])
{
    int64_t count = 0;
    rpexec_cudnn_object heuristics = make(p, VALUE(BACKEND_ENGINEHEUR_DESCRIPTOR));
    set_object(p, heuristics, VALUE(ATTR_ENGINEHEUR_OPERATION_GRAPH), p->graph);
    set_unsigned(p, heuristics, VALUE(ATTR_ENGINEHEUR_MODE), VALUE(TYPE_HEUR_MODE),
                 VALUE(HEUR_MODE_A));
    if (target->handle == NULL) {
        set_object(p, heuristics, VALUE(ATTR_ENGINEHEUR_DEVICEPROP), target->device);
    }
    finish(p, heuristics, VALUE(BACKEND_ENGINEHEUR_DESCRIPTOR));
    for (int i = 0; i < ENGINES; i++) {
        configs[i] = make(p, VALUE(BACKEND_ENGINECFG_DESCRIPTOR));
    }
    if (!p->failed) {
        check(p,
              p->f->BackendGetAttribute(heuristics, VALUE(ATTR_ENGINEHEUR_RESULTS),
                                        VALUE(TYPE_BACKEND_DESCRIPTOR), ENGINES, &count, configs),
              "cudnnBackendGetAttribute", VALUE(ATTR_ENGINEHEUR_RESULTS));
    }
    return p->failed ? 0 : count < ENGINES ? count : ENGINES;
}

/* True if the engine gives the same bits every time, and adds up in fp32. */
static bool is_exact(rpexec_cudnn_plan *p, rpexec_cudnn_object config)
{
    unsigned notes[NOTES];
    int64_t count = 0;
    int64_t one = 0;
    rpexec_cudnn_object engine = make(p, VALUE(BACKEND_ENGINE_DESCRIPTOR));
    if (!p->failed) {
        check(p,
              p->f->BackendGetAttribute(config, VALUE(ATTR_ENGINECFG_ENGINE),
                                        VALUE(TYPE_BACKEND_DESCRIPTOR), 1, &one, &engine),
              "cudnnBackendGetAttribute", VALUE(ATTR_ENGINECFG_ENGINE));
    }
    if (!p->failed) {
        check(p,
              p->f->BackendGetAttribute(engine, VALUE(ATTR_ENGINE_NUMERICAL_NOTE),
                                        VALUE(TYPE_NUMERICAL_NOTE), NOTES, &count, notes),
              "cudnnBackendGetAttribute", VALUE(ATTR_ENGINE_NUMERICAL_NOTE));
    }
    bool exact = !p->failed && count <= NOTES;
    for (int64_t i = 0; exact && i < count; i++) {
        exact = notes[i] != VALUE(NUMERICAL_NOTE_NONDETERMINISTIC) &&
                notes[i] != VALUE(NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION) &&
                notes[i] != VALUE(NUMERICAL_NOTE_DOWN_CONVERT_INPUTS);
    }
    return exact;
}

/* Tries to make an engine's plan. On failure p->why has the reason; the next engine may succeed. */
static bool try_engine(const rpexec_cudnn_target *target, rpexec_cudnn_plan *p,
                       rpexec_cudnn_object config, int64_t workspace_bytes)
{
    int64_t bytes = 0;
    int64_t count = 0;
    if (!is_exact(p, config)) {
        snprintf(p->why, p->failed ? 0 : sizeof p->why,
                 "an engine whose bits may differ from run to run, or that rounds sums");
        return false;
    }
    rpexec_cudnn_object plan = make(p, VALUE(BACKEND_EXECUTION_PLAN_DESCRIPTOR));
    set_object(p, plan, VALUE(ATTR_EXECUTION_PLAN_ENGINE_CONFIG), config);
    if (target->handle != NULL) {
        set(p, plan, VALUE(ATTR_EXECUTION_PLAN_HANDLE), VALUE(TYPE_HANDLE), 1, &target->handle);
    } else {
        set_object(p, plan, VALUE(ATTR_EXECUTION_PLAN_DEVICEPROP), target->device);
    }
    finish(p, plan, VALUE(BACKEND_EXECUTION_PLAN_DESCRIPTOR));
    if (!p->failed) {
        check(p,
              p->f->BackendGetAttribute(plan, VALUE(ATTR_EXECUTION_PLAN_WORKSPACE_SIZE),
                                        VALUE(TYPE_INT64), 1, &count, &bytes),
              "cudnnBackendGetAttribute", VALUE(ATTR_EXECUTION_PLAN_WORKSPACE_SIZE));
    }
    if (!p->failed && bytes > workspace_bytes) {
        snprintf(p->why, sizeof p->why,
                 "an engine that wants %" PRId64 " bytes of workspace, and there are %" PRId64,
                 bytes, workspace_bytes);
        return false;
    }
    p->plan = plan;
    p->workspace_bytes = bytes;
    return !p->failed;
}

rp_status rpexec_cudnn_plan_make(const rpexec_cudnn_target *target, rp_dtype dtype,
                                 const rpexec_attention_sizes *sizes, int64_t workspace_bytes,
                                 rpexec_cudnn_plan *p)
{
    rpexec_cudnn_object configs[ENGINES];
    *p = (rpexec_cudnn_plan){.sizes = *sizes,
                             .f = target->f,
                             .scale = rpexec_attention_scale(sizes),
                             .masked = -INFINITY};
    if (dtype == RP_DTYPE_F32 || sizes->window != 0 || sizes->cap != 0) {
        snprintf(p->why, sizeof p->why, "%s",
                 sizes->window != 0 ? "a sliding window"
                 : sizes->cap != 0  ? "a soft cap of scores"
                                    : "fp32; valid are bf16 and fp16");
        p->failed = true;
        return RP_TOOL;
    }
    make_graph(target, dtype == RP_DTYPE_F16 ? VALUE(DATA_HALF) : VALUE(DATA_BFLOAT16), p);
    int64_t engines = ask(target, p, configs);
    p->engines = (uint32_t)engines;
    if (!p->failed && engines == 0) {
        snprintf(p->why, sizeof p->why, "no engine for this shape");
    }
    bool failed = p->failed;
    bool found = false;
    for (int64_t i = 0; !failed && !found && i < engines; i++) {
        p->failed = false;
        found = try_engine(target, p, configs[i], workspace_bytes);
    }
    p->failed = !found;
    return found ? RP_OK : RP_TOOL;
}

void rpexec_cudnn_plan_forget(rpexec_cudnn_plan *p)
{
    while (p->count > 0) { /* newer objects refer to older objects */
        (void)p->f->BackendDestroyDescriptor(p->objects[--p->count]);
    }
    *p = (rpexec_cudnn_plan){0};
}

rp_status rpexec_cudnn_pack_make(rpexec_cudnn_plan *p, const void *const memory[RPEXEC_CUDNN_SCALE],
                                 void *workspace, rpexec_cudnn_object *pack_out)
{
    int64_t ids[RPEXEC_CUDNN_TENSORS];
    const void *addresses[RPEXEC_CUDNN_TENSORS] = {
        [RPEXEC_CUDNN_SCALE] = &p->scale, [RPEXEC_CUDNN_MASKED] = &p->masked};
    memcpy(addresses, memory, RPEXEC_CUDNN_SCALE * sizeof *addresses);
    for (int i = 0; i < RPEXEC_CUDNN_TENSORS; i++) {
        ids[i] = i + 1;
    }
    p->failed = false;
    rpexec_cudnn_object pack = NULL;
    check(p, p->f->BackendCreateDescriptor(VALUE(BACKEND_VARIANT_PACK_DESCRIPTOR), &pack),
          "cudnnBackendCreateDescriptor", VALUE(BACKEND_VARIANT_PACK_DESCRIPTOR));
    set(p, pack, VALUE(ATTR_VARIANT_PACK_UNIQUE_IDS), VALUE(TYPE_INT64), RPEXEC_CUDNN_TENSORS, ids);
    set(p, pack, VALUE(ATTR_VARIANT_PACK_DATA_POINTERS), VALUE(TYPE_VOID_PTR), RPEXEC_CUDNN_TENSORS,
        addresses);
    set(p, pack, VALUE(ATTR_VARIANT_PACK_WORKSPACE), VALUE(TYPE_VOID_PTR), 1, &workspace);
    finish(p, pack, VALUE(BACKEND_VARIANT_PACK_DESCRIPTOR));
    if (p->failed && pack != NULL) {
        (void)p->f->BackendDestroyDescriptor(pack);
        pack = NULL;
    }
    *pack_out = pack;
    return p->failed ? RP_TOOL : RP_OK;
}
