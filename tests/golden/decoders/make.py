#!/usr/bin/env python3
"""Losses and gradients of small models from another framework: transformers on PyTorch.

Writes tests/golden/decoders/NAME/{config.json, model.safetensors, expected.safetensors}: the
configuration and weights as transformers saves them, and the ids, labels, loss and gradients of one
batch in fp32, computed in float64 and rounded once. Run once with PyTorch 2.x, transformers 4.51 or
later and safetensors; the files are committed. Usage: make.py FOLDER
"""
import json
import pathlib
import sys

import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

SEQUENCES, LENGTH = 2, 19


def make(folder, name, model, config):
    torch.manual_seed(7)
    net = model(config).to(torch.float32)
    with torch.no_grad():
        for parameter in net.parameters():  # norms away from 1, everything large enough to matter
            parameter.add_(0.1 * torch.randn_like(parameter))
    where = folder / name
    net.save_pretrained(where, safe_serialization=True)
    net = net.to(torch.float64)
    ids = torch.randint(0, config.vocab_size, (SEQUENCES, LENGTH))
    labels = torch.randint(0, config.vocab_size, (SEQUENCES, LENGTH))
    labels[torch.rand(SEQUENCES, LENGTH) < 0.2] = -100
    logits = net(input_ids=ids).logits
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, config.vocab_size),
                                             labels.reshape(-1), ignore_index=-100)
    loss.backward()
    expected = {"ids": ids.to(torch.float32), "labels": labels.to(torch.float32),
                "loss": loss.detach().to(torch.float32).reshape(1)}
    for key, parameter in net.named_parameters():
        expected["grad." + key] = parameter.grad.to(torch.float32).contiguous()
    save_file(expected, where / "expected.safetensors",
              metadata={"torch": torch.__version__, "made_by": "tests/golden/decoders/make.py"})
    (where / "generation_config.json").unlink(missing_ok=True)
    print(name, loss.item(), json.loads((where / "config.json").read_text()).keys())


def main():
    folder = pathlib.Path(sys.argv[1])
    common = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                  vocab_size=97, max_position_embeddings=16384, attn_implementation="eager")
    make(folder, "qwen3", Qwen3ForCausalLM,
         Qwen3Config(head_dim=16, intermediate_size=48, tie_word_embeddings=True,
                     rope_theta=1000000.0, **common))
    make(folder, "llama", LlamaForCausalLM,
         LlamaConfig(intermediate_size=40, tie_word_embeddings=False, rope_theta=500000.0,
                     rope_scaling={"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                                   "high_freq_factor": 4.0,
                                   "original_max_position_embeddings": 8192}, **common))


main()
