"""Chakra traces that rpsim exports, read by Google's protobuf library: every field is known, the library would write
the same bytes, and a longest path over the nodes is the makespan. Skipped if Python has no protobuf.
"""

import csv
import shutil
from decimal import Decimal
from pathlib import Path

import pytest

from conftest import DATA, PYTHON, need_python

GOLDEN = DATA / "golden/chakra"
RUNS = [
    "--schedule dualpipev --gpus 4 --microbatches 8 --fidelity stage --recompute wait",
    "--schedule zbv --gpus 4 --fidelity stage --recompute none",
    "--schedule roundpipe --gpus 3 --microbatches 7 --fidelity stage",
    "--schedule roundpipe --gpus 4 --iterations 1",
    "--schedule 1f1b --gpus 4 --iterations 1",
    "--schedule zero2 --gpus 2 --iterations 1",
]


@pytest.fixture
def protobuf(run):
    need_python("google.protobuf")
    if shutil.which("protoc") is None:
        need_python("grpc_tools")
    return lambda *words: run(PYTHON, GOLDEN / "chakra.py", *words).out


def test_exports(run, protobuf):
    for index, line in enumerate(RUNS):
        table = run(f"rpsim {line} --format csv --chakra-out t{index}").out
        [row] = csv.DictReader(table.splitlines())
        assert Decimal(row["makespan_ms"]) * 10**9 == Decimal(protobuf("run", f"t{index}")), line


def test_golden_files(protobuf):
    assert protobuf("print", GOLDEN / "1f1b") == (GOLDEN / "1f1b.txt").read_text()
    protobuf("make", ".")
    made = list(Path().glob("*.?.et"))
    assert made and all(file.read_bytes() == (GOLDEN / file.name).read_bytes() for file in made)
