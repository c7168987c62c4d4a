#!/usr/bin/env python3
"""Keys on which shapes depend, whatever the family: FOLDER/shape_keys.csv.

Each whole number and each flag of every transformers configuration class with a head for language modelling is altered
by itself; if that changes the model's number of parameters, the key is in the list, with the first class (by name) and
a value. Made with transformers 5.24.0 and PyTorch 2.15.0.
Usage: shape_keys.py FOLDER
"""
import csv
import dataclasses
import pathlib
import signal
import sys

import torch
import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
from value_types import too_long
from variants import quiet

SMALL = dict(vocab_size=1000, hidden_size=64, intermediate_size=160, num_hidden_layers=4, num_attention_heads=4,
             num_key_value_heads=2, moe_intermediate_size=48, num_experts=8, num_local_experts=8,
             n_routed_experts=8, num_experts_per_tok=2, pad_token_id=None, q_lora_rank=40, kv_lora_rank=32,
             qk_rope_head_dim=8, qk_nope_head_dim=16, v_head_dim=20)


def count(family, keys):
    signal.setitimer(signal.ITIMER_PROF, 3)
    try:
        config = CONFIG_MAPPING[family](**keys)
        with torch.device("meta"):
            model = transformers.AutoModelForCausalLM.from_config(config)
        model.tie_weights()
        return sum({id(p): p.numel() for p in model.parameters()}.values())
    except (Exception, MemoryError):
        return None
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def main(folder):
    quiet()
    signal.signal(signal.SIGPROF, too_long)
    found = {}
    for family in sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES):
        fields = {f.name: f.default for f in dataclasses.fields(CONFIG_MAPPING[family])}
        base = {k: v for k, v in SMALL.items() if k in fields}
        usual = count(family, base)
        if usual is None or "num_attention_heads" not in fields:
            continue
        for key, default in sorted(fields.items()):
            old = base.get(key, default)
            if key in found or type(old) not in (int, bool):
                continue
            for new in [not old] if type(old) is bool else [2 * old, old + 1, old // 2]:
                other = count(family, dict(base, **{key: new}))
                if other is not None and other != usual:
                    found[key] = [family, new]
                    break
        print(family, len(found), file=sys.stderr, flush=True)
    with open(folder / "shape_keys.csv", "w", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["key", "family", "value"])
        for key, (family, value) in sorted(found.items()):
            writer.writerow([key, family, str(value).lower()])


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
