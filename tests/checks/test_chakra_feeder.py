"""Chakra traces end in a reader with a single communication of a rank in flight, as in ASTRA-sim's feeder
(tests/reference/chakra_feeder.py): every system, and layouts. A longest path over the nodes takes as long as the run,
with the host's ops as nodes and as delays.
"""

import csv
import sys
from pathlib import Path

import pytest

from conftest import LONG, SOURCE, ran

SHARDED = "fsdp fsdp-offload megatron-tp zero2 zero3 zero-infinity zero-offload".split()
PIPELINES = "1f1b roundpipe".split()
SMALL = "--model gpt:512x8x4 --platform a100-80x8 --intervals off"
if LONG:
    PIPELINES = [line.split(",")[0] for line in ran("rpsim --list schedules --format csv").out.splitlines()[1:]]
RUNS = [
    *(f"--schedule {name} {SMALL} --gpus 8 --microbatches 16 --iterations 1" for name in SHARDED),
    *(f"--schedule {name} --gpus 2 --microbatches 4 --iterations 2 --intervals off" for name in PIPELINES),
    f"--schedule 1f1b {SMALL} --gpus 8 --microbatches 2 --iterations 2 --tensor-parallel 2 --data-parallel 2",
]
if LONG:
    RUNS += [f"--schedule {name} --gpus 8 --microbatches 16 --iterations 2 --intervals off" for name in SHARDED]
    RUNS += [f"--schedule {name} {SMALL} --microbatches 4 --iterations 2 --data-parallel 2 {size}"
             for name in ("gpipe", "interleaved-1f1b", "zb-h1", "zbv", "megatron-pp")
             for size in ("--nodes 2 --tensor-parallel 2", "--nodes 4 --tensor-parallel 8")]


@pytest.mark.parametrize("line", RUNS)
def test_feeder(run, line):
    for mode in ("keep", "delay"):
        run(f"rpsim {line} --timeline-out {mode}.csv --chakra-out {mode} --chakra-host-ops {mode}")
        rows = (row for row in Path(f"{mode}.csv").read_text().splitlines() if not row.startswith("#"))
        end = max(int(row["end_ps"]) for row in csv.DictReader(rows))
        played = run(Path(sys.executable), SOURCE / "tests/reference/chakra_feeder.py", mode, 20 if LONG else 3).out
        found, cpu_nodes = played.split()
        assert int(found) == end and (mode == "keep" or cpu_nodes == "0"), mode
