"""Output for people at 80 and 100 columns, and where COLUMNS is not set: no line on stdout is wider, for every program,
--help and --list, and the best run's tokens/s, memory and whether it fits stand in the first 80 columns. Every third
command runs at all three widths, with RP_LONG=1 each. Documented commands: checks.examples.

Release only: all programs are tested elsewhere.
"""

import re
from pathlib import Path

import pytest

from conftest import LONG, PROGRAMS, SOURCE, program, ran
from lib.widths import fits_into

UNSET = {"COLUMNS": None, "RP_TRACES": None, "RP_PLOTS": None, "RPEXEC_BACKEND": None}
SMALL = "--gpus 4 --iterations 2 --intervals off"
TWO = "--schedule gpipe,1f1b,roundpipe " + SMALL
FIT = "rppredict --fit own-runs.csv --platform rtx4090x8 --fit-constants host_optimizer_gb_per_s"
RECORDED = "rpsim --schedule 1f1b --gpus 2 --iterations 1 --timeline-out one.csv --chakra-out chakra"
EXPERIMENT = """name: a-rather-long-name-of-an-experiment-file
question: Which is fastest?
options: {gpus: 2, fidelity: stage}
cross: {schedule: [gpipe, 1f1b], microbatches: [4, 8]}
"""
COMMANDS = [
    *(f"{name} {option}" for name in PROGRAMS for option in ("--help", "-h", "-V")),
    *(f"rpsim --list {kind}" for kind in ("schedules", "models", "platforms", "costs")),
    "rpexec --list schedules",
    "rpexec --list backends",
    f"rpsim {TWO} --columns all",
    f"rpsim {TWO} --columns schedule,partition,tokens_per_s",
    f"rpsim {TWO} --explain",
    f"rpsim --schedule 1f1b,zero2 --model llama3.1-8b {SMALL}",
    "rpsim --schedule gpipe,1f1b --fidelity stage --jitter 0.05 --replicas 3",
    "rpsim --schedule roundpipe --fidelity stage --partition tuned --tune-budget 20",
    "rpsim --schedule gpipe --gpus 2 --check",
    "rpplan",
    FIT,
    "rpadvise --model tiny --platform rtx3090x8 --gpus 1 --seq-len 128 --budget 300",
    RECORDED,
    "rpdiff one.csv one.csv",
    "rpimport --chakra chakra",
    *(f"rpexec --backend host --gpus 2 --steps 2 {option}"
      for option in ("--check", "--record recorded", "--schedule 1f1b --costs recorded --predict")),
    "rpsweep experiment.yaml --db runs.db --resume",
    "rpsweep report runs.db",
]
ANSWERS = [  # the row of the best run comes before all others
    f"rpsim {TWO}",
    "rpsim --schedule 1f1b,roundpipe --gpus 4 --iterations 2 --intervals 2",
    "rpsim --schedule gpipe,1f1b,roundpipe,megatron-pp,pipedream-2bw,roundpipe-overlap --optimizer async --gpus 2"
    " --microbatches 4",
]


@pytest.fixture(scope="module", autouse=True)
def work(shared):
    head, *runs = (SOURCE / "docs/runs.csv").read_text().splitlines(True)[:3]
    runs = runs if LONG else ["roundpipe-sync,llama3.1-8b,2,2048,16,4,2,layer,1,4000,fit\n"]
    (shared / "own-runs.csv").write_text(head + "".join(runs))
    (shared / "experiment.yaml").write_text(EXPERIMENT)
    ran(RECORDED, env=UNSET)


@pytest.mark.parametrize("asked, command", enumerate(COMMANDS + ANSWERS))
def test_command(asked, command):
    for columns in (80, 100, None):
        if columns == 80 or LONG or asked % 3 == 0:
            text = ran(command, env={**UNSET, "COLUMNS": columns}).out
            assert text
            fits_into(text, columns or 100, f"COLUMNS={columns} {command}")
    if command == "rpsim --help":
        assert max(map(len, text.splitlines())) <= 80, "without a terminal"
    if command.startswith("rpsim --list"):
        assert len(re.findall("(?m)^[a-z0-9]", text)) > 5
    if "zero2" in command:
        assert re.search(r"(?m)^  zero2 needs [0-9]+\.[0-9] of 25\.3 GB on GPU [0-9]+: [a-z]+ [0-9]+\.[0-9]", text)
    if command in ANSWERS:
        best = r"(?m) schedule .* tokens/s .*GPU GB .*fits.*\n( *\d+ )?\* [a-z0-9-]+ .*\d+ .*\d+\.\d .*yes"
        assert re.search(best, "\n".join(line[:80] for line in text.splitlines())), text


def test_markdown():
    assert re.search("(?m)^[|] constant [|]", ran(FIT, "--format", "md", env=UNSET).out)
    table = ran("rpsim --schedule 1f1b --gpus 2 --iterations 1 --format md", env=UNSET).out
    assert re.search("(?m)^[|] schedule [|] ", table)


@pytest.mark.parametrize("command", [
    "rpsim --schedule gpipe --gpus 2 --fidelity stage", "rpsim --list models", "rpplan", "rpdiff one.csv one.csv",
    "rpexec --list schedules"])
def test_full_disk(command):
    """It is an error of every program that prints tables."""
    name, *words = command.split()
    ran("sh", "-c", '"$0" "$@" >/dev/full', program(name), *words, status=1)
