"""Schedule diagrams: every op once, no two at a time on a GPU, nothing before what it needs, makespan and idle time as
their closed forms, evaluated here from N = 4, M = 8 and the tables' durations alone.
"""

import collections
import itertools

import pytest

from conftest import need
from lib.figures import PAPER, drawn, make, near, programs, table

NAME = "20-schedule-diagrams"
MAKESPANS = {  # worked out by hand: forward 1, backward 2 per GPU, N - 1 = 3
    "gpipe": (8 + 3) * (1 + 2),
    "1f1b": (8 + 3) * (1 + 2),
    "interleaved-1f1b": 8 * 3 + 3 * 3 / 2,
    "looped-bfs": 8 * 3 + 3 * 3 / 2,
    "zb-h1": 8 * 3 + 3 * 1,
    "zb-h2": 8 * 3 + 3 * 1,
    "zb1p": 8 * 3 + 3 / 2,
    "zbv": 8 * 3 + 3 / 2,
    "dualpipev": 8 * 3 + 3,
    "mobius": 8 * 4 + 3 * 4 / 2,
    "roundpipe": (9 * 2 + 3) * 3,
    "roundpipe overlapped": (9 * 2 * 2 + 3) * 3,
    "v-half": None,
    "v-min": None,
}
# Four GPUs x eight microbatches x 3 (recompute 4); RoundPipe 27 per microbatch.
BUSY = collections.defaultdict(lambda: 96, {"mobius": 128, "roundpipe": 8 * 27, "roundpipe overlapped": 16 * 27})


@pytest.fixture(scope="module")
def made(shared):
    """The ops and the summary of each schedule."""
    need("sqlite3")
    programs("bin", "rpsim")
    make(PAPER / NAME, folder="bin")
    drawn("out", *(f"{NAME}{name}" for name in ("", "-zero-bubble", "-v-shaped", "-roundpipe", "-mobius")))
    ops = collections.defaultdict(list)
    for op in table(f"out/{NAME}.csv"):
        ops[op.schedule].append(op)
    summary = {row.schedule: row for row in table(f"out/{NAME}-summary.csv")}
    assert ops.keys() == summary.keys() == MAKESPANS.keys()
    return ops, summary


@pytest.mark.parametrize("name", MAKESPANS)
def test_times(made, name):
    ops, summary = (part[name] for part in made)
    ops.sort(key=lambda op: (op.gpu, op.start))
    for one, other in itertools.pairwise(ops):
        assert one.gpu != other.gpu or one.end <= other.start, f"{one} and {other} overlap"
    assert sum(op.end - op.start for op in ops) == BUSY[name]
    end = max(op.end for op in ops)
    assert summary.makespan == near(end, 1e-9)
    assert MAKESPANS[name] in (None, near(end, 1e-9))
    assert summary.form == "" or (summary.form_value, summary.difference) == (summary.makespan, 0)
    assert summary.bubble_pct == near(100 * (1 - BUSY[name] / (4 * end)), 1e-5)


@pytest.mark.parametrize("name", MAKESPANS)
def test_order(made, name):
    ops = {(op.kind, op.stage, op.microbatch, op.iteration): op for op in made[0][name]}
    assert len(ops) == len(made[0][name]), "an op is there twice"
    if "roundpipe" in name:
        return
    stages = max(op.stage for op in ops.values()) + 1
    kinds = collections.Counter(op.kind for op in ops.values())
    assert kinds["F"] == kinds["B"] + kinds["I"] == stages * 8 and kinds["I"] == kinds["W"]
    for (kind, stage, *rest), op in ops.items():
        def end(kinds, stage):
            return max(ops[kind, stage, *rest].end for kind in kinds if (kind, stage, *rest) in ops)

        if kind == "F":
            assert stage == 0 or op.start >= end("F", stage - 1), op
        elif kind in "BI":
            assert op.start >= end("F", stage), op
            assert stage + 1 == stages or op.start >= end("BI", stage + 1), op
        elif kind == "W":
            assert op.start >= end("I", stage), op
