/* Performs NCCL's calls of running kernels. */
#include "exec/cuda/emulator/machine/nccl_internal.h"

#include "common/base/mem.h"
#include "exec/state/scaler.h"

#include <string.h>

static bool is_message(const emulated_nccl_call *c)
{
    return c->kind == EMULATED_NCCL_SEND || c->kind == EMULATED_NCCL_RECEIVE;
}

/* The next collective of a rank's kernel; NULL: it has none, or is not running. */
static emulated_nccl_call *next_collective(const emulated_nccl_member *m)
{
    for (uint32_t i = 0; m->running != NULL && i < m->running->count; i++) {
        emulated_nccl_call *c = &m->running->calls[i];
        if (!c->done && !is_message(c)) {
            return c;
        }
    }
    return NULL;
}

uint64_t emulated_nccl_bytes(const emulated_nccl_call *c, uint64_t count)
{
    return is_message(c) ? count : count * rp_dtype_bytes(c->dtype);
}

static unsigned char *give_result(emulated_nccl_call *c, uint64_t bytes)
{
    c->result_bytes = bytes;
    return rp_mem_resize(&c->result, bytes) == RP_OK ? c->result : NULL;
}

/* Adds elements [at, at + count) of all ranks' arrays, like the driver's own ranks, or like a ring,
 * which begins after the rank that gets the sum and rounds after every addition. */
static void add_up(emulated_nccl_call **calls, uint32_t ranks, uint32_t root, uint64_t at,
                   uint64_t count, void *to)
{
    rp_dtype dtype = calls[0]->dtype;
    bool ring = emulator_machine()->nccl_rounds;
    float *sum = NULL;
    if (rp_mem_resize(&sum, count * sizeof *sum) != RP_OK) {
        return;
    }
    for (uint32_t i = 0; i < ranks; i++) {
        uint32_t rank = ring ? (root + 1 + i) % ranks : i;
        (void)rpexec_unscale(dtype, count, rpexec_element_const(dtype, calls[rank]->from, at), 1,
                             i != 0, sum);
        if (ring) {
            rpexec_narrow(dtype, count, sum, to);
            (void)rpexec_unscale(dtype, count, to, 1, false, sum);
        }
    }
    rpexec_narrow(dtype, count, sum, to);
    rp_mem_release(&sum);
}

static void collect(emulated_nccl_call **calls, uint32_t ranks)
{
    const emulated_nccl_call *first = calls[0];
    uint64_t bytes = emulated_nccl_bytes(first, first->count);
    for (uint32_t rank = 0; rank < ranks; rank++) {
        emulated_nccl_call *c = calls[rank];
        bool gets = first->kind != EMULATED_NCCL_REDUCE || rank == c->root;
        unsigned char *to =
            gets ? give_result(c, first->kind == EMULATED_NCCL_ALL_GATHER ? ranks * bytes : bytes)
                 : NULL;
        if (to == NULL) {
            continue;
        }
        switch ((int)first->kind) {
        case EMULATED_NCCL_ALL_GATHER:
            for (uint32_t other = 0; other < ranks; other++) {
                memcpy(to + other * bytes, calls[other]->from, bytes);
            }
            break;
        case EMULATED_NCCL_BROADCAST:
            memcpy(to, calls[c->root]->from, bytes);
            break;
        case EMULATED_NCCL_REDUCE_SCATTER:
            add_up(calls, ranks, rank, rank * c->count, c->count, to);
            break;
        default: /* EMULATED_NCCL_REDUCE, EMULATED_NCCL_ALL_REDUCE: the same order for all ranks */
            add_up(calls, ranks, c->kind == EMULATED_NCCL_REDUCE ? c->root : 0, 0, c->count, to);
        }
    }
}

/* Performs a collective that all ranks have reached, if there is any. */
static bool meet(emulated_nccl_clique *q)
{
    emulated_nccl_call *calls[EMULATED_NCCL_MOST_RANKS] = {NULL};
    for (uint32_t rank = 0; rank < q->ranks; rank++) {
        calls[rank] = next_collective(&q->members[rank]);
        if (calls[rank] == NULL) {
            return false;
        }
    }
    for (uint32_t rank = 1; rank < q->ranks; rank++) {
        if (calls[rank]->kind != calls[0]->kind || calls[rank]->dtype != calls[0]->dtype ||
            calls[rank]->count != calls[0]->count || calls[rank]->root != calls[0]->root) {
            q->error = EMULATED_NCCL_ERROR_INTERNAL;
            return false;
        }
    }
    collect(calls, q->ranks);
    for (uint32_t rank = 0; rank < q->ranks; rank++) {
        calls[rank]->done = true;
    }
    return true;
}

static emulated_nccl_call *next_message(const emulated_nccl_member *m, emulated_nccl_kind kind,
                                        uint32_t peer)
{
    for (uint32_t i = 0; m->running != NULL && i < m->running->count; i++) {
        emulated_nccl_call *c = &m->running->calls[i];
        if (!c->done && c->kind == kind && c->root == peer) {
            return c;
        }
    }
    return NULL;
}

static bool hand_over(emulated_nccl_clique *q, uint32_t from, uint32_t to)
{
    emulated_nccl_call *send = next_message(&q->members[from], EMULATED_NCCL_SEND, to);
    emulated_nccl_call *receive = next_message(&q->members[to], EMULATED_NCCL_RECEIVE, from);
    if (send == NULL || receive == NULL) {
        return false;
    }
    if (send->count != receive->count) {
        q->error = EMULATED_NCCL_ERROR_INTERNAL;
        return false;
    }
    receive->result = send->result;
    receive->result_bytes = send->count;
    send->result = NULL;
    send->done = receive->done = true;
    return true;
}

/* Lets senders read their data: a sender reads when its kernel begins, even if no rank receives
 * yet. */
void emulated_nccl_read_messages(emulated_nccl_kernel *k)
{
    for (uint32_t i = 0; i < k->count; i++) {
        emulated_nccl_call *c = &k->calls[i];
        if (c->kind == EMULATED_NCCL_SEND && give_result(c, c->count) != NULL) {
            memcpy(c->result, c->from, c->count);
        }
    }
}

void emulated_nccl_go_on(emulated_nccl_clique *q)
{
    bool moved = true;
    while (moved && q->error == 0) {
        moved = meet(q);
        for (uint32_t i = 0; i < q->ranks * q->ranks; i++) {
            moved |= hand_over(q, i / q->ranks, i % q->ranks);
        }
    }
    pthread_cond_broadcast(&q->moved);
}
