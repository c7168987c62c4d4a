"""Fifty steps with clipping, courses of the learning rate, weight decay of matrices and evaluation: loss, norm of the
gradients, rate and loss on --eval-data of every step are those of PyTorch and transformers to 1e-6
(tests/golden/recipes/make.py). A run of each recipe; RP_LONG=1: seven schedules on 1, 2 and 4 GPUs. Sanitized: --long.
"""

import csv
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from conftest import DATA, LONG, SOURCE

GOLDEN = SOURCE / "tests/golden/recipes"
RECIPES = {  # the same as in make.py
    "linear": "--lr 2e-3 --lr-schedule linear --warmup-steps 7 --weight-decay 0.1 --clip-norm 0.9",
    "cosine": "--lr 1e-3 --lr-schedule cosine --warmup-steps 5 --betas 0.9,0.95 --eps 1e-5 --clip-norm 0.5",
    "constant": "--lr 5e-4 --warmup-steps 10 --betas 0.9,0.99 --eps 1e-5 --weight-decay 0.5 --weight-decay-of all",
}
RUNS = [("linear", "--gpus 2 --schedule roundpipe"), ("cosine", "--gpus 4 --schedule zbv"),
        ("constant", "--gpus 2 --schedule fsdp")]
if LONG:
    RUNS = [(recipe, options) for recipe in RECIPES for options in (
        *(f"--gpus {gpus} --schedule {schedule}" for gpus in (1, 2, 4)
          for schedule in ("roundpipe", "1f1b", "looped-bfs", "zbv", "zero2", "fsdp", "zero-offload")),
        "--gpus 2 --schedule megatron-tp",
        "--gpus 2 --schedule roundpipe --accumulate 2 --microbatches 4",
        "--gpus 2 --schedule 1f1b --optimizer async")]
TRAIN = ("rpexec --backend host --gpus 2 --microbatches 2 --seq-len 16 --steps 12 --save-every 5 "
         f"--data {SOURCE}/LICENSE {RECIPES['cosine']} ")
EVALUATE = f" --eval-data {SOURCE}/CITATION.cff --eval-every 3 "


def rows(path):
    with open(path, encoding="utf-8") as table:
        return list(csv.DictReader(table))


@pytest.mark.parametrize("recipe, options", RUNS)
def test_recipe(run, recipe, options):
    """A step has all eight sequences."""
    run("rpexec --backend host --seq-len 17 --microbatches 8 --steps 50 --eval-every 10 --loss-out losses.csv",
        "--weights", DATA / "golden/families/qwen2", "--data", GOLDEN / "data.tokens",
        "--eval-data", GOLDEN / "eval.tokens", *RECIPES[recipe].split(), *options.split())
    trained, expected = rows("losses.csv"), rows(GOLDEN / f"{recipe}.csv")
    assert len(trained) == len(expected) == 50
    for ours, theirs in zip(trained, expected):
        for key in ("step", "loss", "grad_norm", "learning_rate", "eval_loss"):
            number = float(theirs[key] or "nan")  # what is empty has to be empty in both
            assert float(ours[key] or "nan") == pytest.approx(number, rel=1e-6, abs=0, nan_ok=True), (key, theirs)


@pytest.mark.parametrize("kind", ["--schedule roundpipe --optimizer async --dtype fp16",
                                  "--schedule 1f1b --weight-decay 0.1"])
def test_resume(run, kind):
    """A run that goes on in the middle of its course has the same bytes, and evaluating changes none."""
    def end(name, evaluated=True):
        steps = rows(f"{name}.csv")
        assert len(steps) >= 2
        return [[row[key] for key in ("step", "loss", "grad_norm", "learning_rate", *["eval_loss"] * evaluated)]
                for row in steps[-2:]]

    run(TRAIN + kind + EVALUATE + "--save whole --loss-out whole.csv")
    shutil.copytree("whole", "parts")
    shutil.rmtree("parts/step-12")
    assert run(TRAIN + kind + EVALUATE + "--save parts --loss-out parts.csv --resume").err == ""
    run("diff -r whole parts")
    assert end("whole") == end("parts")
    assert run(TRAIN + kind + " --save plain --loss-out plain.csv").err == ""
    run("diff -r whole plain")
    assert end("whole", evaluated=False) == end("plain", evaluated=False)

    # What a killed process has left goes when the folder is locked again; what a living one writes stays.
    with subprocess.Popen("true") as dead:
        dead.wait()
    left, living = Path(f"parts/.rp-{dead.pid}-0.tmp"), Path(f"parts/.rp-{os.getpid()}-0.tmp")
    left.touch()
    living.touch()
    Path("parts/.step-99").mkdir()
    said = run(TRAIN + kind + " --steps 13 --save parts --resume").err
    assert living.exists() and not left.exists() and not Path("parts/.step-99").exists()
    assert re.search("(?m)^rpexec: warning: --resume: the checkpoint was trained with .* at step 12,.* goes on with .*"
                     " at step 13,", said)
