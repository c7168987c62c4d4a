"""rpexec ended by signals or kills, or started twice on one --save: training goes on to the same bytes, the loss file
has every step once, no checkpoint is damaged. RP_LONG=1: 30 of each signal and 100 pairs.
"""

import os
import random
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from conftest import LONG, SOURCE, program, ran

ROUNDS, PAIRS = (30, 100) if LONG else (2, 1)
STEPS = 40
TRAIN = f"--gpus 2 --microbatches 2 --seq-len 16 --data text --steps {STEPS} --save-every 7 --optimizer async"


@pytest.fixture(scope="module", autouse=True)
def took_s(shared):
    """The seconds of the run that nobody ends."""
    shutil.copy(SOURCE / "LICENSE", "text")  # data that stay as they are
    began = time.monotonic()
    ran(f"rpexec {TRAIN} --save whole --loss-out whole.csv")
    return time.monotonic() - began


def start(options):
    """A run that takes SIGINT, also if whoever runs this test ignores it."""
    return subprocess.Popen([program("rpexec"), *options.split()], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                            text=True, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))


def losses(path):
    return [line.split(",")[:2] for line in Path(path).read_text().splitlines()]


def same(folder):
    """The last checkpoint's files are those of the run that nobody ended, and only one other checkpoint is left."""
    whole, found = ({path.name: path.read_bytes() for path in Path(parent, f"step-{STEPS}").iterdir()}
                    for parent in ("whole", folder))
    assert whole == found and whole
    assert len(os.listdir(folder)) == 2, os.listdir(folder)


def empty(*paths):
    for path in paths:
        shutil.rmtree(path, ignore_errors=True)
        Path(path).unlink(missing_ok=True)


@pytest.mark.parametrize("name, status", [("INT", 130), ("TERM", 143), ("KILL", 137)])
def test_signals(name, status, took_s):
    """At a random moment, every other run twice; then the run is resumed."""
    train = f"{TRAIN} --save parts --resume --loss-out parts.csv"
    hits = 0
    for attempt in range(6 * ROUNDS):
        empty("parts", "parts.csv")
        for _ in range(1 + attempt % 2):
            with start(train) as run:
                time.sleep(random.uniform(0, took_s))
                run.send_signal(signal.Signals["SIG" + name])
                said = run.communicate()[1]
            ended = run.returncode if run.returncode >= 0 else 128 - run.returncode  # before it has a handler
            assert ended in (0, status), said
            hits += ended == status
            # Signals also hit a run that goes on elsewhere than it began, or has nothing left to do.
            assert ended == 0 or name == "KILL" or not said or \
                re.search("--resume goes on from there|and no step is left", said), said
        ran(f"rpexec {train}")
        same("parts")
        assert losses("parts.csv") == losses("whole.csv")
        if hits >= ROUNDS:
            return
    pytest.fail(f"only {hits} of {ROUNDS} runs were still there to be ended")


def test_killed_adapters():
    """On random weights: a checkpoint that a killed run leaves has its base, and opens."""
    adapters = "--gpus 1 --microbatches 2 --seq-len 16 --data text"
    train = f"{adapters} --lora-rank 2 --save lora"
    opened = 0
    for attempt in range(6 * ROUNDS):
        empty("lora")
        with start(f"{train} --steps 100000 --save-every 1") as run:
            # Every other run is killed when there is a checkpoint, the rest perhaps before there is a base.
            for _ in range(500):
                if attempt % 2 or list(Path("lora").glob("step-*")):
                    break
                time.sleep(0.01)
            time.sleep(random.uniform(0, 0.1))
            run.kill()
        for step in Path("lora").glob("step-*"):
            opened += 1
            ran(f"rpexec {adapters} --steps 1 --weights {step}")
        ran(f"rpexec {train} --steps 2 --resume")
        assert {path.name for path in Path("lora").iterdir() if not path.name.startswith("step-")} == {"base"}
        if opened >= ROUNDS:
            return
    pytest.fail(f"only {opened} checkpoints of killed runs of adapters")


def test_signal_without_checkpoints():
    """It ends a run at once; the loss file has whole lines."""
    with start("--gpus 1 --seq-len 16 --steps 100000 --loss-out l.csv") as run:
        time.sleep(1)
        run.send_signal(signal.SIGINT)
    found = losses("l.csv")[1:]
    assert run.returncode == 130 and len(found) >= 2
    assert [int(step) for step, _ in found] == list(range(1, len(found) + 1))


def test_text_taken_for_losses():
    """A file that holds something else is not replaced."""
    shutil.copy("text", "other")
    more = TRAIN.replace("--steps 40", "--steps 41")
    ran(f"rpexec {more} --save whole --resume --loss-out other", status=2, err="other:1: no losses of an earlier run")
    assert Path("other").read_bytes() == Path("text").read_bytes()


def test_pairs():
    """On one folder, the second up to 0.3 s later: links so slow that a run takes more than a second."""
    for _ in range(PAIRS):
        empty("pair")
        began = time.monotonic()
        with start(f"{TRAIN} --link-gb-per-s 0.02 --save pair") as first:
            time.sleep(random.choice((0, 0.1, 0.2, 0.3)))
            with start(f"{TRAIN} --link-gb-per-s 0.02 --save pair") as second:
                said = first.communicate()[1] + second.communicate()[1]
        assert sorted((first.returncode, second.returncode)) == [0, 2] and "is in use by another rpexec" in said, said
        assert time.monotonic() > began + 1.3, "too short to overlap for a second"
        same("pair")
