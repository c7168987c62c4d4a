"""rpexec with --data-parallel and --tensor-parallel: eight emulated GPUs, 2 x 2 x 2, learn what one learns, to 1e-5;
a checkpoint of one layout goes on in others; rpsim writes the same program, and it runs from its file.
"""

import shutil
from pathlib import Path

import pytest

from conftest import SOURCE, ran

SIZES = "rpexec --schedule 1f1b --seq-len 32 --data text --lr 3e-3"


@pytest.fixture(scope="module", autouse=True)
def work(shared):
    shutil.copy(SOURCE / "LICENSE", "text")  # it does not change: six steps of some texts are unstable


def losses(path):
    return [float(line.split(",")[1]) for line in Path(path).read_text().splitlines()[1:]]


def test_curve():
    """2 x 2 x 2, then 4 x 1 x 2, then 1 x 4 x 1."""
    ran(f"{SIZES} --gpus 1 --microbatches 8 --steps 6 --loss-out one.csv")
    for layout in ("--gpus 8 --data-parallel 2 --tensor-parallel 2 --microbatches 4 --steps 3",
                   "--gpus 8 --data-parallel 4 --microbatches 2 --steps 5 --resume",
                   "--gpus 4 --tensor-parallel 4 --microbatches 8 --steps 6 --resume"):
        ran(f"{SIZES} --loss-out eight.csv --save ck {layout}")
    assert losses("one.csv") == pytest.approx(losses("eight.csv"), rel=1e-5) and len(losses("one.csv")) == 6
    ran(f"{SIZES} --gpus 4 --data-parallel 2 --tensor-parallel 2 --microbatches 4 --steps 2 --check")


def test_program():
    words = ("--schedule 1f1b --model tiny --gpus 8 --data-parallel 2 --tensor-parallel 2 --microbatches 4"
             " --microbatch-size 1 --seq-len 32 --dtype fp32 --partition even --program-out")
    ran(f"rpsim {words} sim.txt --platform rtx4090x8 --iterations 2")
    ran(f"rpexec {words} exec.txt --steps 2 --loss-out two.csv")
    assert Path("sim.txt").read_bytes() == Path("exec.txt").read_bytes() != b""
    ran("rpexec --program-in exec.txt --seq-len 32 --loss-out in.csv")
    assert losses("two.csv") == losses("in.csv") and len(losses("in.csv")) == 2


@pytest.mark.parametrize("options, said", [
    ("--schedule roundpipe --data-parallel 2", "valid is mpirun -n 2"),
    ("--schedule fsdp --tensor-parallel 2", "already spreads one model over all GPUs"),
    ("--schedule 1f1b --gpus 4 --data-parallel 3", "do not divide 4 GPUs"),
    ("--schedule 1f1b --gpus 4 --data-parallel 2 --record r", "--record: of several GPUs"),
])
def test_refusals(options, said):
    ran("rpexec " + options, status=2, said=said)
