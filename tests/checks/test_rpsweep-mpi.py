"""rpsweep under MPI: four ranks give the rows of one process, and a sweep that fails, or of which a rank is stopped,
ends the job with all that it has started.

Release only: the MPI library itself leaks.
"""

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from conftest import LONG, program, ran
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
# Open MPI 4 and 5 as root, and with more ranks than processors; MPICH allows both.
ENVIRONMENT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
               "OMPI_MCA_rmaps_base_oversubscribe": "1", "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}


def under_mpi(words, **expected):
    words = words.replace("RPSWEEP", str(program("rpsweep"))).split()
    done = ran("timeout -k 5 60 mpirun", *words, env=ENVIRONMENT, **expected)
    assert done.status != 124, f"it hangs: {done}"


def executable(name, text):
    Path(name).write_text(f"#!/bin/sh\n{text}\n")
    Path(name).chmod(0o755)


@pytest.fixture(scope="module", autouse=True)
def work(shared):
    if shutil.which("mpirun") is None:
        pytest.skip("mpirun is missing (Debian package: openmpi-bin)")
    if "libmpi" not in ran("ldd", program("rpsweep")).out:
        pytest.skip("rpsweep was built without MPI (libopenmpi-dev)")
    for name, text in (("e", EXPERIMENT), ("others", EXPERIMENT.replace("ranks", "others", 1)), ("run", EXECUTED),
                       ("endless", EXECUTED.replace("[1, 2, 3]", "[1000000]"))):
        Path(f"{name}.yaml").write_text(text)


def test_rows():
    ran("rpsweep e.yaml --db one.db", status=None)
    under_mpi("-n 4 RPSWEEP e.yaml --db mpi.db", status=None)
    assert content("mpi.db") == content("one.db")
    # A store that refuses a row while ranks still have points: an error, no hang; then --resume.
    ask("mpi.db", "PRAGMA foreign_keys = ON", "DELETE FROM points", "CREATE UNIQUE INDEX refuse ON runs (min(id, 100))")
    under_mpi("-n 4 RPSWEEP e.yaml --db mpi.db --resume", status=None, said="refuse")
    ask("mpi.db", "DROP INDEX refuse")
    under_mpi("-n 4 RPSWEEP e.yaml --db mpi.db --resume", status=None)
    assert content("mpi.db") == content("one.db")


def test_mistakes():
    said = "rank 1 was started with 'others.yaml --db unlike.db', rank 0 with 'e.yaml --db unlike.db'"
    under_mpi("-n 1 RPSWEEP e.yaml --db unlike.db : -n 1 RPSWEEP others.yaml --db unlike.db", status=2, said=said)
    assert not os.path.exists("unlike.db")
    under_mpi("-n 4 RPSWEEP none.yaml", status=2)
    # The process that runs a point crashes: the point is listed, and the others run.
    executable("rpexec", "echo this is why >&2\nkill -SEGV $PPID")
    under_mpi("-n 4 RPSWEEP run.yaml --db crash.db --rpexec ./rpexec", status=1)
    assert ask("crash.db", "SELECT count(*) FROM failures WHERE failure LIKE '%signal 11%'") == [(9,)]


def running(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("signal_sent, victim", [(signal.SIGSTOP, "1")] + LONG * [
    (signal.SIGSTOP, "0"), (signal.SIGKILL, "2"), (signal.SIGKILL, "mpirun")])
def test_signals(signal_sent, victim, tmp_path, monkeypatch):
    """Points that do not end; then the signal goes to a rank, or to mpirun. Nothing is left within 10 s."""
    shutil.copy("endless.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    executable("rpexec", f"echo $$ >>{tmp_path}/points\nexec sleep 1000")
    executable("rank", 'echo $$ >pid.${OMPI_COMM_WORLD_RANK:-$PMI_RANK}\nexec "$@"')
    words = ["mpirun", "-n", "3", "./rank", program("rpsweep")]
    words += "endless.yaml --watchdog-s 1 --db endless.db --rpexec ./rpexec".split()
    with open("out", "w+", encoding="utf-8") as out:
        environment = {**os.environ, **ENVIRONMENT}
        job = subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        try:
            started = time.monotonic()
            while not (os.path.exists("points") and len(Path("points").read_text().split()) == 2):
                assert time.monotonic() < started + 40
                time.sleep(0.1)
            pids = {path.name.removeprefix("pid."): int(path.read_text()) for path in tmp_path.glob("pid.*")}
            os.kill({**pids, "mpirun": job.pid}[victim], signal_sent)
            struck = time.monotonic()
            assert job.wait(60) != 0
        finally:
            job.terminate()
        for process in [*pids.values(), *Path("points").read_text().split()]:
            while running(process):
                assert time.monotonic() < struck + 10, f"still running: {process}"
                time.sleep(0.1)
        out.seek(0)
        if signal_sent == signal.SIGSTOP:
            assert f"rank {victim} of 3 has been silent for 2 s: this sweep ends" in out.read()
