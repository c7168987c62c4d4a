"""The ledger's script (experiments/ledger.py): a command line for each row of a published table, and rpsim takes those
that it can run. Shapes and lines are held against rows of the tables, predictions against the committed ledger.
"""

import argparse
import csv
import importlib.util
import json
import re
import shlex
from pathlib import Path

import pytest

from conftest import SOURCE, program, ran

LEDGER = SOURCE / "experiments/ledger.py"
LINE = re.compile(
    r"(?P<off># )?(?P<command>/\S+ [^#]*?)  # (?P<file>\S+) (?P<row>\d+) (?P<role>\w+)(?P<note> .*)?")


def measured_row(file, number):
    text = (SOURCE / "paper-figures/published" / file).read_text().splitlines()
    return list(csv.DictReader(line for line in text if not line.startswith("#")))[int(number) - 1]


@pytest.fixture(scope="module")
def printed(shared):
    """Command and comment of each line; the models' files lie in the current folder."""
    out = ran(LEDGER, program("rpsim"), "--print", "--models", "models", "--intervals", "off").out
    return [LINE.fullmatch(line) for line in out.splitlines()]


def test_every_row(printed):
    assert None not in printed
    rows = [(line["file"], line["row"]) for line in printed]
    assert len(set(rows)) == len(rows) >= 131
    for line in printed:
        assert line["role"] == "listed" if line["off"] else line["role"] in ("test", "listed", "sets")
        assert (" not run" in (line["note"] or "")) == bool(line["off"])
        words = shlex.split(line["command"])
        options = [word for word in words if word.startswith("--") and word != "--set"]
        assert len(set(options)) == len(options)
        assert {"--schedule", "--model", "--platform", "--gpus", "--seq-len", "--microbatches"} < set(options)


def test_rpsim_takes_them(printed):
    lines = [line["command"] for line in printed if not line["off"]]
    assert len(lines) > 75
    for line in lines:
        ran(line.removesuffix(" --format json"), "--check")


def test_batches(printed):
    """Sequences of a step: a copy's microbatches times the copies are nanotron's and FlagPerf's global batch."""
    for line in printed:
        if line["file"] not in ("nanotron_h100.csv", "flagperf_llm.csv"):
            continue
        row = measured_row(line["file"], line["row"])
        size, count, copies = (int((re.findall(f"--{name} (\\d+)", line["command"]) or [1])[0])
                               for name in ("microbatch-size", "microbatches", "data-parallel"))
        assert size * count * copies == int(row["global_batch"])


def test_models(printed):
    assert printed
    shapes = {path.parent.name: json.loads(path.read_text()) for path in Path("models").glob("*/config.json")}
    qwen, gemma = shapes["qwen2.5-7b"], shapes["gemma-2-9b"]
    assert (qwen["model_type"], qwen["hidden_size"], qwen["tie_word_embeddings"]) == ("qwen2", 3584, False)
    assert (gemma["head_dim"], gemma["num_key_value_heads"], gemma["sliding_window"]) == (256, 8, 4096)


def test_ledger(run):
    """A row is run and written: the error is that of the two speeds."""
    options = "--only nanotron_h100 --where row=43 --intervals 4 --out l.csv".split()
    out = run(LEDGER, program("rpsim"), *options).out
    [row] = csv.DictReader(Path("l.csv").read_text().splitlines())
    measured, predicted = float(row["measured_tokens_per_s"]), float(row["predicted_tokens_per_s"])
    assert row["measured_tokens_per_s"] == measured_row("nanotron_h100.csv", 43)["tokens_per_s"]
    assert row["class"] == "hopper/resident/full" and row["role"] == "test"
    assert abs(float(row["error_pct"]) - 100 * (predicted / measured - 1)) < 0.01
    assert float(row["p10"]) < float(row["p90"]) and "1 test, 0 sets, 0 listed" in out


def test_predictions(run):
    """traces/ledger.csv has what this build predicts; `experiments/ledger.py build/release/rpsim` writes it anew."""
    run(LEDGER, program("rpsim"), "--intervals", "off", "--out", "l.csv")
    now, kept = ([{key: row[key] for key in ("file", "row", "stack", "class", "predicted_tokens_per_s", "role")}
                  for row in csv.DictReader(path.read_text().splitlines())]
                 for path in (Path("l.csv"), SOURCE / "traces/ledger.csv"))
    assert now == kept


def test_accuracy():
    """Bounds on rows that have set no constant, about a third above the errors seen; they only tighten."""
    rows = list(csv.DictReader((SOURCE / "traces/ledger.csv").read_text().splitlines()))
    for stack, card, of_class, count, bound in (("nanotron", "h100", "hopper/resident/full", 18, 5.5),
                                                ("llmq", "rtx4090", "ada/resident/full", 4, 2.8),
                                                ("llmq", "l40s", "ada/resident/full", 3, 15),
                                                ("llmq", "h100", "hopper/resident/full", 3, 6),
                                                ("llm-foundry", "a100", "ampere/resident/full", 26, 6)):
        errors = [abs(float(row["error_pct"])) for row in rows if row["error_pct"] and row["role"] != "sets" and
                  (row["stack"], row["class"]) == (stack, of_class) and row["platform"].startswith(card)]
        assert len(errors) == count and sum(errors) / count < bound, (stack, card, of_class)


def test_readme():
    """The README's first screen has the number and the mean of nanotron's runs."""
    errors = [abs(float(row["error_pct"])) for row in csv.DictReader((SOURCE / "traces/ledger.csv").open())
              if (row["stack"], row["role"]) == ("nanotron", "test")]
    mean = sum(errors) / len(errors)
    said = f"- {len(errors)} runs of nanotron on 8 x H100, whose numbers set nothing, are {mean:.1f} %"
    assert said in (SOURCE / "README.md").read_text()


RESULTS = {  # rows of docs/results.md: file, stack, class; None: any
    "nanotron, 3B and 8B, 8 x H100": ("nanotron_h100.csv", "nanotron", "hopper/resident/full"),
    "PyTorch FSDP, MPT, 8 to 128 A100": ("fsdp_mpt_a100.csv", "llm-foundry", "ampere/resident/full"),
    "Megatron, Llama 3 8B, 8 x A100 and H100": ("flagperf_llm.csv", None, None),
    "torchtitan, Llama 3.1 8B, 8 x H100": ("torchtitan_h100.csv", None, None),
    "PyTorch, LoRA of Qwen 7B, A100": ("qwen_finetune_a100.csv", "torch", "ampere/resident/adapters"),
    "DeepSpeed ZeRO-3, Qwen 7B, 2 x A100": ("qwen_finetune_a100.csv", "deepspeed", "ampere/resident/full"),
    "DeepSpeed with offloading, LLaMA-Factory, RTX 4090": ("llmq_consumer.csv", "deepspeed", "ada/offloaded/full"),
    "FSDP, LoRA and QLoRA, 2 x RTX 3090": ("fsdp_qlora_consumer.csv", "torch", "ampere/resident/adapters"),
    "DeepSpeed ZeRO-2 on two servers, LoRA of Qwen 7B, A100": (
        "qwen_finetune_a100.csv", "deepspeed", "ampere/resident/adapters"),
    "PyTorch, LoRA and QLoRA at 8192 tokens, H100 (universal trainer)": (
        "universal_trainer_singlegpu.csv", "torch", "hopper/resident/adapters"),
}


def test_h200():
    """Thirteen speeds of four programs on our H200, predicted from its data sheet, wide's constants included."""
    rows = [row for row in csv.DictReader((SOURCE / "traces/ledger.csv").open()) if "h200" in row["file"]]
    assert len(rows) == 15 and max(abs(float(row["error_pct"])) for row in rows) < 15
    errors = [abs(float(row["error_pct"])) for row in rows if row["role"] == "test"]
    line = f"| {len(errors)} | {sum(errors) / len(errors):.1f} % | {max(errors):.1f} % |"
    assert f"| PyTorch, RoundPipe's library and rpexec, qwen3-1.7b, our H200 {line}" in (
        SOURCE / "docs/results.md").read_text().splitlines()


@pytest.mark.parametrize("label", RESULTS)
def test_results(label):
    errors = [abs(float(row["error_pct"])) for row in csv.DictReader((SOURCE / "traces/ledger.csv").open())
              if row["role"] == "test" and row["error_pct"] and
              all(wanted in (None, row[key]) for key, wanted in zip(("file", "stack", "class"), RESULTS[label]))]
    mean = sum(errors) / len(errors)
    row = f"| {label} | {len(errors)} | {mean:.1f} % | {max(errors):.1f} % |"
    assert row in (SOURCE / "docs/results.md").read_text().splitlines()


@pytest.mark.parametrize("file, stack, count, bound", [
    ("nanotron_h100.csv", "nanotron", 30, 6.5), ("qwen_finetune_a100.csv", "torch", 6, 3.5),
    ("qwen_finetune_a100.csv", "deepspeed", 9, 5.5), ("fsdp_qlora_consumer.csv", "torch", 11, 8.0),
    ("universal_trainer_singlegpu.csv", "torch", 11, 6.0), ("2026-11-26-h200/side.csv", "torch", 2, 1.0),
    ("flagperf_llm.csv", "megatron", 4, 13.0)])
def test_memory(file, stack, count, bound):
    """Bounds on the mean error of memory, in percent of runs that rpsim has all features of; they only tighten."""
    errors = [abs(float(row["memory_error_pct"])) for row in csv.DictReader((SOURCE / "traces/ledger.csv").open())
              if (row["file"], row["stack"]) == (file, stack) and row["memory_error_pct"] and row["role"] != "listed"]
    assert len(errors) == count and sum(errors) / count < bound


def test_fits(run):
    """Most of nanotron's runs on a node failed: rpsim knows which fit, and refuses none that ran."""
    spec = importlib.util.spec_from_file_location("ledger", LEDGER)
    ledger = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(ledger)
    lines = (SOURCE / "paper-figures/published/nanotron_h100.csv").read_text().splitlines()
    rows = [row for row in csv.DictReader(line for line in lines if line[0] != "#") if row["nodes"] == "1"]
    right = 0
    for row in rows:
        made = ledger.nanotron(row | {"tokens_per_s": row["tokens_per_s"] or "1"})
        Path(made.model).mkdir(exist_ok=True)
        (Path(made.model) / "config.json").write_text(json.dumps(ledger.MODELS[made.model]))
        settings = argparse.Namespace(rpsim=program("rpsim"), without_stack=False, intervals="off")
        [said] = json.loads(run(*made.command(Path(), settings)).out)
        right += said["fits"] == (row["status"] == "ok")
        assert said["fits"] or row["status"] != "ok"
    assert len(rows) == 123 and right >= 0.95 * len(rows)
