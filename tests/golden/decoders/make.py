#!/usr/bin/env python3
"""Losses and gradients of small models from another framework: transformers on PyTorch.

Writes FOLDER/NAME/{config.json, model.safetensors, expected.safetensors}: the configuration and weights
as transformers saves them, and ids, labels, loss and gradients of one batch in fp32, computed in float64 and rounded
once (except for the softmax of routers, which transformers computes in fp32). lora has only the adapters, with PEFT's
names: the weights are those of qwen3-moe, and each linear layer's is W + alpha / rank B A. Run once with PyTorch 2.x,
transformers 5 or later and safetensors.
Usage: make.py FOLDER [NAME], then tests/tools/folded.py fold tests/golden/decoders.tar.gz FOLDER
"""
import pathlib
import sys

import torch
from safetensors.torch import load_file, save_file
from transformers import (LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM,
                          Qwen3MoeConfig, Qwen3MoeForCausalLM)

SEQUENCES, LENGTH = 2, 19


def batch_of(config):
    ids = torch.randint(0, config.vocab_size, (SEQUENCES, LENGTH))
    labels = torch.randint(0, config.vocab_size, (SEQUENCES, LENGTH))
    labels[torch.rand(SEQUENCES, LENGTH) < 0.2] = -100
    return ids, labels


def loss_of(logits, labels):
    return torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]),
                                             labels.reshape(-1), ignore_index=-100)


def split(name, tensor):
    """A parameter by its published names: newer versions of transformers join the experts'."""
    base = name.rsplit(".", 1)[0]
    if name.endswith("experts.gate_up_proj"):
        for e, one in enumerate(tensor):
            for key, half in zip(("gate_proj", "up_proj"), one.chunk(2)):
                yield f"{base}.{e}.{key}.weight", half
    elif name.endswith("experts.down_proj"):
        for e, one in enumerate(tensor):
            yield f"{base}.{e}.down_proj.weight", one
    else:
        yield name, tensor


def save(where, ids, labels, loss, gradients):
    expected = {"ids": ids.to(torch.float32), "labels": labels.to(torch.float32),
                "loss": loss.detach().to(torch.float32).reshape(1)}
    for key, gradient in gradients.items():
        expected["grad." + key] = gradient.to(torch.float32).contiguous()
    save_file(expected, where / "expected.safetensors",
              metadata={"torch": torch.__version__, "made_by": "tests/golden/decoders/make.py"})
    print(where.name, loss.item())


def make(folder, name, model, config, shard="5GB"):
    torch.manual_seed(7)
    net = model(config).to(torch.float32)
    with torch.no_grad():
        for parameter in net.parameters():  # norms away from 1, everything large enough to matter
            parameter.add_(0.1 * torch.randn_like(parameter))
    where = folder / name
    net.save_pretrained(where, max_shard_size=shard)
    net = net.to(torch.float64)
    ids, labels = batch_of(config)
    loss = loss_of(net(input_ids=ids).logits, labels)
    loss.backward()
    save(where, ids, labels, loss, {key: gradient for name, parameter in net.named_parameters()
                                    for key, gradient in split(name, parameter.grad)})
    (where / "generation_config.json").unlink(missing_ok=True)


def make_lora(folder, base, rank, alpha):
    torch.manual_seed(11)
    net = Qwen3MoeForCausalLM.from_pretrained(folder / base, dtype=torch.float64,
                                              attn_implementation="eager",
                                              experts_implementation="eager")
    adapters, replaced = {}, {}

    def adapted(name, weight):
        if not name.endswith("_proj.weight"):
            return weight
        key = "base_model.model." + name.removesuffix(".weight")
        a = (0.15 * torch.randn(rank, weight.shape[1])).double().requires_grad_()
        b = (0.15 * torch.randn(weight.shape[0], rank)).double().requires_grad_()
        a.data, b.data = a.data.float().double(), b.data.float().double()
        adapters[key + ".lora_A.weight"], adapters[key + ".lora_B.weight"] = a, b
        return weight.detach() + alpha / rank * (b @ a)

    for name, parameter in net.named_parameters():
        parts = [adapted(*part) for part in split(name, parameter)]
        if name.endswith("gate_up_proj"):
            parts = [torch.cat(pair) for pair in zip(parts[0::2], parts[1::2])]
        replaced[name] = torch.stack(parts) if "experts" in name else parts[0]
    ids, labels = batch_of(net.config)
    loss = loss_of(torch.func.functional_call(net, replaced, kwargs={"input_ids": ids}).logits,
                   labels)
    loss.backward()
    where = folder / "lora"
    where.mkdir(exist_ok=True)
    save_file({key: one.detach().float().contiguous() for key, one in adapters.items()},
              where / "adapter_model.safetensors")
    save(where, ids, labels, loss, {key: one.grad for key, one in adapters.items()})


def main():
    folder = pathlib.Path(sys.argv[1])
    wanted = sys.argv[2:] or ["qwen3", "llama", "qwen3-moe", "qwen3-moe-raw", "lora"]
    common = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                  vocab_size=97, max_position_embeddings=16384, attn_implementation="eager")
    moe = dict(head_dim=16, num_attention_heads=4, num_key_value_heads=2, vocab_size=97,
               rope_theta=10000.0, attn_implementation="eager",
               experts_implementation="eager")
    models = {
        "qwen3": (Qwen3ForCausalLM,
                  Qwen3Config(head_dim=16, intermediate_size=48, tie_word_embeddings=True,
                              rope_theta=1000000.0, **common)),
        "llama": (LlamaForCausalLM,
                  LlamaConfig(intermediate_size=40, tie_word_embeddings=False, rope_theta=500000.0,
                              rope_scaling={"rope_type": "llama3", "factor": 8.0,
                                            "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                            "original_max_position_embeddings": 8192}, **common)),
        "qwen3-moe": (Qwen3MoeForCausalLM,
                      Qwen3MoeConfig(hidden_size=32, num_hidden_layers=2, moe_intermediate_size=16,
                                     num_experts=5, num_experts_per_tok=2, norm_topk_prob=True,
                                     tie_word_embeddings=True, **moe), "40KB"),
        "qwen3-moe-raw": (Qwen3MoeForCausalLM,
                          Qwen3MoeConfig(hidden_size=16, num_hidden_layers=1,
                                         moe_intermediate_size=8, num_experts=4,
                                         num_experts_per_tok=3, norm_topk_prob=False, **moe)),
    }
    for name in wanted:
        if name == "lora":
            make_lora(folder, "qwen3-moe", 3, 6)
        else:
            make(folder, name, *models[name])


main()
