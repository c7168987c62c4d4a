#!/usr/bin/env python3
"""Adapters of PEFT on some linear layers: as PEFT saves them, and losses of training them.

Writes FOLDER/NAME/ for each case below: adapter_config.json (whose base is BASE, which the test replaces) and
adapter_model.safetensors, with random B, on the weights of a golden folder beside this; FOLDER/rows.npy, and
FOLDER/losses.csv: losses of AdamW steps on all rows at once. Only modules in LoraConfig's target_modules have adapters.
unit.exec_checkpoint_subsets trains the same. Run with PyTorch 2.15, transformers 5.24 and PEFT 0.21.2.
Usage: BUILD/tests/data/golden/subsets/make.py FOLDER, then, without losses.csv,
tests/tools/folded.py fold tests/golden/subsets.tar.gz FOLDER
"""
import json
import pathlib
import sys

import numpy
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

HERE = pathlib.Path(__file__).absolute().parent
FOLDER = pathlib.Path(sys.argv[1])
STEPS, RATE, RANK, ALPHA = 5, 0.01, 3, 4.5
CASES = {
    "q-v": ("decoders/qwen3", ["q_proj", "v_proj"]),
    "attention": ("decoders/llama", r".*\.self_attn\.(q|k|v|o)_proj"),
    "mlp": ("families/qwen2", ["gate_proj", "up_proj", "down_proj"]),
    "down": ("families/gemma2", ["down_proj"]),
    "all-linear": ("families/llama3.2", "all-linear"),
    "of-mixture": ("families/mixtral", ["q_proj", "v_proj"]),
    "of-sinks": ("families/gpt-oss", ["k_proj", "o_proj"]),
    "joined": ("families/phi3", ["qkv_proj"]),
    "half-joined": ("families/phi3", ["gate_up_proj", "o_proj"]),
}
rows = numpy.random.default_rng(5).integers(0, 47, (8, 13))
numpy.save(FOLDER / "rows.npy", rows.astype("<u2"))
tokens = torch.from_numpy(rows)
with (FOLDER / "losses.csv").open("w") as table:
    table.write("name,base,step,loss\n")
    for name, (base, modules) in CASES.items():
        torch.manual_seed(3)
        net = AutoModelForCausalLM.from_pretrained(HERE.parent / base, dtype=torch.float32,
                                                   attn_implementation="eager", experts_implementation="eager")
        net = get_peft_model(net, LoraConfig(r=RANK, lora_alpha=ALPHA, target_modules=modules,
                                             task_type="CAUSAL_LM"))
        trained = [parameter for parameter in net.parameters() if parameter.requires_grad]
        with torch.no_grad():
            for parameter in trained:
                parameter.copy_(0.15 * torch.randn_like(parameter))
        net.save_pretrained(FOLDER / name)
        (FOLDER / name / "README.md").unlink()
        config = json.loads((FOLDER / name / "adapter_config.json").read_text())
        config["base_model_name_or_path"] = "BASE"
        if isinstance(config["target_modules"], list):
            config["target_modules"].sort()  # a set has no order
        (FOLDER / name / "adapter_config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")
        adam = torch.optim.AdamW(trained, lr=RATE, betas=(0.9, 0.999), eps=1e-8, weight_decay=0)
        for step in range(1, STEPS + 1):
            logits = net(input_ids=tokens[:, :-1]).logits
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
            table.write(f"{name},{base},{step},{loss.item():.9g}\n")
            adam.zero_grad()
            loss.backward()
            adam.step()
