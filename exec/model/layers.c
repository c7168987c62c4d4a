#include "exec/model/layers.h"

#include "exec/model/block.h"

#include <math.h>

static uint64_t padded(uint64_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

/* Bytes of [rows, width] in the storage type. */
static uint64_t tensor_bytes(const rpexec_model *m, uint64_t rows, uint32_t width)
{
    return padded(rows * width * rp_dtype_bytes(m->dtype));
}

/* Bytes of [tokens, hidden]. */
static uint64_t rows_bytes(const rpexec_model *m, uint64_t tokens)
{
    return tensor_bytes(m, tokens, m->config->hidden);
}

static void *after(void *base, uint64_t bytes)
{
    return (unsigned char *)base + bytes;
}

static bool is_embedding(uint32_t layer)
{
    return layer == 0;
}

static bool is_head(const rpexec_model *m, uint32_t layer)
{
    return layer + 1 == m->layer_count;
}

/* The end of a stage's layers without the head. */
static uint32_t body_end(const rpexec_model *m, uint32_t end)
{
    return end > 0 && is_head(m, end - 1) ? end - 1 : end;
}

/* ---- sizes ----------------------------------------------------------------------------------- */

uint64_t rpexec_tape_bytes(const rpexec_model *m, uint32_t layer, uint64_t tokens)
{
    uint64_t output = rows_bytes(m, tokens); /* for the head the gradient of its input */
    bool block = !is_embedding(layer) && !is_head(m, layer);
    return output + (block ? rpexec_block_tape_bytes(m, tokens) : 0);
}

/* Chunks in fp32 keep their size, since the bits of a result depend on it. */
uint64_t rpexec_loss_chunk(const rpexec_model *m, uint64_t tokens)
{
    uint64_t most = RPEXEC_LOSS_CHUNK_TOKENS;
    if (m->dtype != RP_DTYPE_F32 && m->config->hidden > most) {
        uint64_t wide = m->config->hidden;
        most = wide < RPEXEC_LOSS_CHUNK_MOST ? wide : RPEXEC_LOSS_CHUNK_MOST;
    }
    return tokens < most ? tokens : most;
}

/* Normed rows, their gradient, factors and logits of a chunk. */
static uint64_t head_scratch(const rpexec_model *m, uint64_t tokens)
{
    uint64_t rows = rpexec_loss_chunk(m, tokens);
    return 2 * rows_bytes(m, rows) + padded(rows * sizeof(float)) +
           tensor_bytes(m, rows, m->config->vocab);
}

/* Floats of a rank's statistics of a chunk's rows. */
static uint64_t statistics_count(uint64_t rows)
{
    return padded(2 * rows * sizeof(float)) / sizeof(float);
}

uint64_t rpexec_statistics_bytes(const rpexec_model *m, uint32_t ranks, uint64_t tokens)
{
    return ranks * statistics_count(rpexec_loss_chunk(m, tokens)) * sizeof(float);
}

uint64_t rpexec_exchange_count(const rpexec_model *m, uint64_t tokens)
{
    uint64_t routed = m->config->experts > 1 ? tokens * m->config->active_experts : 0;
    uint64_t boundary = tokens * m->config->hidden;
    return routed > boundary ? routed : boundary;
}

uint64_t rpexec_scratch_bytes(const rpexec_model *m, uint32_t layer, uint64_t tokens)
{
    uint64_t gradients = 2 * rows_bytes(m, tokens);
    if (is_embedding(layer)) {
        return gradients;
    }
    return is_head(m, layer) ? head_scratch(m, tokens)
                             : gradients + rpexec_block_scratch_bytes(m, tokens) +
                                   rpexec_block_weight_tape_bytes(m, tokens);
}

uint64_t rpexec_stage_tape_bytes(const rpexec_model *m, uint32_t begin, uint32_t end,
                                 uint64_t tokens, bool keep)
{
    uint64_t sum = 0;
    uint64_t most = 0;
    for (uint32_t layer = begin; layer < body_end(m, end); layer++) {
        uint64_t bytes = rpexec_tape_bytes(m, layer, tokens);
        sum += bytes;
        most = bytes > most ? bytes : most;
    }
    uint64_t second_output = rows_bytes(m, tokens);
    return keep ? sum : most + second_output;
}

static uint64_t weight_tape_bytes(const rpexec_model *m, uint32_t layer, uint64_t tokens)
{
    uint64_t output = rows_bytes(m, tokens);
    return is_embedding(layer) ? output : output + rpexec_block_weight_tape_bytes(m, tokens);
}

uint64_t rpexec_stage_weight_tape_bytes(const rpexec_model *m, uint32_t begin, uint32_t end,
                                        uint64_t tokens)
{
    uint64_t sum = 0;
    for (uint32_t layer = begin; layer < body_end(m, end); layer++) {
        sum += weight_tape_bytes(m, layer, tokens);
    }
    return sum;
}

uint64_t rpexec_stage_scratch_bytes(const rpexec_model *m, uint32_t begin, uint32_t end,
                                    uint64_t tokens)
{
    uint64_t most = 0;
    for (uint32_t layer = begin; layer < end; layer++) {
        uint64_t bytes = rpexec_scratch_bytes(m, layer, tokens);
        most = bytes > most ? bytes : most;
    }
    return most;
}

/* ---- forward --------------------------------------------------------------------------------- */

static uint64_t tokens_of(const rpexec_compute *c, const rpexec_stage_data *data)
{
    return (uint64_t)data->sequences * c->model->seq_len;
}

/* The beginning of layer `layer`'s tape when all tapes are kept. */
static void *tape_at(const rpexec_compute *c, const rpexec_stage_data *data, uint32_t layer)
{
    uint64_t tokens = tokens_of(c, data);
    return after(data->tape, layer == data->begin ? 0
                                                  : rpexec_stage_tape_bytes(c->model, data->begin,
                                                                            layer, tokens, true));
}

/* A layer's output lies at the end of its tape. */
static void *output_at(const rpexec_compute *c, const rpexec_stage_data *data, uint32_t layer)
{
    uint64_t tokens = tokens_of(c, data);
    return after(tape_at(c, data, layer),
                 rpexec_tape_bytes(c->model, layer, tokens) - rows_bytes(c->model, tokens));
}

static const void *input_at(const rpexec_compute *c, const rpexec_stage_data *data, uint32_t layer)
{
    return layer == data->begin ? data->input : output_at(c, data, layer - 1);
}

static const void *weights_at(const rpexec_compute *c, const rpexec_stage_data *data,
                              uint32_t layer)
{
    bool apart = data->root != NULL;
    if (apart && (is_embedding(layer) || is_head(c->model, layer))) {
        uint64_t offset = is_embedding(layer) ? 0 : c->model->embedding.floats;
        return rpexec_element_const(c->model->dtype, data->root, offset);
    }
    uint32_t begin = data->begin + (apart && is_embedding(data->begin) ? 1 : 0);
    return rpexec_element_const(c->model->dtype, data->weights,
                                rpexec_model_values(c->model, begin, layer));
}

static void *gradients_at(const rpexec_compute *c, const rpexec_stage_data *data, uint32_t layer)
{
    return rpexec_gradient(c, data->gradients, rpexec_model_trained(c->model, data->begin, layer));
}

static void *forward_slot(const rpexec_compute *c, const rpexec_stage_data *data, uint32_t layer,
                          bool keep)
{
    bool last = layer + 1 == body_end(c->model, data->end);
    if (last && data->output != NULL) {
        return data->output;
    }
    if (keep) {
        return output_at(c, data, layer);
    }
    /* Two places for outputs, used in turn, lie at the end of the only tape. */
    uint64_t tokens = tokens_of(c, data);
    uint64_t output = rows_bytes(c->model, tokens);
    uint64_t bytes = rpexec_stage_tape_bytes(c->model, data->begin, data->end, tokens, false);
    return after(data->tape, bytes - (1 + layer % 2) * output);
}

/* Rows of the table are multiplied by sqrt(d), rounded as in transformers. */
static void scale_rows(const rpexec_compute *c, uint64_t tokens, void *x)
{
    const rp_model *m = c->model->config;
    float factor = sqrtf((float)m->hidden);
    uint32_t rounded[1];
    if (m->scaled_embedding) {
        rpexec_narrow(c->model->dtype, 1, &factor, rounded);
        rpexec_widen(c->model->dtype, 1, rounded, &factor);
        c->operators->scale(c->lane, tokens * m->hidden, factor, x);
    }
}

/* Each rank has the rows of its part of the vocabulary. */
static void embed(const rpexec_compute *c, const rpexec_stage_data *data, const void *table,
                  void *y)
{
    uint32_t width = c->model->config->hidden;
    uint64_t tokens = tokens_of(c, data);
    if (data->is_embedded) {
        c->operators->copy(c->lane, tokens * width, data->embedded, y);
        return;
    }
    c->operators->embed(c->lane, tokens, width, data->ids, table, y);
    scale_rows(c, tokens, y);
    rpexec_all_reduce(c, c->model->dtype, tokens * width, y);
    if (data->embedded != NULL) {
        c->operators->copy(c->lane, tokens * width, y, data->embedded);
    }
}

void rpexec_stage_forward(const rpexec_compute *c, const rpexec_stage_data *data, bool keep)
{
    const void *x = data->input;
    if (data->begin == data->end && data->output != NULL) { /* a stage without layers */
        c->operators->copy(c->lane, tokens_of(c, data) * c->model->config->hidden, x, data->output);
        return;
    }
    for (uint32_t layer = data->begin; layer < body_end(c->model, data->end); layer++) {
        void *y = forward_slot(c, data, layer, keep);
        const void *weights = weights_at(c, data, layer);
        if (is_embedding(layer)) {
            embed(c, data, weights, y);
        } else {
            void *tape = keep ? tape_at(c, data, layer) : data->tape;
            rpexec_block_forward(c, layer, weights, data->sequences, x, y, tape, data->scratch);
        }
        for (uint32_t i = 0; i < data->save_count; i++) {
            if (data->saves[i].layer == layer) {
                uint64_t count = tokens_of(c, data) * c->model->config->hidden;
                c->operators->copy(c->lane, count, y, data->saves[i].to);
            }
        }
        x = y;
    }
}

/* Each rank has the logits of its part of the vocabulary; statistics of them are gathered from all
 * ranks. */
static void cross_entropy(const rpexec_compute *c, const rpexec_stage_data *data, uint64_t rows,
                          const int32_t *labels, void *z)
{
    const rpexec_operators *op = c->operators;
    const rpexec_ranks *ranks = c->ranks;
    uint32_t vocab = c->model->config->vocab;
    float cap = (float)c->model->config->logit_cap;
    if (ranks == NULL) {
        op->cross_entropy(c->lane, rows, vocab, labels, cap, data->loss_scale, z, data->loss);
        return;
    }
    uint64_t count = statistics_count(rows);
    float *statistics = data->statistics;
    op->row_statistics(c->lane, rows, vocab, cap, z, statistics + ranks->rank * count);
    c->ranks->all_gather(c->ranks, count, statistics);
    op->cross_entropy_part(c->lane, rows, vocab, ranks->first_id, labels, ranks->count, statistics,
                           count, cap, data->loss_scale, z, data->loss);
}

void rpexec_stage_head(const rpexec_compute *c, const rpexec_stage_data *data)
{
    const rpexec_operators *op = c->operators;
    const rp_model *m = c->model->config;
    const rpexec_tensor *tensors = c->model->head.tensors;
    uint32_t head = data->end - 1;
    rp_dtype dtype = c->model->dtype;
    const void *weights = weights_at(c, data, head);
    void *gradients = gradients_at(c, data, head);
    const void *norm = rpexec_element_const(dtype, weights, tensors[RPEXEC_HEAD_NORM].offset);
    const void *table = rpexec_element_const(dtype, weights, tensors[RPEXEC_HEAD_TABLE].offset);
    void *dnorm = rpexec_gradient(c, gradients, tensors[RPEXEC_HEAD_NORM].offset);
    void *dtable = rpexec_gradient(c, gradients, tensors[RPEXEC_HEAD_TABLE].offset);
    const void *input = head == data->begin ? data->input : data->output;
    uint64_t tokens = tokens_of(c, data);
    uint64_t chunk = rpexec_loss_chunk(c->model, tokens);
    void *n = data->scratch;
    void *dn = after(n, rows_bytes(c->model, chunk));
    float *r = after(dn, rows_bytes(c->model, chunk));
    void *z = after(r, padded(chunk * sizeof(float)));
    for (uint64_t t = 0; t < tokens; t += chunk) {
        uint64_t rows = tokens - t < chunk ? tokens - t : chunk;
        const void *x = rpexec_element_const(dtype, input, t * m->hidden);
        op->rms_norm(c->lane, rows, m->hidden, (float)m->norm_eps, m->shifted_norms, x, norm, n, r);
        op->linear(c->lane, rows, m->hidden, m->vocab, n, table, NULL, z);
        cross_entropy(c, data, rows, data->labels + t, z);
        if (data->loss_only) {
            continue;
        }
        op->linear_input(c->lane, rows, m->hidden, m->vocab, z, table, false, dn);
        rpexec_all_reduce(c, dtype, rows * m->hidden, dn);
        op->rms_norm_input(c->lane, rows, m->hidden, m->shifted_norms, x, norm, r, dn, NULL,
                           rpexec_element(dtype, data->head_gradient, t * m->hidden));
        if (c->model->rank == 0) { /* LoRA freezes norm and table */
            op->linear_weight(c->lane, rows, m->hidden, m->vocab, z, n, c->wide, dtable);
            op->rms_norm_weight(c->lane, rows, m->hidden, x, r, dn, c->wide, dnorm);
        }
    }
}

/* ---- backward -------------------------------------------------------------------------------- */

/* Memory in which a layer's input part leaves its results for the weight part. */
static void *weight_tape_at(const rpexec_compute *c, const rpexec_stage_data *data, uint32_t layer)
{
    uint64_t tokens = tokens_of(c, data);
    uint64_t before = 0;
    for (uint32_t i = data->begin; i < layer; i++) {
        before += weight_tape_bytes(c->model, i, tokens);
    }
    return after(data->weight_tape, before);
}

/* Scratch of a backward: two gradients, used in turn, then the scratch of blocks, then a weight
 * tape. */
typedef struct backward_scratch {
    void *gradients[2];
    void *block;
    void *weight_tape;
} backward_scratch;

static backward_scratch cut_scratch(const rpexec_compute *c, const rpexec_stage_data *data)
{
    uint64_t tokens = tokens_of(c, data);
    uint64_t one = rows_bytes(c->model, tokens);
    void *block = after(data->scratch, 2 * one);
    return (backward_scratch){.gradients = {data->scratch, after(data->scratch, one)},
                              .block = block,
                              .weight_tape =
                                  after(block, rpexec_block_scratch_bytes(c->model, tokens))};
}

/* The table's gradient, unless it is frozen. The gradient of the padding token's row stays 0; the
 * head adds the gradient of a tied table's row to a separate array. */
static void embedding_weight(const rpexec_compute *c, const rpexec_stage_data *data, const void *dy,
                             void *gradients)
{
    uint64_t tokens = tokens_of(c, data);
    uint32_t width = c->model->config->hidden;
    if (c->model->rank != 0) {
        return;
    }
    if (c->model->config->scaled_embedding) {
        void *scaled = cut_scratch(c, data).gradients[0]; /* free: dy lies in the other gradient,
                                                             layer 1's */
        c->operators->copy(c->lane, tokens * width, dy, scaled);
        scale_rows(c, tokens, scaled);
        dy = scaled;
    }
    c->operators->embed_weight(c->lane, tokens, width, data->ids, dy, c->wide, gradients);
    if (c->model->config->has_padding) {
        uint64_t value = rp_dtype_bytes(c->model->dtype);
        void *row =
            rpexec_gradient(c, gradients, (uint64_t)c->model->config->padding_token * width);
        c->operators->zero(c->lane, width * (c->wide ? sizeof(float) : value) / value, row);
    }
}

static void backward_weights(const rpexec_compute *c, const rpexec_stage_data *data)
{
    backward_scratch scratch = cut_scratch(c, data);
    uint64_t tokens = tokens_of(c, data);
    uint64_t output = rows_bytes(c->model, tokens);
    for (uint32_t layer = body_end(c->model, data->end); layer-- > data->begin;) {
        void *dy = weight_tape_at(c, data, layer);
        void *gradients = gradients_at(c, data, layer);
        if (is_embedding(layer)) {
            embedding_weight(c, data, dy, gradients);
        } else {
            rpexec_block_backward_weight(c, layer, gradients, data->sequences,
                                         tape_at(c, data, layer), dy, after(dy, output),
                                         scratch.block);
        }
    }
}

/* The backward of a layer: both parts, or with `split` only the input part. Returns the gradient of
 * its input. */
static const void *backward_layer(const rpexec_compute *c, const rpexec_stage_data *data,
                                  uint32_t layer, const void *dy, bool split)
{
    backward_scratch scratch = cut_scratch(c, data);
    uint64_t tokens = tokens_of(c, data);
    uint64_t count = tokens * c->model->config->hidden;
    void *kept = split ? weight_tape_at(c, data, layer) : NULL;
    if (split) {
        c->operators->copy(c->lane, count, dy, kept);
    }
    if (is_embedding(layer)) {
        if (!split) {
            embedding_weight(c, data, dy, gradients_at(c, data, layer));
        }
        return NULL;
    }
    void *weight_tape = split ? after(kept, rows_bytes(c->model, tokens)) : scratch.weight_tape;
    void *dx = layer == data->begin ? data->d_input : scratch.gradients[layer % 2];
    rpexec_block_backward_input(c, layer, weights_at(c, data, layer), gradients_at(c, data, layer),
                                data->sequences, input_at(c, data, layer), tape_at(c, data, layer),
                                dy, dx, weight_tape, scratch.block);
    if (!split) {
        rpexec_block_backward_weight(c, layer, gradients_at(c, data, layer), data->sequences,
                                     tape_at(c, data, layer), dy, weight_tape, scratch.block);
    }
    return dx;
}

void rpexec_stage_backward(const rpexec_compute *c, const rpexec_stage_data *data,
                           rpexec_backward_part part)
{
    if (part == RPEXEC_BACKWARD_WEIGHT) {
        backward_weights(c, data);
        return;
    }
    uint32_t end = body_end(c->model, data->end);
    const void *dy = end != data->end ? data->head_gradient : data->d_output;
    if (end == data->begin && data->d_input != NULL) { /* only the head, or no layer at all */
        uint64_t count = tokens_of(c, data) * c->model->config->hidden;
        c->operators->copy(c->lane, count, dy, data->d_input);
    }
    for (uint32_t layer = end; layer-- > data->begin;) {
        dy = backward_layer(c, data, layer, dy, part == RPEXEC_BACKWARD_INPUT);
    }
}
