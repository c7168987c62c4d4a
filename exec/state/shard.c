#include "exec/state/shard.h"

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

/* The end of the piece that begins at `inside` of the current layer. */
static uint64_t end_of(const rpexec_pieces *p)
{
    const rpexec_layer *layer = rpexec_model_layer(p->model, p->layer);
    uint64_t norm = is_head(p) ? p->model->head.tensors[RPEXEC_HEAD_TABLE].offset : 0;
    uint64_t end = layer->floats;
    end = p->inside < layer->frozen && layer->frozen < end ? layer->frozen : end;
    return p->inside < norm && norm < end ? norm : end;
}

static void leave(rpexec_pieces *p)
{
    p->at += p->count;
    p->packed += p->share;
    p->trained_at += p->trained ? p->count : 0;
    p->trained_packed += p->trained ? p->share : 0;
    p->inside += p->count;
    p->count = p->share = 0;
}

bool rpexec_pieces_next(rpexec_pieces *p)
{
    leave(p);
    if (p->started && p->inside == rpexec_model_layer(p->model, p->layer)->floats) {
        p->layer++;
        p->inside = 0;
    }
    if (p->layer >= p->end) {
        p->trained = false;
        return false;
    }
    p->started = true;
    p->table = p->layer == 0 || (is_head(p) && p->inside != 0);
    p->trained = p->inside >= rpexec_model_layer(p->model, p->layer)->frozen;
    p->count = end_of(p) - p->inside;
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

uint64_t rpexec_shard_trained(const rpexec_model *model, uint32_t begin, uint32_t end,
                              uint32_t ranks, uint32_t rank)
{
    rpexec_pieces p = rpexec_pieces_of(model, begin, end, ranks, rank);
    while (rpexec_pieces_next(&p)) {
    }
    return p.trained_packed;
}

uint64_t rpexec_longest_share(const rpexec_model *model, uint32_t begin, uint32_t end,
                              uint32_t ranks)
{
    uint64_t most = 0;
    for (uint32_t rank = 0; rank < ranks; rank++) {
        rpexec_pieces p = rpexec_pieces_of(model, begin, end, ranks, rank);
        while (rpexec_pieces_next(&p)) {
            most = p.trained && p.share > most ? p.share : most;
        }
    }
    return most;
}
