#include "exec/model/layers.h"

#include "exec/model/block.h"

static uint64_t padded(uint64_t floats)
{
    return (floats + 15) / 16 * 16;
}

static bool is_embedding(uint32_t layer)
{
    return layer == 0;
}

static bool is_head(const rpexec_model *m, uint32_t layer)
{
    return layer + 1 == m->layer_count;
}

/* Layers of a stage without the head. */
static uint32_t body_end(const rpexec_model *m, uint32_t end)
{
    return end > 0 && is_head(m, end - 1) ? end - 1 : end;
}

/* ---- sizes ------------------------------------------------------------------------------------
 */

uint64_t rpexec_tape_floats(const rpexec_model *m, uint32_t layer, uint64_t tokens)
{
    uint64_t output = padded(tokens * m->config->hidden); /* the head's: gradient of its input */
    bool block = !is_embedding(layer) && !is_head(m, layer);
    return output + (block ? rpexec_block_tape_floats(m->config, tokens) : 0);
}

static uint64_t chunk_tokens(uint64_t tokens)
{
    return tokens < RPEXEC_LOSS_CHUNK_TOKENS ? tokens : RPEXEC_LOSS_CHUNK_TOKENS;
}

/* Normed rows, their gradient, factors and logits of a chunk. */
static uint64_t head_scratch(const rp_model *m, uint64_t tokens)
{
    uint64_t rows = chunk_tokens(tokens);
    return 2 * padded(rows * m->hidden) + padded(rows) + padded(rows * m->vocab);
}

uint64_t rpexec_scratch_floats(const rpexec_model *m, uint32_t layer, uint64_t tokens)
{
    uint64_t gradients = 2 * padded(tokens * m->config->hidden);
    if (is_embedding(layer)) {
        return gradients;
    }
    return is_head(m, layer) ? head_scratch(m->config, tokens)
                             : gradients + rpexec_block_scratch_floats(m->config, tokens) +
                                   rpexec_block_weight_tape_floats(m->config, tokens);
}

uint64_t rpexec_stage_tape_floats(const rpexec_model *m, uint32_t begin, uint32_t end,
                                  uint64_t tokens, bool keep)
{
    uint64_t sum = 0;
    uint64_t most = 0;
    for (uint32_t layer = begin; layer < body_end(m, end); layer++) {
        uint64_t floats = rpexec_tape_floats(m, layer, tokens);
        sum += floats;
        most = floats > most ? floats : most;
    }
    uint64_t second_output = padded(tokens * m->config->hidden);
    return keep ? sum : most + second_output;
}

static uint64_t weight_tape_floats(const rpexec_model *m, uint32_t layer, uint64_t tokens)
{
    uint64_t output = padded(tokens * m->config->hidden);
    return is_embedding(layer) ? output
                               : output + rpexec_block_weight_tape_floats(m->config, tokens);
}

uint64_t rpexec_stage_weight_tape_floats(const rpexec_model *m, uint32_t begin, uint32_t end,
                                         uint64_t tokens)
{
    uint64_t sum = 0;
    for (uint32_t layer = begin; layer < body_end(m, end); layer++) {
        sum += weight_tape_floats(m, layer, tokens);
    }
    return sum;
}

uint64_t rpexec_stage_scratch_floats(const rpexec_model *m, uint32_t begin, uint32_t end,
                                     uint64_t tokens)
{
    uint64_t most = 0;
    for (uint32_t layer = begin; layer < end; layer++) {
        uint64_t floats = rpexec_scratch_floats(m, layer, tokens);
        most = floats > most ? floats : most;
    }
    return most;
}

/* ---- forward ----------------------------------------------------------------------------------
 */

static uint64_t tokens_of(const rpexec_compute *c, const rpexec_stage_data *data)
{
    return (uint64_t)data->sequences * c->model->seq_len;
}

/* Where layer `layer`'s tape begins when all of them are kept. */
static float *tape_at(const rpexec_compute *c, const rpexec_stage_data *data, uint32_t layer)
{
    uint64_t tokens = tokens_of(c, data);
    return data->tape + (layer == data->begin ? 0
                                              : rpexec_stage_tape_floats(c->model, data->begin,
                                                                         layer, tokens, true));
}

/* A layer's output is the last of its tape. */
static float *output_at(const rpexec_compute *c, const rpexec_stage_data *data, uint32_t layer)
{
    uint64_t tokens = tokens_of(c, data);
    return tape_at(c, data, layer) + rpexec_tape_floats(c->model, layer, tokens) -
           padded(tokens * c->model->config->hidden);
}

static const float *input_at(const rpexec_compute *c, const rpexec_stage_data *data, uint32_t layer)
{
    return layer == data->begin ? data->input : output_at(c, data, layer - 1);
}

static const float *weights_at(const rpexec_compute *c, const rpexec_stage_data *data,
                               uint32_t layer)
{
    uint64_t offset = 0;
    for (uint32_t i = data->begin; i < layer; i++) {
        offset += rpexec_model_layer(c->model, i)->floats;
    }
    return data->weights + offset;
}

static float *gradients_at(const rpexec_compute *c, const rpexec_stage_data *data, uint32_t layer)
{
    return data->gradients + (weights_at(c, data, layer) - data->weights);
}

static float *forward_slot(const rpexec_compute *c, const rpexec_stage_data *data, uint32_t layer,
                           bool keep)
{
    bool last = layer + 1 == body_end(c->model, data->end);
    if (last && data->output != NULL) {
        return data->output;
    }
    if (keep) {
        return output_at(c, data, layer);
    }
    /* Two outputs in turn, at the end of the one tape there is. */
    uint64_t tokens = tokens_of(c, data);
    uint64_t output = padded(tokens * c->model->config->hidden);
    uint64_t floats = rpexec_stage_tape_floats(c->model, data->begin, data->end, tokens, false);
    return data->tape + floats - (1 + layer % 2) * output;
}

void rpexec_stage_forward(const rpexec_compute *c, const rpexec_stage_data *data, bool keep)
{
    const float *x = data->input;
    if (data->begin == data->end && data->output != NULL) { /* a stage without layers */
        c->operators->copy(c->lane, tokens_of(c, data) * c->model->config->hidden, x, data->output);
        return;
    }
    for (uint32_t layer = data->begin; layer < body_end(c->model, data->end); layer++) {
        float *y = forward_slot(c, data, layer, keep);
        const float *weights = weights_at(c, data, layer);
        if (is_embedding(layer)) {
            c->operators->embed(c->lane, tokens_of(c, data), c->model->config->hidden, data->ids,
                                weights, y);
        } else {
            float *tape = keep ? tape_at(c, data, layer) : data->tape;
            rpexec_block_forward(c, weights, data->sequences, x, y, tape, data->scratch);
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

void rpexec_stage_head(const rpexec_compute *c, const rpexec_stage_data *data)
{
    const rpexec_operators *op = c->operators;
    const rp_model *m = c->model->config;
    const rpexec_tensor *tensors = c->model->head.tensors;
    uint32_t head = data->end - 1;
    const float *norm = weights_at(c, data, head) + tensors[RPEXEC_HEAD_NORM].offset;
    const float *table = weights_at(c, data, head) + tensors[RPEXEC_HEAD_TABLE].offset;
    float *dnorm = gradients_at(c, data, head) + tensors[RPEXEC_HEAD_NORM].offset;
    float *dtable = gradients_at(c, data, head) + tensors[RPEXEC_HEAD_TABLE].offset;
    const float *input = head == data->begin ? data->input : data->output;
    uint64_t tokens = tokens_of(c, data);
    uint64_t chunk = chunk_tokens(tokens);
    float *n = data->scratch;
    float *dn = n + padded(chunk * m->hidden);
    float *r = dn + padded(chunk * m->hidden);
    float *z = r + padded(chunk);
    for (uint64_t t = 0; t < tokens; t += chunk) {
        uint64_t rows = tokens - t < chunk ? tokens - t : chunk;
        const float *x = input + t * m->hidden;
        op->rms_norm(c->lane, rows, m->hidden, (float)m->norm_eps, x, norm, n, r);
        op->linear(c->lane, rows, m->hidden, m->vocab, n, table, false, z);
        op->cross_entropy(c->lane, rows, m->vocab, data->labels + t, data->loss_scale, z,
                          data->loss);
        op->linear_input(c->lane, rows, m->hidden, m->vocab, z, table, false, dn);
        op->linear_weight(c->lane, rows, m->hidden, m->vocab, z, n, dtable);
        op->rms_norm_input(c->lane, rows, m->hidden, x, norm, r, dn, false,
                           data->head_gradient + t * m->hidden);
        op->rms_norm_weight(c->lane, rows, m->hidden, x, r, dn, dnorm);
    }
}

/* ---- backward ---------------------------------------------------------------------------------
 */

/* Where the weight part finds what the input part left of a layer. */
static float *weight_tape_at(const rpexec_compute *c, const rpexec_stage_data *data, uint32_t layer)
{
    uint64_t tokens = tokens_of(c, data);
    uint64_t before = 0;
    for (uint32_t i = data->begin; i < layer; i++) {
        before += weight_tape_floats(c->model, i, tokens);
    }
    return data->weight_tape + before;
}

/* Scratch of a backward: two gradients in turn, then the blocks' own, then a weight tape. */
typedef struct backward_scratch {
    float *gradients[2];
    float *block;
    float *weight_tape;
} backward_scratch;

static backward_scratch cut_scratch(const rpexec_compute *c, const rpexec_stage_data *data)
{
    uint64_t tokens = tokens_of(c, data);
    uint64_t one = padded(tokens * c->model->config->hidden);
    float *block = data->scratch + 2 * one;
    return (backward_scratch){.gradients = {data->scratch, data->scratch + one},
                              .block = block,
                              .weight_tape =
                                  block + rpexec_block_scratch_floats(c->model->config, tokens)};
}

static void backward_weights(const rpexec_compute *c, const rpexec_stage_data *data)
{
    backward_scratch scratch = cut_scratch(c, data);
    uint64_t tokens = tokens_of(c, data);
    uint64_t output = padded(tokens * c->model->config->hidden);
    for (uint32_t layer = body_end(c->model, data->end); layer-- > data->begin;) {
        const float *dy = weight_tape_at(c, data, layer);
        float *gradients = gradients_at(c, data, layer);
        if (is_embedding(layer)) {
            c->operators->embed_weight(c->lane, tokens, c->model->config->hidden, data->ids, dy,
                                       gradients);
        } else {
            rpexec_block_backward_weight(c, gradients, data->sequences, tape_at(c, data, layer), dy,
                                         dy + output, scratch.block);
        }
    }
}

/* One layer of the input part, or of both. Returns the gradient of its input. */
static const float *backward_layer(const rpexec_compute *c, const rpexec_stage_data *data,
                                   uint32_t layer, const float *dy, bool split)
{
    backward_scratch scratch = cut_scratch(c, data);
    uint64_t tokens = tokens_of(c, data);
    uint64_t count = tokens * c->model->config->hidden;
    float *kept = split ? weight_tape_at(c, data, layer) : NULL;
    if (split) {
        c->operators->copy(c->lane, count, dy, kept);
    }
    if (is_embedding(layer)) {
        if (!split) {
            c->operators->embed_weight(c->lane, tokens, c->model->config->hidden, data->ids, dy,
                                       gradients_at(c, data, layer));
        }
        return NULL;
    }
    float *weight_tape = split ? kept + padded(count) : scratch.weight_tape;
    float *dx = layer == data->begin ? data->d_input : scratch.gradients[layer % 2];
    rpexec_block_backward_input(c, weights_at(c, data, layer), gradients_at(c, data, layer),
                                data->sequences, input_at(c, data, layer), tape_at(c, data, layer),
                                dy, dx, weight_tape, scratch.block);
    if (!split) {
        rpexec_block_backward_weight(c, gradients_at(c, data, layer), data->sequences,
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
    const float *dy = end != data->end ? data->head_gradient : data->d_output;
    if (end == data->begin && data->d_input != NULL) { /* the head alone, or no layer at all */
        uint64_t count = tokens_of(c, data) * c->model->config->hidden;
        c->operators->copy(c->lane, count, dy, data->d_input);
    }
    for (uint32_t layer = end; layer-- > data->begin;) {
        dy = backward_layer(c, data, layer, dy, part == RPEXEC_BACKWARD_INPUT);
    }
}
