/* Finds the dependencies between nodes of Chakra execution traces. */
#include "sim/interchange/chakra.h"

#include "common/base/log.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char *type_name(uint8_t type)
{
    return type == RPSIM_CHAKRA_SEND ? "SEND" : type == RPSIM_CHAKRA_RECV ? "RECV" : "COLL";
}

static rp_status bad(const rpsim_chakra_trace *t, const rpsim_chakra_node *node, const char *cause)
{
    rp_log_error_at(t->names[node->rank], 0, "node %" PRIu64 ": %s", node->id, cause);
    return RP_INPUT;
}

/* ---- dependencies ---------------------------------------------------------------------------- */

static int compare_ids(const void *a, const void *b)
{
    const rpsim_chakra_node *x = a;
    const rpsim_chakra_node *y = b;
    return x->id < y->id ? -1 : x->id > y->id;
}

static rp_status sort_rank(rpsim_chakra_trace *t, uint32_t rank)
{
    rpsim_chakra_node *nodes = t->nodes + t->rank_begin[rank];
    uint32_t count = t->rank_begin[rank + 1] - t->rank_begin[rank];
    if (count > 0) {
        qsort(nodes, count, sizeof *nodes, compare_ids);
    }
    for (uint32_t i = 1; i < count; i++) {
        if (nodes[i].id == nodes[i - 1].id) {
            return bad(t, &nodes[i], "its id comes twice; valid is each id once in a rank");
        }
    }
    return RP_OK;
}

static rp_status resolve_rank(rpsim_chakra_trace *t, uint32_t rank)
{
    uint32_t begin = t->rank_begin[rank];
    uint32_t count = t->rank_begin[rank + 1] - begin;
    for (uint32_t i = begin; i < begin + count; i++) {
        const rpsim_chakra_node *node = &t->nodes[i];
        for (uint32_t d = 0; d < node->dependency_count; d++) {
            uint64_t *dependency = &t->dependencies[node->dependency_begin + d];
            rpsim_chakra_node key = {.id = *dependency};
            const rpsim_chakra_node *parent =
                bsearch(&key, t->nodes + begin, count, sizeof key, compare_ids);
            if (parent == NULL) {
                char cause[96];
                snprintf(cause, sizeof cause,
                         "waits for node %" PRIu64 ", which is not there; valid are nodes of its "
                         "file",
                         *dependency);
                return bad(t, node, cause);
            }
            *dependency = (uint64_t)(parent - t->nodes);
        }
    }
    return RP_OK;
}

/* ---- messages -------------------------------------------------------------------------------- */

static int compare_keys(const rpsim_chakra_node *x, const rpsim_chakra_node *y)
{
    const int32_t a[] = {x->source, x->destination, x->tag};
    const int32_t b[] = {y->source, y->destination, y->tag};
    for (size_t i = 0; i < 3; i++) {
        if (a[i] != b[i]) {
            return a[i] < b[i] ? -1 : 1;
        }
    }
    return 0;
}

static int compare_messages(const void *a, const void *b)
{
    const rpsim_chakra_node *x = *(rpsim_chakra_node *const *)a;
    const rpsim_chakra_node *y = *(rpsim_chakra_node *const *)b;
    int order = compare_keys(x, y);
    return order != 0 ? order : x < y ? -1 : x > y;
}

/* Nodes of a type, sorted by ranks and tag, then in the order of the trace. */
static rp_status list_messages(const rpsim_chakra_trace *t, rpsim_chakra_type type, rp_arena *arena,
                               rpsim_chakra_node ***list_out, uint32_t *count_out)
{
    *count_out = 0;
    RP_TRY(rp_arena_alloc(arena, t->node_count, sizeof **list_out, list_out));
    for (uint32_t i = 0; i < t->node_count; i++) {
        if (t->nodes[i].type == type) {
            (*list_out)[(*count_out)++] = &t->nodes[i];
        }
    }
    if (*count_out > 0) {
        qsort(*list_out, *count_out, sizeof **list_out, compare_messages);
    }
    return RP_OK;
}

static rp_status match_messages(rpsim_chakra_trace *t, rp_arena *arena)
{
    rpsim_chakra_node **sends = NULL;
    rpsim_chakra_node **receives = NULL;
    uint32_t send_count = 0;
    uint32_t receive_count = 0;
    RP_TRY(list_messages(t, RPSIM_CHAKRA_SEND, arena, &sends, &send_count));
    RP_TRY(list_messages(t, RPSIM_CHAKRA_RECV, arena, &receives, &receive_count));
    for (uint32_t i = 0; i < send_count || i < receive_count; i++) {
        int order = i == send_count      ? 1
                    : i == receive_count ? -1
                                         : compare_keys(sends[i], receives[i]);
        if (order != 0) {
            char cause[160];
            const rpsim_chakra_node *alone = order < 0 ? sends[i] : receives[i];
            snprintf(cause, sizeof cause,
                     "a %s from rank %" PRId32 " to rank %" PRId32 " with tag %" PRId32
                     " and no %s of these; valid are as many of both",
                     type_name(alone->type), alone->source, alone->destination, alone->tag,
                     order < 0 ? "RECV" : "SEND");
            return bad(t, alone, cause);
        }
        receives[i]->partner = (uint32_t)(sends[i] - t->nodes);
    }
    return RP_OK;
}

/* ---- collectives ----------------------------------------------------------------------------- */

static int compare_collectives(const void *a, const void *b)
{
    const rpsim_chakra_node *x = *(rpsim_chakra_node *const *)a;
    const rpsim_chakra_node *y = *(rpsim_chakra_node *const *)b;
    if (x->group != y->group) {
        return x->group < y->group ? -1 : 1;
    }
    return x < y ? -1 : x > y; /* by rank, then by id */
}

/* Matches the collectives of a process group: each rank must have as many as the first rank. The
 * k-th collectives of all ranks meet. */
static rp_status match_group(rpsim_chakra_trace *t, rpsim_chakra_node **list, uint32_t count)
{
    uint32_t length = 1;
    while (length < count && list[length]->rank == list[0]->rank) {
        length++;
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t first = i - i % length;
        bool ends = i % length == length - 1;
        bool another = i + 1 < count && list[i + 1]->rank == list[first]->rank;
        if (list[i]->rank != list[first]->rank || (ends && another) || (!ends && i + 1 == count)) {
            char cause[160];
            snprintf(cause, sizeof cause,
                     "a collective that rank %" PRIu32 " and others of its process group do not "
                     "all have; valid is the same number on each rank, there %" PRIu32,
                     list[0]->rank, length);
            return bad(t, list[i], cause);
        }
        if (list[i]->collective != list[i % length]->collective) {
            return bad(t, list[i],
                       "its comm_type is not that of the collective that it meets; valid are the "
                       "same collectives in the same order on each rank");
        }
        list[i]->partner = t->meeting_count + i % length;
    }
    t->meeting_count += length;
    return RP_OK;
}

static rp_status match_collectives(rpsim_chakra_trace *t, rp_arena *arena)
{
    rpsim_chakra_node **list = NULL;
    uint32_t count = 0;
    RP_TRY(list_messages(t, RPSIM_CHAKRA_COLL, arena, &list, &count));
    if (count > 0) {
        qsort(list, count, sizeof *list, compare_collectives);
    }
    for (uint32_t begin = 0, end = 0; begin < count; begin = end) {
        while (end < count && list[end]->group == list[begin]->group) {
            end++;
        }
        RP_TRY(match_group(t, list + begin, end - begin));
    }
    return RP_OK;
}

rp_status rpsim_chakra_link(rpsim_chakra_trace *trace, rp_arena *arena)
{
    if (trace->node_count == 0) {
        return RP_OK;
    }
    for (uint32_t r = 0; r < trace->rank_count; r++) {
        RP_TRY(sort_rank(trace, r));
        RP_TRY(resolve_rank(trace, r));
    }
    RP_TRY(match_messages(trace, arena));
    return match_collectives(trace, arena);
}
