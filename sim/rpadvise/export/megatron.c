/* A script that starts Megatron-LM, with an option on each line. Names are those of megatron-core
 * 0.19.2 (megatron/training/arguments.py). */
#include "sim/rpadvise/export/files_internal.h"

#include <inttypes.h>
#include <string.h>

static void number(const char *option, uint64_t value, FILE *stream)
{
    fprintf(stream, "    --%s %" PRIu64 " \\\n", option, value);
}

static void word(const char *option, const char *value, FILE *stream)
{
    fprintf(stream, "    --%s %s \\\n", option, value);
}

static void flag(const char *option, bool given, FILE *stream)
{
    if (given) {
        fprintf(stream, "    --%s \\\n", option);
    }
}

static void write_positions(const rp_model *m, FILE *stream)
{
    word("position-embedding-type", m->learned_positions ? "learned_absolute" : "rope", stream);
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
    word("normalization", m->layer_norm ? "LayerNorm" : "RMSNorm", stream);
    fprintf(stream, "    --norm-epsilon %g \\\n", m->norm_eps);
    flag("qk-layernorm", m->qk_norm, stream);
    flag("swiglu", !m->plain_mlp, stream);
    flag("disable-bias-linear", !m->linear_bias, stream);
    flag("add-qkv-bias", m->qkv_bias, stream);
    flag("untie-embeddings-and-output-weights", !m->tied_head, stream);
    write_experts(m, stream);
    number("attention-dropout", 0, stream);
    number("hidden-dropout", 0, stream);
}

/* Embedding (E), blocks (t) and loss (L) of each stage, in the model's order. */
static void write_layers(const rp_partition *p, FILE *stream)
{
    fputs("    --pipeline-model-parallel-layout '", stream);
    for (uint32_t i = 0; i < p->forward_count; i++) {
        fputs(i == 0 ? "E" : "|", stream);
        if (p->forward_layers[i] != 0) {
            fprintf(stream, "t*%u", p->forward_layers[i]);
        }
    }
    fputs("L' \\\n", stream);
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

/* Microbatches of a group of an interleaved schedule, which divides M microbatches into M div P
 * equal groups (as interleaved-1f1b.c). */
static uint32_t group_size(uint32_t microbatches, uint32_t gpus)
{
    uint32_t groups = microbatches / gpus;
    return groups == 0 ? microbatches : microbatches / groups;
}

static void write_parallel(const rpadvise_job *job, FILE *stream)
{
    const rpadvise_layout *l = &job->layout;
    const rp_partition *p = job->row->run.partition;
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
               group_size(job->row->run.decided.microbatches, l->pipeline), stream);
    }
}

static void write_recompute(const rpsim_row *row, FILE *stream)
{
    if (row->run.recompute == RP_RECOMPUTE_SELECTIVE) {
        word("recompute-granularity", "selective", stream);
    }
    if (rp_recompute_has_ops(row->run.recompute)) {
        word("recompute-granularity", "full", stream);
        word("recompute-method", "uniform", stream);
        number("recompute-num-layers",
               row->run.decided.layer_grain ? 1 : rpadvise_most_layers(row->run.partition), stream);
    }
}

static void write_start(const rpadvise_job *job, FILE *stream)
{
    uint32_t nodes = job->row->platform->nodes;
    fprintf(stream,
            "#!/bin/sh\n"
            "# Open: %s.\n"
            "# TORCHRUN is another command in place of torchrun, PRETRAIN another script of "
            "Megatron-LM.\n",
            rpadvise_export_megatron.open);
    fputs(job->layout.tensor > 1 ? "export CUDA_DEVICE_MAX_CONNECTIONS=1 # before Blackwell\n" : "",
          stream);
    fputs("exec ${TORCHRUN:-torchrun", stream);
    if (nodes > 1) {
        fprintf(stream, " --nnodes %u", nodes);
    }
    fprintf(stream, " --nproc-per-node %u} \"${PRETRAIN:-pretrain_gpt.py}\" \\\n",
            job->layout.gpus / (nodes > 1 ? nodes : 1));
}

static rp_status write_script(const rpadvise_job *job, FILE *stream)
{
    const rpsim_row *row = job->row;
    write_start(job, stream);
    write_model(row->run.model, row->run.decided.seq_len, stream);
    number("seq-length", row->run.decided.seq_len, stream);
    number("micro-batch-size", job->layout.size, stream);
    number("global-batch-size", job->layout.batch, stream);
    write_parallel(job, stream);
    write_recompute(row, stream);
    flag("fp16", row->run.decided.dtype == RP_DTYPE_F16, stream);
    flag("bf16", row->run.decided.dtype == RP_DTYPE_BF16, stream);
    fputs("    \"$@\"\n", stream);
    return RP_OK;
}

static void write_notes(const rpadvise_job *job, FILE *stream)
{
    const rpadvise_layout *l = &job->layout;
    rpadvise_note(stream,
                  "- `sh megatron-lm.sh --lr X ...` starts `pretrain_gpt.py` on %u GPUs%s.\n",
                  l->gpus,
                  job->row->platform->nodes > 1
                      ? "; on several servers `TORCHRUN` says how they find each other"
                      : "");
    if (l->calls > 1 && l->pipeline == 1) {
        rpadvise_note(
            stream,
            "- Calls have no option: all microbatches of a step are one call. Without a pipeline "
            "that changes nothing.\n");
    }
    if (strcmp(job->row->run.model->rope_scaling, "llama3") == 0) {
        rpadvise_note(stream, "- The factor of the rotary scaling is Megatron-LM's default, 8: "
                              "`--rope-scaling-factor` gives another.\n");
    }
    if (l->tensor > 1) {
        rpadvise_note(stream, "- The simulation is of tensor parallelism with all-reduces: without "
                              "`--sequence-parallel`.\n");
    }
    if (job->row->run.schedule->published_as == NULL && l->pipeline > 1) {
        rpadvise_note(stream, "- The simulated loss is fused; Megatron-LM's is with "
                              "`--cross-entropy-loss-fusion`.\n");
    }
}

const rpadvise_exporter rpadvise_export_megatron = {
    .system = "megatron-lm",
    .open = "--lr, data, tokenizer and length of the training, which are options behind the "
            "script's name",
    .files = {{"megatron-lm.sh", write_script}},
    .notes = write_notes,
};
