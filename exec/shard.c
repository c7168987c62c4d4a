#include "exec/shard.h"

rpexec_pieces rpexec_pieces_of(const rpexec_model *model, uint32_t begin, uint32_t end,
                               uint32_t ranks, uint32_t rank)
{
    return (rpexec_pieces){
        .model = model, .ranks = ranks, .rank = rank, .layer = begin, .end = end};
}

static bool is_head(const rpexec_pieces *p)
{
    return p->layer + 1 == p->model->layer_count;
}

bool rpexec_pieces_next(rpexec_pieces *p)
{
    p->at += p->count;
    p->packed += p->share;
    bool norm_done = p->started && is_head(p) && !p->table;
    if (p->started && !norm_done) {
        p->layer++;
    }
    if (p->layer >= p->end) {
        p->count = p->share = 0;
        return false;
    }
    p->started = true;
    uint64_t floats = rpexec_model_layer(p->model, p->layer)->floats;
    uint64_t norm = p->model->head.tensors[RPEXEC_HEAD_TABLE].offset;
    p->table = p->layer == 0 || norm_done;
    p->count = !is_head(p) ? floats : norm_done ? floats - norm : norm;
    p->begin = rpexec_share(p->count, p->ranks, p->rank);
    p->share = rpexec_share(p->count, p->ranks, p->rank + 1) - p->begin;
    return true;
}

uint64_t rpexec_shard_values(const rpexec_model *model, uint32_t begin, uint32_t end,
                             uint32_t ranks, uint32_t rank)
{
    rpexec_pieces p = rpexec_pieces_of(model, begin, end, ranks, rank);
    while (rpexec_pieces_next(&p)) {
    }
    return p.packed;
}

uint64_t rpexec_longest_share(const rpexec_model *model, uint32_t begin, uint32_t end,
                              uint32_t ranks)
{
    uint64_t most = 0;
    for (uint32_t rank = 0; rank < ranks; rank++) {
        rpexec_pieces p = rpexec_pieces_of(model, begin, end, ranks, rank);
        while (rpexec_pieces_next(&p)) {
            most = p.share > most ? p.share : most;
        }
    }
    return most;
}
