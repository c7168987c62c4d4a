#!/usr/bin/env python3
"""Twenty steps of AdamW with small models of each family: transformers on PyTorch.

Writes FOLDER/NAME/: config.json and model.safetensors as transformers saves them,
adapter_model.safetensors (LoRA's initial values, with PEFT's names), and training.safetensors: ids and labels of the
batch that all steps have, the losses of full training and of the adapters', and the trained tensors after the last
step, after.NAME and adapters.NAME. gpt-oss has its experts' adapters as in PEFT's target_parameters, gate's and up's
together with twice the rank. Everything is computed in float64 from values that are rounded to fp32 (except for the
softmax of Mixtral's routers, which transformers computes in fp32), and rounded once. mxfp4/ has weights of experts in
blocks, and transformers' unpacked values. Run once with PyTorch 2.x, transformers 5.24 or later and safetensors.
Usage: make.py FOLDER [NAME...], then tests/tools/folded.py fold tests/golden/families.tar.gz FOLDER
"""
import json
import pathlib
import sys

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, CONFIG_MAPPING
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

SEQUENCES, LENGTH, STEPS = 6, 17, 20
ADAM = dict(lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0)
RANK, ALPHA = 3, 6

SIZES = dict(hidden_size=24, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
             intermediate_size=26, vocab_size=61, max_position_embeddings=512,
             pad_token_id=None, bos_token_id=1, eos_token_id=2)
LLAMA_3_2 = dict(rope_type="llama3", rope_theta=50.0, factor=32.0, low_freq_factor=1.0,
                 high_freq_factor=4.0, original_max_position_embeddings=24)
YARN = dict(rope_type="yarn", rope_theta=150.0, factor=4.0, beta_fast=8.0, beta_slow=0.5,
            truncate=False, original_max_position_embeddings=32)
LONGROPE = dict(rope_type="longrope", rope_theta=50.0, short_factor=[1.0, 1.1, 1.75],
                long_factor=[1.25, 3.0, 7.5])
FAMILIES = {
    "llama3.2": ("llama", dict(tie_word_embeddings=True, rope_parameters=LLAMA_3_2)),
    "llama-biases": ("llama", dict(attention_bias=True, mlp_bias=True, head_dim=10)),
    "qwen2": ("qwen2", dict(tie_word_embeddings=True)),
    "qwen2-windows": ("qwen2", dict(use_sliding_window=True, sliding_window=5,
                                    max_window_layers=1)),
    "qwen3-biases": ("qwen3", dict(attention_bias=True, head_dim=10)),
    "mistral": ("mistral", dict(sliding_window=6, head_dim=10)),
    "mixtral": ("mixtral", dict(num_local_experts=5, num_experts_per_tok=2, sliding_window=None)),
    # The limit is low, so that gates and ups reach it.
    "gpt-oss": ("gpt_oss", dict(hidden_size=20, intermediate_size=14, head_dim=10, vocab_size=47,
                                num_hidden_layers=2, num_local_experts=5, num_experts_per_tok=2,
                                sliding_window=6, swiglu_limit=0.5, rope_parameters=YARN)),
    "phi3": ("phi3", dict(sliding_window=6, num_attention_heads=2, num_key_value_heads=1,
                          rope_parameters=dict(rope_type="default", rope_theta=10000.0,
                                               partial_rotary_factor=0.5))),
    # The first has sequences longer than the original length, the second shorter.
    "phi3-long": ("phi3", dict(num_attention_heads=2, num_key_value_heads=1,
                               original_max_position_embeddings=8,
                               rope_parameters=dict(LONGROPE, partial_rotary_factor=0.5))),
    "phi3-short": ("phi3", dict(original_max_position_embeddings=32, rope_parameters=LONGROPE)),
    "gemma2": ("gemma2", dict(sliding_window=5, head_dim=10, query_pre_attn_scalar=7,
                              attn_logit_softcapping=0.7, final_logit_softcapping=1.3)),
    "gemma3": ("gemma3_text", dict(
        sliding_window=5, head_dim=10, query_pre_attn_scalar=7, attention_bias=True,
        layer_types=["sliding_attention", "full_attention", "full_attention"],
        rope_parameters=dict(sliding_attention=dict(rope_type="default", rope_theta=50.0),
                             full_attention=dict(rope_type="linear", rope_theta=1000.0,
                                                 factor=3.0)))),
}
EXPERTS = {"mixtral": ("mlp", "block_sparse_moe", "w1", "w3", "w2")}


def split(name, tensor, family):
    """A parameter by its published names: transformers joins the experts'."""
    inside, outside, gate, up, down = EXPERTS.get(
        family, ("mlp", "mlp", "gate_proj", "up_proj", "down_proj"))
    name = name.replace(f".{inside}.", f".{outside}.")
    base = name.rsplit(".", 1)[0]
    if family == "gpt_oss":
        yield name, tensor
    elif name.endswith("experts.gate_up_proj"):
        for e, one in enumerate(tensor):
            for key, half in zip((gate, up), one.chunk(2)):
                yield f"{base}.{e}.{key}.weight", half
    elif name.endswith("experts.down_proj"):
        for e, one in enumerate(tensor):
            yield f"{base}.{e}.{down}.weight", one
    else:
        yield name, tensor


def is_adapted(name):
    """All matrices of the blocks but routers."""
    linear = "self_attn" in name or ".experts." in name or "_proj" in name
    return ".layers." in name and name.endswith(".weight") and linear and "norm" not in name


def loss_of(logits, labels):
    return torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]),
                                             labels.reshape(-1), ignore_index=-100)


def train(parameters, loss):
    optimizer = torch.optim.AdamW(parameters, **ADAM)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        value = loss()
        value.backward()
        optimizer.step()
        losses.append(value.item())
    return torch.tensor(losses, dtype=torch.float64).to(torch.float32)


def single(tensor):
    return tensor.detach().to(torch.float32).contiguous()


def of_parameter(name, weight, adapters):
    """gpt-oss: the adapters of all experts' matrices, W being [E, in, out], and B A of each."""
    base = "base_model.model." + name.rsplit(".", 1)[0]
    joined = name.endswith("gate_up_proj")
    base += ".base_layer" if joined else ""
    experts, inputs, outputs = weight.shape
    halves = 2 if joined else 1
    keys = [f"{base}.lora_{letter}.weight" for letter in "AB"]
    if keys[0] not in adapters:
        b = torch.zeros(outputs, halves * RANK, experts, dtype=torch.float64)
        for half in range(halves):
            part = b[half::halves, half * RANK:(half + 1) * RANK]
            part.copy_(0.15 * torch.randn(part.shape))
        mask = (b != 0).double().reshape(outputs, -1)
        for key, values in zip(keys, (0.15 * torch.randn(experts * halves * RANK, inputs).double(),
                                      b.reshape(outputs, -1))):
            adapters[key] = values.requires_grad_()
        # Gate and up have an adapter each: zeros stay 0.
        adapters[keys[1]].register_hook(lambda gradient: gradient * mask)
    a = adapters[keys[0]].reshape(experts, -1, inputs)
    b = adapters[keys[1]].reshape(outputs, -1, experts)
    return torch.einsum("o r e, e r i -> e i o", b, a)


def train_adapters(net, family, ids, labels, where):
    """Each linear layer's matrix is W + alpha / rank B A."""
    adapters = {}

    def make(name, weight):
        key = "base_model.model." + name.removesuffix(".weight")
        for letter, shape in (("A", (RANK, weight.shape[1])), ("B", (weight.shape[0], RANK))):
            values = (0.15 * torch.randn(*shape)).double().requires_grad_()
            adapters[f"{key}.lora_{letter}.weight"] = values

    def adapted(name, weight):
        if name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            return weight.detach() + ALPHA / RANK * of_parameter(name, weight, adapters)
        if not is_adapted(name):
            return weight.detach()
        key = "base_model.model." + name.removesuffix(".weight")
        a, b = adapters[key + ".lora_A.weight"], adapters[key + ".lora_B.weight"]
        return weight.detach() + ALPHA / RANK * (b @ a)

    for name, parameter in net.named_parameters():
        for published, part in split(name, parameter, family):
            if is_adapted(published):
                make(published, part)
            else:
                adapted(published, part)

    def loss():
        replaced = {}
        for name, parameter in net.named_parameters():
            parts = [adapted(*part) for part in split(name, parameter, family)]
            if name.endswith("gate_up_proj") and len(parts) > 1:
                parts = [torch.cat(pair) for pair in zip(parts[0::2], parts[1::2])]
            replaced[name] = torch.stack(parts) if len(parts) > 1 else parts[0]
        outputs = torch.func.functional_call(net, replaced, kwargs={"input_ids": ids})
        return loss_of(outputs.logits, labels)

    save_file({key: single(one) for key, one in adapters.items()}, where / "adapter_model.safetensors")
    losses = train(list(adapters.values()), loss)
    return {"adapters.losses": losses,
            **{f"adapters.{key}": single(one) for key, one in adapters.items()}}


def make(folder, name):
    family, options = FAMILIES[name]
    torch.manual_seed(7)
    config = CONFIG_MAPPING[family](**{**SIZES, **options})
    net = AutoModelForCausalLM.from_config(config, attn_implementation="eager",
                                           experts_implementation="eager").to(torch.float32)
    with torch.no_grad():
        for parameter in net.parameters():  # norms away from 1, everything large enough to matter
            parameter.add_(0.1 * torch.randn_like(parameter))
    where = folder / name
    net.save_pretrained(where)
    (where / "generation_config.json").unlink(missing_ok=True)
    ids = torch.randint(0, config.vocab_size, (SEQUENCES, LENGTH))
    labels = torch.randint(0, config.vocab_size, (SEQUENCES, LENGTH))
    labels[torch.rand(SEQUENCES, LENGTH) < 0.2] = -100
    net = net.to(torch.float64)
    expected = {"ids": ids.to(torch.float32), "labels": labels.to(torch.float32),
                **train_adapters(net, family, ids, labels, where)}
    expected["losses"] = train(list(net.parameters()),
                               lambda: loss_of(net(input_ids=ids).logits, labels))
    for key, parameter in net.named_parameters():
        for published, part in split(key, parameter, family):
            expected[f"after.{published}"] = single(part)
    save_file(expected, where / "training.safetensors",
              metadata={"torch": torch.__version__, "made_by": "tests/golden/families/make.py"})
    saved = load_file(where / "model.safetensors")
    lost = {key for key in saved if f"after.{key}" not in expected}
    assert not lost, lost
    print(name, expected["losses"][[0, -1]].tolist(), expected["adapters.losses"][[0, -1]].tolist())


def make_mxfp4(where):
    """A layer of gpt-oss with packed experts: every pair of values, and scales from 2^-4 to 2^3, 2^7 and 2^-126."""
    torch.manual_seed(11)
    config = CONFIG_MAPPING["gpt_oss"](**{**SIZES, "hidden_size": 32, "intermediate_size": 32,
                                          "num_hidden_layers": 1, "num_local_experts": 3,
                                          "num_experts_per_tok": 2, "head_dim": 8, "vocab_size": 23,
                                          "sliding_window": 6})
    net = AutoModelForCausalLM.from_config(config).to(torch.float32)
    net.save_pretrained(where)
    (where / "generation_config.json").unlink(missing_ok=True)
    tensors = load_file(where / "model.safetensors")
    expected = {}
    for key, rows in (("gate_up_proj", 64), ("down_proj", 32)):
        name = f"model.layers.0.mlp.experts.{key}"
        blocks = torch.randint(0, 256, (3, rows, 1, 16), dtype=torch.uint8)
        blocks.view(-1)[:256] = torch.arange(256, dtype=torch.uint8)
        scales = torch.randint(123, 131, (3, rows, 1), dtype=torch.uint8)
        scales[2, :2, 0] = torch.tensor([1, 134], dtype=torch.uint8)
        del tensors[name]
        tensors[f"{name}_blocks"], tensors[f"{name}_scales"] = blocks, scales
        expected[name] = convert_moe_packed_tensors(blocks, scales, dtype=torch.float32).contiguous()
    save_file(tensors, where / "model.safetensors", metadata={"format": "pt"})
    save_file(expected, where / "unpacked.safetensors",
              metadata={"transformers": transformers.__version__})
    text = json.loads((where / "config.json").read_text())
    text["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}
    (where / "config.json").write_text(json.dumps(text, indent=2) + "\n")


for wanted in sys.argv[2:] or [*FAMILIES, "mxfp4"]:
    if wanted == "mxfp4":
        make_mxfp4(pathlib.Path(sys.argv[1]) / wanted)
    else:
        make(pathlib.Path(sys.argv[1]), wanted)
