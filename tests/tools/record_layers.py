"""Records a decoder layer's allocations and frees in PyTorch, forward with its tape and backward.

Usage: record_layers.py FOLDER    writes FOLDER/KIND.csv for every kind of layer

The layers are transformers', on the meta device (no memory, no GPU). Attention is a function that saves and allocates
like flash attention. Experts run in turn, each with its share of the tokens; an expert's part is recorded once, as a
loop. Sizes are recorded as multiples of the model's dimensions, chosen here so that no two give the same bytes.
"""

import sys
import weakref

import torch
import transformers
from torch.nn.functional import linear, silu
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

HIDDEN, HEADS, KV_HEADS, HEAD_DIM, INTERMEDIATE = 2016, 9, 3, 128, 3001
EXPERTS, ACTIVE, RANK, TOKENS = 7, 5, 32, 7000
HALF = torch.float16


class Recorder(TorchDispatchMode):
    """Events in order: ('alloc', tensor, bytes), ('free', tensor), ('mark', name)."""

    def __init__(self, known):
        super().__init__()
        self.events, self.ids, self.count = [], {}, 0
        self.references, self.known = {}, [t.untyped_storage() for t in known]
        self.ids = {id(s): 0 for s in self.known}

    def mark(self, name):
        self.events.append(("mark", name))

    def see(self, storage):
        key = id(storage)
        if storage.nbytes() == 0 or key in self.ids:
            return
        self.count += 1
        number = self.count
        self.ids[key] = number
        self.events.append(("alloc", number, storage.nbytes()))

        def gone(_):
            self.events.append(("free", number))
            del self.ids[key], self.references[number]

        self.references[number] = weakref.ref(storage, gone)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        for tensor in tree_iter(out):
            if isinstance(tensor, torch.Tensor):
                self.see(tensor.untyped_storage())
        return out


class Flash(torch.autograd.Function):
    """Saves and allocates like flash attention 2; computes nothing."""

    @staticmethod
    def forward(ctx, q, k, v):
        batch, heads, length, width = q.shape
        out = q.new_empty(batch, length, heads, width)
        sums = q.new_empty(batch, heads, length, dtype=torch.float32)
        ctx.save_for_backward(q, k, v, out, sums)
        return out

    @staticmethod
    def backward(ctx, gradient):
        q, k, v, _, sums = ctx.saved_tensors
        gradient = gradient.contiguous()
        batch, heads, length, width = q.shape
        dq = q.new_empty(batch, length, heads, width)
        dk, dv = (q.new_empty(batch, length, k.shape[1], width) for _ in range(2))
        row_sums, dq_fp32 = torch.empty_like(sums), torch.empty_like(dq, dtype=torch.float32)
        expanded = [torch.empty_like(dq) for _ in range(2)] if k.shape[1] != heads else []
        del row_sums, dq_fp32, expanded
        return dq.transpose(1, 2), dk.transpose(1, 2), dv.transpose(1, 2)


def attention(module, query, key, value, mask, **_):
    return Flash.apply(query, key, value), None


ALL_ATTENTION_FUNCTIONS.register("recorded", attention)


class Adapted(torch.nn.Module):
    """A frozen linear layer with a LoRA adapter."""

    def __init__(self, weight, bias=None):
        super().__init__()
        self.weight, self.bias = weight, bias
        outputs, inputs = weight.shape
        self.down = torch.nn.Parameter(torch.empty(RANK, inputs, dtype=HALF, device="meta"))
        self.up = torch.nn.Parameter(torch.empty(outputs, RANK, dtype=HALF, device="meta"))

    def forward(self, x):
        out = linear(x, self.weight, self.bias)
        return out + linear(linear(x, self.down), self.up) * 2.0


class Expert(torch.nn.Module):
    """An expert of Qwen3 MoE: three weights of its own."""

    def __init__(self, lora):
        super().__init__()
        shapes = [(INTERMEDIATE, HIDDEN)] * 2 + [(HIDDEN, INTERMEDIATE)]
        weights = [torch.nn.Parameter(torch.empty(s, dtype=HALF, device="meta")) for s in shapes]
        self.weights = torch.nn.ParameterList(weights)
        self.adapted = torch.nn.ModuleList([Adapted(w) for w in weights]) if lora else None

    def forward(self, x):
        gate, up, down = self.adapted or [lambda v, w=w: linear(v, w) for w in self.weights]
        return down(silu(gate(x)) * up(x))


class OssExpert:
    """An expert of gpt-oss: slices of weights shared by all experts."""

    def __init__(self, weights, number):
        self.weights, self.number = weights, number

    def __call__(self, x):
        w, e = self.weights, self.number
        gate_up = x @ w.gate_up_proj[e] + w.gate_up_proj_bias[e]
        gate, up = gate_up[..., ::2], gate_up[..., 1::2]
        gate = gate.clamp(min=None, max=7.0)
        up = up.clamp(min=-7.0, max=7.0)
        glu = gate * torch.sigmoid(gate * 1.702)
        gated = (up + 1) * glu
        return gated @ w.down_proj[e] + w.down_proj_bias[e]


def run_experts(recorder, x, chosen, weights, experts):
    """Sorts tokens by expert like RoundPipe; all experts get the same number of tokens."""
    shape = x.shape
    x = x.view(-1, shape[-1])
    chosen, weights = chosen.view(-1), weights.view(-1)
    _, order = torch.sort(chosen)
    permuted = weights[order]
    token = order.div(ACTIVE, rounding_mode="floor")
    out = torch.zeros_like(x)
    share = chosen.numel() // len(experts)
    for number, expert in enumerate(experts):
        recorder.mark("forward %d" % number)
        tokens = token[number * share : (number + 1) * share]
        one = expert(x[tokens])
        one.register_hook(lambda _, n=number: recorder.mark("backward %d" % n))
        one *= permuted[number * share : (number + 1) * share].unsqueeze(-1)
        out.index_add_(0, tokens, one)
    recorder.mark("forward end")
    return out.view(shape)


def make_layer(kind):
    """The library's decoder layer, and the replacement for its experts."""
    common = dict(hidden_size=HIDDEN, num_attention_heads=HEADS, num_key_value_heads=KV_HEADS,
                  head_dim=HEAD_DIM, num_hidden_layers=1)
    if kind == "gpt-oss":
        from transformers.models.gpt_oss import modeling_gpt_oss as m
        config = m.GptOssConfig(intermediate_size=INTERMEDIATE, num_local_experts=EXPERTS,
                                num_experts_per_tok=ACTIVE, layer_types=["full_attention"], **common)
        make = m.GptOssDecoderLayer
    elif kind == "moe-qk-norm":
        from transformers.models.qwen3_moe import modeling_qwen3_moe as m
        config = m.Qwen3MoeConfig(intermediate_size=INTERMEDIATE, num_experts=EXPERTS,
                                  moe_intermediate_size=INTERMEDIATE, num_experts_per_tok=ACTIVE,
                                  **common)
        make = m.Qwen3MoeDecoderLayer
    elif kind == "dense-qk-norm":
        from transformers.models.qwen3 import modeling_qwen3 as m
        config = m.Qwen3Config(intermediate_size=INTERMEDIATE, **common)
        make = m.Qwen3DecoderLayer
    else:
        from transformers.models.llama import modeling_llama as m
        config = m.LlamaConfig(intermediate_size=INTERMEDIATE, **common)
        make = m.LlamaDecoderLayer
    config._attn_implementation = "recorded"
    torch.set_default_dtype(HALF)
    with torch.device("meta"):
        layer = make(config, 0)
    torch.set_default_dtype(torch.float32)
    return layer


def replace_experts(layer, kind, lora):
    """@return attributes set to the recorder before the layer runs."""
    holder = []
    if kind == "gpt-oss":
        weights, router = layer.mlp.experts, layer.mlp.router
        experts = [OssExpert(weights, e) for e in range(EXPERTS)]
    else:
        router = layer.mlp.gate
        layer.mlp.experts = torch.nn.ModuleList([Expert(lora) for _ in range(EXPERTS)])
        experts = list(layer.mlp.experts)

    def forward(x):
        logits = linear(x.view(-1, HIDDEN), router.weight, getattr(router, "bias", None))
        if kind == "gpt-oss":
            best, chosen = torch.topk(logits, ACTIVE, dim=-1)
            weights = torch.softmax(best, dim=1, dtype=best.dtype)
            return run_experts(holder[0], x, chosen, weights, experts), logits
        weights, chosen = torch.topk(torch.softmax(logits, dim=1, dtype=torch.float), ACTIVE, -1)
        weights = (weights / weights.sum(dim=-1, keepdim=True)).to(x.dtype)
        return run_experts(holder[0], x, chosen, weights, experts)

    layer.mlp.forward = forward
    return holder


def adapt(module, lora):
    """Freezes everything except adapters, which all linear layers get."""
    for name, child in list(module.named_children()):
        if isinstance(child, torch.nn.Linear):
            setattr(module, name, Adapted(child.weight, child.bias))
        elif not isinstance(child, Adapted):
            adapt(child, lora)


def record(kind, lora):
    layer = make_layer(kind)
    moe = hasattr(layer.mlp, "experts")
    holder = replace_experts(layer, kind, lora) if moe else []
    if lora:
        adapt(layer, lora)
        for name, parameter in layer.named_parameters():
            parameter.requires_grad_(name.endswith((".up", ".down")) and "weights" not in name)
    shape = (1, TOKENS, HIDDEN)
    x = torch.empty(shape, dtype=HALF, device="meta").requires_grad_()
    gradient = torch.empty(shape, dtype=HALF, device="meta")
    width = HEAD_DIM // 2 if kind == "gpt-oss" else HEAD_DIM
    angles = [torch.empty(1, TOKENS, width, dtype=HALF, device="meta") for _ in range(2)]
    recorder = Recorder(list(layer.parameters()) + [x, gradient] + angles)
    holder.append(recorder)
    with recorder, torch.enable_grad():
        y = layer(x, attention_mask=None, position_embeddings=tuple(angles), position_ids=None)
        y = y[0] if isinstance(y, tuple) else y
        recorder.mark("backward")
        torch.autograd.backward([y], [gradient])
        recorder.mark("done")
    recorder.results = [("output", y), ("input_gradient", x.grad)]
    recorder.results = [(n, recorder.ids[id(t.untyped_storage())]) for n, t in recorder.results]
    return recorder


# ---- sizes ----------------------------------------------------------------------------------------

TOKEN_UNITS = {"hidden": HIDDEN, "query": HEADS * HEAD_DIM, "key": KV_HEADS * HEAD_DIM,
               "intermediate": INTERMEDIATE, "heads": HEADS, "kv_heads": KV_HEADS,
               "experts": EXPERTS, "active": ACTIVE, "rank": RANK, "one": 1}
WEIGHTS = {"hidden*query": HIDDEN * HEADS * HEAD_DIM, "hidden*key": HIDDEN * KV_HEADS * HEAD_DIM,
           "hidden*intermediate": HIDDEN * INTERMEDIATE, "hidden": HIDDEN,
           "hidden*intermediate*experts": HIDDEN * INTERMEDIATE * EXPERTS,
           "hidden*experts": HIDDEN * EXPERTS, "intermediate*experts": INTERMEDIATE * EXPERTS,
           "hidden*rank": HIDDEN * RANK, "query*rank": HEADS * HEAD_DIM * RANK,
           "key*rank": KV_HEADS * HEAD_DIM * RANK, "intermediate*rank": INTERMEDIATE * RANK,
           "intermediate": INTERMEDIATE, "query": HEADS * HEAD_DIM, "key": KV_HEADS * HEAD_DIM}


def size_of(size):
    """@return (bytes, dimension, multiple): the first that fits."""
    share = TOKENS * ACTIVE // EXPERTS
    for scope, count, units in (("tokens", TOKENS, TOKEN_UNITS), ("share", share, TOKEN_UNITS),
                                ("weight", 1, WEIGHTS)):
        for unit, elements in units.items():
            for each in (1, 2, 4, 8, 16):
                if size == each * count * elements:
                    return each, scope, unit
    if size <= 4096:
        return size, "weight", "one"
    raise SystemExit("%d bytes are no multiple of anything" % size)


# ---- loops ----------------------------------------------------------------------------------------

def split(events):
    """@return {mark: index}"""
    return {e[1]: i for i, e in enumerate(events) if e[0] == "mark"}


def name_tensors(events, marks):
    """Names tensors of experts by loop and place in it, so that all experts' are alike:"""
    names = {}
    for letter, order in (("f", range(EXPERTS)), ("b", range(EXPERTS - 1, 0, -1))):
        word = "forward" if letter == "f" else "backward"
        for e in order:
            begin = marks["%s %d" % (word, e)]
            after = e + 1 if letter == "f" else e - 1
            end = marks["%s %d" % (word, after)] if "%s %d" % (word, after) in marks \
                else marks["forward end"]
            slot = 0
            for event in events[begin:end]:
                if event[0] == "alloc":
                    names[event[1]] = (letter, slot, e)
                    slot += 1
    # The first expert's allocations before the mark in the backward, as for the others; sums over experts have no
    # second term yet.
    body = [e for e in events[marks["backward 2"]:marks["backward 1"]] if e[0] == "alloc"]
    before = [e for e in events[marks["backward"]:marks["backward %d" % (EXPERTS - 1)]]
              if e[0] == "alloc"]
    freed = [e[1] for e in events[marks["backward 1"]:marks["backward 0"]] if e[0] == "free"]
    slot = len(body)
    while slot > 0 and before:
        slot -= 1
        if body[slot][2] == before[-1][2]:
            number = before.pop()[1]
            if body[slot][1] in freed:
                names[number] = ("b", slot, EXPERTS)
    return names


def refer(names, number, expert):
    """(set, tensor, whose): in a loop's row `expert` is the row's own."""
    if number not in names:
        return "layer", number, ""
    letter, slot, own = names[number]
    which = "forward" if letter == "f" else "backward"
    if expert is None:
        return which, slot, {0: "first", 1: "second", EXPERTS - 1: "last", EXPERTS: "end"}[own]
    return which, slot, {0: "own", 1: "next", -1: "previous"}[own - expert]


def rows_of(events, names, expert):
    rows = []
    for event in events:
        if event[0] == "mark":
            continue
        tensor = refer(names, event[1], expert)
        size = size_of(event[2]) if event[0] == "alloc" else ("", "", "")
        rows.append(event[:1] + tensor + size)
    return rows


def rows_of_layer(recorder):
    events = recorder.events[: split(recorder.events)["done"]]
    marks = split(events)
    mark = lambda name: (name,) + ("",) * 6
    results = [(name, "layer", number) + ("",) * 4 for name, number in recorder.results]
    if "forward end" not in marks:
        at = marks["backward"]
        return (rows_of(events[:at], {}, None) + [mark("backward")]
                + rows_of(events[at:], {}, None) + results)
    names = name_tensors(events, marks)
    part = lambda a, b, e=None: rows_of(events[marks[a] if a else 0:marks[b] if b else None], names, e)
    forward, backward = part("forward 2", "forward 3", 2), part("backward 2", "backward 1", 2)
    others = [r for r in part("backward 1", "backward 0", 1) if r not in backward]
    if part("forward 1", "forward 2", 1) != forward or any(r[1] != "layer" for r in others):
        raise SystemExit("experts differ")
    return (part(None, "forward 0") + [mark("loop")] + forward + [mark("end")]
            + part("forward end", "backward") + [mark("backward")]
            + part("backward", "backward %d" % (EXPERTS - 1)) + [mark("loop")] + backward + [mark("end")]
            + others + part("backward 0", None) + results)


def main():
    for kind in ("dense", "dense-qk-norm", "moe-qk-norm", "gpt-oss"):
        for lora in (False, True):
            if kind == "gpt-oss" and lora:
                continue
            rows = rows_of_layer(record(kind, lora))
            name = kind + ("-lora" if lora else "")
            with open("%s/%s.csv" % (sys.argv[1], name), "w", encoding="ascii") as out:
                out.write("event,set,tensor,expert,bytes,of,unit\n")
                out.writelines(",".join(str(c) for c in row) + "\n" for row in rows)
            print(name, len(rows), "rows, PyTorch", torch.__version__, "transformers",
                  transformers.__version__)


if __name__ == "__main__":
    main()
