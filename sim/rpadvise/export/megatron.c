/* Arguments of Megatron-LM, one option a line. Names are those of megatron-core 0.19.2
 * (megatron/training/arguments.py). */
#include "sim/rpadvise/export/files_internal.h"

#include <inttypes.h>
#include <string.h>

static void number(const char *option, uint64_t value, FILE *stream)
{
    fprintf(stream, "--%s %" PRIu64 "\n", option, value);
}

static void flag(const char *option, bool given, FILE *stream)
{
    if (given) {
        fprintf(stream, "--%s\n", option);
    }
}

static void write_positions(const rp_model *m, FILE *stream)
{
    fprintf(stream, "--position-embedding-type %s\n",
            m->learned_positions ? "learned_absolute" : "rope");
    if (!m->learned_positions) {
        number("rotary-base", (uint64_t)m->rope_theta, stream);
    }
    flag("use-rope-scaling", strcmp(m->rope_scaling, "llama3") == 0, stream);
}

static void write_experts(const rp_model *m, FILE *stream)
{
    if (m->experts > 1) {
        number("num-experts", m->experts, stream);
        number("moe-ffn-hidden-size", m->intermediate, stream);
        number("moe-router-topk", m->active_experts, stream);
        flag("moe-router-pre-softmax", m->raw_routing, stream);
    }
}

static void write_model(const rp_model *m, uint32_t seq_len, FILE *stream)
{
    number("num-layers", m->layers, stream);
    number("hidden-size", m->hidden, stream);
    number("ffn-hidden-size", m->intermediate, stream);
    number("num-attention-heads", m->heads, stream);
    if (m->kv_heads != m->heads) {
        flag("group-query-attention", true, stream);
        number("num-query-groups", m->kv_heads, stream);
    }
    number("kv-channels", m->head_dim, stream);
    number("vocab-size", m->vocab, stream);
    number("max-position-embeddings", m->max_positions > seq_len ? m->max_positions : seq_len,
           stream);
    write_positions(m, stream);
    fprintf(stream, "--normalization %s\n", m->layer_norm ? "LayerNorm" : "RMSNorm");
    fprintf(stream, "--norm-epsilon %g\n", m->norm_eps);
    flag("qk-layernorm", m->qk_norm, stream);
    flag("swiglu", !m->plain_mlp, stream);
    flag("disable-bias-linear", !m->linear_bias, stream);
    flag("add-qkv-bias", m->qkv_bias, stream);
    flag("untie-embeddings-and-output-weights", !m->tied_head, stream);
    write_experts(m, stream);
    fputs("--attention-dropout 0\n--hidden-dropout 0\n", stream);
}

/* Embedding (E), blocks (t) and loss (L) of each stage, in the model's order. */
static void write_layers(const rp_partition *p, FILE *stream)
{
    fputs("--pipeline-model-parallel-layout ", stream);
    for (uint32_t i = 0; i < p->forward_count; i++) {
        fputs(i == 0 ? "E" : "|", stream);
        if (p->forward_layers[i] != 0) {
            fprintf(stream, "t*%u", p->forward_layers[i]);
        }
    }
    fputs("L\n", stream);
}

static bool is_even(const rp_partition *p)
{
    for (uint32_t i = 1; i < p->forward_count; i++) {
        if (p->forward_layers[i] != p->forward_layers[0]) {
            return false;
        }
    }
    return true;
}

/* Microbatches of an interleaved schedule's groups: M in M div P equal ones (as
 * interleaved-1f1b.c). */
static uint32_t group_size(uint32_t microbatches, uint32_t gpus)
{
    uint32_t groups = microbatches / gpus;
    return groups == 0 ? microbatches : microbatches / groups;
}

static void write_parallel(const rpadvise_job *job, FILE *stream)
{
    const rpadvise_layout *l = &job->layout;
    const rp_partition *p = job->row->config.partition;
    number("tensor-model-parallel-size", l->tensor, stream);
    number("pipeline-model-parallel-size", l->pipeline, stream);
    if (l->pipeline == 1) {
        return;
    }
    if (!is_even(p)) {
        write_layers(p, stream);
    } else if (l->stages > l->pipeline) {
        number("num-layers-per-virtual-pipeline-stage", p->forward_layers[0], stream);
    }
    if (l->stages > l->pipeline) {
        number("microbatch-group-size-per-virtual-pipeline-stage",
               group_size(job->row->workload.microbatches, l->pipeline), stream);
    }
}

static void write_recompute(const rpsim_row *row, FILE *stream)
{
    if (row->config.recompute != RP_RECOMPUTE_NONE) {
        fputs("--recompute-granularity full\n--recompute-method uniform\n", stream);
        number("recompute-num-layers",
               row->workload.layer_grain ? 1 : rpadvise_most_layers(row->config.partition), stream);
    }
}

static rp_status write_arguments(const rpadvise_job *job, FILE *stream)
{
    const rpsim_row *row = job->row;
    write_model(row->model, row->workload.seq_len, stream);
    number("seq-length", row->workload.seq_len, stream);
    number("micro-batch-size", job->layout.size, stream);
    number("global-batch-size", job->layout.batch, stream);
    write_parallel(job, stream);
    write_recompute(row, stream);
    flag("fp16", row->workload.dtype == RP_DTYPE_F16, stream);
    flag("bf16", row->workload.dtype == RP_DTYPE_BF16, stream);
    return RP_OK;
}

static void write_notes(const rpadvise_job *job, FILE *stream)
{
    const rpadvise_layout *l = &job->layout;
    rpadvise_note(
        stream,
        "- `xargs -a megatron-lm.args torchrun ... pretrain_gpt.py ...` on %u GPUs, with options "
        "for data, tokenizer, learning rate and length of the training.\n",
        l->gpus);
    if (l->calls > 1 && l->pipeline == 1) {
        rpadvise_note(
            stream,
            "- Calls have no option: all microbatches of a step are one call. Without a pipeline "
            "that changes nothing.\n");
    }
    if (strcmp(job->row->model->rope_scaling, "llama3") == 0) {
        rpadvise_note(stream, "- The factor of the rotary scaling is Megatron-LM's default, 8: "
                              "`--rope-scaling-factor` gives another.\n");
    }
    if (l->tensor > 1) {
        rpadvise_note(
            stream,
            "- The simulation is of tensor parallelism with all-reduces: without "
            "`--sequence-parallel`. Before Blackwell it wants `CUDA_DEVICE_MAX_CONNECTIONS=1`.\n");
    }
    if (job->row->schedule->published_as == NULL && l->pipeline > 1) {
        rpadvise_note(stream, "- The simulated loss is fused; Megatron-LM's is with "
                              "`--cross-entropy-loss-fusion`.\n");
    }
}

const rpadvise_exporter rpadvise_export_megatron = {
    .system = "megatron-lm",
    .files = {{"megatron-lm.args", write_arguments}},
    .notes = write_notes,
};
