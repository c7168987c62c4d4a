#!/usr/bin/env python3
"""Writes the ledger, traces/ledger.csv: runs that others have measured (paper-figures/published), with their software
(stack), their class of machine, and the speeds that rpsim predicts.

    ledger.py RPSIM [--out FILE] [--intervals N|off] [--jobs N] [--only FILE] [--where KEY=VALUE] [--print]

Rows without a speed, failed runs and rows whose own numbers contradict each other are left out. Roles: `test`; `sets`,
a row of SETS, which has set a constant; `listed`, a run with a feature that rpsim lacks. The summary has them apart.
"""

import argparse
import csv
import dataclasses
import functools
import json
import math
import re
import statistics
import subprocess
import sys
import tempfile
import typing
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PUBLISHED = ROOT / "paper-figures/published"
RUNS = ROOT / "traces/runs"
COLUMNS = """file row stack platform class measured_tokens_per_s predicted_tokens_per_s error_pct p10 p90 role
note memory measured_gb predicted_gb memory_error_pct""".split()

# Rows that have set a constant (sim/model.md section 15): file, row: the constant.
SETS = {
    **{("nanotron_h100.csv", row): "stack nanotron" for row in (4, 5, 10, 11, 20, 21, 22, 23, 24, 29, 30, 31)},
    **{("llmq_consumer.csv", row): "product_pj, HBM on 4N" for row in (17, 19, 21, 23)},
    **{("llmq_consumer.csv", row): "product_pj, GDDR on 4N" for row in (27, 29, 31)},
    ("qwen_finetune_a100.csv", 1): "host_speed of a100-80x8",
    **{("2026-11-26-h200/side.csv", row): "host of torch, torch-compile, roundpipe; attention of rpexec"
       for row in (1, 3, 5, 6, 7, 10, 13)},
    ("2026-11-27-h200/side.csv", 2): "host of torch-compile",
    ("qwen_finetune_a100.csv", 19): "host_us_per_collective of deepspeed",
    ("fsdp_mpt_a100.csv", 17): "step_host_ms of MPT models",
}


# Liger's kernels: bytes per value as fused kernels of the stacks megatron and llmq have them; launches are assumed.
LIGER = " --set stack.norm_fwd_bytes=4,stack.norm_bwd_bytes=8,stack.rope_fwd_bytes=4,stack.rope_bwd_bytes=4"
LIGER += ",stack.activation_fwd_bytes=6,stack.activation_bwd_bytes=10,stack.loss_bytes=6"
LIGER += ",stack.launches_fwd=18,stack.launches_bwd=40"


class Feature(typing.NamedTuple):
    """Something that runs have and rpsim may lack: has. Rows that need it then run without it, or not at all: runs."""

    options: str  # rpsim's, once it has the feature
    until: str = ""  # in their place while it lacks it
    runs: bool = True
    has: bool = False


FEATURES = {
    "selective recompute": Feature("--recompute selective", has=True),
    "bf16 states and masters": Feature("--states bf16 --master bf16", has=True),
    "bf16 states": Feature("--states bf16 --master none", has=True),
    "8-bit states": Feature("--states 8bit --master none", has=True),
    "fp8 products": Feature("--compute fp8", has=True),
    "GPTQ's kernels": Feature("", "--frozen nf4"),
    "4-bit frozen weights": Feature("--frozen nf4", has=True),
    "trained embedding and head beside adapters": Feature("", runs=False),
    "flags that shard, recompute or offload": Feature("", runs=False),
    "offload to the CPU": Feature("", runs=False),
}
# Memory of a run: column, bytes of its unit, GPUs that it is of, and what it counts: bytes that PyTorch's allocator has
# given out (allocated) or taken (reserved), or the driver's count, with contexts. The universal trainer's "GiB" are 1e9.
GB, GIB = 1e9, 2**30
MEMORY = {
    "nanotron_h100.csv": ("mem_gib", GIB, "first", "allocated"),
    "qwen_finetune_a100.csv": ("mem_gb", GB, "all", "driver"),
    "flagperf_llm.csv": ("mem_gb", GB, "most", "driver"),
    "torchtitan_h100.csv": ("mem_gib", GIB, "most", "reserved"),
    "universal_trainer_singlegpu.csv": ("mem_gib", GB, "most", "reserved"),
    "torchtune_torchao_litgpt.csv": ("mem", GIB, "most", "reserved"),
    "fsdp_qlora_consumer.csv": ("mem_gib", GIB, "most", "reserved"),
    **{f"2026-11-{day}-h200/side.csv": ("peak_gpu_mib", 2**20, "most", "allocated") for day in (26, 27)},
}
# Losses that are not the stack's: the universal trainer's own on logits of 16 bits; transformers before 4.45, whose loop
# keeps fp32 logits.
OWN_LOSS = " --set stack.logit_bytes=6,stack.logit_reserved_bytes=6"
OLD_LOSS = " --set stack.logit_bytes=16,stack.logit_reserved_bytes=22"
PLATFORMS = {"rtx4090": "rtx4090x8", "l40s": "l40sx8", "h100": "h100x8", "h100_80gb": "h100x8", "a6000": "a6000x8",
             "a100_80gb": "a100-80x8", "a100_40gb": "a100-40x8",
             "rtx3090": "rtx3090x8-pcie3"}


def value_of(file, key):
    """A key's value in a YAML file of traces."""
    lines = (ROOT / "traces" / file).read_text().splitlines()
    return next(line.partition(": ")[2] for line in lines if line.startswith(f"{key}: "))


@functools.cache
def architecture_of(platform):
    return value_of(f"gpus/{value_of(f'platforms/{platform}.yaml', 'gpu')}.yaml", "architecture")


@dataclasses.dataclass
class Row:
    """A measured run. options: the command line without schedule, stack, model and platform."""

    stack: str
    schedule: str
    model: str
    platform: str
    measured: float
    options: str
    needs: tuple = ()
    note: str = ""
    file: str = ""
    number: int = 0
    memory: float = 0  # bytes, 0: not said

    def lacks(self):
        return [name for name in self.needs if not FEATURES[name].has]

    def runs(self):
        return all(FEATURES[name].runs for name in self.lacks())

    def line(self):
        """The row's line of the ledger before the run."""
        offloaded = self.schedule in ("zero-offload", "zero-infinity", "roundpipe") or "offload to the CPU" in self.needs
        place, trained = "offloaded" if offloaded else "resident", "adapters" if "--lora" in self.options else "full"
        constant = SETS.get((self.file, self.number))
        notes = ([f"sets {constant}"] if constant else []) + [f"needs {name}" for name in self.lacks()]
        notes += ([self.note] if self.note else []) + ([] if self.runs() else ["not run"])
        return dict.fromkeys(COLUMNS, "") | {
            "file": self.file, "row": self.number, "stack": self.stack, "platform": self.platform,
            "class": f"{architecture_of(self.platform)}/{place}/{trained}", "measured_tokens_per_s": f"{self.measured:.6g}",
            "role": "sets" if constant else "listed" if self.lacks() else "test", "note": "; ".join(notes)} | (
                {"memory": MEMORY[self.file][3], "measured_gb": f"{self.memory / GB:.4g}"} if self.memory else {})

    def command(self, models, settings):
        """A pipeline's second step begins behind its first, as all later ones do: two are a steady state (16 give the
        same digits). Steps of data-parallel systems are all equal, so one does; asynchronous ones overlap."""
        words = [settings.rpsim, "--schedule", self.schedule]
        words += [] if settings.without_stack else ["--stack", self.stack]
        ours = {"wide": str(ROOT / "tests/gpu/wide.yaml")}
        words += ["--model", str(models / self.model) if self.model in MODELS else ours.get(self.model, self.model)]
        words += ["--platform", self.platform, *self.options.split()]
        words += [] if "--dtype" in words else ["--dtype", "bf16"]
        for feature in (FEATURES[name] for name in self.needs):
            words += (feature.options if feature.has or not feature.runs else feature.until).split()
        iterations = {"1f1b": "2", "roundpipe": "8"}.get(self.schedule, "1")
        words += ["--iterations", iterations, "--intervals", settings.intervals]
        return words + ["--format", "json"]


def shape(layers, hidden, heads, kv_heads, intermediate, vocab, tied=False, family="llama", **others):
    """A config.json of Hugging Face. Families qwen2 (also Qwen's of 2023) have biases of queries, keys and values."""
    return {"model_type": family, "num_hidden_layers": int(layers), "hidden_size": int(hidden),
            "num_attention_heads": int(heads), "num_key_value_heads": int(kv_heads),
            "intermediate_size": int(intermediate), "vocab_size": int(vocab), "tie_word_embeddings": bool(int(tied)),
            "max_position_embeddings": 131072, "rms_norm_eps": 1e-5, **others}


# Models by the name of their folder; readers add those whose shapes a table has. Others are rpsim's own.
MODELS = {
    "llama2-7b": shape(32, 4096, 32, 32, 11008, 32000),
    "llama2-13b": shape(40, 5120, 40, 40, 13824, 32000),
    "llama2-70b": shape(80, 8192, 64, 8, 28672, 32000),
    "yi-34b": shape(60, 7168, 56, 8, 20480, 64000),
    "gemma-7b": shape(28, 3072, 16, 16, 24576, 256000, True, "gemma", head_dim=256),
    "gemma-2-9b": shape(42, 3584, 16, 8, 14336, 256000, True, "gemma2", head_dim=256, sliding_window=4096),
    "phi3-mini": shape(32, 3072, 32, 32, 8192, 32064, family="phi3", sliding_window=None, pad_token_id=32000),
}


def sizes(gpus, seq_len, microbatch_size, microbatches, recompute="wait --grain layer"):
    """Microbatches: of one copy of a pipeline, or of all ranks of FSDP and ZeRO."""
    work = f"--gpus {gpus} --seq-len {seq_len} --microbatch-size {microbatch_size} --microbatches {microbatches}"
    return work + (f" --recompute {recompute}" if recompute else "")


def needs_of(method, full=""):
    """Features that full training, LoRA and QLoRA need."""
    return {"full": (full,), "lora": (), "qlora": ("4-bit frozen weights",)}[method]


def nanotron(row):
    """Llama shapes. fp32 gradients of a single copy (dp 1) are the stack's: --reduce-dtype is of several copies."""
    tp, dp, pp, model = int(row["tp"]), int(row["dp"]), int(row["pp"]), f"nanotron-{row['model'].lower()}"
    MODELS[model] = shape(row["layers"], row["hidden"], row["heads"], row["heads"], row["intermediate"], row["vocab"],
                          row["tied"])
    options = sizes(tp * dp * pp, 4096, row["microbatch_size"], row["grad_accumulation"], "none")
    options += f" --tensor-parallel {tp} --sequence-parallel" if tp > 1 else ""
    options += f" --data-parallel {dp} --zero {row['zero']} --reduce-dtype fp32" if dp > 1 else ""
    return Row("nanotron", "1f1b", model, "h100x8", float(row["tokens_per_s"]), options)


def llmq(row):
    """Qwen2.5; a step has 524288 tokens if the accumulation is not given. Chunks need no option."""
    MODELS[row["model"]] = shape(*(row[key] for key in "layers hidden heads kv_heads intermediate vocab tied".split()),
                                 "qwen2")
    size, gpus, seq_len = int(row["microbatch_size"]), int(row["gpus"]), int(row["seq_len"])
    work = gpus, seq_len, size, int(row["grad_accumulation"] or 524288 // (seq_len * size * gpus))
    run = row["model"], PLATFORMS[row["gpu"]], float(row["tokens_per_s"])
    if row["system"] == "llmq":
        flags = [flag for flag in row["flags"].split() if "-chunks=" not in flag]
        needs = ("bf16 states and masters",) + (("fp8 products",) if row["dtype"] == "fp8" else ())
        needs += ("flags that shard, recompute or offload",) if flags else ()
        options = sizes(*work, "none") + (f" --data-parallel {gpus} --zero 1" if gpus > 1 else "")
        return Row("llmq", "1f1b", *run, options, needs, " ".join(flags))
    options = sizes(*work) + LIGER
    if "deepspeed" in row["flags"]:
        schedule = "zero-offload" if "ds_z2_offload" in row["flags"] else "zero-infinity"
        return Row("deepspeed", schedule, *run, options)
    return Row("torch", "1f1b", *run, options, ("bf16 states",))


def qwen_finetune(row):
    """An iteration is 8 sequences per GPU. Full training has ZeRO-3 without offload, LoRA on several nodes ZeRO-2: the
    repository's finetune_ds.sh and advice, from memory."""
    MODELS["qwen-7b"] = shape(row["layers"], row["hidden"], row["heads"], row["heads"], row["intermediate_each"],
                              row["vocab"], family="qwen2")
    gpus, nodes, seq_len = int(row["gpus_per_node"]), int(row["nodes"]), int(row["seq_len"])
    run = "qwen-7b", "a100-80x8", 8 * seq_len * gpus * nodes / float(row["s_per_iter"])
    options = sizes(gpus, seq_len, 1, 8 * gpus * nodes)
    if row["method"] == "Full-parameter":
        return Row("deepspeed", "zero3", *run, options)
    options += " --lora-rank 64"
    if nodes > 1:
        return Row("deepspeed", "zero2", *run, f"--nodes {nodes} {options}", note="network not stated")
    needs = {"LoRA (emb)": ("trained embedding and head beside adapters",), "Q-LoRA": ("GPTQ's kernels",)}
    return Row("torch", "1f1b", *run, options, needs.get(row["method"], ()))


def fsdp_mpt(row):
    """Gathers and reductions of each microbatch; servers of 8, RoCE between them."""
    gpus = int(row["gpus"])
    options = sizes(8, row["seq_len"], row["microbatch_size"], gpus * int(row["accumulation"]),
                    "wait" if row["checkpointing"] == "1" else "none")
    options += f" --nodes {gpus // 8}" if gpus > 8 else ""
    options += f" --reduce-each microbatch --reduce-dtype {'fp32' if row['mixed_precision_mode'] == 'DEFAULT' else 'bf16'}"
    return Row("llm-foundry", "fsdp", f"mpt-{row['model']}", PLATFORMS[row["gpu"]], float(row["tokens_per_s"]), options)


def flagperf(row):
    """Flash attention 2 (the file's head), where the stack has cuDNN's."""
    tp, dp, pp = int(row["tp"]), int(row["dp"]), int(row["pp"])
    gpus = tp * dp * pp
    options = sizes(gpus, row["seq_len"], row["microbatch_size"], row["grad_accumulation"], "")
    options += f" --data-parallel {dp} --zero 1 --reduce-dtype fp32"
    options += f" --tensor-parallel {tp} --sequence-parallel" if tp > 1 else ""
    gpu = value_of(f"platforms/{PLATFORMS[row['gpu']]}.yaml", "gpu")
    shares = {way: value_of(f"gpus/{gpu}.yaml", f"flash2_{way}_share") for way in ("fwd", "bwd")}
    options += " --set " + ",".join(f"stack.attention_{way}_share={share}" for way, share in shares.items())
    needs = ("selective recompute",) + (("fp8 products",) if "fp8" in row["precision"] else ())
    return Row("megatron", "1f1b", "llama3.1-8b", PLATFORMS[row["gpu"]], gpus * float(row["tokens_per_s_per_gpu"]),
               options, needs)


def torchtitan(row):
    """The H100 of these runs has 96 GB of HBM2e, 2.4 TB/s (0.716 of the SXM5 80 GB card's) and 500 W. FSDP2 reduces
    with every backward, and gathers the next block before."""
    gpus = int(row["gpus"])
    options = sizes(gpus, row["seq_len"], row["local_batch"], gpus, "")
    options += " --reduce-dtype fp32 --reduce-each microbatch"
    options += " --set platform.power_limit_w=500,platform.memory_gib=96,platform.memory_gb_per_s=2400"
    options += " --set platform.memory_effective_gb_per_s*0.716"
    return Row("torch-compile" if row["compile"] == "1" else "torch", "fsdp", "llama3.1-8b", "h100x8",
               gpus * float(row["tokens_per_s_per_gpu"]), options, ("selective recompute",))


def universal_trainer(row):
    """A measured step is a microbatch (inferred there)."""
    model = row["model"].split(" (")[0].lower().replace("llama ", "llama").replace(" ", "-")
    gpus, batch, seq_len = int(row["gpus"]), int(row["batch_size"]), int(row["seq_len"])
    options = sizes(gpus, seq_len, batch, int(row["grad_accumulation"]) * gpus)
    options += OWN_LOSS + ("" if row["method"] == "full" else " --lora-rank 64")
    needs = needs_of(row["method"], "bf16 states") + (("offload to the CPU",) if row["cpu_offload"] == "1" else ())
    note = "" if row["method"] == "full" else "LoRA rank not stated: 64 assumed"
    if row["method"] == "qlora":  # BitsAndBytesConfig's usual bnb_4bit_compute_dtype
        options += " --dtype fp32"
        note += "; fp32 products inferred"
    return Row("torch", "fsdp" if gpus > 1 else "1f1b", model, PLATFORMS[row["gpu"]],
               gpus * batch * seq_len / float(row["s_per_step"]), options, needs, note)


def torchtune(row):
    """Recipes of Llama 3.1 on a single device: checkpointing, LoRA of rank 8, 8-bit paged AdamW for full training."""
    options = sizes(row["gpus"], row["seq_len"], row["batch_size"], 1)
    options += "" if row["method"] == "full" else " --lora-rank 8"
    return Row("torch-compile" if row["compile"] == "1" else "torch", "1f1b", row["model"], PLATFORMS[row["gpu"]],
               float(row["value"]), options, needs_of(row["method"], "8-bit states"),
               "checkpointing, optimizer and LoRA rank are the recipe's")


def fsdp_qlora(row):
    """280 W. PCIe 3 x16 stands for an "older motherboard and slow PCI lanes"; a step is a microbatch of each GPU."""
    gpus, context = int(row["gpus"]), int(row["context"])
    sharded = row["sharding"] == "full"
    options = sizes(gpus, context, row["batch_size"], gpus if sharded else 1)
    options += ("" if sharded else f" --data-parallel {gpus}") + " --lora-rank 64 --set platform.power_limit_w=280"
    options += OLD_LOSS
    needs = needs_of(row["train_type"])
    needs += ("offload to the CPU",) if "1" in (row["cpu_offload"], row["activation_offload"]) else ()
    return Row("torch", "fsdp" if sharded else "1f1b", row["model"], PLATFORMS[row["gpu"]],
               1024 * context / float(row["time_s"]), options, needs, "width of PCIe not stated")


def h200(row):
    """Our H200: PyTorch, RoundPipe's library and rpexec train the same models, 16 or 8 microbatches of 4 x 2048."""
    model, mode = row["model"], row["mode"]
    options = sizes(1, 2048, 4, 16 if model == "wide" else 8, None)
    if row["side"] == "roundpipe-lib" or mode.startswith("roundpipe/"):
        parts = re.search("partition-([0-9+|]+)/", mode)
        partition = parts[1].replace("+", ",") if parts and model != "wide" else "auto" if model != "wide" else "even"
        return Row("roundpipe" if row["side"] == "roundpipe-lib" else "rpexec", "roundpipe", model, "h200",
                   float(row["tokens_per_s"]), f"{options} --optimizer async --partition {partition}")
    stack = "rpexec" if row["side"] == "rpexec" else "torch-compile" if "compile" in mode else "torch"
    again = "wait --grain layer" if "ckpt" in mode or "recompute-wait" in mode else "none"
    return Row(stack, "1f1b", model, "h200", float(row["tokens_per_s"]), f"{options} --recompute {again}")


READERS = {  # file: reader, column of the speed
    "nanotron_h100.csv": (nanotron, "tokens_per_s"),
    "llmq_consumer.csv": (llmq, "tokens_per_s"),
    "qwen_finetune_a100.csv": (qwen_finetune, "s_per_iter"),
    "fsdp_mpt_a100.csv": (fsdp_mpt, "tokens_per_s"),
    "flagperf_llm.csv": (flagperf, "tokens_per_s_per_gpu"),
    "torchtitan_h100.csv": (torchtitan, "tokens_per_s_per_gpu"),
    "universal_trainer_singlegpu.csv": (universal_trainer, "s_per_step"),
    "torchtune_torchao_litgpt.csv": (torchtune, "value"),
    "fsdp_qlora_consumer.csv": (fsdp_qlora, "time_s"),
    "2026-11-26-h200/side.csv": (h200, "tokens_per_s"),
    "2026-11-27-h200/side.csv": (h200, "tokens_per_s"),
}


def sound(row):
    """A run that ended, with numbers that agree; nanotron on one node (on several its own overheads decide), and no row
    of Llama 3 of the universal trainer, which repeat those of Llama 3.1."""
    return (row.get("status", "ok") == "ok" and row.get("batch_ok", "1") == "1"
            and abs(float(row.get("check") or 1) - 1) <= 0.1
            and (row.get("nodes", "1") == "1" if "mfu_pct" in row else row["model"] != "Llama 3 8B"))


def read(only):
    """Rows of the files, numbered from 1 as the data are."""
    for file, (reader, speed) in READERS.items():
        if only and only not in (file, file.removesuffix(".csv")):
            continue
        path = RUNS / file if "/" in file else PUBLISHED / file
        lines = (line for line in path.read_text().splitlines() if not line.startswith("#"))
        for number, cells in enumerate(csv.DictReader(lines), 1):
            if cells[speed] and cells[speed] != speed and sound(cells):
                name, unit = MEMORY.get(file, ("", 0))[:2]
                yield dataclasses.replace(reader(cells), file=file, number=number, memory=unit * float(cells.get(name) or 0))


def memory_of(row, said):
    """The predicted bytes that a row's memory is of."""
    _, _, which, counts = MEMORY[row.file]
    fixed = said["fixed_gpu_bytes"]
    allocated = [peak - fixed for peak in said["peak_gpu_bytes"]]
    bytes_of = allocated if counts == "allocated" else said["reserved_gpu_bytes"] or allocated
    bytes_of = [one + (fixed if counts == "driver" else 0) for one in bytes_of]
    return {"first": bytes_of[0], "all": sum(bytes_of), "most": max(bytes_of)}[which]


def predict(row, command):
    """The row's line of the ledger."""
    line = row.line()
    if not row.runs():
        return line
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return line | {"note": "refused: " + " ".join(done.stderr.split())}
    [said] = json.loads(done.stdout)
    predicted = said["tokens_per_s"]
    line |= {"predicted_tokens_per_s": f"{predicted:.6g}", "error_pct": f"{100 * (predicted / row.measured - 1):.2f}"}
    if said["tokens_per_s_p10"] is not None:
        line |= {name: f"{said[f'tokens_per_s_{name}']:.6g}" for name in ("p10", "p90")}
    if row.memory and "fixed_gpu_bytes" in said:
        memory = memory_of(row, said)
        line |= {"predicted_gb": f"{memory / GB:.4g}", "memory_error_pct": f"{100 * (memory / row.memory - 1):.1f}"}
    if said["fits"] is False:
        line["note"] += "; does not fit" if line["note"] else "does not fit"
    return line


def summary(lines):
    """Errors of each stack and class in percent: mean with sign, then mean, median and worst without. Inside: share of
    measured speeds within [p10, p90], whose median width is in percent of the prediction."""
    groups = {}
    for line in (line for line in lines if line["error_pct"]):
        groups.setdefault((line["role"] != "test", line["stack"], line["class"], line["role"]), []).append(line)
    print(f"{'stack':14}{'class':27}{'role':7}rows  mean %  abs mean  median  worst  inside %  width %")
    for (_, stack, kind, role), group in sorted(groups.items()):
        signed = [float(line["error_pct"]) for line in group]
        errors = [abs(error) for error in signed]
        ranges = [[float(line[key]) for key in ("p10", "p90", "measured_tokens_per_s", "predicted_tokens_per_s")]
                  for line in group if line["p10"]] or [[math.nan] * 4]
        inside = statistics.mean(low <= measured <= high if low > 0 else math.nan for low, high, measured, _ in ranges)
        width = statistics.median((high - low) / predicted for low, high, _, predicted in ranges)
        print(f"{stack:14}{kind:27}{role:7}{len(group):4}{statistics.mean(signed):+8.1f}{statistics.mean(errors):10.1f}"
              f"{statistics.median(errors):8.1f}{max(errors):7.1f}{100 * inside:10.0f}{100 * width:9.1f}")
    memory = {}
    for line in (line for line in lines if line["memory_error_pct"]):
        memory.setdefault((line["file"], line["stack"], line["memory"], line["role"] == "listed"), []).append(
            float(line["memory_error_pct"]))
    print(f"{'memory':33}{'stack':14}{'counts':10}{'role':7}rows  mean %  abs mean  worst")
    for (file, stack, counts, listed), signed in sorted(memory.items()):
        errors = [abs(error) for error in signed]
        print(f"{file:33}{stack:14}{counts:10}{'listed' if listed else 'test':7}{len(signed):4}"
              f"{statistics.mean(signed):+8.1f}{statistics.mean(errors):10.1f}{max(errors):7.1f}")
    print(*(f"{sum(line['role'] == role for line in lines)} {role}," for role in ("test", "sets", "listed")),
          f"{sum(not line['error_pct'] for line in lines)} of them without a prediction")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rpsim", help="the program")
    parser.add_argument("--out", type=Path, help="the ledger (traces/ledger.csv; none with --only and --where)")
    parser.add_argument("--intervals", default="32", help="as rpsim's: draws or off (32)")
    parser.add_argument("--jobs", type=int, default=1, help="runs at the same time (1)")
    parser.add_argument("--only", metavar="FILE", help="rows of this file, with or without .csv")
    parser.add_argument("--where", metavar="KEY=VALUE", action="append", default=[],
                        type=lambda text: text.partition("="), help="rows whose column KEY is this")
    parser.add_argument("--print", action="store_true", help="print command lines; # before those that would not run")
    parser.add_argument("--models", type=Path, help="folder for the models' config.json (one that is removed)")
    parser.add_argument("--without-stack", action="store_true", help="leave out --stack, for a build without it")
    settings = parser.parse_args()
    wanted = {key: value for key, _, value in settings.where}
    rows = [row for row in read(settings.only) if all(str(row.line().get(key)) == wanted[key] for key in wanted)]
    if not rows:
        parser.error("no row is left")
    with tempfile.TemporaryDirectory() as folder:
        models = settings.models or Path(folder)
        for name, config in MODELS.items():
            (models / name).mkdir(parents=True, exist_ok=True)
            (models / name / "config.json").write_text(json.dumps(config))
        commands = [row.command(models, settings) for row in rows]
        if settings.print:
            for row, command in zip(rows, commands):
                said = " ".join(str(row.line()[key]) for key in ("file", "row", "role", "note")).rstrip()
                print("" if row.runs() else "# ", " ".join(command), "  # ", said, sep="")
            return 0
        with ThreadPoolExecutor(settings.jobs) as pool:
            lines = list(pool.map(predict, rows, commands))
    out = settings.out or (None if settings.only or settings.where else ROOT / "traces/ledger.csv")
    if out:
        with out.open("w", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(lines)
    summary(lines)
    refused = [f"{line['file']} {line['row']}: {line['note']}" for line in lines if "refused: " in line["note"]]
    print(*refused, sep="\n", end="\n" if refused else "", file=sys.stderr)
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
