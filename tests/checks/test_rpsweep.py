"""rpsweep: killed and resumed it ends with the same rows; a crash, a full disk and bad files lose nothing.
"""

import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from conftest import LONG, SOURCE, program, ran
from lib.store import ask, content, count

EXPERIMENT = """name: kill
options: {fidelity: stage, gpus: 8}
cross:
  schedule: [gpipe, 1f1b, interleaved-1f1b, looped-bfs, roundpipe]
  model: [qwen3-1.7b, llama3.1-8b, gpt-oss-20b, qwen3-32b, qwen3-235b]
  microbatches: {from: 9, to: 40, step: 1}  # not all schedules take all of them
"""
FILES = {
    "e": EXPERIMENT,
    "kill": EXPERIMENT.replace("to: 40", "to: 104"),
    "bad": "name: bad\noptions:\n  gpus: 4\n  schedule: pipe\n",
    "unknown": "name: bad\noptions:\n  schedule: gpipe\n  seq-length: 3\n",
    "wrong": "name: wrong\nprogram: rpexec\noptions: {backend: host, seq-len: 16, schedule: 1f1b}\n"
             "cross: {gpus: [2, 65]}\n",
    "run": "name: run\nprogram: rpexec\noptions: {steps: 1, gpus: 2, seq-len: 16}\n"
           "cross: {schedule: [1f1b, roundpipe]}\n",
    "crash": "name: crash\noptions: {gpus: 8, schedule: roundpipe}\nlist:\n  - {jitter: 0.1, replicas: 100000}\n"
             "  - {microbatches: [8, 16, 24, 32]}\n",
}
COMMANDS = [  # after those of whole.db: the rest runs although points fail
    ("/nowhere.yaml", 2, "/nowhere.yaml: cannot be read"),
    ("--jobs 2", 2, "expected one experiment, not 0"),
    ("--jobs 0 e.yaml", 2, "integers from 1 to 1024"),
    ("--shard 2/2 e.yaml", 2, "I/N with N from 1"),
    ("--retry-failed e.yaml", 2, "--retry-failed: valid with --resume"),
    ("--resumee e.yaml", 2, "did you mean --resume"),
    ("export summary", 2, "valid is --db F"),
    (f"reference {SOURCE}/paper-figures/published/scaling_4090.csv --db none.db --dry-run", 2, "not with export"),
    ("export summary --db none.db --jobs 1", 2, "not with export"),
    ("export summary --db none.db", 2, "No such file or directory"),
    ("--help", 0, "Usage: rpsweep"),
    ("--dry-run e.yaml", 0, "rpsim --fidelity stage --gpus 8 --microbatches 9 --model qwen3-1.7b --schedule gpipe"),
    ("e.yaml --db whole.db", 2, "has 800 points of experiment kill already; valid are --resume"),
    ("e.yaml --db whole.db --resume", 0, "0 run"),
    ("e.yaml --db whole.db --resume", 0, "75 of them failed (--retry-failed runs these again)"),
    ("pipeline-stud", 2, "EXPERIMENT: unknown experiment 'pipeline-stud', did you mean 'pipeline-study'?; valid values"
     " are gallery-scaling, "),
    ("foo", 2, "validation, or the path of a file NAME.yaml"),
    ("e.yaml --db whole.db --resume --retry-failed", 1, "failed: --microbatches"),
    ("export best --db whole.db", 0, "schedule,model"),
    ("export runs2 --db whole.db", 2, "no table or view 'runs2'; valid are best"),
    # Bad options of a point, also beside good points and with options for rpsweep itself: nothing is left.
    ("bad.yaml --db none.db", 2, "bad.yaml:4: point 0: --schedule: unknown schedule 'pipe'"),
    ("unknown.yaml --db none.db", 2, "unknown.yaml:4: point 0: --seq-length=3: unknown or incomplete option"),
    ("wrong.yaml --db none.db --jobs 1 --resume --retry-failed", 2, "wrong.yaml:4: point 1: --gpus: '65'"),
]


@pytest.fixture(scope="module", autouse=True)
def whole(shared):
    """The content of the experiment's store."""
    for name, text in FILES.items():
        Path(f"{name}.yaml").write_text(text)
    ran("rpsweep e.yaml --db whole.db", status=1, said="failed: --microbatches")
    return content("whole.db")


@pytest.mark.parametrize("command, status, said", COMMANDS)
def test_commands(command, status, said):
    shown = ran("rpsweep " + command, env={"COLUMNS": 300}, status=status, said=said).out
    assert "--dry-run e" not in command or shown.count("\n") == 800
    assert not os.path.exists("none.db")


def test_shards(whole):
    assert count("whole.db", "points") == 800 and count("whole.db", "failures") > 10
    for shard in range(3):
        ran(f"rpsweep e.yaml --db shard{shard}.db --shard {shard}/3", status=1, said="points")
    for said in ("points added to", "shard2.db: 0 points added"):
        ran("rpsweep merge shard0.db shard1.db shard2.db --db merged.db", said=said)
    assert content("merged.db") == whole


def test_kills():
    """At a random moment after something was committed: a kill before that, or after the end, would say nothing."""
    ran("rpsweep kill.yaml --db long.db", status=1)
    draw, told, kills = random.Random(7), 0, 20 if LONG else 8
    for _ in range(kills):
        before = count("killed.db", "points")
        command = [program("rpsweep"), *"kill.yaml --db killed.db --resume --jobs 1".split()]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as sweep:
            while count("killed.db", "points") == before and sweep.poll() is None:
                time.sleep(0.01)
            time.sleep(draw.uniform(0.01, 0.05))
            sweep.kill()
        told += before < count("killed.db", "points") < 2400
    assert told >= kills // 4, f"only {told} of {kills} kills came between two commits"
    ran("rpsweep kill.yaml --db killed.db --resume", status=None)
    assert content("killed.db") == content("long.db")


def test_crash():
    """The process that runs a point crashes: that point has failed, all others have run."""
    command = [program("rpsweep"), *"crash.yaml --db crash.db --jobs 1".split()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as sweep:
        for _ in range(200):
            if worker := Path(f"/proc/{sweep.pid}/task/{sweep.pid}/children").read_text():
                break
            time.sleep(0.05)
        time.sleep(0.3)
        os.kill(int(worker), signal.SIGKILL)  # the sanitizers catch most others
        said = sweep.communicate()[0]
    assert sweep.returncode == 1 and "ended by signal 9 (Killed)" in said, said
    assert count("crash.db", "runs") == 4


def test_stores_that_fail(whole):
    # It cannot grow: committed points stay, and the sweep goes on later.
    failed = ran("rpsweep e.yaml --db full.db --jobs 1", prefix=["prlimit", "--fsize=409600"], status=None)
    assert failed.status != 0 and "full.db: cannot" in failed.said
    ran("rpsweep e.yaml --db full.db --resume", status=None)
    assert content("full.db") == whole
    # A row is refused in the middle of a point: nothing of that point stays, all before it does.
    ask(shutil.copy("whole.db", "refused.db"), "PRAGMA foreign_keys = ON", "DELETE FROM points",
        "CREATE UNIQUE INDEX refuse ON metrics (min(run_id, 99)) WHERE name = 'busy_ps'")
    ran("rpsweep e.yaml --db refused.db --resume", status=1, said="index 'refuse'")
    assert count("refused.db", "runs") == 99
    ask("refused.db", "DROP INDEX refuse")
    ran("rpsweep e.yaml --db refused.db --resume", status=None)
    assert content("refused.db") == whole
    Path("text.db").write_text("no database")
    ran("rpsweep e.yaml --db text.db", status=2, said="text.db")
    assert Path("text.db").read_text() == "no database"


def test_executed_points():
    """They are processes."""
    ran("rpsweep run.yaml --db run.db", said="2 points: 2 run")
    assert ask("run.db", "SELECT program || schedule FROM runs") == [("rpexec1f1b",), ("rpexecroundpipe",)]
    Path("rpexec").write_text("#!/bin/sh\necho this is why >&2\nkill -ABRT $$\n")
    Path("rpexec").chmod(0o755)
    ran("rpsweep run.yaml --db abort.db --rpexec ./rpexec", status=1, said="ended by signal 6")
