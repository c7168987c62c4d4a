#!/usr/bin/env python3
"""Padded rows and labels of -100: files, and losses of transformers' Trainer on them: padded.csv.

The decoder is tests/golden/decoders/llama. Each of the twelve texts begins with token 1, most end with 2 (all padded
texts do if 2 is the padding), and some have token 0 within them. transformers' own collators pad and label them:
DataCollatorForLanguageModeling, whose labels are -100 at every padding token (0 here), and DataCollatorForSeq2Seq,
whose labels are -100 only in the padding that it adds: so also where texts end with the padding token (2), or begin
with it (1). The model is given their attention_mask, except if padding comes first: with it the first token of a text
would follow a token that sees nothing at all. Trainer makes a step of all texts, one at a time, and divides by the
labels of the step that are not -100 (num_items_in_batch). The file has only the padded rows (uint16), with -100 in
place of padding (int32, "filled"), or with the labels after them ([2, texts, length], int32, "prompts"). Losses are
sums over a step. unit.exec_data_packing compares rpexec with them. Usage:
BUILD/tests/data/golden/tokens/padded.py FOLDER > FILE, then tests/tools/folded.py fold tests/golden/tokens.tar.gz FOLDER
"""
import pathlib
import sys

import numpy
import torch
from tokenizers import Tokenizer, models
from transformers import (AutoModelForCausalLM, DataCollatorForLanguageModeling, DataCollatorForSeq2Seq,
                          PreTrainedTokenizerFast, Trainer, TrainingArguments)

HERE = pathlib.Path(__file__).absolute().parent
FOLDER = pathlib.Path(sys.argv[1])
LENGTH, STEPS, RATE = 12, 6, 0.01
generator = numpy.random.default_rng(3)


def texts():
    for number, length in enumerate([3, 5, 12, 7, 2, 9, 11, 4, 8, 12, 6, 10]):
        ids = [1] + generator.integers(3, 97, length - 1).tolist()
        if number % 3 == 2:
            ids[length // 2] = 0
        yield ids


def ended(padding):
    """Some are cut off."""
    for number, ids in enumerate(ALL):
        cut = number % 4 == 3 and (padding != 2 or len(ids) == LENGTH)
        yield ids if cut else ids[:-1] + [2]


def tokenizer(padding, side):
    words = {f"t{i}": i for i in range(97)}
    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="t3")),
                                   pad_token=f"t{padding}", bos_token="t1", eos_token="t2", padding_side=side)


class Summed(Trainer):
    """A step's loss: the sum over its passes."""

    def training_step(self, *arguments, **keywords):
        loss = super().training_step(*arguments, **keywords)
        self.losses[self.state.global_step] += loss.item()
        return loss


def train(rows, collate, padding):
    net = AutoModelForCausalLM.from_pretrained(HERE.parent / "decoders/llama", dtype=torch.float32,
                                               attn_implementation="eager", pad_token_id=padding)
    assert net.get_input_embeddings().padding_idx == padding
    arguments = TrainingArguments(
        output_dir="/tmp/padded", per_device_train_batch_size=1, gradient_accumulation_steps=len(rows),
        max_steps=STEPS, learning_rate=RATE, lr_scheduler_type="constant", weight_decay=0.0, adam_epsilon=1e-8,
        max_grad_norm=0.0, save_strategy="no", report_to=[], disable_tqdm=True, use_cpu=True,
        logging_strategy="no", optim="adamw_torch")
    trainer = Summed(net, arguments, train_dataset=rows, data_collator=collate)
    trainer.losses = [0.0] * (STEPS + 1)
    trainer.train()
    return trainer.losses[:STEPS]


def save(name, ids, kind):
    numpy.save(FOLDER / f"padded-{name}.npy", numpy.asarray(ids).astype(kind))


ALL = list(texts())
print("data,padding,step,loss")
for name, padding, side, labelled in (("right", 0, "right", False), ("left", 0, "left", False),
                                      ("eos", 2, "right", True), ("eos-left", 2, "left", True),
                                      ("bos-left", 1, "left", True), ("filled", 0, "right", True),
                                      ("prompts", 0, "right", True), ("prompts-left", 0, "left", True)):
    words = tokenizer(padding, side)
    rows = [{"input_ids": ids, "attention_mask": [1] * len(ids)} for ids in ended(padding)]
    for number, row in enumerate(rows if labelled else []):
        prompt = len(row["input_ids"]) // 2 if name.startswith("prompts") and number % 5 != 1 else 0
        row["labels"] = [-100] * prompt + row["input_ids"][prompt:]
    fixed = dict(pad_to_multiple_of=LENGTH)
    collator = (DataCollatorForSeq2Seq(words, **fixed) if labelled else
                DataCollatorForLanguageModeling(words, mlm=False, **fixed))

    def collate(batch):
        batch = collator(batch)
        if side == "left":
            del batch["attention_mask"]
        return batch

    whole = collator([dict(row) for row in rows])
    ids, labels = whole["input_ids"].numpy(), whole["labels"].numpy()
    if name.startswith("prompts"):
        save(name, numpy.stack([ids, labels]), "<i4")
    elif name == "filled":
        save(name, numpy.where(whole["attention_mask"].numpy() == 1, ids, -100), "<i4")
    else:
        save(name, ids, "<u2")
    known = None if name == "filled" else padding
    for step, loss in enumerate(train(rows, collate, known)):
        print(f"padded-{name}.npy,{'none' if known is None else known},{step + 1},{loss:.9g}")
