/* Families of models by model_type, a row each. `keys` are the keys of its configuration class in
 * transformers 5.24 that set shapes, with that class's defaults; the other fields hold properties
 * without a key. tests/golden/hf has the parameter counts of transformers for each. */
#include "common/inputs/huggingface/config.h"

#include <stdio.h>
#include <string.h>

#define SIZES(vocab, hidden, intermediate, layers, heads, kv_heads, positions)                     \
    "{\"vocab_size\":" #vocab ",\"hidden_size\":" #hidden ",\"intermediate_size\":" #intermediate  \
    ",\"num_hidden_layers\":" #layers ",\"num_attention_heads\":" #heads                           \
    ",\"num_key_value_heads\":" #kv_heads ",\"max_position_embeddings\":" #positions
#define K(key, value) ",\"" #key "\":" #value
#define END "}"
#define EPS(value) K(rms_norm_eps, value)
#define TIED K(tie_word_embeddings, true)
#define BIASES K(attention_bias, false)
#define ALL_BIASES BIASES K(mlp_bias, false)
#define WINDOW(tokens) K(sliding_window, tokens)
#define TYPES K(layer_types, null)
#define LATE_WINDOWS(tokens, layer)                                                                \
    K(use_sliding_window, false) WINDOW(tokens) K(max_window_layers, layer) TYPES
#define LATENT(q, kv, rope, nope, v)                                                               \
    K(q_lora_rank, q)                                                                              \
    K(kv_lora_rank, kv) K(qk_rope_head_dim, rope) K(qk_nope_head_dim, nope) K(v_head_dim, v)
#define EXPERTS(name, count, each) K(name, count) K(num_experts_per_tok, each)
#define WIDTH(width) K(moe_intermediate_size, width)
#define ROUTED(count, each, width, shared)                                                         \
    EXPERTS(n_routed_experts, count, each) WIDTH(width) K(n_shared_experts, shared)
#define DENSE_FIRST(layers) K(first_k_dense_replace, layers)
#define GELU ",\"hidden_act\":\"gelu_pytorch_tanh\""
#define SPARSE_STEP K(decoder_sparse_step, 1) K(mlp_only_layers, null)

/* Fields that several families have. */
#define NULLS .null_kv_heads = true, .null_head_dim = true
#define KV_NULL .null_kv_heads = true
#define GEMMA .gemma = true
#define PATTERN(every) .windows = RP_HF_PATTERN_WINDOWS, .pattern = (every)
#define IN_ALL .windows = RP_HF_ALL_WINDOWS
#define IN_LATE .windows = RP_HF_LATE_WINDOWS
#define MIXTRAL .mixture = RP_HF_ALL_EXPERTS, .also = "num_experts=num_local_experts"
#define QWEN_MOE .mixture = RP_HF_STEP_EXPERTS, .also = "num_local_experts=num_experts"
#define DEEPSEEK .mixture = RP_HF_LATE_EXPERTS, .also = "num_local_experts=n_routed_experts"
#define DERIVED "head_dim qk_head_dim"
#define MLA .latent = true, .null_kv_heads = true, .derived = DERIVED
#define WIDE_QK_NORM .qk_norm = true, .wide_qk_norm = true

/* Reasons why the executor does not compute a family. */
#define MULTIPLIERS .other_values = "factors of embedding, residuals, scores and logits"
#define SIGMOID .other_values = "sigmoid routing in groups"
#define BEHIND .other_values = "norms behind attention and MLP"
#define PAIRS .other_values = "rotation of neighbours as pairs"
#define IMAGES .other_values = "tensors beside those of images"

#define KEYS_DEEPSEEK_V3                                                                           \
    SIZES(129280, 7168, 18432, 61, 128, 128, 4096)                                                 \
    EPS(1e-6)                                                                                      \
    LATENT(1536, 512, 64, 128, 128) ROUTED(256, 8, 2048, 1) DENSE_FIRST(3) BIASES END

static const rp_hf_family families[] = {
    {"llama", "LlamaForCausalLM",
     SIZES(32000, 4096, 11008, 32, 32, null, 2048) EPS(1e-6) ALL_BIASES END, NULLS},
    {"mistral", "MistralForCausalLM",
     SIZES(32000, 4096, 14336, 32, 32, 8, 131072) EPS(1e-6) WINDOW(4096) END, NULLS, IN_ALL},
    {"mixtral", "MixtralForCausalLM",
     SIZES(32000, 4096, 14336, 32, 32, 8, 131072) EPS(1e-5) WINDOW(null)
         EXPERTS(num_local_experts, 8, 2) END,
     NULLS, MIXTRAL, IN_ALL, .normalises = true},
    {"qwen2", "Qwen2ForCausalLM",
     SIZES(151936, 4096, 22016, 32, 32, 32, 32768) EPS(1e-6) LATE_WINDOWS(4096, 28) END, KV_NULL,
     IN_LATE, .qkv_bias = true},
    {"qwen2_moe", "Qwen2MoeForCausalLM",
     SIZES(151936, 2048, 5632, 24, 16, 16, 32768) EPS(1e-6) LATE_WINDOWS(4096, 28)
         SPARSE_STEP EXPERTS(num_experts, 60, 4) WIDTH(1408)
             K(shared_expert_intermediate_size, 5632) K(qkv_bias, true) END,
     .mixture = RP_HF_STEP_EXPERTS, .windows = RP_HF_FIRST_WINDOWS, .shared_gate = true},
    {"qwen3", "Qwen3ForCausalLM",
     SIZES(151936, 4096, 22016, 32, 32, 32, 32768) EPS(1e-6) K(head_dim, 128) LATE_WINDOWS(4096, 28)
         BIASES END,
     KV_NULL, IN_LATE, .qk_norm = true},
    {"qwen3_moe", "Qwen3MoeForCausalLM",
     SIZES(151936, 2048, 6144, 24, 32, 4, 32768) EPS(1e-6) K(use_sliding_window, false) WINDOW(4096)
         SPARSE_STEP EXPERTS(num_experts, 128, 8) WIDTH(768) BIASES END,
     QWEN_MOE, IN_ALL, .qk_norm = true},
    {"gemma", "GemmaForCausalLM",
     SIZES(256000, 3072, 24576, 28, 16, 16, 8192) EPS(1e-6) K(head_dim, 256) TIED BIASES END,
     GEMMA},
    {"gemma2", "Gemma2ForCausalLM",
     SIZES(256000, 2304, 9216, 26, 8, 4, 8192) EPS(1e-6) K(head_dim, 256) TIED BIASES WINDOW(4096)
         TYPES K(pad_token_id, 0) END,
     GEMMA, PATTERN(2), .four_norms = true},
    {"gemma3_text", "Gemma3ForCausalLM",
     SIZES(262208, 2304, 9216, 26, 8, 4, 131072) EPS(1e-6) K(head_dim, 256) TIED BIASES WINDOW(4096)
         TYPES K(sliding_window_pattern, 6) K(pad_token_id, 0) END,
     GEMMA, PATTERN(6), .four_norms = true, .qk_norm = true,
     .also = "_sliding_window_pattern=sliding_window_pattern"},
    {"phi3", "Phi3ForCausalLM",
     SIZES(32064, 3072, 8192, 32, 32, null, 4096) EPS(1e-5) WINDOW(null) K(pad_token_id, 32000) END,
     KV_NULL, IN_ALL, .joined = true},
    {"deepseek_v2", "DeepseekV2ForCausalLM",
     SIZES(102400, 4096, 11008, 32, 32, null, 2048) EPS(1e-6) LATENT(1536, 512, 64, 128, 128)
         ROUTED(64, null, 1407, 2) DENSE_FIRST(0) ALL_BIASES END,
     MLA, .mixture = RP_HF_LATE_EXPERTS, .also = "num_experts=n_routed_experts",
     .other_values = "scaled weights of experts"},
    {"deepseek_v3", "DeepseekV3ForCausalLM", KEYS_DEEPSEEK_V3, MLA, DEEPSEEK, SIGMOID},
    {"gpt_oss", "GptOssForCausalLM",
     SIZES(201088, 2880, 2880, 36, 64, 8, 131072) EPS(1e-5) K(head_dim, 64) K(attention_bias, true)
         WINDOW(128) TYPES EXPERTS(num_local_experts, 128, 4) END,
     MIXTRAL, PATTERN(2), .sinks = true, .normalises = true},
    {"smollm3", "SmolLM3ForCausalLM",
     SIZES(128256, 2048, 11008, 36, 16, 4, 32768) EPS(1e-6)
         TIED ALL_BIASES K(use_sliding_window, false) WINDOW(null) TYPES K(no_rope_layers, null)
             K(no_rope_layer_interval, 4) END,
     KV_NULL, .windows = RP_HF_UNROTATED_WINDOWS, .other_values = "layers without rotation"},
    {"olmo2", "Olmo2ForCausalLM",
     SIZES(50304, 4096, 11008, 32, 32, null, 2048) EPS(1e-5) BIASES END, KV_NULL, WIDE_QK_NORM,
     BEHIND},

    /* dense, which rpsim reads */
    {"arcee", "ArceeForCausalLM",
     SIZES(32000, 2560, 18432, 32, 32, null, 4096) EPS(1e-5) ALL_BIASES END, NULLS,
     .plain_mlp = true},
    {"cohere", "CohereForCausalLM",
     SIZES(256000, 8192, 22528, 40, 64, null, 8192) K(layer_norm_eps, 1e-5)
         TIED BIASES K(use_qk_norm, false) END,
     KV_NULL, .one_norm = true, .wide_qk_norm = true, PAIRS},
    {"cohere2", "Cohere2ForCausalLM",
     SIZES(256000, 8192, 22528, 40, 64, null, 8192) K(layer_norm_eps, 1e-5) TIED BIASES WINDOW(4096)
         TYPES K(sliding_window_pattern, 4) END,
     KV_NULL, PATTERN(4), .one_norm = true, PAIRS},
    {"cwm", "CwmForCausalLM",
     SIZES(128256, 6144, 21504, 64, 48, 8, 131072) EPS(1e-5) K(head_dim, 128) K(mlp_bias, false)
         WINDOW(8192) TYPES END,
     .windows = RP_HF_LEADING_WINDOWS, .pattern = 4},
    {"ernie4_5", "Ernie4_5ForCausalLM",
     SIZES(103424, 1024, 3072, 18, 16, 2, 131072) EPS(1e-5) K(head_dim, 128) TIED K(use_bias, false)
         END,
     NULLS, PAIRS},
    {"exaone", "ExaoneForCausalLM",
     SIZES(102400, 4096, 14336, 32, 32, 8, 4096) EPS(1e-5) ALL_BIASES END, NULLS,
     .also = "num_layers=num_hidden_layers layer_norm_epsilon=rms_norm_eps "
             "activation_function=hidden_act"},
    {"exaone4", "Exaone4ForCausalLM",
     SIZES(102400, 4096, 16384, 32, 32, 32, 2048) EPS(1e-5) WINDOW(4096)
         TYPES K(sliding_window_pattern, 4) END,
     PATTERN(4), .qk_norm = true, BEHIND},
    {"glm", "GlmForCausalLM",
     SIZES(151552, 4096, 13696, 40, 32, 2, 131072) EPS(1.5625e-7) K(head_dim, 128)
         K(attention_bias, true) END,
     NULLS, .bare_output = true, PAIRS},
    {"glm4", "Glm4ForCausalLM",
     SIZES(151552, 4096, 13696, 40, 32, 2, 131072) EPS(1.5625e-7) K(head_dim, 128)
         K(attention_bias, true) END,
     .bare_output = true, .four_norms = true, PAIRS},
    {"glm4v_text", NULL, SIZES(151552, 4096, 13696, 40, 32, 2, 32768) EPS(1e-5) END,
     .own_head_dim = true, KV_NULL, .qkv_bias = true, .four_norms = true, IMAGES},
    {"granite", "GraniteForCausalLM",
     SIZES(32000, 4096, 11008, 32, 32, null, 2048) EPS(1e-6) ALL_BIASES END, KV_NULL, MULTIPLIERS},
    {"helium", "HeliumForCausalLM",
     SIZES(48000, 2560, 7040, 24, 20, 20, 4096) EPS(1e-8) K(head_dim, 128) ALL_BIASES END,
     .bare_output = true, .whole_heads = true, PAIRS},
    {"hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM",
     SIZES(290943, 4096, 11008, 32, 32, null, 2048) EPS(1e-5) BIASES END, NULLS, .qk_norm = true,
     .other_values = "rotation before norms of queries and keys"},
    {"hyperclovax", "HyperCLOVAXForCausalLM",
     SIZES(32000, 4096, 11008, 32, 32, null, 2048) EPS(1e-6) ALL_BIASES K(use_post_norm, true) END,
     NULLS, MULTIPLIERS},
    {"internlm3", "InternLM3ForCausalLM",
     SIZES(128512, 4096, 10240, 48, 32, 2, 32768) EPS(1e-5) K(head_dim, 128) ALL_BIASES END, NULLS,
     .also = "qkv_bias=attention_bias bias=mlp_bias"},
    {"iquestcoder", "IQuestCoderForCausalLM",
     SIZES(76800, 5120, 27648, 80, 40, 8, 131072) EPS(1e-5) K(head_dim, 128) ALL_BIASES END, NULLS},
    {"jais2", "Jais2ForCausalLM",
     SIZES(150272, 3328, 26624, 32, 26, null, 8192) K(layer_norm_eps, 1e-5) K(attention_bias, true)
         K(mlp_bias, true) END,
     NULLS, .plain_mlp = true, .layer_norm = true},
    {"minicpm3", "MiniCPM3ForCausalLM",
     SIZES(73448, 2560, 6400, 62, 40, 40, 32768) EPS(1e-5) LATENT(768, 256, 32, 64, null)
         TIED ALL_BIASES END,
     MLA},
    {"ministral", "MinistralForCausalLM",
     SIZES(32000, 4096, 14336, 32, 32, 8, 131072) EPS(1e-6) WINDOW(4096) TYPES END, NULLS, IN_ALL},
    {"ministral3", "Ministral3ForCausalLM",
     SIZES(131072, 4096, 14336, 34, 32, 8, 262144) EPS(1e-5) K(head_dim, 128) WINDOW(null) END,
     NULLS, IN_ALL, .other_values = "scaled queries"},
    {"nemotron", "NemotronForCausalLM",
     SIZES(256000, 6144, 24576, 32, 48, null, 4096) K(norm_eps, 1e-5) ALL_BIASES END, NULLS,
     .plain_mlp = true, .layer_norm = true},
    {"olmo3", "Olmo3ForCausalLM",
     SIZES(50304, 4096, 11008, 32, 32, null, 2048) EPS(1e-5) BIASES WINDOW(4096) TYPES END, KV_NULL,
     WIDE_QK_NORM, PATTERN(4), BEHIND},
    {"qwen2_vl_text", NULL,
     SIZES(152064, 8192, 29568, 80, 64, 8, 32768) EPS(1e-5) LATE_WINDOWS(4096, 80) END,
     .own_head_dim = true, KV_NULL, IN_LATE, .qkv_bias = true, IMAGES},
    {"qwen2_5_vl_text", NULL,
     SIZES(152064, 8192, 29568, 80, 64, 8, 32768) EPS(1e-5) LATE_WINDOWS(4096, 80) END,
     .own_head_dim = true, KV_NULL, IN_LATE, .qkv_bias = true, IMAGES},
    {"qwen3_vl_text", NULL,
     SIZES(151936, 4096, 22016, 32, 32, 32, 128000) EPS(1e-6) K(head_dim, 128) BIASES END, KV_NULL,
     .qk_norm = true, IMAGES},
    {"seed_oss", "SeedOssForCausalLM",
     SIZES(155136, 4096, 27648, 64, 80, 8, 524288) EPS(1e-6) K(head_dim, 128)
         K(attention_bias, true) K(attention_out_bias, false) K(mlp_bias, false) END,
     NULLS, .bare_output = true, .other_values = "dropout of residuals"},
    {"stablelm", "StableLmForCausalLM",
     SIZES(50304, 2560, 6912, 32, 32, 32, 4096) K(layer_norm_eps, 1e-5) K(use_qkv_bias, false)
         K(qk_layernorm, false) K(use_parallel_residual, false) END,
     .own_head_dim = true, .layer_norm = true, .wide_qk_norm = true},
    {"starcoder2", "Starcoder2ForCausalLM",
     SIZES(49152, 3072, 12288, 30, 24, 2, 4096) K(norm_epsilon, 1e-5) WINDOW(null)
         TIED K(use_bias, true) GELU END,
     IN_ALL, .plain_mlp = true, .layer_norm = true},
    {"vaultgemma", "VaultGemmaForCausalLM",
     SIZES(256000, 2304, 9216, 26, 8, 4, 8192) EPS(1e-6) K(head_dim, 256) TIED BIASES WINDOW(4096)
         TYPES K(pad_token_id, 0) END,
     GEMMA, PATTERN(2)},
    {"youtu", "YoutuForCausalLM",
     SIZES(128256, 2048, 6144, 32, 16, 16, 131072) EPS(1e-6) LATENT(1536, 512, 64, 128, 128)
         TIED BIASES END,
     MLA},

    /* mixtures, which rpsim reads */
    {"aria_text", "AriaTextForCausalLM",
     SIZES(32000, 4096, 4096, 32, 32, null, 2048) EPS(1e-6) ALL_BIASES K(moe_num_experts, 8)
         K(moe_topk, 2) K(moe_num_shared_experts, 2) END,
     NULLS, .mixture = RP_HF_ALL_EXPERTS},
    {"dots1", "Dots1ForCausalLM",
     SIZES(152064, 4608, 10944, 62, 32, 32, 2048) EPS(1e-6) WINDOW(4096) K(max_window_layers, 62)
         TYPES ROUTED(null, null, 1408, null) DENSE_FIRST(0) BIASES END,
     KV_NULL, IN_LATE, DEEPSEEK, .qk_norm = true, SIGMOID},
    {"ernie4_5_moe", "Ernie4_5_MoeForCausalLM",
     SIZES(103424, 2560, 12288, 28, 20, 4, 131072) EPS(1e-5) TIED K(use_bias, false)
         K(moe_num_experts, 64) K(moe_k, 6) WIDTH(1536) K(moe_num_shared_experts, 2)
             K(moe_layer_start_index, 1) K(moe_layer_end_index, -1) K(moe_layer_interval, 1) END,
     KV_NULL, .mixture = RP_HF_RANGE_EXPERTS, .router_bias = true,
     .also = "num_experts=moe_num_experts num_experts_per_tok=moe_k", PAIRS},
    {"exaone_moe", "ExaoneMoeForCausalLM",
     SIZES(102400, 4096, 16384, 32, 32, 32, 2048) EPS(1e-5) WINDOW(4096)
         TYPES K(sliding_window_pattern, 4) EXPERTS(num_experts, 64, 8) WIDTH(1024)
             K(num_shared_experts, 1) DENSE_FIRST(1) K(mlp_layer_types, null) END,
     PATTERN(4), .mixture = RP_HF_LATE_EXPERTS, .qk_norm = true, SIGMOID},
    {"flex_olmo", "FlexOlmoForCausalLM",
     SIZES(100352, 4096, 11008, 32, 32, null, 4096) EPS(1e-6) BIASES EXPERTS(num_experts, 7, 5) END,
     KV_NULL, WIDE_QK_NORM, .mixture = RP_HF_ALL_EXPERTS, .also = "num_local_experts=num_experts"},
    {"glm4_moe", "Glm4MoeForCausalLM",
     SIZES(151552, 4096, 10944, 46, 96, 8, 131072) EPS(1e-5) BIASES K(use_qk_norm, false)
         ROUTED(128, 8, 1408, 1) DENSE_FIRST(1) END,
     DEEPSEEK, .bare_output = true, SIGMOID},
    {"glm4v_moe_text", NULL,
     SIZES(151424, 4096, 10944, 46, 96, 8, 65536) EPS(1e-5) K(attention_bias, true)
         ROUTED(128, 8, 1408, 1) DENSE_FIRST(1) END,
     DEEPSEEK, .bare_output = true, SIGMOID},
    {"glm4_moe_lite", "Glm4MoeLiteForCausalLM",
     SIZES(154880, 2048, 10240, 47, 20, 20, 202752) EPS(1e-5) LATENT(768, 512, 64, 192, 256)
         ROUTED(64, 4, 1536, 1) BIASES K(mlp_layer_types, null) END,
     .latent = true, .null_kv_heads = true, .derived = "qk_head_dim", .mixture = RP_HF_LATE_EXPERTS,
     .also = "num_local_experts=n_routed_experts head_dim=qk_rope_head_dim", .dense_first = 1,
     SIGMOID},
    {"granitemoe", "GraniteMoeForCausalLM",
     SIZES(32000, 4096, 11008, 32, 32, null, 2048) EPS(1e-6) BIASES EXPERTS(num_local_experts, 8, 2)
         END,
     KV_NULL, .mixture = RP_HF_ALL_EXPERTS, MULTIPLIERS},
    {"granitemoeshared", "GraniteMoeSharedForCausalLM",
     SIZES(32000, 4096, 11008, 32, 32, null, 2048) EPS(1e-6) BIASES EXPERTS(num_local_experts, 8, 2)
         K(shared_intermediate_size, 0) END,
     KV_NULL, .mixture = RP_HF_ALL_EXPERTS, MULTIPLIERS},
    {"hunyuan_v1_moe", "HunYuanMoEV1ForCausalLM",
     SIZES(290943, 4096, 11008, 32, 32, null, 2048) EPS(1e-5) BIASES K(num_experts, 1)
         K(moe_topk, 1) END,
     NULLS, .mixture = RP_HF_ALL_EXPERTS, .qk_norm = true, .shared_experts = 1,
     .also = "num_local_experts=num_experts num_experts_per_tok=moe_topk"},
    {"hy_v3", "HYV3ForCausalLM",
     SIZES(120832, 4096, 13312, 80, 64, 8, 131072) EPS(1e-5) K(head_dim, 128) ALL_BIASES EXPERTS(
         num_experts, 192, 8) WIDTH(1536) K(num_shared_experts, 1) K(mlp_layer_types, null) END,
     .mixture = RP_HF_LATE_EXPERTS, .dense_first = 1, .qk_norm = true,
     .also = "num_local_experts=num_experts", SIGMOID},
    {"kimi_k2", "DeepseekV3ForCausalLM", KEYS_DEEPSEEK_V3, MLA, DEEPSEEK, SIGMOID},
    {"llama4_text", "Llama4ForCausalLM",
     SIZES(202048, 5120, 8192, 48, 40, 8, 131072) EPS(1e-5) K(head_dim, 128)
         BIASES K(intermediate_size_mlp, 16384) EXPERTS(num_local_experts, 16, 1)
             K(moe_layers, null) K(interleave_moe_layer_step, 1) TYPES K(no_rope_layers, null)
                 K(no_rope_layer_interval, 4) K(attention_chunk_size, 8192) END,
     NULLS, .mixture = RP_HF_EVERY_EXPERTS, .windows = RP_HF_CHUNKS, .shared_experts = 1,
     .derived = "use_qk_norm", .other_values = "attention in chunks"},
    {"mellum", "MellumForCausalLM",
     SIZES(98304, 2304, 7168, 28, 32, 4, 131072) EPS(1e-6) K(head_dim, 128) BIASES WINDOW(1024)
         TYPES EXPERTS(num_experts, 64, 8) WIDTH(896) K(mlp_layer_types, null) END,
     .mixture = RP_HF_LATE_EXPERTS, .windows = RP_HF_TYPED_WINDOWS, .qk_norm = true,
     .also = "num_local_experts=num_experts"},
    {"minimax_m2", "MiniMaxM2ForCausalLM",
     SIZES(200064, 3072, 1536, 62, 48, 8, 196608) EPS(1e-6) K(head_dim, 128)
         EXPERTS(num_local_experts, 256, 8) END,
     MIXTRAL, WIDE_QK_NORM, SIGMOID},
    {"olmoe", "OlmoeForCausalLM",
     SIZES(50304, 2048, 2048, 16, 16, null, 4096) EPS(1e-5) BIASES EXPERTS(num_experts, 64, 8) END,
     .whole_heads = true, KV_NULL, WIDE_QK_NORM, .mixture = RP_HF_ALL_EXPERTS,
     .also = "num_local_experts=num_experts"},
    {"qwen3_vl_moe_text", NULL,
     SIZES(151936, 2048, 5632, 24, 16, 16, 128000) EPS(1e-6) SPARSE_STEP EXPERTS(num_experts, 60, 4)
         WIDTH(1408) BIASES TIED END,
     NULLS, QWEN_MOE, .qk_norm = true, IMAGES},
    {"sarvam_mla", "SarvamMLAForCausalLM",
     SIZES(262144, 4096, 16384, 32, 64, null, 4096) EPS(1e-6) LATENT(null, 512, 64, 128, 128)
         ROUTED(128, 8, 2048, 1) DENSE_FIRST(1) BIASES END,
     MLA, .mixture = RP_HF_LATE_EXPERTS,
     .also = "num_local_experts=n_routed_experts num_experts=n_routed_experts "
             "num_shared_experts=n_shared_experts",
     SIGMOID},
    {"sarvam_moe", "SarvamMoEForCausalLM",
     SIZES(262144, 4096, 8192, 19, 64, 4, 131072) EPS(1e-6) K(head_dim, 64)
         BIASES K(use_qk_norm, true) ROUTED(128, 6, 1024, 1) DENSE_FIRST(1) END,
     .mixture = RP_HF_LATE_EXPERTS, .bare_output = true,
     .also = "num_local_experts=n_routed_experts num_experts=n_routed_experts "
             "num_shared_experts=n_shared_experts use_qkv_bias=attention_bias",
     SIGMOID},
    {"solar_open", "SolarOpenForCausalLM",
     SIZES(196608, 4096, null, 48, 64, 8, 131072) EPS(1e-5) K(head_dim, 128)
         BIASES ROUTED(128, 8, 1280, 1) END,
     DEEPSEEK, .bare_output = true, SIGMOID},
};

#define FAMILY_COUNT (sizeof families / sizeof families[0])

static const rp_hf_family *find(const char *name)
{
    for (size_t i = 0; i < FAMILY_COUNT; i++) {
        if (strcmp(families[i].type, name) == 0) {
            return &families[i];
        }
    }
    return NULL;
}

/* Files for several modes (text, images) name either the whole model or the text model inside of
 * it. */
const rp_hf_family *rp_hf_family_of(const char *type)
{
    char text[RP_HF_TYPE_SIZE + sizeof "_text"];
    const rp_hf_family *family = type != NULL ? find(type) : NULL;
    if (family != NULL || type == NULL || strlen(type) >= RP_HF_TYPE_SIZE) {
        return family;
    }
    (void)snprintf(text, sizeof text, "%s_text", type);
    return find(text);
}

const rp_hf_family *rp_hf_family_at(size_t index)
{
    return index < FAMILY_COUNT ? &families[index] : NULL;
}

rp_status rp_hf_family_names(rp_arena *arena, const char **names_out)
{
    *names_out = "";
    for (size_t i = 0; i < FAMILY_COUNT; i++) {
        RP_TRY(rp_arena_print(arena, names_out, "%s%s%s", *names_out, i != 0 ? ", " : "",
                              families[i].type));
    }
    return RP_OK;
}
