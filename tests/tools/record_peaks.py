"""Records the most memory that a model's forward and backward take beside weights and gradients, in PyTorch.

Usage: record_peaks.py > tests/golden/peaks.csv    (torch, transformers and peft; no GPU)

transformers' models with their own loss, on fake tensors; the adapters are PEFT's. Gradients are there before (a
second microbatch), attention saves and allocates as flash attention, dropout as on a GPU. Recompute `full` is a
checkpoint per layer.
"""

import csv
import sys

import torch
import transformers
from torch._subclasses.fake_tensor import FakeTensorMode

from record_layers import Recorder
from record_tapes import ALL, adapt, fake

FAMILIES = {"llama": (transformers.LlamaForCausalLM, transformers.LlamaConfig),
            "qwen3": (transformers.Qwen3ForCausalLM, transformers.Qwen3Config)}
SHAPES = [  # family, hidden, heads, kv heads, head dim, intermediate, layers, vocabulary
    ("llama", 2048, 16, 8, 128, 5504, 4, 32000),
    ("qwen3", 2560, 32, 8, 128, 9728, 6, 151936),
    ("llama", 4096, 32, 8, 128, 14336, 3, 512)]  # the loss takes nothing: layers' backwards decide
COLUMNS = """family hidden heads kv_heads head_dim intermediate layers vocab rank adapters recompute sequences tokens
bytes"""


def make(shape, adapters, recompute):
    family, hidden, heads, kv_heads, head_dim, intermediate, layers, vocab = shape
    kind, config = FAMILIES[family]
    settings = config(hidden_size=hidden, num_attention_heads=heads, num_key_value_heads=kv_heads, head_dim=head_dim,
                      intermediate_size=intermediate, num_hidden_layers=layers, vocab_size=vocab, use_cache=False,
                      tie_word_embeddings=False)
    settings._attn_implementation = "recorded"
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("meta"):
        model = kind(settings).train()
    torch.set_default_dtype(torch.float32)
    if adapters != "none":
        adapt(model, 16, ALL, adapters)
    if recompute == "full":
        model.gradient_checkpointing_enable({"use_reentrant": False})
        if adapters != "none":
            model.enable_input_require_grads()
    return model


def peak(model, sequences, tokens, autocast):
    ids = torch.zeros(sequences, tokens, dtype=torch.long)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter) if parameter.requires_grad else None
    known = [*model.parameters(), *model.buffers(), ids, *(p.grad for p in model.parameters() if p.grad is not None)]
    recorder = Recorder(known)
    with recorder:
        with torch.autocast("cpu", torch.bfloat16, autocast):
            loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
    sizes, live, most = {}, 0, 0
    for event in recorder.events:
        if event[0] == "alloc":
            sizes[event[1]] = event[2]
            live += event[2]
        elif event[0] == "free":
            live -= sizes.pop(event[1])
        most = max(most, live)
    return most


def main():
    writer = csv.writer(sys.stdout, lineterminator="\n")
    print(f"# torch {torch.__version__}, transformers {transformers.__version__}: the peak of a microbatch "
          "beside weights and gradients (tests/tools/record_peaks.py)")
    writer.writerow(COLUMNS.split())
    for shape in SHAPES:
        for adapters in ("none", "bf16", "fp32+dropout"):
            for recompute in ("none", "full"):
                for sequences, tokens in ((1, 2048), (1, 8192), (2, 4096)):
                    model = make(shape, adapters, recompute)
                    with FakeTensorMode():
                        fake(model)
                        model.model.rotary_emb.inv_freq = torch.ones(64)
                        model.model.rotary_emb.original_inv_freq = torch.ones(64)
                        bytes_of = peak(model, sequences, tokens, "fp32" in adapters)
                    rank = 0 if adapters == "none" else 16
                    writer.writerow([*shape, rank, adapters, recompute, sequences, tokens, bytes_of])


if __name__ == "__main__":
    main()
