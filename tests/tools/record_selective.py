"""Records what selective recompute keeps of a decoder layer in PyTorch, and what its backward runs again.

Usage: record_selective.py    writes tests/golden/selective.csv on stdout

The layers are transformers', on the meta device (no memory, no GPU), with PyTorch's own flash attention. Policies: `none`;
`attention`, torch.utils.checkpoint around attention alone, as Megatron's --recompute-activations has it;
`second-products`, torchtitan's selective checkpointing of single operators: attention and every second mm are kept.
Kept: storages alive after the forward that no parameter, no table of positions and not the layer's output has; a row
has bytes per token, the difference of two lengths. Again: FLOP of the products and calls of attention that the backward
has beyond those without a policy, and other kernels that it calls again.
"""

import functools
import sys
import weakref

import torch
import transformers
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

ATEN = torch.ops.aten
FLASH = ATEN._scaled_dot_product_flash_attention.default
SAVED = {ATEN.mm.default, FLASH}
SHAPES = {  # hidden, heads, kv_heads, head_dim, intermediate
    "llama-8b-quarter": (1024, 8, 2, 128, 3584),
    "llama-odd": (1536, 12, 12, 128, 4096),
    "qwen3": (2048, 16, 8, 128, 6144),
}
POLICIES = ("none", "attention", "second-products")
TOKENS = 512


class Recorder(TorchDispatchMode):
    """Living storages, and calls by operator."""

    def __init__(self, known):
        super().__init__()
        self.known = [tensor.untyped_storage() for tensor in known]
        self.alive, self.calls, self.flop = {}, {}, 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        self.calls[function] = self.calls.get(function, 0) + 1
        if function is ATEN.mm.default:
            (rows, inner), (_, columns) = args[0].shape, args[1].shape
            self.flop += 2 * rows * inner * columns
        for tensor in tree_iter(out):
            if isinstance(tensor, torch.Tensor):
                storage = tensor.untyped_storage()
                if all(storage is not other for other in self.known):
                    weak = weakref.ref(storage, functools.partial(self.gone, id(storage)))
                    self.alive[id(storage)] = (storage.nbytes(), weak)
        return out

    def gone(self, key, _):
        self.alive.pop(key, None)

    def bytes_without(self, *tensors):
        others = {id(tensor.untyped_storage()) for tensor in tensors}
        return sum(size for key, (size, _) in self.alive.items() if key not in others)


def flash(query, key, value):
    return FLASH(query, key, value, 0.0, True)[0]


def attention(module, query, key, value, mask, **_):
    groups = query.shape[1] // key.shape[1]
    key, value = (x.repeat_interleave(groups, 1) if groups > 1 else x for x in (key, value))
    run = functools.partial(checkpoint, flash, use_reentrant=False) if module.policy == "attention" else flash
    return run(query, key, value).transpose(1, 2), None


ALL_ATTENTION_FUNCTIONS.register("recorded", attention)


def contexts():
    counts = {}

    def policy(context, function, *_, **__):
        if function is ATEN.mm.default:
            counts[context.is_recompute] = counts.get(context.is_recompute, 0) + 1
        second = function is ATEN.mm.default and counts[context.is_recompute] % 2 == 0
        kept = function in SAVED and not second
        return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


def make_layer(name):
    hidden, heads, kv_heads, head_dim, intermediate = SHAPES[name]
    qwen = name.startswith("qwen3")
    config = (transformers.Qwen3Config if qwen else transformers.LlamaConfig)(
        hidden_size=hidden, num_attention_heads=heads, num_key_value_heads=kv_heads, head_dim=head_dim,
        intermediate_size=intermediate, num_hidden_layers=1, attn_implementation="recorded")
    kind = (transformers.models.qwen3.modeling_qwen3.Qwen3DecoderLayer if qwen
            else transformers.models.llama.modeling_llama.LlamaDecoderLayer)
    with torch.device("meta"):
        return kind(config, 0).to(torch.bfloat16)


def record(name, policy, tokens):
    """Bytes kept, FLOP of the backward's products, calls of the backward."""
    layer = make_layer(name)
    layer.self_attn.policy = policy
    hidden, _, _, head_dim, _ = SHAPES[name]
    x = torch.empty(1, tokens, hidden, dtype=torch.bfloat16, device="meta", requires_grad=True)
    cos, sin = (torch.empty(1, tokens, head_dim, dtype=torch.bfloat16, device="meta") for _ in range(2))
    recorder = Recorder([*layer.parameters(), cos, sin])
    run = functools.partial(layer, position_embeddings=(cos, sin), attention_mask=None)
    with recorder:
        x = x * 1  # the layer's input, which the layer before has made
        if policy == "second-products":
            out = checkpoint(run, x, use_reentrant=False, context_fn=contexts)
        else:
            out = run(x)
        out = out[0] if isinstance(out, tuple) else out
        kept = recorder.bytes_without(out, x) + x.untyped_storage().nbytes()
        recorder.calls, recorder.flop = {}, 0
        out.backward(torch.empty_like(out))
    return kept, recorder.flop, recorder.calls


VIEWS = ("view", "_unsafe_view", "t", "transpose", "expand", "unsqueeze", "slice", "detach", "alias", "select", "split",
         "empty", "permute", "squeeze", "_to_copy_view", "zeros", "new_")


def kernels(calls):
    return sum(count for function, count in calls.items()
               if not function._schema.name.removeprefix("aten::").split(".")[0].startswith(VIEWS))


def main():
    source = f"torch {torch.__version__.split('+')[0]}; transformers {transformers.__version__}; bf16"
    print("source,layer,hidden,heads,kv_heads,head_dim,intermediate,qk_norm,policy,kept_per_token,again_flop_per_token,"
          "again_attention,again_kernels")
    for name, shape in SHAPES.items():
        _, flop_none, calls_none = record(name, "none", TOKENS)
        for policy in POLICIES:
            one, flop, calls = record(name, policy, TOKENS)
            two, _, _ = record(name, policy, 2 * TOKENS)
            print(source, name, *shape, int(name.startswith("qwen3")), policy, (two - one) // TOKENS,
                  (flop - flop_none) // TOKENS, calls.get(FLASH, 0), kernels(calls) - kernels(calls_none), sep=",")


if __name__ == "__main__":
    sys.exit(main())
