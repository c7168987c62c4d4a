#!/usr/bin/env python3
"""Effects of config.json's keys, by transformers on PyTorch: tests/golden/config_keys.json.

Each row is a small decoder, keys set beside (`with`), and a key with another value ("absent": no key). `loss` and
`gradient_norm` are of one batch, `base_loss` and `base_gradient_norm` are those without the other value; a value that
changes neither stops the script. Weights, ids and labels follow from the tensors' names (value_of), so that no file has
them and shapes may change; unit.exec_checkpoint_config_keys does the same. Run once with PyTorch 2.x and transformers
5.23 or later; the file is committed. Usage: config_keys.py > FILE
"""
import copy
import json
import sys

import numpy
import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM

SEQUENCES, LENGTH = 2, 48
ABSENT = "absent"  # of a key: it is left out
LEAST = 1e-4  # relative; the test allows 1e-5

COMMON = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
              vocab_size=97, max_position_embeddings=16384, rms_norm_eps=1e-6, hidden_act="silu",
              tie_word_embeddings=False, attention_bias=False, attention_dropout=0.0)
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=8192, rope_theta=10000.0)
PLAIN = dict(rope_type="default", rope_theta=10000.0)
MODELS = {
    "llama": dict(model_type="llama", intermediate_size=40, head_dim=16, mlp_bias=False,
                  pad_token_id=None, rope_parameters=LLAMA3, **COMMON),
    "qwen3": dict(model_type="qwen3", intermediate_size=40, head_dim=16, use_sliding_window=False,
                  sliding_window=None, max_window_layers=28, pad_token_id=None,
                  layer_types=["full_attention"] * 2, rope_parameters=PLAIN, **COMMON),
    "qwen3_moe": dict(model_type="qwen3_moe", head_dim=16, moe_intermediate_size=16, num_experts=5,
                      num_experts_per_tok=2, norm_topk_prob=True, decoder_sparse_step=1,
                      mlp_only_layers=[], intermediate_size=24, output_router_logits=False,
                      router_aux_loss_coef=0.001, rope_parameters=PLAIN, **COMMON),
    "qwen2": dict(model_type="qwen2", intermediate_size=40, use_sliding_window=False,
                  sliding_window=None, max_window_layers=28, pad_token_id=None,
                  layer_types=["full_attention"] * 2, rope_parameters=PLAIN, **COMMON),
    "mistral": dict(model_type="mistral", intermediate_size=40, head_dim=16, sliding_window=None,
                    rope_parameters=PLAIN, **COMMON),
    "mixtral": dict(model_type="mixtral", intermediate_size=16, num_local_experts=5,
                    num_experts_per_tok=2, sliding_window=None, output_router_logits=False,
                    router_aux_loss_coef=0.001, router_jitter_noise=0.0, rope_parameters=PLAIN,
                    **COMMON),
    "gpt_oss": dict(model_type="gpt_oss", head_dim=16, intermediate_size=16, num_local_experts=5,
                    num_experts_per_tok=2, sliding_window=4, layer_types=None, swiglu_limit=0.5,
                    swiglu_alpha=1.702, output_router_logits=False, pad_token_id=None,
                    **{**COMMON, "attention_bias": True}),
    "phi3": dict(model_type="phi3", intermediate_size=40, sliding_window=None, pad_token_id=None,
                 resid_pdrop=0.0, embd_pdrop=0.0, rope_parameters=PLAIN, **COMMON),
    "gemma2": dict(model_type="gemma2", intermediate_size=40, head_dim=16, pad_token_id=None,
                   hidden_activation="gelu_pytorch_tanh", query_pre_attn_scalar=64,
                   attn_logit_softcapping=5.0, final_logit_softcapping=4.0, sliding_window=6,
                   rope_parameters=PLAIN, **COMMON),
    "gemma3_text": dict(model_type="gemma3_text", intermediate_size=40, head_dim=16,
                        pad_token_id=None, hidden_activation="gelu_pytorch_tanh",
                        query_pre_attn_scalar=64, sliding_window=6, sliding_window_pattern=2,
                        rope_theta=5000.0, rope_local_base_freq=100.0, **COMMON),
}
WINDOW = dict(use_sliding_window=True, sliding_window=4, max_window_layers=0, layer_types=None)
YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0,
            original_max_position_embeddings=4096)
LONG = dict(rope_type="longrope", rope_theta=10000.0, factor=4.0, short_factor=[1.0] * 8,
            long_factor=[1.0] * 8, original_max_position_embeddings=4096)

# model, key (of an object inside: NAME.KEY), other value, keys set beside
ROWS = [
    ("qwen3", "model_type", "llama", {}),
    ("qwen3", "num_hidden_layers", 1, {"layer_types": None}),
    ("llama", "hidden_size", 48, {}),
    ("llama", "num_attention_heads", 8, {}),
    ("llama", "num_key_value_heads", 1, {}),
    ("llama", "num_key_value_heads", None, {}),
    ("llama", "head_dim", 8, {}),
    ("llama", "num_key_value_heads", ABSENT, {}),
    ("qwen3", "num_key_value_heads", None, {}),
    ("qwen3", "num_key_value_heads", ABSENT, {"num_attention_heads": 32}),
    ("qwen3_moe", "num_key_value_heads", ABSENT, {"num_attention_heads": 8}),
    ("llama", "head_dim", None, {}),
    ("llama", "head_dim", ABSENT, {}),
    ("qwen3", "head_dim", ABSENT, {}),
    ("qwen3_moe", "head_dim", ABSENT, {}),
    ("llama", "vocab_size", 89, {}),
    ("llama", "intermediate_size", 24, {}),
    ("qwen3", "rms_norm_eps", 0.01, {}),
    ("qwen3", "rms_norm_eps", ABSENT, {"rms_norm_eps": 0.01}),
    ("qwen3", "tie_word_embeddings", True, {}),
    ("qwen3", "tie_word_embeddings", ABSENT, {"tie_word_embeddings": True}),
    ("llama", "rope_theta", 100.0, {"rope_parameters": None}),
    ("llama", "rope_theta", ABSENT, {"rope_parameters": None, "rope_theta": 100.0}),
    ("llama", "rope_scaling", {k: v for k, v in LLAMA3.items() if k != "rope_theta"},
     {"rope_parameters": None}),
    ("llama", "rope_parameters", PLAIN, {}),
    ("llama", "rope_parameters", None, {}),
    ("llama", "rope_parameters", ABSENT, {}),
    ("llama", "rope_parameters.rope_theta", 500.0, {}),
    ("qwen3_moe", "num_experts", 4, {}),
    ("qwen3_moe", "num_local_experts", 4, {"num_experts": ABSENT, "num_local_experts": 5}),
    ("qwen3_moe", "num_experts_per_tok", 3, {}),
    ("qwen3_moe", "moe_intermediate_size", 8, {}),
    ("qwen3_moe", "norm_topk_prob", False, {}),
    ("qwen3_moe", "norm_topk_prob", ABSENT, {}),
    ("llama", "hidden_act", "gelu", {}),
    ("llama", "attention_bias", True, {}),
    ("qwen3", "attention_bias", True, {}),
    ("llama", "mlp_bias", True, {}),
    ("llama", "attention_dropout", 0.5, {}),
    ("qwen3", "use_sliding_window", True, {**WINDOW, "use_sliding_window": False}),
    ("qwen3", "sliding_window", 4, {**WINDOW, "sliding_window": None}),
    ("qwen3", "sliding_window", 4, {**WINDOW, "sliding_window": 1024}),
    ("qwen3", "max_window_layers", 0, {**WINDOW, "max_window_layers": 28}),
    ("qwen3", "layer_types", ["sliding_attention", "full_attention"],
     {**WINDOW, "layer_types": ["full_attention"] * 2}),
    ("qwen3_moe", "use_sliding_window", True, {"sliding_window": 4, "use_sliding_window": False}),
    ("qwen3_moe", "sliding_window", 4, {"sliding_window": None, "use_sliding_window": True}),
    ("llama", "is_causal", False, {}),
    ("llama", "pad_token_id", 5, {}),
    ("qwen3", "pad_token_id", 5, {}),
    ("qwen3_moe", "output_router_logits", True, {"router_aux_loss_coef": 0.5}),
    ("qwen3_moe", "router_aux_loss_coef", 0.5, {"output_router_logits": True}),
    ("qwen3_moe", "decoder_sparse_step", 2, {}),
    ("qwen3_moe", "mlp_only_layers", [0], {}),
    ("qwen3", "rope_parameters.rope_type", "linear", {"rope_parameters": {**PLAIN, "factor": 4.0}}),
    ("qwen3", "rope_parameters.type", "linear",
     {"rope_parameters": {"rope_theta": 10000.0, "factor": 4.0}}),
    ("qwen3", "rope_scaling", {"type": "linear", "factor": 4.0}, {"rope_parameters": None}),
    ("llama", "rope_parameters.factor", 2.0, {}),
    ("llama", "rope_parameters.low_freq_factor", 2.0, {}),
    ("llama", "rope_parameters.high_freq_factor", 64.0, {}),
    ("llama", "rope_parameters.original_max_position_embeddings", 64, {}),
    ("llama", "original_max_position_embeddings", 64, {}),
    ("qwen3", "rope_parameters.rope_type", "yarn",
     {"rope_parameters": {**YARN, "rope_type": "default"}}),
    ("qwen3", "rope_parameters.attention_factor", 2.0, {"rope_parameters": YARN}),
    ("qwen3", "rope_parameters.beta_fast", 2000.0, {"rope_parameters": YARN}),
    ("qwen3", "rope_parameters.beta_slow", 16.0, {"rope_parameters": YARN}),
    ("qwen3", "rope_parameters.mscale", 2.0, {"rope_parameters": {**YARN, "mscale_all_dim": 1.0}}),
    ("qwen3", "rope_parameters.mscale_all_dim", 2.0, {"rope_parameters": {**YARN, "mscale": 1.0}}),
    ("qwen3", "rope_parameters.truncate", False, {"rope_parameters": YARN}),
    ("qwen3", "rope_parameters.short_factor", [2.0] * 8, {"rope_parameters": LONG}),
    ("qwen3", "rope_parameters.long_factor", [2.0] * 8,
     {"rope_parameters": {**LONG, "original_max_position_embeddings": 16}}),
    ("qwen3", "rope_parameters.partial_rotary_factor", 0.5,
     {"rope_parameters": {**PLAIN, "rope_type": "proportional"}}),
    ("qwen3", "partial_rotary_factor", 0.5,
     {"rope_parameters": {**PLAIN, "rope_type": "proportional"}}),
    ("qwen2", "model_type", "llama", {}),
    ("qwen2", "sliding_window", 4, {**WINDOW, "sliding_window": None}),
    ("qwen2", "max_window_layers", 1, {**WINDOW, "max_window_layers": 28}),
    ("qwen2", "layer_types", ["full_attention", "sliding_attention"],
     {**WINDOW, "layer_types": ["full_attention"] * 2}),
    ("mistral", "sliding_window", 4, {}),
    ("mistral", "sliding_window", 7, {"sliding_window": 4}),
    ("mistral", "head_dim", ABSENT, {}),
    ("mistral", "hidden_act", "gelu", {}),
    ("mixtral", "num_local_experts", 4, {}),
    ("mixtral", "num_experts_per_tok", 3, {}),
    ("mixtral", "intermediate_size", 8, {}),
    ("mixtral", "sliding_window", 4, {}),
    ("mixtral", "output_router_logits", True, {"router_aux_loss_coef": 0.5}),
    ("mixtral", "router_jitter_noise", 0.5, {}),
    ("gpt_oss", "head_dim", ABSENT, {}),
    ("gpt_oss", "intermediate_size", 8, {}),
    ("gpt_oss", "num_local_experts", 4, {}),
    ("gpt_oss", "num_experts_per_tok", 3, {}),
    ("gpt_oss", "sliding_window", 7, {}),
    ("gpt_oss", "layer_types", ["full_attention", "sliding_attention"], {}),
    ("gpt_oss", "swiglu_alpha", 1.0, {}),
    ("gpt_oss", "swiglu_limit", 0.25, {}),
    ("gpt_oss", "swiglu_limit", ABSENT, {}),
    ("gpt_oss", "attention_bias", False, {}),
    ("gpt_oss", "rope_theta", 100.0, {}),
    ("gpt_oss", "rope_parameters", PLAIN, {}),
    ("gpt_oss", "rope_parameters.truncate", True,
     {"rope_parameters": {**YARN, "truncate": False, "original_max_position_embeddings": 512}}),
    ("gpt_oss", "output_router_logits", True, {}),
    ("gpt_oss", "pad_token_id", 5, {}),
    ("phi3", "num_key_value_heads", ABSENT, {}),
    ("phi3", "sliding_window", 4, {}),
    ("phi3", "partial_rotary_factor", 0.5, {}),
    ("phi3", "rope_parameters.partial_rotary_factor", 0.5, {}),
    ("phi3", "rope_theta", 100.0, {"rope_parameters": None}),
    ("phi3", "rope_scaling", {"type": "longrope", "short_factor": [1.0, 2.0, 3.0, 4.0],
                              "long_factor": [1.0, 2.0, 3.0, 4.0]}, {"rope_parameters": None}),
    ("phi3", "resid_pdrop", 0.5, {}),
    ("gemma2", "query_pre_attn_scalar", 16, {}),
    ("gemma2", "query_pre_attn_scalar", ABSENT, {}),
    ("gemma2", "attn_logit_softcapping", None, {}),
    ("gemma2", "attn_logit_softcapping", ABSENT, {"attn_logit_softcapping": 1.0}),
    ("gemma2", "attn_logit_softcapping", 1.0, {}),
    ("gemma2", "final_logit_softcapping", None, {}),
    ("gemma2", "final_logit_softcapping", ABSENT, {}),
    ("gemma2", "final_logit_softcapping", 2.0, {}),
    ("gemma2", "hidden_activation", "silu", {}),
    ("gemma2", "hidden_activation", ABSENT, {"hidden_activation": "silu"}),
    ("gemma2", "sliding_window", 3, {}),
    ("gemma2", "layer_types", ["full_attention"] * 2, {}),
    ("gemma2", "attention_bias", True, {}),
    ("gemma2", "tie_word_embeddings", ABSENT, {}),
    ("gemma2", "rope_theta", 100.0, {"rope_parameters": None}),
    ("gemma3_text", "rope_theta", 50.0, {}),
    ("gemma3_text", "rope_theta", ABSENT, {}),
    ("gemma3_text", "rope_local_base_freq", 5000.0, {}),
    ("gemma3_text", "rope_local_base_freq", ABSENT, {}),
    ("gemma3_text", "rope_scaling", {"rope_type": "linear", "factor": 8.0}, {}),
    ("gemma3_text", "rope_parameters",
     {"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 400.0},
      "sliding_attention": {"rope_type": "default", "rope_theta": 30.0}}, {"rope_theta": ABSENT}),
    ("gemma3_text", "sliding_window_pattern", 1, {}),
    ("gemma3_text", "layer_types", ["full_attention", "sliding_attention"], {}),
    ("gemma3_text", "final_logit_softcapping", 2.0, {}),
    ("gemma3_text", "attention_bias", True, {}),
]


def value_of(name, count):
    """32 bits of each element of a tensor, by its published name."""
    seed = 2166136261
    for byte in name.encode():
        seed = (seed ^ byte) * 16777619 & 0xFFFFFFFF
    x = (numpy.arange(count, dtype=numpy.uint64) * 2654435769 + seed) & 0xFFFFFFFF
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        x = (x ^ (x >> shift)) * factor & 0xFFFFFFFF
    return x ^ (x >> 16)


def weight_of(name, shape):
    """Matrices and biases from -0.5 to 0.5, norms from 0.5 to 1.5."""
    share = (value_of(name, int(numpy.prod(shape))) >> 8).astype(numpy.float64) / 2**24
    share += 0.5 if name.endswith("norm.weight") else -0.5
    return torch.from_numpy(share.astype(numpy.float32)).reshape(shape)


EXPERTS = {"mixtral": ("w1", "w3", "w2")}  # gate, up and down as files name them


def fill_joined(name, base, shape):
    """gpt-oss: matrices [in, out], gate and up by turns, and biases of all experts."""
    kind = name.rsplit(".", 1)[1]
    if kind == "down_proj_bias":
        return weight_of(name, shape)
    if kind == "gate_up_proj_bias":
        halves = [weight_of(f"{base}.{key}_proj_bias", (shape[0], shape[1] // 2))
                  for key in ("gate", "up")]
        return torch.stack(halves, 2).reshape(shape)
    keys = ("gate_proj", "up_proj") if kind == "gate_up_proj" else ("down_proj",)
    parts = [torch.stack([weight_of(f"{base}.{e}.{key}.weight", (shape[2] // len(keys), shape[1])).T
                          for e in range(shape[0])]) for key in keys]
    return torch.stack(parts, 3).reshape(shape)


def fill(name, parameter, family):
    """Newer versions of transformers join experts' weights."""
    gate, up, down = EXPERTS.get(family, ("gate_proj", "up_proj", "down_proj"))
    if family == "mixtral":
        name = name.replace(".mlp.", ".block_sparse_moe.")
    base = name.rsplit(".", 1)[0]
    if "experts" not in name:
        return weight_of(name, parameter.shape)
    if family == "gpt_oss":
        return fill_joined(name, base, parameter.shape)
    experts, rows, columns = parameter.shape
    if name.endswith("gate_up_proj"):
        return torch.stack([torch.cat([weight_of(f"{base}.{e}.{key}.weight", (rows // 2, columns))
                                       for key in (gate, up)])
                            for e in range(experts)])
    return torch.stack([weight_of(f"{base}.{e}.{down}.weight", (rows, columns))
                        for e in range(experts)])


def train(config):
    made = AutoConfig.for_model(**copy.deepcopy(config))
    net = AutoModelForCausalLM.from_config(made, attn_implementation="eager",
                                           experts_implementation="eager").to(torch.float32)
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            parameter.copy_(fill(name, parameter, config["model_type"]))
    net = net.to(torch.float64).train()
    ids = value_of("ids", SEQUENCES * LENGTH) % config["vocab_size"]
    labels = value_of("labels", SEQUENCES * LENGTH)
    labels = numpy.where(labels % 5 == 0, -100, (labels // 5 % config["vocab_size"]).astype(int))
    ids = torch.from_numpy(ids.astype(int)).reshape(SEQUENCES, LENGTH)
    labels = torch.from_numpy(labels).reshape(SEQUENCES, LENGTH)
    torch.manual_seed(7)  # of dropout
    loss = net(input_ids=ids, labels=labels, shift_labels=labels, use_cache=False).loss
    loss.backward()
    squares = sum(float((p.grad**2).sum()) for p in net.parameters() if p.grad is not None)
    return loss.item(), squares**0.5


def set_key(config, path, value):
    *outer, key = path.split(".")
    for name in outer:
        config = config[name]
    if value == ABSENT:
        config.pop(key, None)
    else:
        config[key] = value


def main():
    rows, known = [], {}
    for model, key, value, beside in ROWS:
        config = copy.deepcopy(MODELS[model])
        for name, other in beside.items():
            set_key(config, name, copy.deepcopy(other))
        results = []
        for one in (False, True):
            if one:
                set_key(config, key, value)
            text = json.dumps(config, sort_keys=True)
            known[text] = known[text] if text in known else train(config)
            results.append(known[text])
        (base_loss, base_norm), (loss, norm) = results
        if max(abs(loss / base_loss - 1), abs(norm / base_norm - 1)) < LEAST:
            sys.exit(f"{model}: {key}: {value} alters nothing: {results}")
        print(key, value, *results, file=sys.stderr)
        rows.append({"model": model, "key": key, "value": value, "with": beside, "loss": loss,
                     "gradient_norm": norm, "base_loss": base_loss, "base_gradient_norm": base_norm})
    print(f'{{"transformers": "{transformers.__version__}",\n "models": {{')
    print(",\n".join(f" {json.dumps(k)}: {json.dumps(v)}" for k, v in MODELS.items()))
    print(' },\n "rows": [')
    print(",\n".join("  " + json.dumps(row) for row in rows))
    print(" ]}")


main()
