"""Under a limited address space programs end and heed signals. RP_LONG=1 tries more limits.

Release only: sanitizers need more of it than any limit leaves.
"""

import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from conftest import BUILD, LONG, program

LIMITS = [*range(60000, 1500001, 40000), 2000000] if LONG else [60000, 100000, 250000, 500000, 800000, 900000, 2000000]
TRAIN = "rpexec --gpus 4 --seq-len 16 --steps 2"


def below(kib):
    return ["prlimit", f"--as={kib * 1024}"]


def test_rpexec(run):
    """It trains or says that memory is missing, both at once."""
    for limit in LIMITS:
        done = run(TRAIN, prefix=below(limit), status=None, timeout=10)
        if done.status == 127 and limit < 100000 and "error while loading shared libraries" in done.err:
            continue  # below the size of its libraries it is not even loaded, which no program can answer
        told = re.search("(?m)^rpexec: out of memory|of host memory, and", done.err)
        assert done.status == 0 or done.status == 1 and told, f"{limit}: {done}"
    assert done.status == 0, "the highest limit is not enough to train"
    run(f"{TRAIN} --loss-out free.csv")
    run(f"{TRAIN} --loss-out limited.csv", prefix=below(2000000))
    free, limited = ([line.split(",")[:2] for line in open(name)] for name in ("free.csv", "limited.csv"))
    assert free == limited


@pytest.mark.parametrize("limit", [70000, 100000, 300000])
def test_rpsweep(run, limit):
    """It is stopped, or has ended because nothing fits.

    With Open MPI's library, less than 62 MB end in NVIDIA's runtime before main begins, which no program can answer.
    """
    batches = ", ".join(map(str, range(8, 1601, 8)))
    Path("e.yaml").write_text(f"name: limits\ncross:\n  schedule: [1f1b, gpipe]\n  microbatches: [{batches}]\n")
    sweep = subprocess.Popen([*below(limit), program("rpsweep"), "e.yaml", "--db", "s.db"])
    time.sleep(0.3)
    sweep.terminate()
    assert 0 <= sweep.wait(20) < 128 or sweep.returncode == -signal.SIGTERM


def test_rpsim(run):
    """Runs that do not fit are refused at once; others run."""
    for command in ("rpsim --schedule roundpipe", "rpsim --schedule 1f1b --fidelity hardware"):
        run(f"{command} --microbatches 65536", prefix=below(500000), status=2, timeout=20,
            err="GiB are available; valid are fewer --microbatches")
    run("rpsim --schedule roundpipe --microbatches 64", prefix=below(500000))


def test_allocations_that_fail(run):
    """A failed allocation ends a program with a message, or does no harm."""
    command = ("rpadvise --model qwen3-0.6b --platform rtx4090x8 --gpus 2 --schedule 1f1b --seq-len 512"
               " --global-batch 8 --budget 20")
    preload = {"LD_PRELOAD": BUILD / "tests/libfail_allocation.so"}
    count = int(re.search("([0-9]+) allocations", run(command, env={**preload, "FAIL_AT": 0}).err)[1])
    assert count > 10000
    tries = 2000 if LONG else 25
    for attempt in range(tries):
        for every in (None, 1):
            at = 1 + count * attempt // tries
            done = run(command, env={**preload, "FAIL_AT": at, "FAIL_ALL": every}, status=None)
            assert done.status == 0 or done.status == 1 and "memory" in done.err.lower(), f"allocation {at}: {done}"
