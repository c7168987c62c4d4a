/* Order of collectives in Chakra traces, whose readers have a single communication of a rank in
 * flight.
 *
 * A collective comes after each SEND and collective of its rank that ended before it began. Times
 * stay as they were, and nothing waits for ever: when a rank begins a collective, it has sent
 * everything that the collective's other ranks need, except data whose transfer began later than
 * the collective. */
#include "sim/interchange/chakra_internal.h"

#include <stdlib.h>

/* A SEND or a part of a collective. */
typedef struct communication {
    uint32_t rank;
    uint32_t node; /* number as in rpsim_chakra_export.before */
    int64_t start_ps;
    int64_t end_ps;
    bool collective;
} communication;

static bool is_collective(const rp_program *p, uint32_t op)
{
    return rp_op_kind_class((rp_op_kind)p->ops[op].kind) == RP_CLASS_COLLECTIVE;
}

static int compare_communications(const void *a, const void *b)
{
    const communication *x = a;
    const communication *y = b;
    if (x->rank != y->rank) {
        return x->rank < y->rank ? -1 : 1;
    }
    if (x->end_ps != y->end_ps) {
        return x->end_ps < y->end_ps ? -1 : 1;
    }
    return x->node < y->node ? -1 : x->node > y->node;
}

static rp_status list_communications(const rpsim_chakra_export *x, rp_arena *arena,
                                     communication **list_out, uint32_t *count_out)
{
    const rp_program *p = x->program;
    const rp_timeline *t = x->timeline;
    uint32_t count = 0;
    size_t most = (size_t)p->op_count + p->wait_count;
    RP_TRY(rp_arena_alloc_raw(arena, most, sizeof **list_out, list_out));
    for (uint32_t i = 0; i < p->op_count; i++) {
        uint32_t rank = rpsim_chakra_rank_of(x, i);
        if (is_collective(p, i) || rp_op_kind_sends(p->ops[i].kind)) {
            (*list_out)[count++] =
                (communication){rank, i, t->start_ps[i], t->end_ps[i], is_collective(p, i)};
        }
        for (uint32_t k = x->out_begin[i]; k < x->out_begin[i + 1]; k++) {
            (*list_out)[count++] = (communication){rank, p->op_count + x->out_waits[k],
                                                   t->end_ps[i], t->end_ps[i], false};
        }
    }
    qsort(*list_out, count, sizeof **list_out, compare_communications);
    *count_out = count;
    return RP_OK;
}

/* Index of a rank's first communication that ends after `end_ps`. */
static uint32_t first_after(const communication *list, uint32_t count, uint32_t rank,
                            int64_t end_ps)
{
    uint32_t low = 0;
    uint32_t high = count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        bool later =
            list[middle].rank != rank ? list[middle].rank > rank : list[middle].end_ps > end_ps;
        low = later ? low : middle + 1;
        high = later ? middle : high;
    }
    return low;
}

/* Index of the first communication before `end` that a collective has to name: it waits for the
 * previous collective, and so for all that came before that. Collectives that take no time are not
 * ordered, so they are skipped. */
static uint32_t first_named(const communication *list, uint32_t count, uint32_t end, uint32_t rank)
{
    for (uint32_t i = end; i-- > 0 && list[i].rank == rank;) {
        if (list[i].collective && list[i].end_ps > list[i].start_ps) {
            return first_after(list, count, rank, list[i].start_ps);
        }
    }
    return first_after(list, count, rank, -1);
}

rp_status rpsim_chakra_order_collectives(rpsim_chakra_export *x, rp_arena *arena)
{
    const rp_program *p = x->program;
    communication *list = NULL;
    uint32_t count = 0;
    uint32_t sum = 0;
    bool collectives = false;
    for (uint32_t i = 0; i < p->op_count; i++) {
        collectives = collectives || is_collective(p, i);
    }
    if (!collectives) {
        return RP_OK;
    }
    RP_TRY(list_communications(x, arena, &list, &count));
    for (int pass = 0; pass < 2; pass++) {
        if (pass == 1) {
            RP_TRY(rp_arena_alloc(arena, sum, sizeof *x->before, &x->before));
        }
        sum = 0;
        for (uint32_t i = 0; i < p->op_count; i++) {
            int64_t start_ps = x->timeline->start_ps[i];
            x->before_begin[i] = sum;
            if (!is_collective(p, i) || x->timeline->end_ps[i] == start_ps) {
                continue;
            }
            uint32_t rank = rpsim_chakra_rank_of(x, i);
            uint32_t end = first_after(list, count, rank, start_ps);
            for (uint32_t k = first_named(list, count, end, rank); k < end; k++, sum++) {
                if (pass == 1) {
                    x->before[sum] = list[k].node;
                }
            }
        }
        x->before_begin[p->op_count] = sum;
    }
    return RP_OK;
}
