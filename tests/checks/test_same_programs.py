"""rpsim and rpexec write the same program, byte for byte, when they are given the same words: all schedules, both
grains, 1, 2, 5 and 8 GPUs, types, platforms, optimizers, calls. A plain run holds a sample; RP_LONG=1 all.
"""

import csv
import difflib
import itertools
import re
from pathlib import Path

from conftest import LONG, SOURCE

TINY = "--model tiny --seq-len 32 --microbatch-size 1 --dtype fp32"
DEFAULTS = [  # are the same: grain, recompute, pieces, optimizer, partition
    *(f"--schedule {name} --gpus 2 {TINY} --platform rtx4090x8" for name in ("roundpipe", "1f1b", "fsdp", "zbv")),
    *(f"--schedule {words} {TINY} --reduce-each {each}" for each in ("step", "microbatch")
      for words in ("fsdp --gpus 4 --microbatches 8", "zero2 --gpus 2")),
]


def words(case, schedule, gpus, grain):
    # Five GPUs need numbers of microbatches that five divide, and interleaved schedules those of GPUs.
    yield f"--schedule {schedule} --gpus {gpus} --grain {grain} --seq-len 16 --microbatches {2 * gpus}"
    yield f"--microbatch-size 1 --dtype {('fp32', 'bf16', 'fp16')[case % 3]}"
    yield f"--platform {('rtx4090x8', 'a800x8', 'h100x8')[case // 3 % 3]}"
    yield "--model small" if LONG or case % 16 == 6 else "--model narrow.yaml"
    if case % 16 == 6:
        yield "--piece-mb 1"
    if case % 4 == 3:
        yield "--accumulate 2"
    if case % 8 == 5 and not schedule.startswith("pipedream"):  # the executor keeps a single version of the weights
        yield "--optimizer async"


def test_same_programs(run):
    # Programs have the same ops at any width: a narrow model trains in a tenth of the time, but has no pieces of 1 MiB.
    text = (SOURCE / "traces/models/small.yaml").read_text()
    for key, value in (("hidden", 64), ("intermediate", 64), ("head_dim", 8), ("published_parameters", 214208)):
        text = re.sub(f"(?m)^{key}: .*", f"{key}: {value}", text)
    Path("narrow.yaml").write_text(text)
    schedules = [row["name"] for row in csv.DictReader(run("rpsim --list schedules --format csv").out.splitlines())]
    cases = list(enumerate(itertools.product(schedules, (1, 2, 5, 8), ("stage", "layer")), 1))
    lines = [" ".join(words(case, *sizes)) for case, sizes in cases if LONG or case % 11 == 0]
    same, refused = 0, 0
    for line in lines + DEFAULTS:
        sim = run(f"rpsim {line} --intervals off --iterations 2 --program-out sim", status=None)
        executed = run(f"rpexec {line} --backend host --steps 2 --program-out exec", status=None)
        if sim.status == executed.status == 2:
            refused += 1
            continue
        assert sim.status == executed.status == 0, f"{sim}\n{executed}"
        programs = [Path(name).read_text().splitlines() for name in ("sim", "exec")]
        assert programs[0] == programs[1], line + "\n".join(itertools.islice(difflib.unified_diff(*programs), 9))
        same += 1
        Path("sim").unlink()
        Path("exec").unlink()
    print(f"{same} programs are the same, {refused} are refused by both")
    assert same >= len(cases) // 16 and same > 2 * refused
