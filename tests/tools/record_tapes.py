"""Records what PyTorch saves of a decoder layer's forward for its backward: tests/golden/tapes.csv.

Usage: record_tapes.py > tests/golden/tapes.csv    (torch, transformers and peft; no GPU)

The layers are transformers' and the adapters PEFT's, on fake tensors. Storages that autograd saves are counted once,
without parameters and the layer's own input; two lengths give bytes per token. Attention saves as flash attention.
Recompute `full` is torch's non-reentrant checkpoint around the layer. Dropout is the operator that GPUs have, with a
mask of bytes; that of the CPU keeps floats.
"""

import csv
import sys

import peft
import torch
import transformers
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.checkpoint import checkpoint
from transformers.models.llama import modeling_llama
from transformers.models.qwen3 import modeling_qwen3

import record_layers  # registers the attention "recorded"

ALL = "q k v o gate up down".split()
SHAPES = [(2048, 16, 16, 128, 5504), (4096, 32, 8, 128, 14336), (2560, 32, 8, 128, 9728)]  # h, heads, kv, d, I
COLUMNS = "family hidden heads kv_heads head_dim intermediate rank linears adapters recompute bytes_per_token".split()


def dropout(value, p=0.5, training=True, inplace=False):
    assert not inplace
    return torch.native_dropout(value, p, training)[0]


torch.nn.functional.dropout = dropout


def make(family, shape):
    hidden, heads, kv_heads, head_dim, intermediate = shape
    module, config, layer = {
        "llama": (modeling_llama, transformers.LlamaConfig, modeling_llama.LlamaDecoderLayer),
        "qwen3": (modeling_qwen3, transformers.Qwen3Config, modeling_qwen3.Qwen3DecoderLayer)}[family]
    settings = config(hidden_size=hidden, num_attention_heads=heads, num_key_value_heads=kv_heads, head_dim=head_dim,
                      intermediate_size=intermediate, num_hidden_layers=1)
    settings._attn_implementation = "recorded"
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("meta"):
        made = layer(settings, 0)
    torch.set_default_dtype(torch.float32)
    return made


def adapt(layer, rank, linears, adapters):
    """PEFT's adapters, in place. fp32 weights under autocast are PEFT's default; dropout is the training script's."""
    dropout = 0.05 if "dropout" in adapters else 0.0
    config = peft.LoraConfig(r=rank, target_modules=[f"{name}_proj" for name in linears], lora_dropout=dropout)
    holder = torch.nn.ModuleDict({"layer": layer})
    peft.inject_adapter_in_model(config, holder)
    for name, parameter in holder.named_parameters():
        parameter.requires_grad = "lora_" in name
        if "lora_" in name:
            parameter.data = torch.empty_like(parameter, device="meta",
                                              dtype=torch.float32 if "fp32" in adapters else torch.bfloat16)
    return holder["layer"]


def fake(layer):
    """Fake tensors on the CPU in place of those on the meta device, which autocast does not see."""
    for module in layer.modules():
        for name, old in module._parameters.items():
            if old is not None:
                new = torch.empty(old.shape, dtype=old.dtype)
                module._parameters[name] = torch.nn.Parameter(new, old.requires_grad)
    return layer


def saved(layer, shape, tokens, autocast, recompute):
    hidden, _, _, head_dim, _ = shape
    x = torch.empty(1, tokens, hidden, dtype=torch.bfloat16, requires_grad=True)
    turns = tuple(torch.empty(1, tokens, head_dim, dtype=torch.bfloat16) for _ in range(2))
    skipped = {t.untyped_storage()._cdata for t in (x, *turns, *layer.parameters())}
    seen = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage._cdata not in skipped:
            seen[storage._cdata] = (storage, storage.nbytes())
        return tensor

    def run(value):
        return layer(value, position_embeddings=turns)

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t), torch.autocast("cpu", torch.bfloat16, autocast):
        out = checkpoint(run, x, use_reentrant=False) if recompute == "full" else run(x)
    del out
    return sum(size for _, size in seen.values())


def main():
    writer = csv.writer(sys.stdout, lineterminator="\n")
    print(f"# torch {torch.__version__}, transformers {transformers.__version__}, peft {peft.__version__}: what a "
          "layer's forward keeps for its backward, beside its input (tests/tools/record_tapes.py)")
    writer.writerow(COLUMNS)
    kinds = [(0, [], "none"), (16, ALL, "bf16"), (8, ["q", "v"], "bf16"), (8, ["q", "k", "v"], "bf16"),
             (64, ["q", "k", "v", "o"], "bf16"), (16, ALL, "fp32"), (16, ALL, "fp32+dropout"),
             (8, ["q", "v"], "fp32+dropout"), (32, ["gate", "up", "down"], "fp32+dropout"),
             (64, ["q", "k", "v", "o", "down"], "fp32+dropout")]
    for family in ("llama", "qwen3"):
        for shape in SHAPES:
            for rank, linears, adapters in kinds:
                for recompute in ("none", "full"):
                    layer = make(family, shape).train()
                    layer = adapt(layer, rank, linears, adapters) if rank else layer
                    with FakeTensorMode():
                        layer = fake(layer)
                        low, high = (saved(layer, shape, t, "fp32" in adapters, recompute) for t in (64, 192))
                    per_token = (high - low) // 128
                    writer.writerow([family, *shape, rank, "+".join(linears), adapters, recompute, per_token])


if __name__ == "__main__":
    main()
