#!/usr/bin/env python3
"""Small files of every family that rpsim reads, as read by transformers: FOLDER/variants.csv.

A row is a family, a config.json, and figures of the model that transformers builds of it on PyTorch's meta device: the
parameters (a tied table once), those of each layer (COUNTxLAYERS, in order), a letter per layer (s if its attention has
a sliding window, f if it is full), and for dense models that run on that device FLOP of the first layer, `linear` and
`attention`, as in make.py. Shapes are random and odd, and every flag, list and null that a class has is set in some
row; the last row of a family has all keys, as transformers saves them. Families of several modes have their text model
and a head inside of the whole model's file, or at its top, as `text` says; only the text model and the head are
counted. transformers lacks some families' names: kimi_k2 is DeepSeek-V3's class.
Made with transformers 5.24.0 and PyTorch 2.15.0. Usage: variants.py FOLDER
"""
import copy
import csv
import dataclasses
import json
import logging
import pathlib
import random
import sys
import warnings

import torch
import transformers
from make import flops_of, runs, windows_of
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

ROWS = 5  # of a family
CLASS_OF = {"kimi_k2": "deepseek_v3"}
# Families whose model is part of another, and all whose file has a text_config
WHOLE = {"glm4v_text": "glm4v", "glm4v_moe_text": "glm4v_moe", "qwen2_vl_text": "qwen2_vl",
         "qwen2_5_vl_text": "qwen2_5_vl", "qwen3_vl_text": "qwen3_vl",
         "qwen3_vl_moe_text": "qwen3_vl_moe"}
OUTER = [("gemma3", "gemma3_text"), ("glm4v", "glm4v_text"), ("glm4v_moe", "glm4v_moe_text"),
         ("internvl", "qwen2"), ("llama4", "llama4_text"), ("llava", "llama"), ("llava_next", "mistral"),
         ("mistral3", "ministral3"), ("mistral3", "mistral"), ("qwen2_vl", "qwen2_vl_text"),
         ("qwen2_5_vl", "qwen2_5_vl_text"), ("qwen3_vl", "qwen3_vl_text"),
         ("qwen3_vl_moe", "qwen3_vl_moe_text")]
REFUSED = {("gpt_oss", "attention_bias"), ("ernie4_5_moe", "use_bias")}  # if they are not the default
FAMILIES = """llama mistral mixtral qwen2 qwen2_moe qwen3 qwen3_moe gemma gemma2 gemma3_text phi3 deepseek_v2
deepseek_v3 gpt_oss smollm3 olmo2 arcee cohere cohere2 cwm ernie4_5 exaone exaone4 glm glm4 glm4v_text granite
helium hunyuan_v1_dense hyperclovax internlm3 iquestcoder jais2 minicpm3 ministral ministral3 nemotron olmo3
qwen2_vl_text qwen2_5_vl_text qwen3_vl_text seed_oss stablelm starcoder2 vaultgemma youtu aria_text dots1
ernie4_5_moe exaone_moe flex_olmo glm4_moe glm4v_moe_text glm4_moe_lite granitemoe granitemoeshared
hunyuan_v1_moe hy_v3 kimi_k2 llama4_text mellum minimax_m2 olmoe qwen3_vl_moe_text sarvam_mla sarvam_moe
solar_open""".split()
NEEDED = {"hunyuan_v1_dense": ["head_dim"], "hunyuan_v1_moe": ["head_dim", "num_experts", "moe_topk"],
          "deepseek_v2": ["num_experts_per_tok"],
          "dots1": ["num_experts_per_tok", "n_routed_experts", "n_shared_experts"]}


def fields_of(family):
    config = CONFIG_MAPPING[CLASS_OF.get(family, family)]
    return {field.name: str(field.type) for field in dataclasses.fields(config)}


def sizes(rng, has):
    """Every size that the class has, by its name."""
    heads = rng.choice([3, 4, 6])
    layers = rng.randint(3, 7)
    experts = rng.randint(2, 9)
    keys = dict(
        vocab_size=rng.randrange(301, 999, 2), hidden_size=heads * 2 * rng.randint(4, 9),
        intermediate_size=rng.randrange(31, 90), num_hidden_layers=layers, num_attention_heads=heads,
        num_key_value_heads=rng.choice([1, heads, 3 if heads == 6 else 1]),
        head_dim=2 * rng.randint(4, 12), max_position_embeddings=rng.randint(64, 4096),
        kv_lora_rank=rng.randint(5, 30), q_lora_rank=rng.choice([rng.randint(5, 30), None]),
        qk_rope_head_dim=2 * rng.randint(2, 8), qk_nope_head_dim=rng.randint(3, 17),
        v_head_dim=rng.randint(3, 17), moe_intermediate_size=rng.randrange(11, 60),
        intermediate_size_mlp=rng.randrange(31, 90), shared_intermediate_size=rng.choice([0, 23]),
        shared_expert_intermediate_size=rng.randint(10, 60), n_group=1, topk_group=1,
        first_k_dense_replace=rng.randint(0, layers), interleave_moe_layer_step=rng.randint(1, 3),
        decoder_sparse_step=rng.randint(1, 3), max_window_layers=rng.randint(0, layers),
        moe_layer_start_index=rng.randint(0, 2), moe_layer_end_index=rng.choice([-1, layers - 2]),
        moe_layer_interval=rng.randint(1, 2), no_rope_layer_interval=rng.randint(2, 4))
    for name in ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"):
        keys[name] = experts
    for name in ("num_experts_per_tok", "moe_k", "moe_topk"):
        keys[name] = rng.randint(1, min(experts, 3))
    for name in ("n_shared_experts", "num_shared_experts", "moe_num_shared_experts"):
        keys[name] = rng.randint(1, 3)
    return {name: value for name, value in keys.items() if name in has}


FLAGS = ("attention_bias", "attention_out_bias", "mlp_bias", "qkv_bias", "use_qkv_bias", "use_bias",
         "tie_word_embeddings", "use_qk_norm", "qk_layernorm", "use_parallel_residual", "use_post_norm",
         "use_sliding_window", "norm_topk_prob")


def variant(rng, family, index, outer):
    has = fields_of(family)
    keys = sizes(rng, has)
    layers, heads = keys["num_hidden_layers"], keys["num_attention_heads"]
    for flag in FLAGS:
        if flag in has and rng.random() < 0.6 and (family, flag) not in REFUSED:
            keys[flag] = rng.random() < 0.5
    if "sliding_window" in has:
        keys["sliding_window"] = rng.choice([None, 8, 16]) if "None" in has["sliding_window"] else 8
    if "layer_types" in has and rng.random() < 0.4 and keys.get("sliding_window", 8) is not None:
        kind = "chunked_attention" if "attention_chunk_size" in has else "sliding_attention"
        keys["layer_types"] = [rng.choice([kind, "full_attention"]) for _ in range(layers)]
    if "mlp_layer_types" in has and rng.random() < 0.5:
        keys["mlp_layer_types"] = [rng.choice(["dense", "sparse"]) for _ in range(layers)]
    if "mlp_only_layers" in has:
        keys["mlp_only_layers"] = rng.choice([None, [], [1], [0, layers - 1]])
    if "moe_layers" in has and rng.random() < 0.4:
        keys["moe_layers"] = rng.choice([[], [0, 2], list(range(layers))])
    if "no_rope_layers" in has and rng.random() < 0.4:
        keys["no_rope_layers"] = [rng.randint(0, 1) for _ in range(layers)]
    if "pad_token_id" in has:
        keys["pad_token_id"] = 1
    for name in ("head_dim", "num_key_value_heads", "v_head_dim"):
        if name in keys and "None" in has[name] and rng.random() < 0.3:
            keys[name] = None
    if family == "helium":
        keys["head_dim"] = keys["hidden_size"] // heads
    if "deepseek" in CLASS_OF.get(family, family) or "sarvam_mla" in family or "v_head_dim" in keys:
        keys["v_head_dim"] = keys.get("v_head_dim") or 10
        if family == "minicpm3" and index == 1:
            keys["v_head_dim"] = None
        keys.pop("head_dim", None)
        keys["num_key_value_heads"] = heads
    needed = NEEDED.get(family, [])
    for name in needed:
        keys[name] = keys[name] or 10
    if outer:  # which always says so when transformers saves it
        keys["tie_word_embeddings"] = rng.random() < 0.5
    for name in list(keys):  # defaults that are small enough to stay
        if name not in needed and rng.random() < 0.15 and index != ROWS - 1 and not outer:
            small = name in FLAGS or name in ("layer_types", "first_k_dense_replace", "sliding_window",
                                              "max_window_layers", "max_position_embeddings")
            if small:
                del keys[name]
    return keys


def build(family, keys, outer=None):
    """The model, its text part's configuration, its layers, and all that is counted."""
    name = CLASS_OF.get(family, family)
    whole = outer or WHOLE.get(family)
    config = CONFIG_MAPPING[whole]() if whole else CONFIG_MAPPING[name](**copy.deepcopy(keys))
    if whole:  # the text model's own word counts if the file is the text model's
        text = dict(copy.deepcopy(keys), model_type=name)
        tied = CONFIG_MAPPING[name](**keys) if not outer else None
        beside = {k: v for k, v in keys.items() if k == "tie_word_embeddings"}
        beside = beside if outer else {"tie_word_embeddings": getattr(tied, "tie_word_embeddings", False)}
        config = type(config)(text_config=text, **beside)
    auto = transformers.AutoModelForImageTextToText if whole else transformers.AutoModelForCausalLM
    with torch.device("meta"):
        model = auto.from_config(config, **({} if whole else dict(attn_implementation="eager")))
    model.tie_weights()
    decoder = model.get_decoder() if whole else model.model
    decoder = getattr(decoder, "language_model", decoder)
    decoder = getattr(decoder, "model", decoder)
    counted = {id(p): p.numel() for p in decoder.parameters()}
    counted.update({id(p): p.numel() for p in model.get_output_embeddings().parameters()})
    if not whole:
        assert sum(counted.values()) == sum({id(p): p.numel() for p in model.parameters()}.values())
    return model, model.config.get_text_config(), decoder.layers, sum(counted.values())


def flops(model, text, layers):
    """FLOP of a dense first layer's products with weights, and of its attention, in make.py's words."""
    if any("expert" in name for name, _ in model.named_parameters()) or layers is not getattr(model.model, "layers", None):
        return ["", ""]
    try:
        return flops_of(model.eval(), text)[:2]
    except Exception:  # a class that cannot be run without values
        return ["", ""]


def row_of(rng, family, index, outer=None):
    for _ in range(60):
        keys = variant(rng, family, index, outer)
        try:
            model, text, layers, total = build(family, keys, outer)
        except Exception as error:  # not every mix of keys is a model
            last = error
            continue
        full = index == ROWS - 1 and not outer and family not in WHOLE
        saved = model.config.to_dict() if full else dict(keys, model_type=family)
        if outer:
            beside = {k: keys.pop(k) for k in ["tie_word_embeddings"] if k in keys}
            saved = dict(beside, model_type=outer, text_config=dict(keys, model_type=family))
        saved.update({"model_type": family} if full else {})
        return [outer or family, json.dumps(saved, sort_keys=True), total,
                runs(sum(p.numel() for p in layer.parameters()) for layer in layers),
                windows_of(text) if getattr(text, "sliding_window", None) else "f" * len(layers),
                *flops(model, text, layers)]
    sys.exit(f"{outer or family}: {last!r}")


def quiet():
    warnings.filterwarnings("ignore")
    logging.disable(logging.ERROR)
    transformers.logging.set_verbosity_error()


def main(folder):
    quiet()
    with open(folder / "variants.csv", "w", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["family", "config", "parameters", "layers", "windows", "linear", "attention"])
        for family in FAMILIES:
            rng = random.Random(family)
            for index in range(ROWS):
                writer.writerow(row_of(rng, family, index))
            print(family, file=sys.stderr)
        for outer, family in OUTER:
            rng = random.Random(outer + family)
            for index in range(2):
                writer.writerow(row_of(rng, family, index, outer))
            print(outer, family, file=sys.stderr)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
