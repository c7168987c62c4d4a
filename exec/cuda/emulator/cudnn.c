/* cuDNN on a CPU, a separate library that exec/cuda/cudnn.c opens (RPEXEC_CUDNN). Descriptors are
 * checked as far as the documentation defines them, and computed as described (cudnn_run.c): a
 * wrong description is refused, or gives wrong results. Like the library on Hopper it names two
 * engines and needs a little workspace; here the first engine's bits may differ from run to run,
 * and head dimensions that are no multiple of 8 have no engine. Values of EMULATED_CUDNN: old (a
 * version that is not supported), wrong (results are 5 % larger), absent (no handle can be made),
 * loose (the first engine only), restless (every other call's results are a little larger). */
#include "exec/cuda/emulator/cudnn_internal.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VALUE(name) RPEXEC_CUDNN_##name

#define DECLARE(result, name, parameters) result cudnn##name parameters;
RPEXEC_CUDNN_FUNCTIONS(DECLARE)

enum { OBJECTS = 8192, ENGINES = 2 };

struct cudnnContext {
    bool used;
    cudaStream_t stream;
};

static emulated_cudnn objects[OBJECTS];
static struct cudnnContext handles[64];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Thread_local char reason[160];

static unsigned refuse(unsigned status, const char *why)
{
    snprintf(reason, sizeof reason, "%s", why);
    return status;
}

static bool is(const char *what)
{
    const char *mode = getenv("EMULATED_CUDNN");
    return mode != NULL && strcmp(mode, what) == 0;
}

/* ---- attributes ------------------------------------------------------------------------------ */

typedef struct rule {
    unsigned object, name, type;
    int64_t least, most; /* elements */
    bool required;
    unsigned part; /* type of the object that is the attribute, or ANY */
} rule;

enum { ANY = 1000000 };

#define OBJECT(of, name, required, part)                                                           \
    {                                                                                              \
        VALUE(BACKEND_##of##_DESCRIPTOR), VALUE(ATTR_##name), VALUE(TYPE_BACKEND_DESCRIPTOR), 1,   \
            1, required, part                                                                      \
    }
#define PLAIN(of, name, type, count, required)                                                     \
    {                                                                                              \
        VALUE(BACKEND_##of##_DESCRIPTOR), VALUE(ATTR_##name), VALUE(TYPE_##type), count, count,    \
            required, ANY                                                                          \
    }
#define TENSOR VALUE(BACKEND_TENSOR_DESCRIPTOR)

static const rule rules[] = {
    PLAIN(TENSOR, TENSOR_DATA_TYPE, DATA_TYPE, 1, true),
    PLAIN(TENSOR, TENSOR_DIMENSIONS, INT64, EMULATED_AXES, true),
    PLAIN(TENSOR, TENSOR_STRIDES, INT64, EMULATED_AXES, true),
    PLAIN(TENSOR, TENSOR_UNIQUE_ID, INT64, 1, true),
    PLAIN(TENSOR, TENSOR_BYTE_ALIGNMENT, INT64, 1, true),
    PLAIN(TENSOR, TENSOR_IS_VIRTUAL, BOOLEAN, 1, false),
    PLAIN(TENSOR, TENSOR_IS_BY_VALUE, BOOLEAN, 1, false),
    PLAIN(MATMUL, MATMUL_COMP_TYPE, DATA_TYPE, 1, true),
    PLAIN(REDUCTION, REDUCTION_OPERATOR, REDUCTION_OPERATOR_TYPE, 1, true),
    PLAIN(REDUCTION, REDUCTION_COMP_TYPE, DATA_TYPE, 1, true),
    PLAIN(POINTWISE, POINTWISE_MODE, POINTWISE_MODE, 1, true),
    PLAIN(POINTWISE, POINTWISE_MATH_PREC, DATA_TYPE, 1, true),
    PLAIN(POINTWISE, POINTWISE_AXIS, INT64, 1, false),
    OBJECT(OPERATION_MATMUL, OPERATION_MATMUL_ADESC, true, TENSOR),
    OBJECT(OPERATION_MATMUL, OPERATION_MATMUL_BDESC, true, TENSOR),
    OBJECT(OPERATION_MATMUL, OPERATION_MATMUL_CDESC, true, TENSOR),
    OBJECT(OPERATION_MATMUL, OPERATION_MATMUL_DESC, true, VALUE(BACKEND_MATMUL_DESCRIPTOR)),
    OBJECT(OPERATION_REDUCTION, OPERATION_REDUCTION_XDESC, true, TENSOR),
    OBJECT(OPERATION_REDUCTION, OPERATION_REDUCTION_YDESC, true, TENSOR),
    OBJECT(OPERATION_REDUCTION, OPERATION_REDUCTION_DESC, true,
           VALUE(BACKEND_REDUCTION_DESCRIPTOR)),
    OBJECT(OPERATION_POINTWISE, OPERATION_POINTWISE_PW_DESCRIPTOR, true,
           VALUE(BACKEND_POINTWISE_DESCRIPTOR)),
    OBJECT(OPERATION_POINTWISE, OPERATION_POINTWISE_XDESC, true, TENSOR),
    OBJECT(OPERATION_POINTWISE, OPERATION_POINTWISE_BDESC, false, TENSOR),
    OBJECT(OPERATION_POINTWISE, OPERATION_POINTWISE_TDESC, false, TENSOR),
    OBJECT(OPERATION_POINTWISE, OPERATION_POINTWISE_YDESC, true, TENSOR),
    PLAIN(OPERATIONGRAPH, OPERATIONGRAPH_HANDLE, HANDLE, 1, true),
    {VALUE(BACKEND_OPERATIONGRAPH_DESCRIPTOR), VALUE(ATTR_OPERATIONGRAPH_OPS),
     VALUE(TYPE_BACKEND_DESCRIPTOR), 1, EMULATED_WORDS, true, ANY},
    OBJECT(ENGINEHEUR, ENGINEHEUR_OPERATION_GRAPH, true, VALUE(BACKEND_OPERATIONGRAPH_DESCRIPTOR)),
    PLAIN(ENGINEHEUR, ENGINEHEUR_MODE, HEUR_MODE, 1, true),
    PLAIN(EXECUTION_PLAN, EXECUTION_PLAN_HANDLE, HANDLE, 1, true),
    OBJECT(EXECUTION_PLAN, EXECUTION_PLAN_ENGINE_CONFIG, true, VALUE(BACKEND_ENGINECFG_DESCRIPTOR)),
    {VALUE(BACKEND_VARIANT_PACK_DESCRIPTOR), VALUE(ATTR_VARIANT_PACK_UNIQUE_IDS), VALUE(TYPE_INT64),
     1, EMULATED_WORDS, true, ANY},
    {VALUE(BACKEND_VARIANT_PACK_DESCRIPTOR), VALUE(ATTR_VARIANT_PACK_DATA_POINTERS),
     VALUE(TYPE_VOID_PTR), 1, EMULATED_WORDS, true, ANY},
    PLAIN(VARIANT_PACK, VARIANT_PACK_WORKSPACE, VOID_PTR, 1, true),
};

enum { RULES = sizeof rules / sizeof *rules };

static size_t size_of(unsigned type)
{
    switch (type) {
    case VALUE(TYPE_BOOLEAN):
        return sizeof(bool);
    case VALUE(TYPE_HANDLE):
    case VALUE(TYPE_INT64):
    case VALUE(TYPE_VOID_PTR):
    case VALUE(TYPE_BACKEND_DESCRIPTOR):
        return 8;
    default:
        return 4; /* enumerations */
    }
}

const emulated_attribute *emulated_cudnn_attribute(const emulated_cudnn *object, unsigned name)
{
    for (uint32_t i = 0; i < object->count; i++) {
        if (object->attributes[i].name == name) {
            return &object->attributes[i];
        }
    }
    return NULL;
}

uint64_t emulated_cudnn_word(const emulated_cudnn *object, unsigned name, int64_t index)
{
    const emulated_attribute *a = emulated_cudnn_attribute(object, name);
    return a == NULL || index >= a->count ? 0 : a->words[index];
}

const emulated_cudnn *emulated_cudnn_part(const emulated_cudnn *object, unsigned name,
                                          int64_t index)
{
    return (const emulated_cudnn *)(uintptr_t)emulated_cudnn_word(object, name, index);
}

/* The objects of an attribute must exist, be finalized, and have the right type. */
static unsigned check_parts(const rule *r, const emulated_attribute *a)
{
    for (int64_t i = 0; r->type == VALUE(TYPE_BACKEND_DESCRIPTOR) && i < a->count; i++) {
        uint64_t place = a->words[i] - (uint64_t)(uintptr_t)objects;
        const emulated_cudnn *part = (const emulated_cudnn *)(uintptr_t)a->words[i];
        if (place >= sizeof objects || place % sizeof *objects != 0 || !part->used) {
            return refuse(VALUE(STATUS_BAD_PARAM), "no object");
        }
        if (!part->finalized) {
            return refuse(VALUE(STATUS_BAD_PARAM_NOT_FINALIZED), "an object that is not finalized");
        }
        if (r->part != ANY && part->type != r->part) {
            return refuse(VALUE(STATUS_BAD_PARAM), "an object of another type");
        }
    }
    return VALUE(STATUS_SUCCESS);
}

unsigned cudnnBackendSetAttribute(rpexec_cudnn_object object, unsigned name, unsigned type,
                                  int64_t count, const void *elements)
{
    emulated_cudnn *o = object;
    uint32_t i = 0;
    if (!o->used || o->finalized || elements == NULL) {
        return refuse(VALUE(STATUS_BAD_PARAM), "no object, or one that is finalized");
    }
    while (i < RULES && (rules[i].object != o->type || rules[i].name != name)) {
        i++;
    }
    if (i == RULES || emulated_cudnn_attribute(o, name) != NULL) {
        return refuse(VALUE(STATUS_BAD_PARAM), "no attribute of such an object, or a second time");
    }
    if (rules[i].type != type) {
        return refuse(VALUE(STATUS_BAD_PARAM_ATTRIBUTE_TYPE), "another type of attribute");
    }
    if (count < rules[i].least || count > rules[i].most) {
        return refuse(VALUE(STATUS_BAD_PARAM), "another number of elements");
    }
    emulated_attribute *a = &o->attributes[o->count];
    *a = (emulated_attribute){.name = name, .count = count};
    for (int64_t k = 0; k < count; k++) {
        size_t size = size_of(type);
        memcpy(&a->words[k], (const unsigned char *)elements + (size_t)k * size, size);
    }
    unsigned status = check_parts(&rules[i], a);
    o->count += status == VALUE(STATUS_SUCCESS);
    return status;
}

/* ---- finalizing ------------------------------------------------------------------------------ */

static bool is_handle(uint64_t word)
{
    uint64_t place = word - (uint64_t)(uintptr_t)handles;
    return place < sizeof handles && place % sizeof *handles == 0 &&
           handles[place / sizeof *handles].used;
}

unsigned cudnnBackendFinalize(rpexec_cudnn_object object)
{
    emulated_cudnn *o = object;
    if (!o->used || o->finalized) {
        return refuse(VALUE(STATUS_BAD_PARAM), "no object, or a second time");
    }
    for (uint32_t i = 0; i < RULES; i++) {
        if (rules[i].object == o->type && rules[i].required &&
            emulated_cudnn_attribute(o, rules[i].name) == NULL) {
            return refuse(VALUE(STATUS_BAD_PARAM), "an attribute is missing");
        }
    }
    const char *why = emulated_cudnn_check(o);
    if (why == NULL && o->type == VALUE(BACKEND_OPERATIONGRAPH_DESCRIPTOR) &&
        !is_handle(emulated_cudnn_word(o, VALUE(ATTR_OPERATIONGRAPH_HANDLE), 0))) {
        why = "no handle";
    }
    o->finalized = why == NULL;
    return why == NULL ? VALUE(STATUS_SUCCESS) : refuse(VALUE(STATUS_BAD_PARAM), why);
}

/* ---- engines --------------------------------------------------------------------------------- */

static unsigned name_engines(const emulated_cudnn *heuristics, int64_t room, int64_t *count,
                             emulated_cudnn *const *configs)
{
    const emulated_cudnn *graph =
        emulated_cudnn_part(heuristics, VALUE(ATTR_ENGINEHEUR_OPERATION_GRAPH), 0);
    const emulated_cudnn *first = emulated_cudnn_part(graph, VALUE(ATTR_OPERATIONGRAPH_OPS), 0);
    bool none =
        emulated_cudnn_word(emulated_cudnn_ports(first).from[0], VALUE(ATTR_TENSOR_DIMENSIONS), 3) %
            8 !=
        0;
    *count = none ? 0 : is("loose") ? 1 : ENGINES;
    for (int64_t i = 0; i < *count && i < room; i++) {
        configs[i]->graph = graph;
        configs[i]->which = (uint32_t)i;
        configs[i]->finalized = true;
    }
    return VALUE(STATUS_SUCCESS);
}

unsigned cudnnBackendGetAttribute(const rpexec_cudnn_object object, unsigned name, unsigned type,
                                  int64_t room, int64_t *count, void *elements)
{
    const emulated_cudnn *o = object;
    bool is_part = type == VALUE(TYPE_BACKEND_DESCRIPTOR);
    *count = 1;
    if (!o->used || !o->finalized || room < 1) {
        return refuse(VALUE(STATUS_BAD_PARAM_NOT_FINALIZED), "no object, or not finalized");
    }
    if (name == VALUE(ATTR_ENGINEHEUR_RESULTS) && is_part) {
        return name_engines(o, room, count, elements);
    }
    if (name == VALUE(ATTR_ENGINECFG_ENGINE) && is_part) {
        emulated_cudnn *engine = *(emulated_cudnn **)elements;
        engine->which = o->which;
        engine->finalized = true;
        return VALUE(STATUS_SUCCESS);
    }
    if (name == VALUE(ATTR_ENGINE_NUMERICAL_NOTE) && type == VALUE(TYPE_NUMERICAL_NOTE)) {
        const unsigned notes[] = {VALUE(NUMERICAL_NOTE_NONDETERMINISTIC), 0 /* tensor cores */};
        memcpy(elements, &notes[o->which], sizeof *notes);
        return VALUE(STATUS_SUCCESS);
    }
    if (name == VALUE(ATTR_EXECUTION_PLAN_WORKSPACE_SIZE) && type == VALUE(TYPE_INT64)) {
        const int64_t bytes = EMULATED_WORKSPACE;
        memcpy(elements, &bytes, sizeof bytes);
        return VALUE(STATUS_SUCCESS);
    }
    return refuse(VALUE(STATUS_BAD_PARAM), "no such attribute");
}

/* ---- running --------------------------------------------------------------------------------- */

/* Makes a job. The pack must have addresses for exactly the tensors that have memory, aligned as
 * described. */
static unsigned make_job(const emulated_cudnn *graph, const emulated_cudnn *pack, emulated_job *job)
{
    emulated_tensors all = {.count = 0};
    const emulated_attribute *ids =
        emulated_cudnn_attribute(pack, VALUE(ATTR_VARIANT_PACK_UNIQUE_IDS));
    (void)emulated_cudnn_collect(graph, &all);
    static unsigned calls;
    *job = (emulated_job){.graph = graph,
                          .factor = is("wrong")      ? 1.05f
                                    : is("restless") ? 1.0f + 1e-6f * (float)(calls++ % 2)
                                                     : 1.0f};
    for (uint32_t i = 0; i < all.count; i++) {
        uint64_t id = emulated_cudnn_word(all.list[i], VALUE(ATTR_TENSOR_UNIQUE_ID), 0);
        int64_t k = 0;
        while (k < ids->count && ids->words[k] != id) {
            k++;
        }
        if ((k < ids->count) == emulated_cudnn_is_virtual(all.list[i])) {
            return refuse(VALUE(STATUS_BAD_PARAM),
                          "a tensor without memory, or a virtual one with");
        }
        if (emulated_cudnn_is_virtual(all.list[i])) {
            continue;
        }
        void *memory =
            (void *)(uintptr_t)emulated_cudnn_word(pack, VALUE(ATTR_VARIANT_PACK_DATA_POINTERS), k);
        bool by_value = emulated_cudnn_word(all.list[i], VALUE(ATTR_TENSOR_IS_BY_VALUE), 0) != 0;
        if (!by_value &&
            (uint64_t)(uintptr_t)memory %
                    emulated_cudnn_word(all.list[i], VALUE(ATTR_TENSOR_BYTE_ALIGNMENT), 0) !=
                0) {
            return refuse(VALUE(STATUS_BAD_PARAM), "memory that is not aligned");
        }
        job->ids[job->count] = id;
        job->memory[job->count] = by_value ? NULL : memory;
        if (by_value) {
            memcpy(&job->value[job->count], memory, sizeof(float));
        }
        job->count++;
    }
    return job->count == (uint32_t)ids->count ? VALUE(STATUS_SUCCESS)
                                              : refuse(VALUE(STATUS_BAD_PARAM), "other tensors");
}

unsigned cudnnBackendExecute(rpexec_cudnn_handle handle, rpexec_cudnn_object plan,
                             rpexec_cudnn_object pack)
{
    const emulated_cudnn *p = plan;
    const emulated_cudnn *k = pack;
    emulated_job job;
    if (!handle->used || !p->finalized || !k->finalized ||
        p->type != VALUE(BACKEND_EXECUTION_PLAN_DESCRIPTOR) ||
        k->type != VALUE(BACKEND_VARIANT_PACK_DESCRIPTOR)) {
        return refuse(VALUE(STATUS_BAD_PARAM), "no handle, plan or variant pack");
    }
    const emulated_cudnn *config =
        emulated_cudnn_part(p, VALUE(ATTR_EXECUTION_PLAN_ENGINE_CONFIG), 0);
    unsigned status = make_job(config->graph, k, &job);
    if (status != VALUE(STATUS_SUCCESS)) {
        return status;
    }
    job.workspace =
        (void *)(uintptr_t)emulated_cudnn_word(k, VALUE(ATTR_VARIANT_PACK_WORKSPACE), 0);
    return emulated_launch(handle->stream, emulated_cudnn_run, &job, sizeof job) == cudaSuccess
               ? VALUE(STATUS_SUCCESS)
               : VALUE(STATUS_BAD_PARAM);
}

/* ---- handles and objects --------------------------------------------------------------------- */

size_t cudnnGetVersion(void)
{
    return is("old") ? 91199 : 91900;
}

const char *cudnnGetErrorString(unsigned status)
{
    return status == VALUE(STATUS_SUCCESS) ? "success" : "refused by the emulator";
}

void cudnnGetLastErrorString(char *text, size_t bytes)
{
    snprintf(text, bytes, "%s", reason);
}

unsigned cudnnCreate(rpexec_cudnn_handle *handle)
{
    uint32_t i = 0;
    pthread_mutex_lock(&lock);
    while (i < sizeof handles / sizeof *handles && handles[i].used) {
        i++;
    }
    bool found = i < sizeof handles / sizeof *handles && !is("absent");
    if (found) {
        handles[i] = (struct cudnnContext){.used = true};
        *handle = &handles[i];
    }
    pthread_mutex_unlock(&lock);
    return found ? VALUE(STATUS_SUCCESS) : refuse(VALUE(STATUS_NOT_SUPPORTED), "no handle");
}

unsigned cudnnDestroy(rpexec_cudnn_handle handle)
{
    handle->used = false;
    return VALUE(STATUS_SUCCESS);
}

unsigned cudnnSetStream(rpexec_cudnn_handle handle, cudaStream_t stream)
{
    handle->stream = stream;
    return VALUE(STATUS_SUCCESS);
}

unsigned cudnnBackendCreateDescriptor(unsigned type, rpexec_cudnn_object *object)
{
    uint32_t i = 0;
    pthread_mutex_lock(&lock);
    while (i < OBJECTS && objects[i].used) {
        i++;
    }
    if (i < OBJECTS) {
        objects[i] = (emulated_cudnn){.type = type, .used = true};
        *object = &objects[i];
    }
    pthread_mutex_unlock(&lock);
    return i < OBJECTS ? VALUE(STATUS_SUCCESS) : refuse(VALUE(STATUS_BAD_PARAM), "no room");
}

unsigned cudnnBackendDestroyDescriptor(rpexec_cudnn_object object)
{
    emulated_cudnn *o = object;
    pthread_mutex_lock(&lock);
    bool used = o->used;
    o->used = o->finalized = false;
    pthread_mutex_unlock(&lock);
    return used ? VALUE(STATUS_SUCCESS) : refuse(VALUE(STATUS_BAD_PARAM), "destroyed twice");
}

unsigned emulated_cudnn_left(void)
{
    unsigned left = 0;
    for (uint32_t i = 0; i < OBJECTS; i++) {
        left += objects[i].used;
    }
    for (size_t i = 0; i < sizeof handles / sizeof *handles; i++) {
        left += handles[i].used;
    }
    return left;
}
