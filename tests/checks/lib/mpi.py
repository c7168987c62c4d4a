"""Programs under mpirun, as checks run them."""

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from conftest import program, ran

# Open MPI 4 and 5 as root, and with more processes than processors; MPICH allows both.
ENVIRONMENT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
               "OMPI_MCA_rmaps_base_oversubscribe": "1", "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe"}


def need_mpi(name):
    """Skips the test if there is no mpirun, or the program was built without MPI."""
    if shutil.which("mpirun") is None:
        pytest.skip("mpirun is missing (Debian package: openmpi-bin)")
    if "libmpi" not in ran("ldd", program(name)).out:
        pytest.skip(f"{name} was built without MPI (libopenmpi-dev)")


def under_mpi(*words, **expected):
    done = ran("timeout -k 5 120 mpirun", *words, env=ENVIRONMENT, **expected)
    assert done.status != 124, f"it hangs: {done}"
    return done


def executable(name, text):
    Path(name).write_text(f"#!/bin/sh\n{text}\n")
    Path(name).chmod(0o755)


def numbered():
    """A script ./rank that writes the process of each rank N to pid.N and runs a program in its place."""
    executable("rank", 'echo $$ >pid.${OMPI_COMM_WORLD_RANK:-$PMI_RANK}\nexec "$@"')


def numbers():
    return {path.name.removeprefix("pid."): int(path.read_text()) for path in Path().glob("pid.*")}


def running(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def struck(words, ready, signal_sent, victim, others=list):
    """Runs words ("mpirun ... ./rank ...") until ready(), then sends the signal to a rank or to "mpirun". The job
    fails, and within 10 s all its processes and those of others() have ended. Returns its output."""
    with open("out", "w+", encoding="utf-8") as out:
        environment = {**os.environ, **ENVIRONMENT}
        job = subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        try:
            started = time.monotonic()
            while not ready():
                assert time.monotonic() < started + 40 and job.poll() is None
                time.sleep(0.1)
            pids = numbers()
            os.kill({**pids, "mpirun": job.pid}[victim], signal_sent)
            sent = time.monotonic()
            assert job.wait(60) != 0
        finally:
            job.terminate()
        for process in [*pids.values(), *others()]:
            while running(process):
                assert time.monotonic() < sent + 10, f"still running: {process}"
                time.sleep(0.1)
        out.seek(0)
        return out.read()
