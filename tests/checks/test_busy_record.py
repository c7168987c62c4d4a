"""A record that others were busy beside is marked, and everything that reads it says so first; a record of an idle
machine is not. Runs alone (CMakeLists.txt). If others keep the machine busy all the same, the idle half is skipped.
"""

import json
import os
import re
import resource
import shutil
import subprocess
from pathlib import Path

import pytest

from conftest import ran

RUN = "rpexec --backend host --gpus 2 --steps 2 --seq-len 16 --microbatches 4"
WARNING = r"warning: busy/platform.yaml:[0-9]*: recorded while other processes used"


def used():
    """The processor time that all but ended commands of this test have used, and that of all processors, in ticks."""
    user, nice, system, idle, waiting, *more = map(int, Path("/proc/stat").read_text().split()[1:9])
    own, busy = resource.getrusage(resource.RUSAGE_CHILDREN), user + nice + system + sum(more)
    return busy - os.sysconf("SC_CLK_TCK") * (own.ru_utime + own.ru_stime), busy + idle + waiting


def beside_others(command):
    """What it gives, and how many percent of all processors others used meanwhile."""
    before, done, after = used(), ran(command), used()
    return done, 100 * (after[0] - before[0]) / (after[1] - before[1])


def test_idle(run):
    for _ in range(5):  # a record that others were beside says nothing here
        if beside_others("sleep 1")[1] < 4:
            shutil.rmtree("idle", ignore_errors=True)
            done, percent = beside_others(RUN + " --record idle")
            if percent < 4:
                break
    else:
        pytest.skip("the machine is not idle")
    assert "recorded_busy_pct" not in Path("idle/platform.yaml").read_text()
    assert "beside others" not in Path("idle/costs.yaml").read_text()
    assert not done.err
    predicted = run(RUN + " --costs idle --predict --format json")
    assert json.loads(predicted.out)["costs_busy_pct"] == 0 and "recorded while" not in predicted.err


def test_busy(run):
    loops = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in os.sched_getaffinity(0)]
    try:
        done = run(RUN + " --record busy")
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()
    assert re.search("(?m)^rpexec: warning: --record: other processes used [0-9]* % of the processors meanwhile; the "
                     "record is marked", done.err), done
    assert 25 < float(re.search("(?m)^recorded_busy_pct: (.*)", Path("busy/platform.yaml").read_text())[1]) < 100
    assert re.search("(?m)^source: measured by rpexec in fp32; .*; beside others, who used [0-9]* % of the processors$",
                     Path("busy/costs.yaml").read_text())
    done = run(RUN + " --costs busy --predict")
    assert re.match("rpexec: " + WARNING, done.err), done
    assert re.search("(?m)^no prediction to trust: its costs were recorded while other processes used.*\npredicted",
                     done.out), done
    assert json.loads(run(RUN + " --costs busy --predict --format json").out)["costs_busy_pct"] > 0
    done = run("rpsim --schedule roundpipe --model tiny --gpus 2 --costs busy/costs.yaml --platform busy/platform.yaml")
    assert re.search("(?m)^rpsim: " + WARNING, done.err), done
