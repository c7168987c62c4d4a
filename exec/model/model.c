#include "exec/model/model.h"

#include "common/base/log.h"
#include "exec/model/layers.h"
#include "exec/model/layout.h"
#include "exec/operators/random.h"

#include <math.h>
#include <string.h>

/* The scaling of Llama 3.1 and later (rp_rope_scale). */
static double scaled_frequency(const rp_rope_scale *s, double frequency)
{
    double wavelength = 2 * acos(-1.0) / frequency;
    if (wavelength > s->original / s->low) {
        return frequency / s->factor;
    }
    if (wavelength < s->original / s->high) {
        return frequency;
    }
    double share = (s->original / wavelength - s->low) / (s->high - s->low);
    return (1 - share) * frequency / s->factor + share * frequency;
}

/* The index of the frequency that turns `turns` times in the original length (executor.md 4.1). */
static double turning(const rp_model *c, double turns)
{
    return c->head_dim * log(c->yarn.original / (turns * 2 * acos(-1.0))) /
           (2 * log(c->rope_theta));
}

/* The share of the scaled frequency in frequency i. */
static double yarn_share(const rp_model *c, uint32_t i)
{
    double low = turning(c, c->yarn.fast);
    double high = turning(c, c->yarn.slow);
    low = fmax(c->yarn.truncate ? floor(low) : low, 0);
    high = fmin(c->yarn.truncate ? ceil(high) : high, c->head_dim - 1.0);
    high += low == high ? 0.001 : 0; /* as in transformers, to avoid a division by zero */
    return fmin(fmax((i - low) / (high - low), 0), 1);
}

static double frequency_of(const rpexec_model *model, bool local, uint32_t i)
{
    const rp_model *c = model->config;
    double frequency = pow(local ? c->local_theta : c->rope_theta, -2.0 * i / model->rotated);
    if (local) {
        return frequency;
    }
    if (strcmp(c->rope_scaling, "llama3") == 0) {
        return scaled_frequency(&c->rope, frequency);
    }
    if (strcmp(c->rope_scaling, "yarn") == 0) {
        double share = yarn_share(c, i);
        return frequency / c->yarn.factor * share + frequency * (1 - share);
    }
    if (strcmp(c->rope_scaling, "longrope") == 0) {
        bool is_long = model->seq_len > c->longrope.original;
        return frequency / (is_long ? c->longrope.long_factors : c->longrope.short_factors)[i];
    }
    return strcmp(c->rope_scaling, "linear") == 0 ? frequency / c->rope.factor : frequency;
}

static rp_status fill_rotary(const rp_model *c, rp_arena *arena, rpexec_model *model)
{
    uint32_t half = model->rotated / 2;
    size_t values = rpexec_model_table_values(model);
    size_t count = rpexec_model_rotary_values(model);
    double size = strcmp(c->rope_scaling, "yarn") == 0       ? c->yarn.attention
                  : strcmp(c->rope_scaling, "longrope") == 0 ? c->longrope.attention
                                                             : 1;
    RP_TRY(rp_arena_alloc(arena, count, sizeof(float), &model->cosines));
    RP_TRY(rp_arena_alloc(arena, count, sizeof(float), &model->sines));
    for (uint32_t k = 0; k < model->rotary_tables * half; k++) {
        uint32_t i = k % half;
        double frequency = frequency_of(model, k >= half, i);
        for (uint32_t t = 0; t < model->seq_len; t++) {
            size_t at = k / half * values + (size_t)t * half + i;
            model->cosines[at] = (float)(size * cos(t * frequency));
            model->sines[at] = (float)(size * sin(t * frequency));
        }
    }
    return RP_OK;
}

const char *const rpexec_model_families[] = {"llama",       "mistral",   "mixtral", "qwen2",
                                             "qwen3",       "qwen3_moe", "phi3",    "gemma2",
                                             "gemma3_text", "gpt_oss",   NULL};

/* True if the family is computed. Models of rpsim's own files have no family. */
static bool is_computed(const char *family)
{
    bool found = family == NULL;
    for (size_t i = 0; !found && rpexec_model_families[i] != NULL; i++) {
        found = strcmp(rpexec_model_families[i], family) == 0;
    }
    return found;
}

/* True if all layers have the same layout. Equal counts of parameters show it, since they depend on
 * everything that a layout depends on. */
static bool differ_in_windows_alone(const rp_model *c)
{
    for (uint32_t i = 0; i < c->kind_count; i++) {
        if (c->kinds[i].intermediate != c->intermediate || c->kinds[i].experts != c->experts ||
            c->kinds[i].layer_parameters != c->layer_parameters) {
            return false;
        }
    }
    return true;
}

static uint32_t rotated_of(const rp_model *c)
{
    return c->rotated != 0 ? c->rotated : c->head_dim;
}

static rp_status check(const rp_model *c, uint32_t seq_len)
{
    const char *what = NULL;
    const char *before = "";
    if (c->learned_positions || c->layer_norm || c->plain_mlp) {
        what = "learned positions, LayerNorm or a plain MLP";
    } else if (c->linear_bias || (c->expert_bias && c->experts == 1) ||
               (c->mlp_bias && c->experts > 1) || c->router_bias) {
        what = "biases at other places";
    } else if (c->kv_rank != 0 || c->shared_intermediate != 0) {
        what = "latent attention or shared experts";
    } else if (c->wide_qk_norm || c->one_norm) {
        what = "norms at other places";
    } else if (c->gelu_gate && c->attention_scale == 0) {
        what = "numbers that its reader has not read"; /* rpexec_config_load does */
    } else if (!differ_in_windows_alone(c)) {
        what = "layers of several kinds";
    } else if (!is_computed(c->family)) {
        what = c->family;
        before = "the family ";
    }
    if (what != NULL) {
        rp_log_error("{model}: %s has %s%s, which the executor does not compute; valid are models "
                     "of the Llama, Mistral, Mixtral, Phi-3, Gemma 2, Gemma 3, Qwen2, Qwen3, "
                     "Qwen3-MoE and gpt-oss families",
                     c->name, before, what);
        return RP_INPUT;
    }
    if (rotated_of(c) % 2 != 0) {
        rp_log_error("{model}: %s has heads of %u, which the rotary embedding cannot halve; valid "
                     "are even head dimensions",
                     c->name, rotated_of(c));
        return RP_INPUT;
    }
    if (seq_len == 0 || seq_len > c->max_positions) {
        rp_log_error("{seq_len}: %u; valid for %s are 1 to %u", seq_len, c->name, c->max_positions);
        return RP_INPUT;
    }
    return RP_OK;
}

rp_status rpexec_model_create(const rp_model *config, uint32_t seq_len, rp_dtype dtype,
                              rp_arena *arena, rpexec_model *model_out)
{
    RP_TRY(check(config, seq_len));
    *model_out = (rpexec_model){.config = config,
                                .dtype = dtype,
                                .layer_count = config->layers + 2,
                                .rotated = rotated_of(config),
                                .rotary_tables = config->local_theta != 0 ? 2 : 1,
                                .seq_len = seq_len};
    RP_TRY(rpexec_model_lay_out(config, arena, model_out));
    return fill_rotary(config, arena, model_out);
}

const rpexec_layer *rpexec_model_layer(const rpexec_model *model, uint32_t layer)
{
    return layer == 0                        ? &model->embedding
           : layer + 1 == model->layer_count ? &model->head
                                             : &model->block;
}

uint64_t rpexec_layer_run(const rpexec_layer *layer, uint64_t at, bool *vectors_out)
{
    uint32_t i = 0;
    while (i + 1 < layer->tensor_count && layer->tensors[i + 1].offset <= layer->frozen + at) {
        i++;
    }
    *vectors_out = layer->tensors[i].vector;
    while (i < layer->tensor_count && layer->tensors[i].vector == *vectors_out) {
        i++;
    }
    uint64_t end = i < layer->tensor_count ? layer->tensors[i].offset : layer->floats;
    return end - layer->frozen;
}

uint64_t rpexec_model_values(const rpexec_model *model, uint32_t begin, uint32_t end)
{
    uint64_t values = 0;
    for (uint32_t layer = begin; layer < end; layer++) {
        values += rpexec_model_layer(model, layer)->floats;
    }
    return values;
}

uint64_t rpexec_model_trained(const rpexec_model *model, uint32_t begin, uint32_t end)
{
    uint64_t values = 0;
    for (uint32_t layer = begin; layer < end; layer++) {
        values += rpexec_layer_trained(rpexec_model_layer(model, layer));
    }
    return values;
}

/* A tensor's initial values. */
typedef struct filling {
    const rpexec_tensor *tensor;
    double deviation; /* standard deviation of normal numbers; smaller for matrices that add to the
                         residual stream */
    uint64_t seed;
    uint64_t stream;
    bool base;
    float *to;
} filling;

/* Number i of a tensor does not depend on the numbers before it, so pieces give the same bits. */
static void fill(void *context, uint64_t first, uint64_t count)
{
    const filling *f = context;
    float *to = f->to + first;
    switch (f->tensor->initial) {
    case RPEXEC_INITIAL_ZEROS:
        return;
    case RPEXEC_INITIAL_ONES:
        for (uint64_t k = 0; k < count; k++) {
            to[k] = 1.0f;
        }
        return;
    case RPEXEC_INITIAL_UNIFORM:
        rpexec_random_uniform_from(f->seed, f->stream, 1 / sqrt((double)f->tensor->columns), first,
                                   count, to);
        return;
    case RPEXEC_INITIAL_RESIDUAL:
    case RPEXEC_INITIAL_NORMAL:
        break;
    }
    if (!f->base) {
        return; /* zeroed already */
    }
    rpexec_random_normal_from(f->seed, f->stream, f->deviation, first, count, to);
}

static void clear(void *context, uint64_t first, uint64_t count)
{
    float *array = context;
    memset(array + first, 0, count * sizeof *array);
}

static void fill_layer(const rpexec_model *model, uint32_t layer, const filling *like,
                       rpexec_pool *pool)
{
    const rpexec_layer *l = rpexec_model_layer(model, layer);
    bool copy = l == &model->head && model->config->tied_head; /* the embedding's table */
    for (uint32_t i = 0; i < l->tensor_count; i++) {
        const rpexec_tensor *t = &l->tensors[i];
        bool residual = t->initial == RPEXEC_INITIAL_RESIDUAL;
        filling f = *like;
        f.tensor = t;
        f.deviation = residual ? 0.02 / sqrt(2.0 * model->config->layers) : 0.02;
        f.stream = copy ? 0 : (uint64_t)layer << 16 | i;
        f.to += t->offset;
        rpexec_pool_run(pool, t->rows * t->columns, fill, &f);
    }
}

void rpexec_model_initialise(const rpexec_model *model, uint32_t layer, uint64_t seed, bool base,
                             rpexec_pool *pool, float *array)
{
    const filling like = {.seed = seed, .base = base, .to = array};
    rpexec_pool_run(pool, rpexec_model_layer(model, layer)->floats, clear, array);
    fill_layer(model, layer, &like, pool);
}
