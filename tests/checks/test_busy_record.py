"""A record that others were busy beside is marked, and everything that reads it says so first; a record of an idle
machine is not. Runs alone (CMakeLists.txt). If others keep the machine busy all the same, the idle half is skipped.
"""

import contextlib
import json
import os
import re
import resource
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from conftest import ran

RUN = "rpexec --backend host --gpus 2 --steps 2 --seq-len 16 --microbatches 4"
WARNING = r"warning: busy/platform.yaml:[0-9]*: recorded while other processes used"


@pytest.fixture(autouse=True)
def work(shared):
    pass


@contextlib.contextmanager
def others():
    """A list that gets how many percent of all processors were used meanwhile, but by commands that have ended."""
    def state():
        user, nice, system, idle, waiting, *more = map(int, Path("/proc/stat").read_text().split()[1:9])
        own = resource.getrusage(resource.RUSAGE_CHILDREN)
        busy = user + nice + system + sum(more)
        return busy - os.sysconf("SC_CLK_TCK") * (own.ru_utime + own.ru_stime), busy + idle + waiting

    found, (used, total) = [], state()
    yield found
    used_then, total_then = state()
    found.append(100 * (used_then - used) / (total_then - total))


@contextlib.contextmanager
def loops():
    """A loop on each processor."""
    running = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in os.sched_getaffinity(0)]
    try:
        yield
    finally:
        for loop in running:
            loop.kill()
            loop.wait()


def test_idle():
    for _ in range(5):  # a record that others were beside says nothing here
        shutil.rmtree("idle", ignore_errors=True)
        with others() as before:
            time.sleep(1)
        if before[0] < 4:
            with others() as beside:
                done = ran(RUN + " --record idle")
            if beside[0] < 4:
                break
    else:
        pytest.skip("the machine is not idle")
    assert "recorded_busy_pct" not in Path("idle/platform.yaml").read_text()
    assert "beside others" not in Path("idle/costs.yaml").read_text()
    assert not done.err
    predicted = ran(RUN + " --costs idle --predict --format json")
    assert json.loads(predicted.out)["costs_busy_pct"] == 0 and "recorded while" not in predicted.err


def test_busy():
    with loops():
        done = ran(RUN + " --record busy")
    assert re.search("(?m)^rpexec: warning: --record: other processes used [0-9]* % of the processors meanwhile; the record"
                     " is marked", done.err), done
    assert 25 < float(re.search("(?m)^recorded_busy_pct: (.*)", Path("busy/platform.yaml").read_text())[1]) < 100
    assert re.search("(?m)^source: measured by rpexec in fp32; .*; beside others, who used [0-9]* % of the processors$",
                     Path("busy/costs.yaml").read_text())
    done = ran(RUN + " --costs busy --predict")
    assert re.match("rpexec: " + WARNING, done.err), done
    assert re.search("(?m)^no prediction to trust: its costs were recorded while other processes used.*\npredicted",
                     done.out), done
    assert json.loads(ran(RUN + " --costs busy --predict --format json").out)["costs_busy_pct"] > 0
    done = ran("rpsim --schedule roundpipe --model tiny --gpus 2 --costs busy/costs.yaml --platform busy/platform.yaml")
    assert re.search("(?m)^rpsim: " + WARNING, done.err), done
