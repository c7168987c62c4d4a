/* Reads Chakra execution traces. */
#include "sim/interchange/chakra.h"

#include "common/base/hash.h"
#include "common/base/log.h"

#include <inttypes.h>
#include <string.h>

#define MAX_US UINT64_C(1000000000000) /* eleven days */
#define PS_PER_US 1000000
#define MAX_NAME 40

/* X(enumerator, name, greatest value): the integer attributes that the reader uses. */
#define INTEGER_LIST(X)                                                                            \
    X(NS, "rp_ns", MAX_US * 1000)                                                                  \
    X(PS, "rp_ps", 999)                                                                            \
    X(TENSOR_SIZE, "tensor_size", INT64_MAX)                                                       \
    X(COMM_SIZE, "comm_size", INT64_MAX)                                                           \
    X(COMM_TYPE, "comm_type", RPSIM_CHAKRA_BARRIER)                                                \
    X(SOURCE, "comm_src", INT32_MAX)                                                               \
    X(DESTINATION, "comm_dst", INT32_MAX)                                                          \
    X(TAG, "comm_tag", INT32_MAX)

enum {
#define INTEGER_ENUM(name, text, most) INTEGER_##name,
    INTEGER_LIST(INTEGER_ENUM)
#undef INTEGER_ENUM
        INTEGER_COUNT
};

static const struct {
    const char *name;
    uint64_t most;
} integers[INTEGER_COUNT] = {
#define INTEGER_ENTRY(name, text, most) {text, most},
    INTEGER_LIST(INTEGER_ENTRY)
#undef INTEGER_ENTRY
};

/* Content of a node as read, before finish_node decides which parts apply. */
typedef struct draft {
    rpsim_chakra_node node;
    uint64_t type;
    uint64_t duration_us;
    uint64_t value[INTEGER_COUNT];
    bool has[INTEGER_COUNT];
} draft;

typedef struct reader {
    rpsim_chakra_trace *trace;
    const char *name;
    const uint8_t *begin;
    uint32_t rank;
} reader;

void rpsim_chakra_fini(rpsim_chakra_trace *trace)
{
    rp_mem_release(&trace->nodes);
    rp_mem_release(&trace->dependencies);
    rp_mem_release(&trace->rank_begin);
    rp_mem_release(&trace->names);
    *trace = (rpsim_chakra_trace){0};
}

static rp_status bad_byte(const reader *r, const uint8_t *at, const char *cause, const char *valid)
{
    rp_log_error_at(r->name, 0, "byte %zu: %s; valid %s", (size_t)(at - r->begin), cause, valid);
    return RP_INPUT;
}

static rp_status bad_node(const reader *r, const rpsim_chakra_node *node, const char *cause,
                          const char *valid)
{
    char shown[MAX_NAME + 1];
    size_t length = node->name_length < MAX_NAME ? node->name_length : MAX_NAME;
    for (size_t i = 0; i < length; i++) { /* messages are a single line of ASCII */
        shown[i] = node->name[i] >= ' ' && node->name[i] <= '~' ? node->name[i] : '?';
    }
    shown[length] = '\0';
    rp_log_error_at(r->name, 0, "node %" PRIu64 " (%s): %s; valid %s", node->id, shown, cause,
                    valid);
    return RP_INPUT;
}

/* ---- attributes ------------------------------------------------------------------------------ */

static bool is_integer(const rp_protobuf_field *value)
{
    return value->wire == RP_PROTOBUF_VARINT && (value->number == RPSIM_CHAKRA_ATTRIBUTE_INT32 ||
                                                 value->number == RPSIM_CHAKRA_ATTRIBUTE_INT64 ||
                                                 value->number == RPSIM_CHAKRA_ATTRIBUTE_UINT32 ||
                                                 value->number == RPSIM_CHAKRA_ATTRIBUTE_UINT64);
}

static bool is_named(const rp_protobuf *name, const char *text)
{
    size_t length = (size_t)(name->end - name->at);
    return length == strlen(text) && memcmp(name->at, text, length) == 0;
}

static rp_status take_value(const reader *r, const rp_protobuf *name,
                            const rp_protobuf_field *value, draft *d)
{
    for (size_t i = 0; i < INTEGER_COUNT; i++) {
        if (!is_named(name, integers[i].name)) {
            continue;
        }
        if (!is_integer(value) || value->value > integers[i].most) {
            char cause[64];
            char valid[64];
            snprintf(cause, sizeof cause, "the attribute %s is no valid integer", integers[i].name);
            snprintf(valid, sizeof valid, "values are 0 to %" PRIu64, integers[i].most);
            return bad_byte(r, name->at, cause, valid);
        }
        d->value[i] = value->value;
        d->has[i] = true;
        return RP_OK;
    }
    if (is_named(name, "is_cpu_op")) {
        if (value->wire != RP_PROTOBUF_VARINT || value->number != RPSIM_CHAKRA_ATTRIBUTE_BOOL) {
            return bad_byte(r, name->at, "the attribute is_cpu_op is no bool",
                            "values are true and false");
        }
        d->node.on_cpu = value->value != 0;
    } else if (is_named(name, "pg_name") && value->number == RPSIM_CHAKRA_ATTRIBUTE_STRING &&
               value->wire == RP_PROTOBUF_BYTES) {
        d->node.group = RP_HASH_SEED;
        for (const uint8_t *at = value->bytes.at; at < value->bytes.end; at++) {
            d->node.group = rp_hash_add(d->node.group, *at);
        }
    }
    return RP_OK;
}

static rp_status take_attribute(const reader *r, rp_protobuf message, draft *d)
{
    rp_protobuf name = {message.at, message.at};
    rp_protobuf_field value = {0};
    rp_protobuf_field field;
    rp_protobuf_next next;
    while ((next = rp_protobuf_take(&message, &field)) == RP_PROTOBUF_FIELD) {
        if (field.number == RPSIM_CHAKRA_ATTRIBUTE_NAME && field.wire == RP_PROTOBUF_BYTES) {
            name = field.bytes;
        } else if (field.number > RPSIM_CHAKRA_ATTRIBUTE_NAME + 1) { /* no doc_string */
            value = field;
        }
    }
    if (next == RP_PROTOBUF_BAD) {
        return bad_byte(r, message.at, "no field of an attribute begins here, or it is cut",
                        "are AttributeProto messages of Chakra");
    }
    return value.number == 0 ? RP_OK : take_value(r, &name, &value, d);
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static rp_status add_dependency(reader *r, uint64_t id)
{
    rpsim_chakra_trace *t = r->trace;
    RP_TRY(rp_mem_reserve(&t->dependencies, t->dependency_count, &t->dependency_capacity,
                          sizeof *t->dependencies));
    t->dependencies[t->dependency_count++] = id;
    return RP_OK;
}

/* Takes dependencies, packed or single. */
static rp_status take_dependencies(reader *r, const rp_protobuf_field *field)
{
    if (field->wire == RP_PROTOBUF_VARINT) {
        return add_dependency(r, field->value);
    }
    rp_protobuf list = field->bytes;
    while (field->wire == RP_PROTOBUF_BYTES && list.at < list.end) {
        uint64_t id = 0;
        if (!rp_protobuf_varint(&list, &id)) {
            return bad_byte(r, list.at, "an id of a dependency is cut", "are varints");
        }
        RP_TRY(add_dependency(r, id));
    }
    return RP_OK;
}

static rp_status take_field(reader *r, const rp_protobuf_field *field, draft *d)
{
    bool number = field->wire == RP_PROTOBUF_VARINT;
    bool bytes = field->wire == RP_PROTOBUF_BYTES;
    switch (field->number) {
    case RPSIM_CHAKRA_NODE_ID:
        d->node.id = number ? field->value : d->node.id;
        return RP_OK;
    case RPSIM_CHAKRA_NODE_NAME:
        d->node.name = bytes ? (const char *)field->bytes.at : d->node.name;
        d->node.name_length =
            bytes ? (uint32_t)(field->bytes.end - field->bytes.at) : d->node.name_length;
        return RP_OK;
    case RPSIM_CHAKRA_NODE_TYPE:
        d->type = number ? field->value : d->type;
        return RP_OK;
    case RPSIM_CHAKRA_NODE_DURATION:
        d->duration_us = number ? field->value : d->duration_us;
        return RP_OK;
    case RPSIM_CHAKRA_NODE_CTRL_DEPS:
    case RPSIM_CHAKRA_NODE_DATA_DEPS:
        return take_dependencies(r, field);
    case RPSIM_CHAKRA_NODE_ATTRIBUTE:
        return bytes ? take_attribute(r, field->bytes, d) : RP_OK;
    default:
        return RP_OK;
    }
}

/* Checks the ranks of a SEND or RECV. A node may leave out its own rank, as ASTRA-sim's custom
 * collectives do, and a tag of 0. */
static rp_status check_peers(const reader *r, draft *d)
{
    bool sends = d->node.type == RPSIM_CHAKRA_SEND;
    int own = sends ? INTEGER_SOURCE : INTEGER_DESTINATION;
    int other = sends ? INTEGER_DESTINATION : INTEGER_SOURCE;
    if (!d->has[other]) {
        char cause[40];
        snprintf(cause, sizeof cause, "a %s without %s", sends ? "SEND" : "RECV",
                 integers[other].name);
        return bad_node(r, &d->node, cause, "are nodes that name the other rank");
    }
    d->value[own] = d->has[own] ? d->value[own] : r->rank;
    d->node.source = (int32_t)d->value[INTEGER_SOURCE];
    d->node.destination = (int32_t)d->value[INTEGER_DESTINATION];
    d->node.tag = (int32_t)d->value[INTEGER_TAG];
    if (d->value[own] != r->rank || d->value[other] == r->rank) {
        char valid[80];
        snprintf(valid, sizeof valid, "in this file are %s %" PRIu32 " and another rank",
                 sends ? "SENDs from rank" : "RECVs to rank", r->rank);
        return bad_node(r, &d->node, "its ranks do not fit", valid);
    }
    return RP_OK;
}

/* Derives the node's type, time and bytes from the content read. */
static rp_status finish_node(const reader *r, draft *d)
{
    rpsim_chakra_node *node = &d->node;
    if (d->type == RPSIM_CHAKRA_INVALID || d->type > RPSIM_CHAKRA_COLL) {
        return bad_node(r, node, "has no known type", "types are 1 to 7");
    }
    node->type = (uint8_t)d->type;
    if (d->duration_us > MAX_US) {
        return bad_node(r, node, "takes too long", "durations are up to 1e12 microseconds");
    }
    bool moves = node->type != RPSIM_CHAKRA_COMP && node->type != RPSIM_CHAKRA_METADATA;
    bool memory = node->type == RPSIM_CHAKRA_MEM_LOAD || node->type == RPSIM_CHAKRA_MEM_STORE;
    bool meets = node->type == RPSIM_CHAKRA_COLL;
    node->exact = d->has[INTEGER_NS];
    node->bytes = d->value[memory ? INTEGER_TENSOR_SIZE : INTEGER_COMM_SIZE];
    node->collective = (uint8_t)d->value[INTEGER_COMM_TYPE];
    node->ps = node->exact ? (int64_t)(d->value[INTEGER_NS] * 1000 + d->value[INTEGER_PS])
                           : (int64_t)d->duration_us * PS_PER_US;
    if (node->type == RPSIM_CHAKRA_RECV) {
        node->ps = node->exact ? node->ps : 0; /* an inexact time includes the wait for the SEND */
    } else if (moves && !node->exact && node->ps == 0) {
        node->ps = RPSIM_CHAKRA_BY_SIZE;
    }
    if (meets && node->ps == RPSIM_CHAKRA_BY_SIZE && !d->has[INTEGER_COMM_TYPE]) {
        return bad_node(r, node, "a collective without duration and comm_type",
                        "are nodes with one of them");
    }
    bool peers = node->type == RPSIM_CHAKRA_SEND || node->type == RPSIM_CHAKRA_RECV;
    return peers ? check_peers(r, d) : RP_OK;
}

static rp_status read_node(reader *r, rp_protobuf message)
{
    rpsim_chakra_trace *t = r->trace;
    draft d = {.node = {.name = "", .rank = r->rank, .dependency_begin = t->dependency_count}};
    rp_protobuf_field field;
    rp_protobuf_next next;
    while ((next = rp_protobuf_take(&message, &field)) == RP_PROTOBUF_FIELD) {
        RP_TRY(take_field(r, &field, &d));
    }
    if (next == RP_PROTOBUF_BAD) {
        return bad_byte(r, message.at, "no field of a node begins here, or it is cut",
                        "are Node messages of Chakra");
    }
    RP_TRY(finish_node(r, &d));
    d.node.dependency_count = t->dependency_count - d.node.dependency_begin;
    RP_TRY(rp_mem_reserve(&t->nodes, t->node_count, &t->node_capacity, sizeof *t->nodes));
    t->nodes[t->node_count++] = d.node;
    return RP_OK;
}

/* ---- files ----------------------------------------------------------------------------------- */

static rp_status check_metadata(const reader *r, rp_protobuf message)
{
    rp_protobuf_field field;
    rp_protobuf_next next;
    bool fits = true;
    const uint8_t *begin = message.at;
    while ((next = rp_protobuf_take(&message, &field)) == RP_PROTOBUF_FIELD) {
        fits = fits && field.number <= 2 && field.wire == RP_PROTOBUF_BYTES;
    }
    if (next == RP_PROTOBUF_BAD || !fits) {
        return bad_byte(r, begin, "the file does not begin with a GlobalMetadata message",
                        "are execution traces of Chakra");
    }
    return RP_OK;
}

static rp_status read_messages(reader *r, rp_protobuf file)
{
    bool first = true;
    while (file.at < file.end) {
        rp_protobuf message;
        if (!rp_protobuf_delimited(&file, &message)) {
            return bad_byte(r, file.at, "no message begins here, or it is cut",
                            "are messages behind their lengths");
        }
        RP_TRY(first ? check_metadata(r, message) : read_node(r, message));
        first = false;
    }
    return first
               ? bad_byte(r, file.at, "the file is empty", "are a GlobalMetadata message and nodes")
               : RP_OK;
}

static rp_status add_rank(rpsim_chakra_trace *t, const char *name)
{
    if (t->rank_count + 1 >= t->rank_capacity) {
        uint32_t wanted = t->rank_capacity == 0 ? 16 : t->rank_capacity * 2;
        RP_TRY(rp_mem_resize(&t->rank_begin, wanted * sizeof *t->rank_begin));
        RP_TRY(rp_mem_resize(&t->names, wanted * sizeof *t->names));
        t->rank_capacity = wanted;
    }
    t->names[t->rank_count] = name;
    t->rank_begin[t->rank_count++] = t->node_count;
    t->rank_begin[t->rank_count] = t->node_count;
    return RP_OK;
}

rp_status rpsim_chakra_add(rpsim_chakra_trace *trace, const char *name, const void *bytes,
                           size_t length)
{
    reader r = {.trace = trace, .name = name, .begin = bytes, .rank = trace->rank_count};
    if (length >= 2 && r.begin[0] == 0x1f && r.begin[1] == 0x8b) {
        return bad_byte(&r, r.begin, "compressed with gzip", "is what gunzip makes of it");
    }
    RP_TRY(add_rank(trace, name));
    RP_TRY(read_messages(&r, (rp_protobuf){r.begin, r.begin + length}));
    trace->rank_begin[trace->rank_count] = trace->node_count;
    return RP_OK;
}
