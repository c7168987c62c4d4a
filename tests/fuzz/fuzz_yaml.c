/* The YAML readers. The first byte picks the reader of models, platforms or costs; the rest is the
 * file. Input that begins with { is read as a whole config.json. */
#include "common/inputs/costs.h"
#include "common/inputs/huggingface/config.h"
#include "common/inputs/model.h"
#include "common/inputs/platform.h"
#include "tests/fuzz/fuzz.h"

#include <math.h>
#include <string.h>

static void check_model(const rp_model *m)
{
    fuzz_require(m->layers >= 1 && m->layers <= RP_MAX_LAYERS, "layers in range");
    fuzz_require(m->heads >= 1 && m->kv_heads >= 1 && m->heads % m->kv_heads == 0, "heads divide");
    fuzz_require(m->active_experts >= 1 && m->active_experts <= m->experts, "active experts exist");
    fuzz_require(m->layer_parameters ==
                     m->attention_parameters + m->mlp_parameters + m->norm_parameters,
                 "a layer is the sum of its parts");
    fuzz_require(m->active_parameters <= m->total_parameters, "active ones are some of all");
    fuzz_require(m->total_parameters / m->layers >= m->layer_parameters, "all layers fit a count");
}

/* Layers may be of several kinds, and the model's own kind is among them. */
static void check_kinds(const rp_model *m)
{
    uint64_t total = 0;
    fuzz_require(m->kind_count <= RP_MODEL_KINDS, "few kinds");
    for (uint32_t i = 0; i < m->layers; i++) {
        const rp_model *layer = rp_model_of_layer(m, i);
        fuzz_require(layer->kinds == NULL || layer == m, "a kind has no kinds");
        fuzz_require(layer->experts >= 1 && layer->active_experts <= layer->experts, "experts");
        total += layer->layer_parameters;
    }
    fuzz_require(m->heads % m->kv_heads == 0, "heads divide");
    fuzz_require(total < m->total_parameters && m->total_parameters < 2000000000000000u,
                 "all layers are counted");
    fuzz_require(m->active_parameters <= m->total_parameters, "active ones are some of all");
}

static void check_platform(const rp_platform *p)
{
    const double rates[] = {
        p->fp16_tflops_fp16_acc, p->fp16_tflops_fp32_acc,    p->memory_gb,    p->memory_gb_per_s,
        p->link_gb_per_s,        p->link_effective_gb_per_s, p->peer_gb_per_s};
    for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++) {
        fuzz_require(isfinite(rates[i]) && rates[i] >= 0, "rates are finite and not negative");
    }
    const double shared[] = {p->switch_gb_per_s,      p->root_gb_per_s,
                             p->intersocket_gb_per_s, p->network_gb_per_s,
                             p->host_dram_gb_per_s,   p->optimizer_thread_gb_per_s};
    for (size_t i = 0; i < sizeof shared / sizeof shared[0]; i++) {
        fuzz_require(isfinite(shared[i]) && shared[i] >= 0, "rates are finite and not negative");
    }
    fuzz_require(p->link_gb_per_s > 0, "there is a host link");
    fuzz_require(p->nodes >= 1 && p->gpus % p->nodes == 0, "nodes divide the GPUs");
    fuzz_require(p->sockets >= 1 && p->sockets <= 16, "sockets in range");
    uint32_t of_node = p->gpus / p->nodes;
    const uint32_t groups[] = {p->gpus_per_switch, p->gpus_per_root, p->nvlink_gpus};
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++) {
        fuzz_require(groups[i] == 0 || of_node % groups[i] == 0, "groups divide a node");
    }
    fuzz_require((p->peer_access != RP_PEER_NONE) == (p->peer_gb_per_s > 0), "peers have a rate");
    fuzz_require(p->gpus >= 1 && strlen(p->name) > 0 && strlen(p->gpu) > 0, "GPUs have a name");
}

static void check_costs(const rp_costs *c)
{
    int64_t left = RP_MAX_MICROBATCH_PS;
    fuzz_require(c->layers >= 1 && c->layers <= RP_MAX_LAYERS, "layers in range");
    for (uint32_t i = 0; i < c->layers; i++) {
        bool positive = c->fwd_ps[i] >= 0 && c->bwd_ps[i] >= 0 && c->bwd_input_ps[i] >= 0;
        fuzz_require(positive && c->bwd_input_ps[i] <= c->bwd_ps[i], "times are not negative");
        left -= 2 * c->fwd_ps[i] + c->bwd_ps[i];
        fuzz_require(left >= 0, "times do not overflow");
    }
    left -= c->head_fwd_ps + c->head_bwd_ps + c->hop_ps;
    fuzz_require(c->head_fwd_ps >= 0 && c->head_bwd_ps >= 0 && c->hop_ps >= 0 && left >= 0,
                 "head and hop do not overflow");
    fuzz_require(c->microbatch_size >= 1 && c->seq_len >= 1, "sizes are at least 1");
}

static rp_status parse(uint8_t kind, const char *bytes, size_t length, rp_arena *arena)
{
    rp_model model;
    rp_platform platform;
    rp_costs costs;
    switch (kind % 3) {
    case 0:
        RP_TRY(rp_model_parse(FUZZ_FILE, bytes, length, arena, &model));
        check_model(&model);
        return RP_OK;
    case 1:
        RP_TRY(rp_platform_parse(FUZZ_FILE, bytes, length, arena, &platform));
        check_platform(&platform);
        return RP_OK;
    default:
        RP_TRY(rp_costs_parse(FUZZ_FILE, bytes, length, arena, &costs));
        check_costs(&costs);
        return RP_OK;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) {
        return 0;
    }
    fuzz_begin();
    rp_arena *arena = NULL;
    fuzz_require(rp_arena_create(&arena) == RP_OK, "an arena");
    bool json = data[0] == '{';
    rp_model model;
    rp_status status =
        json ? rp_hf_model_parse(FUZZ_FILE, (const char *)data, size, NULL, arena, &model)
             : parse(data[0], (const char *)data + 1, size - 1, arena);
    if (json && status == RP_OK) {
        check_kinds(&model);
    } else if (status != RP_OK) {
        fuzz_require_refusal(status, json ? "valid values are" : NULL);
        /* If the message names only a key, it has no other cause. */
        const char *named = json ? ": valid values are " : "; valid values are ";
        named = json && strstr(fuzz_log(), named) == NULL ? "; valid values are " : named;
        fuzz_require(strstr(fuzz_log(), named) != NULL, "valid values are named");
    }
    rp_arena_destroy(arena);
    return fuzz_end();
}
