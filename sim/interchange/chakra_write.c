/* Writes a timeline as Chakra execution traces. */
#include "sim/interchange/chakra_internal.h"

#include "common/base/log.h"

#include <inttypes.h>
#include <string.h>

#define VERSION "0.0.4" /* as in ASTRA-sim's samples */
#define PS_PER_NS 1000

/* State while a rank's file is written. */
typedef struct writer {
    const rpsim_chakra_export *x;
    uint32_t rank;
    uint8_t *written;  /* [op] */
    uint8_t *received; /* [op] 1: its RECVs are written */
    rp_protobuf_writer node;
    rp_protobuf_writer attribute;
    rp_protobuf_writer deps;
    rp_protobuf_writer file;
} writer;

/* ---- ids ------------------------------------------------------------------------------------- */

/* Node ids: ops have their own numbers; then come two numbers for each wait, and a number for each
 * delay. */
static uint64_t send_id(const rpsim_chakra_export *x, uint32_t wait)
{
    return (uint64_t)x->program->op_count + 2 * (uint64_t)wait;
}

static uint64_t receive_id(const rpsim_chakra_export *x, uint32_t wait)
{
    return send_id(x, wait) + 1;
}

static uint64_t delay_id(const rpsim_chakra_export *x, uint32_t op)
{
    return send_id(x, x->program->wait_count) + op;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static void begin_attribute(writer *w, const char *name)
{
    rp_protobuf_put_bytes(&w->attribute, RPSIM_CHAKRA_ATTRIBUTE_NAME, name, strlen(name));
}

static void put_text_attribute(writer *w, const char *name, const char *value)
{
    begin_attribute(w, name);
    rp_protobuf_put_bytes(&w->attribute, RPSIM_CHAKRA_ATTRIBUTE_STRING, value, strlen(value));
    rp_protobuf_put_part(&w->node, RPSIM_CHAKRA_NODE_ATTRIBUTE, &w->attribute);
}

static void put_attribute(writer *w, const char *name, uint32_t field, uint64_t value)
{
    begin_attribute(w, name);
    rp_protobuf_put_number(&w->attribute, field, value);
    rp_protobuf_put_part(&w->node, RPSIM_CHAKRA_NODE_ATTRIBUTE, &w->attribute);
}

/* Writes a node up to its dependencies, which are in w->deps. */
static void begin_node(writer *w, uint64_t id, const char *name, rpsim_chakra_type type)
{
    if (id != 0) { /* proto3 leaves zeroes out */
        rp_protobuf_put_number(&w->node, RPSIM_CHAKRA_NODE_ID, id);
    }
    rp_protobuf_put_bytes(&w->node, RPSIM_CHAKRA_NODE_NAME, name, strlen(name));
    rp_protobuf_put_number(&w->node, RPSIM_CHAKRA_NODE_TYPE, (uint64_t)type);
    if (w->deps.text.length > 0) {
        rp_protobuf_put_part(&w->node, RPSIM_CHAKRA_NODE_DATA_DEPS, &w->deps);
    }
}

static void put_times(writer *w, int64_t start_ps, int64_t ps, bool on_cpu)
{
    uint64_t start_us = (uint64_t)(start_ps / RPSIM_CHAKRA_PS_PER_US);
    uint64_t duration_us = ((uint64_t)ps + RPSIM_CHAKRA_PS_PER_US / 2) / RPSIM_CHAKRA_PS_PER_US;
    if (start_us != 0) {
        rp_protobuf_put_number(&w->node, RPSIM_CHAKRA_NODE_START, start_us);
    }
    if (duration_us != 0) {
        rp_protobuf_put_number(&w->node, RPSIM_CHAKRA_NODE_DURATION, duration_us);
    }
    put_attribute(w, "is_cpu_op", RPSIM_CHAKRA_ATTRIBUTE_BOOL, on_cpu ? 1 : 0);
    put_attribute(w, "rp_ns", RPSIM_CHAKRA_ATTRIBUTE_UINT64, (uint64_t)(ps / PS_PER_NS));
    if (ps % PS_PER_NS != 0) {
        put_attribute(w, "rp_ps", RPSIM_CHAKRA_ATTRIBUTE_UINT64, (uint64_t)(ps % PS_PER_NS));
    }
}

static void end_node(writer *w)
{
    if (w->node.status != RP_OK) {
        w->file.status = w->node.status;
        return;
    }
    rp_protobuf_put_varint(&w->file, w->node.text.length);
    if (w->file.status == RP_OK) {
        w->file.status = rp_text_append(&w->file.text, w->node.text.bytes, w->node.text.length);
    }
    w->node.text.length = 0;
}

static void put_peers(writer *w, uint32_t from, uint32_t to, uint32_t tag, uint64_t bytes)
{
    put_attribute(w, "comm_src", RPSIM_CHAKRA_ATTRIBUTE_INT32, from);
    put_attribute(w, "comm_dst", RPSIM_CHAKRA_ATTRIBUTE_INT32, to);
    put_attribute(w, "comm_tag", RPSIM_CHAKRA_ATTRIBUTE_INT32, tag);
    put_attribute(w, "comm_size", RPSIM_CHAKRA_ATTRIBUTE_INT64, bytes);
}

/* Writes the SEND or the RECV of a wait between ranks. */
static void put_message(writer *w, uint32_t wait, bool sends)
{
    const rpsim_chakra_export *x = w->x;
    const rp_program *p = x->program;
    uint32_t from = rp_wait_op(p->waits[wait]);
    uint32_t to = x->consumer_of[wait];
    uint32_t result = rpsim_chakra_result_op(p, from);
    bool data = !rp_wait_is_control(p->waits[wait]);
    uint64_t bytes = p->op_bytes != NULL ? p->op_bytes[from] : x->boundary_bytes;
    char from_name[RP_OP_NAME_SIZE];
    char to_name[RP_OP_NAME_SIZE];
    char name[2 * RP_OP_NAME_SIZE + 16];
    rp_op_name(&p->ops[from], from_name);
    rp_op_name(&p->ops[to], to_name);
    snprintf(name, sizeof name, "%s %s to %s", sends ? "SEND" : "RECV", from_name, to_name);
    if (sends) {
        rp_protobuf_put_varint(&w->deps, from);
        if (result != from) {
            rp_protobuf_put_varint(&w->deps, result);
        }
    }
    begin_node(w, sends ? send_id(x, wait) : receive_id(x, wait), name,
               sends ? RPSIM_CHAKRA_SEND : RPSIM_CHAKRA_RECV);
    int64_t sent_ps = x->timeline->end_ps[from];
    int64_t hop_ps = data ? x->hop_ps : 0;
    put_times(w, sends ? sent_ps : sent_ps + hop_ps, sends ? hop_ps : 0, false);
    put_peers(w, rpsim_chakra_rank_of(x, from), rpsim_chakra_rank_of(x, to), wait,
              data && bytes > 0 ? bytes : 1);
    end_node(w);
}

/* ---- process groups -------------------------------------------------------------------------- */

/* Group `index` of a layout's axis; its ranks are `first`, `first` + `stride`, … */
typedef struct group {
    uint32_t number; /* from 1; 0: all ranks, without a group */
    uint32_t first;
    uint32_t stride;
    uint32_t ranks;
} group;

/* Tensor groups come first. A GPU's copies have successive ranks, each with its parts. */
static group tensor_group(const rp_layout *layout, uint32_t rank)
{
    uint32_t tensor = rp_layout_tensor(layout);
    return (group){1 + rank / tensor, rank - rank % tensor, 1, tensor};
}

static group data_group(const rp_layout *layout, uint32_t ranks, uint32_t rank)
{
    uint32_t tensor = rp_layout_tensor(layout);
    uint32_t gpu = rank / rp_layout_gpus(layout);
    uint32_t before = tensor > 1 ? ranks / tensor : 0;
    return (group){1 + before + gpu * tensor + rank % tensor,
                   gpu * rp_layout_gpus(layout) + rank % tensor, tensor, rp_layout_data(layout)};
}

/* The number of tensor groups and data groups. */
static uint32_t before_experts(const rp_layout *layout, uint32_t ranks)
{
    uint32_t tensor = rp_layout_tensor(layout);
    uint32_t data = rp_layout_data(layout);
    return (tensor > 1 ? ranks / tensor : 0) + (data > 1 ? ranks / data : 0);
}

/* After the data groups come the groups of GPUs that share experts, then the groups of GPUs that
 * have the same experts. */
static group expert_group(const rp_layout *layout, uint32_t ranks, uint32_t rank)
{
    uint32_t each = rp_layout_expert_tensor(layout);
    uint32_t share = each * rp_layout_expert(layout);
    uint32_t before = before_experts(layout, ranks);
    return (group){1 + before + rank / share * each + rank % each,
                   rank / share * share + rank % each, each, rp_layout_expert(layout)};
}

static group replica_group(const rp_layout *layout, uint32_t ranks, uint32_t rank)
{
    uint32_t each = rp_layout_expert_tensor(layout);
    uint32_t share = each * rp_layout_expert(layout);
    uint32_t gpu = rank / rp_layout_gpus(layout);
    uint32_t before = before_experts(layout, ranks) + ranks / rp_layout_expert(layout);
    return (group){1 + before + gpu * share + rank % share,
                   gpu * rp_layout_gpus(layout) + rank % share, share, rp_layout_replicas(layout)};
}

static group group_of(const rpsim_chakra_export *x, uint32_t op)
{
    const rp_layout *layout = &x->program->traits.layout;
    const rp_queue *queue = &x->program->queues[x->queue_of[op]];
    uint32_t ranks = x->program->gpu_count;
    return queue->kind == RP_QUEUE_TENSOR    ? tensor_group(layout, queue->gpu)
           : queue->kind == RP_QUEUE_DATA    ? data_group(layout, ranks, queue->gpu)
           : queue->kind == RP_QUEUE_EXPERT  ? expert_group(layout, ranks, queue->gpu)
           : queue->kind == RP_QUEUE_REPLICA ? replica_group(layout, ranks, queue->gpu)
                                             : (group){0, 0, 1, ranks};
}

static void print_group(group g, FILE *stream)
{
    fprintf(stream, "%s\n  \"%" PRIu32 "\": [", g.number > 1 ? "," : "", g.number);
    for (uint32_t i = 0; i < g.ranks; i++) {
        fprintf(stream, "%s%" PRIu32, i > 0 ? ", " : "", g.first + i * g.stride);
    }
    fputs("]", stream);
}

/* Prints the groups in the form of ASTRA-sim's --comm-group-configuration. */
static void print_groups(const rp_layout *layout, uint32_t ranks, FILE *stream)
{
    fputs("{", stream);
    for (uint32_t rank = 0; rp_layout_tensor(layout) > 1 && rank < ranks; rank++) {
        group g = tensor_group(layout, rank);
        if (g.first == rank) {
            print_group(g, stream);
        }
    }
    for (uint32_t rank = 0; rp_layout_data(layout) > 1 && rank < ranks; rank++) {
        group g = data_group(layout, ranks, rank);
        if (g.first == rank) {
            print_group(g, stream);
        }
    }
    uint32_t shares = rp_layout_expert(layout);
    for (uint32_t rank = 0; shares > 1 && rank < ranks; rank++) {
        group g = expert_group(layout, ranks, rank);
        if (g.first == rank) {
            print_group(g, stream);
        }
    }
    for (uint32_t rank = 0; shares > 1 && rp_layout_replicas(layout) > 1 && rank < ranks; rank++) {
        group g = replica_group(layout, ranks, rank);
        if (g.first == rank) {
            print_group(g, stream);
        }
    }
    fputs("\n}\n", stream);
}

/* The bytes that a rank contributes to a collective, computed from the bytes that pass through it
 * in a ring, since ASTRA-sim counts contributions (astra-sim/system/collective/Ring.cc). */
static uint64_t brought_bytes(rpsim_chakra_collective type, uint64_t moved, uint32_t ranks)
{
    uint32_t others = ranks > 1 ? ranks - 1 : 1;
    return type == RPSIM_CHAKRA_ALL_GATHER       ? moved / others
           : type == RPSIM_CHAKRA_REDUCE_SCATTER ? moved * ranks / others
           : type == RPSIM_CHAKRA_ALL_TO_ALL     ? moved * ranks / others
                                                 : moved / 2 * ranks / others;
}

static void put_collective(writer *w, uint32_t op)
{
    const rpsim_chakra_export *x = w->x;
    rp_op_kind kind = (rp_op_kind)x->program->ops[op].kind;
    static const rpsim_chakra_collective of_group[] = {
        [RP_GROUP_GATHERS] = RPSIM_CHAKRA_ALL_GATHER,
        [RP_GROUP_REDUCES] = RPSIM_CHAKRA_REDUCE_SCATTER,
        [RP_GROUP_ALL] = RPSIM_CHAKRA_ALL_REDUCE,
        [RP_GROUP_EXCHANGES] = RPSIM_CHAKRA_ALL_TO_ALL,
    };
    rpsim_chakra_collective type = of_group[rp_op_kinds[kind].group];
    group g = group_of(x, op);
    char number[16];
    snprintf(number, sizeof number, "%" PRIu32, g.number);
    put_attribute(w, "comm_type", RPSIM_CHAKRA_ATTRIBUTE_INT64, (uint64_t)type);
    put_attribute(w, "comm_size", RPSIM_CHAKRA_ATTRIBUTE_INT64,
                  brought_bytes(type, x->program->op_bytes[op], g.ranks));
    if (g.number != 0) {
        put_text_attribute(w, "pg_name", number);
    }
}

static void put_op_attributes(writer *w, uint32_t op)
{
    const rpsim_chakra_export *x = w->x;
    const rp_program *p = x->program;
    uint64_t bytes = p->op_bytes != NULL ? p->op_bytes[op] : 0;
    rp_op_kind kind = (rp_op_kind)p->ops[op].kind;
    if (rp_op_kind_sends(kind) || rp_op_kind_receives(kind)) {
        uint32_t wait = x->peer_wait[op];
        put_peers(w, rpsim_chakra_rank_of(x, rp_wait_op(p->waits[wait])),
                  rpsim_chakra_rank_of(x, x->consumer_of[wait]), wait, bytes > 0 ? bytes : 1);
    } else if (rp_op_kind_class(kind) == RP_CLASS_TRANSFER) {
        put_attribute(w, "tensor_size", RPSIM_CHAKRA_ATTRIBUTE_UINT64, bytes);
    } else if (rp_op_kind_class(kind) == RP_CLASS_COLLECTIVE) {
        put_collective(w, op);
    }
}

static rpsim_chakra_type type_of(rp_op_kind kind)
{
#define NODE(name, category, node, ...) [RP_WAY_##name] = RPSIM_CHAKRA_##node,
    static const rpsim_chakra_type of_way[] = {RP_OP_WAY_LIST(NODE)};
    bool collective = rp_op_kind_class(kind) == RP_CLASS_COLLECTIVE;
    return collective ? RPSIM_CHAKRA_COLL : of_way[rp_op_kinds[kind].way];
}

/* ---- a rank ---------------------------------------------------------------------------------- */

/* The end of an op's waits; those of an overlapped forward include the waits of the op that it
 * begins with. */
static uint32_t waits_end(const rp_program *p, uint32_t op)
{
    return p->ops[op + ((p->ops[op].flags & RP_OP_OVERLAP) != 0 ? 2 : 1)].wait_begin;
}

/* The op that an entry of `before` stands for, or after which its SEND is written. */
static uint32_t before_op(const rpsim_chakra_export *x, uint32_t node)
{
    uint32_t count = x->program->op_count;
    return node < count ? node : rp_wait_op(x->program->waits[node - count]);
}

/* True if all parents within the rank are written. */
static bool can_write(const writer *w, uint32_t op)
{
    const rp_program *p = w->x->program;
    uint32_t engine = w->x->engine_after[op];
    for (uint32_t i = p->ops[op].wait_begin; i < waits_end(p, op); i++) {
        uint32_t target = rp_wait_op(p->waits[i]);
        bool local = rpsim_chakra_rank_of(w->x, target) == w->rank;
        if (local && w->written[rpsim_chakra_result_op(p, target)] == 0) {
            return false;
        }
    }
    for (uint32_t k = w->x->before_begin[op]; k < w->x->before_begin[op + 1]; k++) {
        if (w->written[before_op(w->x, w->x->before[k])] == 0) {
            return false;
        }
    }
    return engine == RPSIM_CHAKRA_NO_OP || w->written[engine] != 0;
}

/* Writes the RECVs of an op, for an overlapped forward also those of the next op. */
static void put_receives(writer *w, uint32_t op)
{
    const rp_program *p = w->x->program;
    uint32_t begin = w->received[op] != 0 ? p->ops[op + 1].wait_begin : p->ops[op].wait_begin;
    for (uint32_t i = begin; i < waits_end(p, op); i++) {
        if (rpsim_chakra_is_message(w->x, w->x->consumer_of[i], rp_wait_op(p->waits[i]))) {
            put_message(w, i, false);
        }
        w->received[w->x->consumer_of[i]] = 1;
    }
}

static void put_waits(writer *w, uint32_t op)
{
    const rpsim_chakra_export *x = w->x;
    const rp_program *p = x->program;
    for (uint32_t i = p->ops[op].wait_begin; i < waits_end(p, op); i++) {
        uint32_t target = rp_wait_op(p->waits[i]);
        if (rpsim_chakra_is_message(x, x->consumer_of[i], target)) {
            rp_protobuf_put_varint(&w->deps, receive_id(x, i));
        } else if (rpsim_chakra_rank_of(x, target) == w->rank) {
            rp_protobuf_put_varint(&w->deps, target);
            if (rpsim_chakra_result_op(p, target) != target) {
                rp_protobuf_put_varint(&w->deps, rpsim_chakra_result_op(p, target));
            }
        }
    }
    for (uint32_t k = x->before_begin[op]; k < x->before_begin[op + 1]; k++) {
        uint32_t node = x->before[k];
        bool named = node + 1 == op && x->queue_of[node] == x->queue_of[op];
        if (!named) { /* unless its queue names it */
            rp_protobuf_put_varint(&w->deps,
                                   node < p->op_count ? node : send_id(x, node - p->op_count));
        }
    }
    if (x->engine_after[op] != RPSIM_CHAKRA_NO_OP) {
        rp_protobuf_put_varint(&w->deps, x->engine_after[op]);
    }
}

static void put_queue(writer *w, uint32_t op)
{
    if (op > w->x->program->queues[w->x->queue_of[op]].op_begin) {
        rp_protobuf_put_varint(&w->deps, op - 1);
    }
}

/* Writes the node that delays an op: for a late launch a node on the host; in a pair a node after
 * the waits of a later op, since the pair begins as a whole. */
static void put_delay(writer *w, uint32_t op, const char *name)
{
    const rpsim_chakra_export *x = w->x;
    bool launch = x->program->op_bytes != NULL;
    char delay[RP_OP_NAME_SIZE + 16];
    bool keeps = x->host == RPSIM_CHAKRA_HOST_KEEP;
    snprintf(delay, sizeof delay, "%s %s",
             !launch ? "pair of"
             : keeps ? "launch"
                     : "host before",
             name);
    begin_node(w, delay_id(x, op), delay, RPSIM_CHAKRA_COMP);
    put_times(w, x->timeline->start_ps[op] - x->delay_ps[op], x->delay_ps[op], keeps);
    end_node(w);
    if (!launch) {
        put_queue(w, op);
    }
    rp_protobuf_put_varint(&w->deps, delay_id(x, op));
}

static void put_op(writer *w, uint32_t op)
{
    const rpsim_chakra_export *x = w->x;
    const rp_op *o = &x->program->ops[op];
    const int64_t *start_ps = x->timeline->start_ps;
    char name[RP_OP_NAME_SIZE];
    rp_op_name(o, name);
    put_receives(w, op);
    bool pair = x->delay_ps[op] != 0 && x->program->op_bytes == NULL;
    if (!pair) {
        put_queue(w, op);
    }
    put_waits(w, op);
    if (x->delay_ps[op] != 0) {
        put_delay(w, op, name);
    }
    /* The rest of a pair begins while its forward runs, whose result exists only at the pair's
     * end. */
    bool overlaps = (o->flags & RP_OP_OVERLAP) != 0;
    int64_t end_ps = overlaps ? start_ps[op + 1] : x->timeline->end_ps[op];
    bool on_cpu = rp_op_kind_class((rp_op_kind)o->kind) == RP_CLASS_HOST;
    begin_node(w, op, op == x->tail ? "host work" : name, type_of((rp_op_kind)o->kind));
    put_times(w, start_ps[op], end_ps - start_ps[op], on_cpu);
    put_op_attributes(w, op);
    end_node(w);
    w->written[op] = 1;
}

/* Writes the SENDs of an op; if the op ends an overlapped group, those of the whole group. */
static void put_sends(writer *w, uint32_t op)
{
    const rpsim_chakra_export *x = w->x;
    const rp_program *p = x->program;
    uint32_t first = op;
    while (first > p->queues[x->queue_of[op]].op_begin &&
           (p->ops[first - 1].flags & (RP_OP_JOIN | RP_OP_OVERLAP)) != 0) {
        first--;
    }
    for (uint32_t i = first; i <= op; i++) {
        for (uint32_t k = x->out_begin[i];
             rpsim_chakra_result_op(p, i) == op && k < x->out_begin[i + 1]; k++) {
            put_message(w, x->out_waits[k], true);
        }
    }
}

/* Writes the ops of the rank: goes through each queue as far as possible, and repeats until all are
 * written. */
static rp_status put_rank(writer *w, rp_arena *arena)
{
    const rp_program *p = w->x->program;
    uint32_t *next = NULL;
    bool goes_on = true;
    bool done = false;
    RP_TRY(rp_arena_alloc(arena, p->queue_count, sizeof *next, &next));
    while (goes_on && w->file.status == RP_OK) {
        goes_on = false;
        done = true;
        for (uint32_t q = 0; q < p->queue_count; q++) {
            const rp_queue *queue = &p->queues[q];
            uint32_t count = queue->op_end - queue->op_begin;
            if (count == 0 || rpsim_chakra_rank_of(w->x, queue->op_begin) != w->rank) {
                continue;
            }
            for (; next[q] < count && can_write(w, queue->op_begin + next[q]); next[q]++) {
                put_op(w, queue->op_begin + next[q]);
                put_sends(w, queue->op_begin + next[q]);
                goes_on = true;
            }
            done = done && next[q] == count;
        }
    }
    if (w->file.status == RP_OK && !done) {
        rp_log_error("{chakra_out}: the ops of GPU %" PRIu32 " wait for each other", w->rank);
        return rp_broken();
    }
    return w->file.status;
}

rp_status rpsim_chakra_encode(rpsim_chakra_export *x, uint32_t rank, rp_arena *arena, rp_text *file)
{
    writer w = {.x = x, .rank = rank, .file = {.text = *file}};
    RP_TRY(rp_arena_alloc(arena, x->program->op_count, 1, &w.written));
    RP_TRY(rp_arena_alloc(arena, x->program->op_count, 1, &w.received));
    rp_protobuf_put_bytes(&w.node, 1, VERSION, strlen(VERSION)); /* GlobalMetadata.version */
    end_node(&w);
    rp_status status = put_rank(&w, arena);
    *file = w.file.text;
    rp_protobuf_writer_fini(&w.node);
    rp_protobuf_writer_fini(&w.attribute);
    rp_protobuf_writer_fini(&w.deps);
    return status;
}

/* ---- files ----------------------------------------------------------------------------------- */

rp_status rpsim_chakra_open(const char *prefix, uint32_t gpus, const rp_layout *layout,
                            rp_arena *arena, rpsim_chakra_files *files_out)
{
    uint64_t ranks = (uint64_t)gpus * rp_layout_gpus(layout);
    *files_out = (rpsim_chakra_files){0};
    if (ranks > RPSIM_CHAKRA_MAX_RANKS) {
        rp_log_error("{chakra_out}: a file for each of %" PRIu64 " GPUs; valid are up to %u GPUs",
                     ranks, RPSIM_CHAKRA_MAX_RANKS);
        return RP_USAGE;
    }
    RP_TRY(rp_arena_alloc(arena, ranks, sizeof *files_out->outputs, &files_out->outputs));
    for (; files_out->count < ranks; files_out->count++) {
        const char *path = NULL;
        RP_TRY(rp_arena_print(arena, &path, "%s.%" PRIu32 ".et", prefix, files_out->count));
        RP_TRY(rp_output_open(path, &files_out->outputs[files_out->count]));
    }
    if (rp_layout_gpus(layout) > 1) {
        const char *path = NULL;
        RP_TRY(rp_arena_print(arena, &path, "%s.groups.json", prefix));
        RP_TRY(rp_output_open(path, &files_out->groups));
    }
    return RP_OK;
}

rp_status rpsim_chakra_write(const rp_timeline *timeline, int64_t hop_ps, uint64_t boundary_bytes,
                             rpsim_chakra_host host, rp_arena *arena, rpsim_chakra_files *files)
{
    rpsim_chakra_export *x = NULL;
    rp_text file = {0};
    rp_status status = rpsim_chakra_prepare(timeline, hop_ps, boundary_bytes, host, arena, &x);
    for (uint32_t r = 0; status == RP_OK && r < files->count; r++) {
        file.length = 0;
        status = rpsim_chakra_encode(x, r, arena, &file);
        if (status == RP_OK) {
            fwrite(file.bytes, 1, file.length, files->outputs[r].stream); /* commit sees errors */
        }
    }
    rp_text_fini(&file);
    if (status == RP_OK && files->groups.stream != NULL) {
        print_groups(&timeline->program->traits.layout, files->count, files->groups.stream);
        status = rp_output_commit(&files->groups);
    }
    for (uint32_t r = 0; status == RP_OK && r < files->count; r++) {
        status = rp_output_commit(&files->outputs[r]);
    }
    if (status == RP_OK && rpsim_chakra_loses_precision(x)) {
        rp_log_warning("{chakra_out}: durations are whole microseconds there and these are not; "
                       "the attributes rp_ns and rp_ps have them exactly");
    }
    return status;
}

void rpsim_chakra_discard(rpsim_chakra_files *files)
{
    for (uint32_t r = 0; r < files->count; r++) {
        rp_output_discard(&files->outputs[r]);
    }
    rp_output_discard(&files->groups);
    files->count = 0;
}
