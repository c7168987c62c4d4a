/* Families of models, by model_type. Defaults are those of the configuration classes of
 * transformers 5.23 for keys that say shapes; tests/golden/hf has what transformers makes of files
 * without keys. */
#include "common/inputs/huggingface/config.h"

#include <string.h>

#define SIZES(vocab, hidden, intermediate, layers, heads, kv_heads, positions, eps)                \
    "{\"vocab_size\":" #vocab ",\"hidden_size\":" #hidden ",\"intermediate_size\":" #intermediate  \
    ",\"num_hidden_layers\":" #layers ",\"num_attention_heads\":" #heads                           \
    ",\"num_key_value_heads\":" #kv_heads ",\"max_position_embeddings\":" #positions               \
    ",\"rms_norm_eps\":" #eps

static const rp_hf_family families[] = {
    {.type = "llama",
     .class = "LlamaForCausalLM",
     .defaults = SIZES(32000, 4096, 11008, 32, 32, null, 2048, 1e-6) "}",
     .null_kv_heads = true,
     .null_head_dim = true},
    {.type = "mistral",
     .class = "MistralForCausalLM",
     .defaults = SIZES(32000, 4096, 14336, 32, 32, 8, 131072, 1e-6) ",\"sliding_window\":4096}",
     .null_kv_heads = true,
     .null_head_dim = true,
     .windows = RP_HF_ALL_WINDOWS},
    {.type = "mixtral",
     .class = "MixtralForCausalLM",
     .defaults = SIZES(32000, 4096, 14336, 32, 32, 8, 131072,
                       1e-5) ",\"num_local_experts\":8,\"num_experts_per_tok\":2}",
     .null_kv_heads = true,
     .null_head_dim = true,
     .experts_too = "num_experts",
     .normalises = true,
     .windows = RP_HF_ALL_WINDOWS,
     .mixture = RP_HF_ALL_EXPERTS},
    {.type = "qwen2",
     .class = "Qwen2ForCausalLM",
     .defaults = SIZES(151936, 4096, 22016, 32, 32, 32, 32768,
                       1e-6) ",\"sliding_window\":4096,\"max_window_layers\":28}",
     .null_kv_heads = true,
     .qkv_bias = true,
     .windows = RP_HF_QWEN_WINDOWS},
    {.type = "qwen2_moe",
     .class = "Qwen2MoeForCausalLM",
     .defaults =
         SIZES(151936, 2048, 5632, 24, 16, 16, 32768,
               1e-6) ",\"sliding_window\":4096,\"max_window_layers\":28,\"qkv_bias\":true,"
                     "\"num_experts\":60,\"num_experts_per_tok\":4,\"moe_intermediate_size\":1408,"
                     "\"shared_expert_intermediate_size\":5632,\"decoder_sparse_step\":1}",
     .shared_gate = true,
     .windows = RP_HF_FIRST_WINDOWS,
     .mixture = RP_HF_QWEN_EXPERTS},
    {.type = "qwen3",
     .class = "Qwen3ForCausalLM",
     .defaults = SIZES(151936, 4096, 22016, 32, 32, 32, 32768,
                       1e-6) ",\"head_dim\":128,\"sliding_window\":4096,\"max_window_layers\":28}",
     .null_kv_heads = true,
     .qk_norm = true,
     .windows = RP_HF_QWEN_WINDOWS},
    {.type = "qwen3_moe",
     .class = "Qwen3MoeForCausalLM",
     .defaults = SIZES(151936, 2048, 6144, 24, 32, 4, 32768,
                       1e-6) ",\"sliding_window\":4096,\"num_experts\":128,"
                             "\"num_experts_per_tok\":8,\"moe_intermediate_size\":768,"
                             "\"decoder_sparse_step\":1}",
     .qk_norm = true,
     .experts_too = "num_local_experts",
     .windows = RP_HF_ASKED_WINDOWS,
     .mixture = RP_HF_QWEN_EXPERTS},
    {.type = "gemma",
     .class = "GemmaForCausalLM",
     .defaults = SIZES(256000, 3072, 24576, 28, 16, 16, 8192,
                       1e-6) ",\"head_dim\":256,\"tie_word_embeddings\":true}",
     .gemma = true},
    {.type = "gemma2",
     .class = "Gemma2ForCausalLM",
     .defaults = SIZES(256000, 2304, 9216, 26, 8, 4, 8192,
                       1e-6) ",\"head_dim\":256,\"tie_word_embeddings\":true,"
                             "\"sliding_window\":4096,\"pad_token_id\":0}",
     .four_norms = true,
     .gemma = true,
     .windows = RP_HF_PATTERN_WINDOWS},
    {.type = "gemma3_text",
     .class = "Gemma3ForCausalLM",
     .defaults = SIZES(262208, 2304, 9216, 26, 8, 4, 131072,
                       1e-6) ",\"head_dim\":256,\"tie_word_embeddings\":true,"
                             "\"sliding_window\":4096,\"sliding_window_pattern\":6,"
                             "\"pad_token_id\":0}",
     .qk_norm = true,
     .four_norms = true,
     .gemma = true,
     .windows = RP_HF_PATTERN_WINDOWS},
    {.type = "phi3",
     .class = "Phi3ForCausalLM",
     .defaults = SIZES(32064, 3072, 8192, 32, 32, null, 4096,
                       1e-5) ",\"pad_token_id\":32000}",
     .null_kv_heads = true,
     .joined = true,
     .windows = RP_HF_ALL_WINDOWS},
    {.type = "deepseek_v2",
     .class = "DeepseekV2ForCausalLM",
     .defaults = SIZES(102400, 4096, 11008, 32, 32, null, 2048,
                       1e-6) ",\"kv_lora_rank\":512,\"q_lora_rank\":1536,\"qk_rope_head_dim\":64,"
                             "\"qk_nope_head_dim\":128,\"v_head_dim\":128,\"n_routed_experts\":64,"
                             "\"n_shared_experts\":2,\"moe_intermediate_size\":1407,"
                             "\"first_k_dense_replace\":0}",
     .null_kv_heads = true,
     .latent = true,
     .experts_too = "num_experts",
     .mixture = RP_HF_DEEPSEEK_EXPERTS,
     .other_values = "scaled weights of experts"},
    {.type = "deepseek_v3",
     .class = "DeepseekV3ForCausalLM",
     .defaults = SIZES(129280, 7168, 18432, 61, 128, 128, 4096,
                       1e-6) ",\"kv_lora_rank\":512,\"q_lora_rank\":1536,\"qk_rope_head_dim\":64,"
                             "\"qk_nope_head_dim\":128,\"v_head_dim\":128,"
                             "\"n_routed_experts\":256,\"n_shared_experts\":1,"
                             "\"moe_intermediate_size\":2048,\"num_experts_per_tok\":8,"
                             "\"first_k_dense_replace\":3}",
     .null_kv_heads = true,
     .latent = true,
     .experts_too = "num_local_experts",
     .mixture = RP_HF_DEEPSEEK_EXPERTS,
     .other_values = "sigmoid routing in groups"},
    {.type = "gpt_oss",
     .class = "GptOssForCausalLM",
     .defaults = SIZES(201088, 2880, 2880, 36, 64, 8, 131072,
                       1e-5) ",\"head_dim\":64,\"attention_bias\":true,\"sliding_window\":128,"
                             "\"num_local_experts\":128,\"num_experts_per_tok\":4}",
     .sinks = true,
     .experts_too = "num_experts",
     .normalises = true,
     .windows = RP_HF_PATTERN_WINDOWS,
     .mixture = RP_HF_ALL_EXPERTS},
    {.type = "smollm3",
     .class = "SmolLM3ForCausalLM",
     .defaults = SIZES(128256, 2048, 11008, 36, 16, 4, 32768,
                       1e-6) ",\"tie_word_embeddings\":true,\"no_rope_layer_interval\":4}",
     .null_kv_heads = true,
     .windows = RP_HF_UNROTATED_WINDOWS,
     .other_values = "layers without rotation"},
    {.type = "olmo2",
     .class = "Olmo2ForCausalLM",
     .defaults = SIZES(50304, 4096, 11008, 32, 32, null, 2048, 1e-5) "}",
     .null_kv_heads = true,
     .qk_norm = true,
     .wide_qk_norm = true,
     .other_values = "norms behind attention and MLP"},
};

#define FAMILY_COUNT (sizeof families / sizeof families[0])

const rp_hf_family *rp_hf_family_of(const json_t *type)
{
    const char *name = json_string_value(type);
    for (size_t i = 0; name != NULL && i < FAMILY_COUNT; i++) {
        if (strcmp(families[i].type, name) == 0) {
            return &families[i];
        }
    }
    return NULL;
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
