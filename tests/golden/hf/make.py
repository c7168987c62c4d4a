#!/usr/bin/env python3
"""config.json as read by transformers: FOLDER/NAME.json and FOLDER/counts.csv.

Each model is built on PyTorch's meta device, and its parameters are counted: all of them, a tied table once, and those
of each layer (COUNTxLAYERS, in order). `windows` has a letter per layer: s if its attention has a sliding window, f if
it is full. FLOP are those of torch.utils.flop_counter in a forward of LENGTH tokens with eager attention, in the first
and the last layer: `linear` are products with weights, `attention` those of queries, keys and values, over all pairs,
also masked pairs. They are empty for models of more than 100 layers, and for mixtures, whose loops the meta device
cannot run, except for small mixtures, which run on the CPU with random weights.

Shapes are the defaults of transformers' configuration classes or those of litgpt's table (litgpt/config.py, whose
entries name the config.json that they repeat); column `source`. Keys of the last argument are set beside: values
missing in litgpt, and variants that no published model has. Made with transformers 5.23.0, PyTorch 2.15.0 and litgpt
0.5.13 (pip install torch transformers; pip install --no-deps litgpt). Usage: make.py FOLDER, then
tests/tools/folded.py fold tests/golden/hf.txtar FOLDER "*.json"
"""
import csv
import importlib.util
import json
import pathlib
import sys
import types

import torch
import transformers
from torch.utils.flop_counter import FlopCounterMode

LENGTH = 64


def litgpt_shapes():
    """litgpt/config.py alone: the package itself wants lightning."""
    folder = pathlib.Path(importlib.util.find_spec("litgpt").submodule_search_locations[0])
    text = (folder / "config.py").read_text().replace("from litgpt.", "from litgpt_missing.")
    for name in ("litgpt_missing", "litgpt_missing.utils", "litgpt_missing.constants", "yaml"):
        module = sys.modules.setdefault(name, types.ModuleType(name))
        module.__getattr__ = lambda key: None
    space = {"__name__": "litgpt_config"}
    sys.modules["litgpt_config"] = types.ModuleType("litgpt_config")
    exec(compile(text, "litgpt/config.py", "exec"), space)
    shapes = {entry["name"]: space["Config"](**entry) for entry in space["configs"]}
    for entry in space["configs"]:  # unless the entry says so, the padding is litgpt's own
        shapes[entry["name"]].rows = entry.get("padded_vocab_size", entry.get("vocab_size"))
    return shapes


def keys_of(c, family):
    """litgpt's names in config.json's words."""
    keys = dict(vocab_size=c.rows, hidden_size=c.n_embd, num_hidden_layers=c.n_layer,
                num_attention_heads=c.n_head, num_key_value_heads=c.n_query_groups, intermediate_size=c.intermediate_size,
                max_position_embeddings=c.block_size, rms_norm_eps=c.norm_eps)
    if family not in ("phi3", "olmo2", "qwen2", "mixtral", "deepseek_v3"):
        keys["head_dim"] = c.head_size
    if family in ("mistral", "gemma2", "gemma3_text", "gemma3", "phi3"):
        keys["sliding_window"] = c.sliding_window_size
    if family == "mixtral":
        keys.update(num_local_experts=c.n_expert, num_experts_per_tok=c.n_expert_per_token)
    if family == "qwen3_moe":
        keys.update(num_experts=c.n_expert, num_experts_per_tok=c.n_expert_per_token,
                    moe_intermediate_size=c.moe_intermediate_size)
    return keys


TIED = dict(tie_word_embeddings=True)
SMALL = dict(hidden_size=64, num_attention_heads=4, num_hidden_layers=6, vocab_size=1000)
# name, model_type, entry of litgpt or None (the class's defaults), keys set beside
MODELS = [
    ("llama-defaults", "llama", None, {}),
    ("llama2-7b", "llama", "Llama-2-7b-hf", {}),
    ("llama2-70b", "llama", "Llama-2-70b-hf", {}),
    ("llama3-8b", "llama", "Llama-3-8B", {}),
    ("llama3.1-8b", "llama", "Llama-3.1-8B", {}),
    ("llama3.1-405b", "llama", "Llama-3.1-405B", {}),
    ("llama3.2-1b", "llama", "Llama-3.2-1B", TIED),
    ("llama-biases", "llama", None,
     dict(SMALL, intermediate_size=160, num_key_value_heads=2, attention_bias=True, mlp_bias=True)),
    ("smollm2-135m", "llama", "SmolLM2-135M", TIED),
    ("smollm2-1.7b", "llama", "SmolLM2-1.7B", TIED),
    ("smollm3-defaults", "smollm3", None, {}),
    ("mistral-defaults", "mistral", None, {}),
    ("mistral-7b-v0.1", "mistral", "Mistral-7B-v0.1", {}),
    ("mistral-7b-v0.3", "mistral", "Mistral-7B-v0.3", {}),
    ("mixtral-8x7b", "mixtral", "Mixtral-8x7B-v0.1", {}),
    ("mixtral-8x22b", "mixtral", "Mixtral-8x22B-v0.1", {}),
    ("qwen2-defaults", "qwen2", None, {}),
    ("qwen2-windows", "qwen2", None,
     dict(SMALL, num_key_value_heads=2, intermediate_size=160, use_sliding_window=True,
          sliding_window=16, max_window_layers=4)),
    ("qwen2.5-0.5b", "qwen2", "Qwen2.5-0.5B", TIED),
    ("qwen2.5-7b", "qwen2", "Qwen2.5-7B", {}),
    ("qwen2.5-72b", "qwen2", "Qwen2.5-72B", {}),
    ("qwen2-moe-defaults", "qwen2_moe", None, {}),
    ("qwen3-defaults", "qwen3", None, {}),
    ("qwen3-0.6b", "qwen3", "Qwen3-0.6B", TIED),
    ("qwen3-1.7b", "qwen3", "Qwen3-1.7B", TIED),
    ("qwen3-32b", "qwen3", "Qwen3-32B", {}),
    ("qwen3-30b-a3b", "qwen3_moe", "Qwen3-30B-A3B", {}),
    ("qwen3-235b", "qwen3_moe", "Qwen3-235B-A22B", {}),
    ("qwen3-moe-dense-layers", "qwen3_moe", None,
     dict(SMALL, num_key_value_heads=2, head_dim=16, intermediate_size=160, num_experts=8,
          num_experts_per_tok=2, moe_intermediate_size=48, decoder_sparse_step=2,
          mlp_only_layers=[3], attention_bias=True)),
    ("gemma2-defaults", "gemma2", None, {}),
    ("gemma2-2b", "gemma2", "Gemma-2-2b", {}),
    ("gemma2-9b", "gemma2", "Gemma-2-9b", {}),
    ("gemma2-27b", "gemma2", "Gemma-2-27b", {}),
    ("gemma3-1b", "gemma3_text", "Gemma-3-1b-it", {}),
    ("gemma3-4b", "gemma3", "Gemma-3-4b-it", {}),
    ("gemma3-27b", "gemma3", "Gemma-3-27b-it", {}),
    ("phi3-defaults", "phi3", None, {}),
    ("phi3-mini", "phi3", "Phi-3-mini-4k-instruct", {}),
    ("phi4", "phi3", "phi-4", {}),
    ("olmo2-defaults", "olmo2", None, {}),
    ("olmo2-7b", "olmo2", "OLMo-2-1124-7B", {}),
    ("olmo2-13b", "olmo2", "OLMo-2-1124-13B", {}),
    ("deepseek-v2-defaults", "deepseek_v2", None, dict(num_experts_per_tok=6)),
    ("deepseek-v2-plain-queries", "deepseek_v2", None,
     dict(SMALL, q_lora_rank=None, kv_lora_rank=32, qk_nope_head_dim=16, qk_rope_head_dim=8,
          v_head_dim=24, intermediate_size=160, moe_intermediate_size=48, n_routed_experts=8,
          num_experts_per_tok=2, first_k_dense_replace=1, attention_bias=True, mlp_bias=True)),
    ("deepseek-v3-defaults", "deepseek_v3", None, {}),
    ("deepseek-v3-dense", "deepseek_v3", None, dict(num_hidden_layers=3)),
    ("gpt-oss-defaults", "gpt_oss", None, {}),
    ("gpt-oss-20b", "gpt_oss", None, dict(num_hidden_layers=24, num_local_experts=32)),
    ("mixtral-small", "mixtral", None,
     dict(SMALL, num_key_value_heads=2, intermediate_size=48, num_local_experts=8)),
    ("qwen2-moe-small", "qwen2_moe", None,
     dict(SMALL, num_key_value_heads=2, intermediate_size=160, num_experts=8,
          num_experts_per_tok=2, moe_intermediate_size=48, shared_expert_intermediate_size=96)),
    ("deepseek-v3-small", "deepseek_v3", None,
     dict(SMALL, num_key_value_heads=4, q_lora_rank=40, kv_lora_rank=32, qk_nope_head_dim=16,
          qk_rope_head_dim=8, v_head_dim=24, intermediate_size=160, moe_intermediate_size=48,
          n_routed_experts=16, num_experts_per_tok=2, n_group=4, topk_group=2,
          first_k_dense_replace=2, tie_word_embeddings=True)),
    ("gpt-oss-small", "gpt_oss", None,
     dict(SMALL, num_key_value_heads=2, head_dim=16, intermediate_size=48, num_local_experts=8,
          num_experts_per_tok=2)),
]


def runs(values):
    """[5, 5, 7] -> 5x2 7x1"""
    out = []
    for value in values:
        if out and out[-1][0] == value:
            out[-1][1] += 1
        else:
            out.append([value, 1])
    return " ".join(f"{value}x{count}" for value, count in out)


def layers_of(model):
    inner = model.model
    inner = getattr(inner, "language_model", inner)
    return inner.layers


def text_of(config):
    return getattr(config, "text_config", config)


def windows_of(config):
    types_of = getattr(config, "layer_types", None)
    if types_of is None:
        types_of = ["sliding_attention" if getattr(config, "sliding_window", None) else "full"]
        types_of *= config.num_hidden_layers
    return "".join("s" if one == "sliding_attention" else "f" for one in types_of)


def flops_of(model, config):
    if config.num_hidden_layers > 100:
        return [""] * 4
    device = next(model.parameters()).device
    ids = torch.zeros(1, LENGTH, dtype=torch.long, device=device)
    mask = torch.zeros(1, 1, LENGTH, LENGTH, device=device)  # made ready: its making asks for values
    layers = layers_of(model)
    found = []
    for layer in (layers[0], layers[-1]):
        counted = {}

        def begin(module, args, kwargs):
            counted["mode"] = FlopCounterMode(display=False)
            counted["mode"].__enter__()

        def end(module, args, kwargs, output):
            counted["mode"].__exit__(None, None, None)

        handles = [layer.register_forward_pre_hook(begin, with_kwargs=True),
                   layer.register_forward_hook(end, with_kwargs=True)]
        model(input_ids=ids, attention_mask=mask, use_cache=False)
        for handle in handles:
            handle.remove()
        per_op = counted["mode"].get_flop_counts()["Global"]
        linear = sum(n for op, n in per_op.items() if "bmm" not in str(op))
        found += [linear, sum(per_op.values()) - linear]
    return found


def build(family, keys, device="meta"):
    config = transformers.AutoConfig.for_model(family, **keys)
    wrapped = family == "gemma3"
    auto = transformers.AutoModelForImageTextToText if wrapped else transformers.AutoModelForCausalLM
    with torch.device(device):
        model = auto.from_config(config, attn_implementation="eager", experts_implementation="eager")
    model.tie_weights()
    return config, model.eval()


def main(folder):
    shapes = litgpt_shapes()
    rows = []
    for name, family, entry, beside in MODELS:
        keys = dict(keys_of(shapes[entry], family) if entry else {}, **beside)
        if family == "gemma3":
            keys = dict(text_config=dict(keys, model_type="gemma3_text"))
        config, model = build(family, keys)
        text = text_of(config)
        total = {id(p): p.numel() for p in model.parameters()}
        other = sum(p.numel() for part in ("vision_tower", "multi_modal_projector")
                    for p in getattr(model.model, part, torch.nn.Module()).parameters())
        mixture = any("expert" in n for n, _ in model.named_parameters())
        small = sum(total.values()) < 1e6
        if mixture and small:
            model = build(family, keys, "cpu")[1]
        flops = flops_of(model, text) if small or not mixture else [""] * 4
        source = f"litgpt {entry}" if entry else "class defaults"
        if beside:
            source += "; " + ", ".join(sorted(beside)) + " set"
        rows.append([name, family, sum(total.values()) - other,
                     runs(sum(p.numel() for p in layer.parameters()) for layer in layers_of(model)),
                     windows_of(text), *flops, source])
        # Every third file has all keys, as transformers saves it; the others only those set here.
        full = entry is not None and len(rows) % 3 == 0
        saved = config.to_dict() if full else dict(keys, model_type=family)
        path = folder / f"{name}.json"
        path.write_text(json.dumps(saved, indent=1, sort_keys=True) + "\n")
        print(rows[-1][:4], file=sys.stderr)
    with open(folder / "counts.csv", "w", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["name", "family", "parameters", "layers", "windows", "linear_first",
                         "attention_first", "linear_last", "attention_last", "source"])
        writer.writerows(rows)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
