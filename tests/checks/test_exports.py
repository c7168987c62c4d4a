"""rpadvise's exports, read by their packages: Megatron-LM's and DeepSpeed's own parsers, PyTorch's pipelining, which
loads and lowers the CSV, FSDP's signatures and RoundPipe's classes. They find the sizes of rpsim's JSON. Skipped if
Python has not these packages: RP_PYTHON=FOLDER/bin/python after tests/tools/exports_venv.sh FOLDER. Two minutes.
"""

import csv
import shutil
from pathlib import Path

import pytest

from conftest import BUILD, DATA, PYTHON, need_python, ran

GOLDEN, HF = DATA / "golden/exports", DATA / "golden/hf"
with open(GOLDEN / "lines.tsv", encoding="utf-8") as table:
    LINES = {row["name"]: row["line"].removeprefix("rpsim ") for row in csv.DictReader(table, delimiter="\t")}
LINES |= {  # learned positions and LayerNorm, fp32 and an untied head, other stages of ZeRO, a V, reductions
    "positions": "--schedule megatron-pp --model mpt-1b --platform a100-80x8 --recompute none",
    "untied": "--schedule 1f1b --model llama3.1-8b --platform h100x8 --dtype fp32 --partition 4,4,4,4,4,4,4,4",
    "qkv": f"--schedule 1f1b --model {HF}/qwen2.5-7b.json --platform h100x8 --gpus 4",
    "experts": f"--schedule megatron-pp --model {HF}/mixtral-8x7b.json --platform h100x8",
    "zero2": "--schedule zero2 --recompute none",
    "zero3": "--schedule zero3 --dtype bf16",
    "offload": "--schedule zero-offload --dtype bf16",
    "zbv": "--schedule zbv --gpus 4 --accumulate 2",
    "fsdp": "--schedule fsdp --reduce-dtype bf16 --reduce-each microbatch",
    "sync": "--schedule roundpipe --gpus 4 --grain layer",
    "fsdp-fp32": "--schedule fsdp --dtype fp32",
    "fsdp-bf16": "--schedule fsdp --dtype bf16",
    "roundpipe-fp32": "--schedule roundpipe --gpus 4 --dtype fp32",
    "roundpipe-bf16": "--schedule roundpipe --gpus 4 --dtype bf16",
    "pipeline-bf16": "--schedule 1f1b --gpus 4 --partition 7,7,7,7 --dtype bf16",
}
DAMAGE = [  # name, file, text, replacement
    ("zero-infinity", "deepspeed.json", '"train_batch_size": 64', '"train_batch_size": 65'),
    ("zero-infinity", "deepspeed.json", "offload_param", "offload_params"),
    ("zero-infinity", "deepspeed.json", '"lr":"auto"', '"lr":0.001'),
    ("zero-infinity", "deepspeed.json", '"bf16"', '"fp16"'),
    ("fsdp-offload", "torch_fsdp.py", "param_dtype=torch.float16", "param_dtype=torch.bfloat16"),
    ("roundpipe", "roundpipe_config.py", "torch.float16", "torch.bfloat16"),
    ("1f1b", "megatron-lm.sh", "--fp16", "--bf16"),
    ("interleaved-1f1b", "megatron-lm.sh", "t*5|", "t*4|"),
    ("megatron-tp", "megatron-lm.sh", "--num-experts", "--experts"),
    ("zbv", "torch-pipelining.csv", "0F0,", ""),
    ("roundpipe", "roundpipe_config.py", "range(0, 9)", "range(0, 8)"),
    ("fsdp-offload", "torch_fsdp.py", '"mp_policy"', '"policy"'),
]


@pytest.fixture(scope="module", autouse=True)
def folder(shared):
    assert {name for name, *_ in DAMAGE} <= LINES.keys()
    need_python("torch", "deepspeed", "megatron.training", "roundpipe", advice="tests/tools/exports_venv.sh")


def packages(*words, **expected):
    return ran(PYTHON, GOLDEN / "packages.py", *words, **expected)


def test_options():
    """Names of options are those of the versions that the list names."""
    found, golden = packages("options").out, (GOLDEN / "options.csv").read_text()
    versions = [{tuple(line.split(",")[:2]) for line in text.splitlines()[1:]} for text in (found, golden)]
    if versions[0] != versions[1]:
        pytest.skip(f"other versions than those of options.csv: {versions[0]}")
    assert found == golden


@pytest.mark.parametrize("name", LINES)
def test_export(name):
    ran(BUILD / "tests/export_row", name, *LINES[name].split())
    Path(f"{name}.json").write_text(ran(f"rpsim {LINES[name]} --intervals off --format json").out)
    packages("parse", name, f"{name}.json")
    # The packages notice damage: a package that passes everything would tell nothing.
    for file, text, other in (row[1:] for row in DAMAGE if row[0] == name):
        damaged = Path(shutil.copytree(name, f"damaged-{name}", dirs_exist_ok=True), file)
        lines = damaged.read_text().splitlines(True)
        assert any(text in line for line in lines), f"no {text} in {file}"
        damaged.write_text("".join(line.replace(text, other, 1) for line in lines))
        assert packages("parse", damaged.parent, f"{name}.json", status=None).status != 0, f"{file} passes with {other}"
