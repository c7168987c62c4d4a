#include "exec/model/tensor_parallel.h"

#include "common/base/log.h"
#include "exec/model/layout.h"

#include <stdio.h>
#include <string.h>

/* ---- models that can be cut ------------------------------------------------------------------ */

static bool divides(uint32_t ranks, const rp_model *m)
{
    return m->heads % ranks == 0 && (m->kv_heads % ranks == 0 || ranks % m->kv_heads == 0) &&
           m->intermediate % ranks == 0 && m->vocab >= ranks;
}

static rp_status check(const rp_model *m, uint32_t ranks)
{
    char valid[256] = "";
    size_t length = 0;
    if (divides(ranks, m)) {
        return RP_OK;
    }
    for (uint32_t n = 1; n <= m->heads && length + 16 < sizeof valid; n++) {
        length += divides(n, m) ? (size_t)snprintf(valid + length, sizeof valid - length, "%s%u",
                                                   n > 1 ? ", " : "", n)
                                : 0;
    }
    rp_log_error("{gpus}: %u GPUs cannot have equal parts of %s, which has %u heads, %u kv "
                 "heads, an MLP of %u and %u tokens; valid for tensor parallelism are %s",
                 ranks, m->name, m->heads, m->kv_heads, m->intermediate, m->vocab, valid);
    return RP_USAGE;
}

static uint32_t first_id(const rp_model *m, uint32_t ranks, uint32_t rank)
{
    return (uint32_t)((uint64_t)m->vocab * rank / ranks);
}

rp_status rpexec_slice_create(const rpexec_model *whole, uint32_t ranks, uint32_t rank,
                              rp_arena *arena, rpexec_slice *s)
{
    const rp_model *m = whole->config;
    RP_TRY(check(m, ranks));
    *s = (rpexec_slice){.whole = whole,
                        .config = *m,
                        .ranks = ranks,
                        .rank = rank,
                        .first_id = first_id(m, ranks, rank)};
    s->config.heads = m->heads / ranks;
    s->config.kv_heads = m->kv_heads > ranks ? m->kv_heads / ranks : 1;
    s->config.intermediate = m->intermediate / ranks;
    s->config.vocab = first_id(m, ranks, rank + 1) - s->first_id;
    s->config.padding_token = m->padding_token - s->first_id;
    s->config.has_padding = m->has_padding && s->config.padding_token < s->config.vocab;
    s->model = (rpexec_model){.config = &s->config,
                              .dtype = whole->dtype,
                              .layer_count = whole->layer_count,
                              .rotated = whole->rotated,
                              .rotary_tables = whole->rotary_tables,
                              .cosines = whole->cosines,
                              .sines = whole->sines,
                              .seq_len = whole->seq_len};
    return rpexec_model_lay_out(&s->config, arena, &s->model);
}

/* ---- tensors --------------------------------------------------------------------------------- */

/* Number of parts into which a tensor other than a table is cut. */
static uint32_t parts_of(const rpexec_tensor *whole, const rpexec_tensor *part)
{
    return (uint32_t)(whole->rows / part->rows * (whole->columns / part->columns));
}

uint32_t rpexec_slice_part(const rpexec_slice *s, uint32_t parts)
{
    return (uint32_t)((uint64_t)s->rank * parts / s->ranks);
}

static bool is_bias_of(const rpexec_model *m, uint32_t tensor, rpexec_block_tensor which)
{
    const rpexec_linear *l = &m->linears[which];
    return l->biased && m->block.tensors[tensor].offset == l->bias;
}

uint32_t rpexec_slice_sums(const rpexec_slice *s, uint32_t tensor)
{
    const rpexec_model *m = s->whole;
    const uint32_t *which = m->block_tensors;
    uint32_t parts = parts_of(&m->block.tensors[tensor], &s->model.block.tensors[tensor]);
    bool of_heads =
        tensor == which[RPEXEC_K] || tensor == which[RPEXEC_V] || is_bias_of(m, tensor, RPEXEC_K) ||
        is_bias_of(m, tensor, RPEXEC_V) ||
        (m->config->qk_norm && (tensor == which[RPEXEC_Q_NORM] || tensor == which[RPEXEC_K_NORM]));
    /* With LoRA only adapters are trained. If several ranks have the same part of A, each computes
     * its gradient from its own part of B, and the other way round. */
    bool sums = s->ranks > parts && (of_heads || m->rank != 0) &&
                rpexec_tensor_trained(&m->block, &m->block.tensors[tensor]);
    return sums ? parts : 0;
}

static bool is_table(const rpexec_slice *s, uint32_t layer)
{
    return layer == 0 || layer + 1 == s->whole->layer_count;
}

/* True if a rank before this rank has the same part. */
static bool is_copy(const rpexec_slice *s, uint32_t layer, const rpexec_tensor *whole,
                    const rpexec_tensor *part)
{
    if (is_table(s, layer) && whole->rows != part->rows) {
        return false;
    }
    uint32_t parts = parts_of(whole, part);
    return s->rank != 0 &&
           rpexec_slice_part(s, parts) == (s->rank - 1) * (uint64_t)parts / s->ranks;
}

bool rpexec_slice_copies(const rpexec_slice *s, uint32_t layer, uint32_t tensor)
{
    return is_copy(s, layer, &rpexec_model_layer(s->whole, layer)->tensors[tensor],
                   &rpexec_model_layer(&s->model, layer)->tensors[tensor]);
}

/* Moves a tensor: rows are contiguous in both arrays, with `width` bytes per value. */
static void move_tensor(const rpexec_slice *s, const rpexec_tensor *whole,
                        const rpexec_tensor *part, const rpexec_slice_copy *c, void *in_whole,
                        void *in_part)
{
    /* Rows of a table are cut by vocabulary, all other tensors in equal parts. */
    uint64_t number = rpexec_slice_part(s, parts_of(whole, part));
    uint64_t row = whole->rows == part->rows ? 0
                   : is_table(s, c->layer)   ? s->first_id
                                             : number * part->rows;
    uint64_t column = whole->columns == part->columns ? 0 : number * part->columns;
    unsigned char *a = (unsigned char *)in_whole + (row * whole->columns + column) * c->width;
    unsigned char *b = in_part;
    bool straight = whole->columns == part->columns;
    uint64_t rows = straight ? 1 : part->rows;
    uint64_t bytes = (straight ? part->rows : 1) * part->columns * c->width;
    for (uint64_t i = 0; i < rows; i++) {
        memcpy(c->to_whole ? a : b, c->to_whole ? b : a, bytes);
        a += whole->columns * c->width;
        b += part->columns * c->width;
    }
}

void rpexec_slice_move(const rpexec_slice *s, const rpexec_slice_copy *c)
{
    const rpexec_layer *whole = rpexec_model_layer(s->whole, c->layer);
    const rpexec_layer *part = rpexec_model_layer(&s->model, c->layer);
    bool head = c->layer + 1 == s->whole->layer_count;
    for (uint32_t i = 0; i < whole->tensor_count; i++) {
        const rpexec_tensor *from = &whole->tensors[i];
        const rpexec_tensor *to = &part->tensors[i];
        if ((c->to_whole && is_copy(s, c->layer, from, to)) ||
            (c->trained && !rpexec_tensor_trained(whole, from))) {
            continue;
        }
        uint64_t skipped_whole = c->trained ? whole->frozen : 0;
        uint64_t skipped_part = c->trained ? part->frozen : 0;
        void *in_whole =
            head && i == RPEXEC_HEAD_TABLE && c->table != NULL
                ? c->table
                : (unsigned char *)c->whole + (from->offset - skipped_whole) * c->width;
        move_tensor(s, from, to, c, in_whole,
                    (unsigned char *)c->part + (to->offset - skipped_part) * c->width);
    }
}
