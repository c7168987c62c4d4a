#!/usr/bin/env python3
"""Losses of training on packed documents, by transformers on PyTorch: losses.csv.

The decoder is tests/golden/decoders/llama, the tokens are megatron-uint16 and numpy-rows here. Each
step has all sequences of an epoch, so that their order does not matter: the loss is the mean over
all labels that are not ignored, and AdamW steps follow. Cases are SEQ_LEN and whether the first
tokens of documents are labels. Borders are counted from the lengths in make.py, which has them from
nowhere else. unit.exec_data_packing compares rpexec with them.
Usage: BUILD/tests/data/golden/tokens/losses.py > FILE
"""
import pathlib

import numpy
import torch
from transformers import AutoModelForCausalLM

HERE = pathlib.Path(__file__).absolute().parent
DOCUMENTS = [7, 1, 12, 20, 4, 16]
STEPS, RATE = 6, 0.01
tokens = torch.from_numpy(numpy.fromfile(HERE / "megatron-uint16.bin", "<u2").astype("int64"))
document = torch.repeat_interleave(torch.arange(len(DOCUMENTS)), torch.tensor(DOCUMENTS))


def stream(length, joined):
    """Consecutive sequences and labels."""
    count = (len(tokens) - 1) // length
    labels = tokens[1:].clone()
    if not joined:
        labels[document[1:] != document[:-1]] = -100
    return tokens[:count * length].reshape(count, length), labels[:count * length].reshape(count, length)


def rows(length):
    """Rows of five tokens: all of them, or the last without a label."""
    table = torch.from_numpy(numpy.load(HERE / "numpy-rows.npy").astype("int64"))
    padded = torch.nn.functional.pad(table, (0, 1), value=-100)
    return table[:, :length], padded[:, 1:length + 1]


def train(ids, labels):
    net = AutoModelForCausalLM.from_pretrained(HERE.parent / "decoders/llama", dtype=torch.float32)
    adam = torch.optim.AdamW(net.parameters(), lr=RATE, betas=(0.9, 0.999), eps=1e-8, weight_decay=0)
    for step in range(1, STEPS + 1):
        logits = net(input_ids=ids).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)
        adam.zero_grad()
        loss.backward()
        adam.step()
        yield step, loss.item()


print("data,seq_len,sequences,joined,step,loss")
for name, length, joined in (("megatron-uint16.idx", 14, 0), ("megatron-uint16.idx", 14, 1),
                             ("megatron-uint16.idx", 5, 0), ("numpy-rows.npy", 4, 0), ("numpy-rows.npy", 5, 0)):
    ids, labels = rows(length) if name == "numpy-rows.npy" else stream(length, joined)
    for step, loss in train(ids, labels):
        print(f"{name},{length},{len(ids)},{joined},{step},{loss:.9g}")
