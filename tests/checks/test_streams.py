"""Programs that are started with standard streams closed: no message gets into a file, no file's content to a stream,
and results that nobody gets are a failure, as on a full disk.
"""

from pathlib import Path

import pytest

from conftest import need
from lib.store import ask

SIMULATE = "rpsim --schedule 1f1b --gpus 2 --microbatches 3 --iterations 1"
EXPERIMENT = """name: closed
options:
  schedule: gpipe
  fidelity: stage
cross:
  gpus: [2, 4]
"""


def closing(streams):
    """A command's prefix that closes these descriptors."""
    return ["sh", "-c", "exec " + " ".join(f"{stream}>&-" for stream in streams) + '; exec "$@"', "sh"]


def outputs(name):
    return f"{SIMULATE} --chakra-out {name} --trace-out {name}.json --program-out {name}.txt"


@pytest.mark.parametrize("streams", ["0", "1", "2", "01", "02", "12", "012"])
def test_rpsim(run, streams):
    run(outputs("expected"), err="warning")  # as it writes: Chakra's durations are whole microseconds
    run(outputs("got"), prefix=closing(streams), status=int("1" in streams))
    for suffix in (".0.et", ".1.et", ".json", ".txt"):
        assert Path("got" + suffix).read_bytes() == Path("expected" + suffix).read_bytes()


def test_gnuplot(run):
    """It does not notice a full disk."""
    need("gnuplot")
    for kind in ("svg", "png", "pdf"):
        Path(f"full.{kind}").symlink_to("/dev/full")
        said = f"full.{kind}: cannot be written: No space left"
        run(f"{SIMULATE} --gantt-out full.{kind}", status=1, err=said)


def test_rpsweep(run):
    Path("e.yaml").write_text(EXPERIMENT)
    run("rpsweep e.yaml --db e.db --jobs 1", prefix=closing("012"), status=1)
    assert ask("e.db", "PRAGMA integrity_check") == [("ok",)] and ask("e.db", "SELECT count(*) FROM runs") == [(2,)]


def test_rpexec(run):
    train = "rpexec --gpus 1 --seq-len 8 --steps 3"
    run(f"{train} --save expected --loss-out expected.csv")
    run(f"{train} --save saved --loss-out saved.csv", prefix=closing("012"), status=1)
    for name in ("model", "training"):
        expected, saved = (Path(folder, f"step-3/{name}.safetensors") for folder in ("expected", "saved"))
        assert saved.read_bytes() == expected.read_bytes()
    expected, saved = ([line.split(",")[:2] for line in open(name)] for name in ("expected.csv", "saved.csv"))
    assert saved == expected


def test_others(run):
    for command in ("rpplan --model qwen3-1.7b --gpus 4", "rppredict --help", "rpdiff --help", "rpimport --help"):
        run(command, prefix=closing("12"), status=1)
