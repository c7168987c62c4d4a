"""rpsweep under MPI: four ranks give the rows of one process, and a sweep that fails, or of which a rank is stopped,
ends the job with all that it has started.

Release only: the MPI library itself leaks.
"""

import os
import shutil
import signal
from pathlib import Path

import pytest

from conftest import LONG, program, ran
from lib.mpi import executable, need_mpi, numbered, struck, under_mpi
from lib.store import ask, content

EXPERIMENT = """name: ranks
options: {fidelity: stage, gpus: 8}
cross:
  schedule: [gpipe, interleaved-1f1b, roundpipe]
  model: [qwen3-1.7b, qwen3-235b]
  microbatches: {from: 9, to: 80, step: 1}  # not all schedules take all of them
"""
EXECUTED = """name: run
program: rpexec
options: {model: tiny, gpus: 2}
cross: {schedule: [gpipe, 1f1b, roundpipe], steps: [1, 2, 3]}
"""


def sweep(words, **expected):
    under_mpi(*words.replace("RPSWEEP", str(program("rpsweep"))).split(), **expected)


@pytest.fixture(scope="module", autouse=True)
def work(shared):
    need_mpi("rpsweep")
    for name, text in (("e", EXPERIMENT), ("others", EXPERIMENT.replace("ranks", "others", 1)), ("run", EXECUTED),
                       ("endless", EXECUTED.replace("[1, 2, 3]", "[1000000]"))):
        Path(f"{name}.yaml").write_text(text)


def test_rows():
    ran("rpsweep e.yaml --db one.db", status=None)
    sweep("-n 4 RPSWEEP e.yaml --db mpi.db", status=None)
    assert content("mpi.db") == content("one.db")
    # A store that refuses a row while ranks still have points: an error, no hang; then --resume.
    ask("mpi.db", "PRAGMA foreign_keys = ON", "DELETE FROM points", "CREATE UNIQUE INDEX refuse ON runs (min(id, 100))")
    sweep("-n 4 RPSWEEP e.yaml --db mpi.db --resume", status=None, said="refuse")
    ask("mpi.db", "DROP INDEX refuse")
    sweep("-n 4 RPSWEEP e.yaml --db mpi.db --resume", status=None)
    assert content("mpi.db") == content("one.db")


def test_mistakes():
    said = "rank 1 was started with 'others.yaml --db unlike.db', rank 0 with 'e.yaml --db unlike.db'"
    sweep("-n 1 RPSWEEP e.yaml --db unlike.db : -n 1 RPSWEEP others.yaml --db unlike.db", status=2, said=said)
    assert not os.path.exists("unlike.db")
    sweep("-n 4 RPSWEEP none.yaml", status=2)
    # The process that runs a point crashes: the point is listed, and the others run.
    executable("rpexec", "echo this is why >&2\nkill -SEGV $PPID")
    sweep("-n 4 RPSWEEP run.yaml --db crash.db --rpexec ./rpexec", status=1)
    assert ask("crash.db", "SELECT count(*) FROM failures WHERE failure LIKE '%signal 11%'") == [(9,)]


@pytest.mark.parametrize("signal_sent, victim", [(signal.SIGSTOP, "1")] + LONG * [
    (signal.SIGSTOP, "0"), (signal.SIGKILL, "2"), (signal.SIGKILL, "mpirun")])
def test_signals(signal_sent, victim, tmp_path, monkeypatch):
    """Points that do not end; then the signal goes to a rank, or to mpirun. Nothing is left within 10 s."""
    shutil.copy("endless.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    executable("rpexec", f"echo $$ >>{tmp_path}/points\nexec sleep 1000")
    numbered()
    words = ["mpirun", "-n", "3", "./rank", program("rpsweep")]
    words += "endless.yaml --watchdog-s 1 --db endless.db --rpexec ./rpexec".split()
    points = Path("points")

    def started():
        return points.read_text().split() if points.exists() else []

    text = struck(words, lambda: len(started()) == 2, signal_sent, victim, started)
    if signal_sent == signal.SIGSTOP:
        assert f"rank {victim} of 3 has been silent for 2 s: this sweep ends" in text
