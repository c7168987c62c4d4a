#!/usr/bin/env python3
"""Fifty steps with a small model as recipes have them: clipping, courses of the learning rate, weight
decay of matrices, evaluation. transformers and PyTorch in float64.

The model is tests/golden/families/qwen2: a tied table, biases and norms. Writes into FOLDER
data.tokens and eval.tokens (format: exec/data/tokens.h), and for each recipe NAME.csv with the
columns of rpexec's --loss-out but the time: step, loss, grad_norm, learning_rate, eval_loss. Every
step has all sequences of the data, so that their order does not matter. Clipping is
torch.nn.utils.clip_grad_norm_, the courses are transformers' get_*_schedule_with_warmup. Run once
with PyTorch 2.x and transformers 5 or later; the files are committed.
Usage: BUILD/tests/data/golden/recipes/make.py FOLDER [NAME...]
"""
import pathlib
import struct
import sys

import torch
from transformers import (AutoModelForCausalLM, get_constant_schedule_with_warmup,
                          get_cosine_schedule_with_warmup, get_linear_schedule_with_warmup)

MODEL = pathlib.Path(__file__).absolute().parent.parent / "families" / "qwen2"
SEQUENCES, EVALUATED, LENGTH, STEPS, EVERY = 8, 5, 17, 50, 10
# Options of rpexec: tests/checks/test_recipes.py has the same.
RECIPES = {
    "linear": dict(lr=2e-3, betas=(0.9, 0.999), eps=1e-8, decay=0.1, of_all=False, clip=0.9,
                   course=lambda o: get_linear_schedule_with_warmup(o, 7, STEPS)),
    "cosine": dict(lr=1e-3, betas=(0.9, 0.95), eps=1e-5, decay=0.0, of_all=False, clip=0.5,
                   course=lambda o: get_cosine_schedule_with_warmup(o, 5, STEPS)),
    "constant": dict(lr=5e-4, betas=(0.9, 0.99), eps=1e-5, decay=0.5, of_all=True, clip=None,
                     course=lambda o: get_constant_schedule_with_warmup(o, 10)),
}


def write_tokens(path, tokens, vocabulary):
    header = struct.pack("<8sIIIIQ", b"RPTOKENS", 1, 2, vocabulary, 0, len(tokens))
    path.write_bytes(header + struct.pack(f"<{len(tokens)}H", *tokens))


def sequences_of(tokens, count):
    ids = torch.tensor(tokens)
    return ids[:-1].reshape(count, LENGTH), ids[1:].reshape(count, LENGTH)


def mean_loss(net, batch):
    logits = net(input_ids=batch[0]).logits
    return torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]),
                                             batch[1].reshape(-1))


def groups_of(net, recipe):
    """Matrices, and parameters without decay: norms and biases."""
    parameters = list(net.parameters())
    matrices = [p for p in parameters if recipe["of_all"] or p.dim() > 1]
    others = [p for p in parameters if not (recipe["of_all"] or p.dim() > 1)]
    return [dict(params=matrices, weight_decay=recipe["decay"]),
            dict(params=others, weight_decay=0.0)]


def run(recipe, data, evaluated):
    net = AutoModelForCausalLM.from_pretrained(MODEL, attn_implementation="eager",
                                               dtype=torch.float32).to(torch.float64)
    optimizer = torch.optim.AdamW(groups_of(net, recipe), lr=recipe["lr"], betas=recipe["betas"],
                                  eps=recipe["eps"])
    scheduler = recipe["course"](optimizer)
    for step in range(1, STEPS + 1):
        optimizer.zero_grad()
        loss = mean_loss(net, data)
        loss.backward()
        most = float("inf") if recipe["clip"] is None else recipe["clip"]
        norm = torch.nn.utils.clip_grad_norm_(net.parameters(), most)
        rate = optimizer.param_groups[0]["lr"]
        optimizer.step()
        scheduler.step()
        after = ""
        if step % EVERY == 0:
            with torch.no_grad():
                after = f"{mean_loss(net, evaluated).item():.10g}"
        yield f"{step},{loss.item():.10g},{norm.item():.10g},{rate:.10g},{after}"


def main():
    folder = pathlib.Path(sys.argv[1])
    torch.set_num_threads(1)
    torch.manual_seed(11)
    batches = []
    for name, count in (("data", SEQUENCES), ("eval", EVALUATED)):
        tokens = torch.randint(0, 61, (count * LENGTH + 1,)).tolist()
        write_tokens(folder / f"{name}.tokens", tokens, 61)
        batches.append(sequences_of(tokens, count))
    for name in sys.argv[2:] or RECIPES:
        lines = "\n".join(run(RECIPES[name], *batches))
        (folder / f"{name}.csv").write_text(f"step,loss,grad_norm,learning_rate,eval_loss\n{lines}\n")


main()
