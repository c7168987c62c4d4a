"""Figures 17 and 3 from fresh runs: all 25 published rows to 0.0006 ms, shares and differences from their definitions,
the steady state from the published layer times.
"""

import re
from pathlib import Path

import pytest

from conftest import need, ran
from lib.figures import PAPER, PUBLISHED, make, near, programs, rows, stand_in, table

FIGURES = ("17-bubbles", "03-ideal-and-real-bubbles")
TIMES = Path("out/17-bubbles.csv")
# 16 microbatches: every layer forward, recomputed and backward, the head without recompute.
BUSY = {row.model: 16 * (row.layers * (2 * row.fwd_ms + row.bwd_ms) + row.lmhead_fwd_ms + row.lmhead_bwd_ms)
        for row in table(PUBLISHED / "layer_times_4090.csv")}
PAPERS = {(row.schedule, row.model): vars(row) for row in table(PUBLISHED / "pipeline_bubbles.csv")}


@pytest.fixture(scope="module", autouse=True)
def made(shared):
    need("gnuplot")
    programs("bin", "rpsim")
    for name in FIGURES:
        make(PAPER / name, folder="bin")


def check(text):
    """The published rows and the definitions hold."""
    points = rows(text.splitlines())
    ours = {(row.execution, row.schedule, row.model, row.quantity): row.ours for row in points}
    for row in points:
        assert row.published == "" or row.difference == near(row.ours - row.published, 2e-6), row
        if row.execution == "synchronous":
            paper = PAPERS[row.schedule, row.model][row.quantity]
            assert row.published == paper, row
            assert row.ours == near(paper, 0.00006 if row.quantity.endswith("_pct") else 0.0006), row
    assert len(ours) == len(points) and sum(row.execution == "synchronous" for row in points) == 25 * 14
    assert len(PAPERS) == 25
    for (schedule, model), paper in PAPERS.items():
        def our(quantity, execution="synchronous"):
            return ours[execution, schedule, model, quantity]

        parts = sum(our(part) for part in ("fill_ms", "switch_ms", "drain_ms", "intra_ms"))
        assert parts == near(our("bubble_ms"), 1e-5)
        assert 8 * our("makespan_ms") - our("bubble_ms") == near(BUSY[model], 1e-3)
        if schedule == "roundpipe":
            assert our("bubble_pct", "overlapped") == near(paper["intra_pct"] + paper["switch_pct"], 2e-4)
            taken = (paper["fill_ms"] + paper["drain_ms"]) / 8
            assert our("iteration_ms", "overlapped") == near(paper["makespan_ms"] - taken, 6e-4)
            period = our("iteration_ms", "steady")
            assert BUSY[model] / 8 <= period <= our("makespan_ms")
            assert our("bubble_pct", "steady") == near(100 - 12.5 * BUSY[model] / period, 1e-4)


def test_bubbles():
    check(TIMES.read_text())
    assert len(table("out/17-bubbles-bars.csv")) == 5 * 7


@pytest.mark.parametrize("pattern, other", [
    (r"(1f1b,synchronous,qwen3-32b,fill_ms,[0-9.]*,[0-9]*\.[0-9][0-9])8", r"\g<1>9"),
    (r"gpipe,.*gpt-oss.*\n", ""),
    ("(steady,qwen3-32b,iteration_ms,,2)3", r"\g<1>4"),
])
def test_errors_are_seen(pattern, other):
    """An error of 0.001 ms, a missing run and another period."""
    wrong, changes = re.subn(pattern, other, TIMES.read_text())
    assert changes
    with pytest.raises((AssertionError, KeyError)):
        check(wrong)


def test_ideal_bubbles():
    """The ideal bubble from the numbers of layers, the real bubbles from the rows of Figure 17."""
    layers = {row.model: row.layers for row in table(PUBLISHED / "models.csv")}
    real = {(row.model, row.schedule): row for row in table(TIMES)
            if (row.execution, row.quantity) == ("synchronous", "bubble_pct")}
    points = table("out/03-ideal-and-real-bubbles.csv")
    for row in points:
        ideal = 700 / (-(-layers[row.model] // 8) * 16 + 7)
        if row.schedule == "ideal":
            assert row.ours == near(ideal, 1e-6) and row.published == ""
        else:
            bubble = real[row.model, row.schedule]
            assert (row.published, row.ours, row.difference) == (bubble.published, bubble.ours, bubble.difference)
        assert row.times_ideal == near(row.ours / ideal, 1e-4)
    assert [sum((row.schedule == "ideal") is ideal for row in points) for ideal in (True, False)] == [5, 25]


def test_bad_use():
    ran("bash", PAPER / FIGURES[0] / "make.sh", status=2)


def test_a_program_that_fails():
    """It leaves no half-written figure."""
    stand_in("broken/rpsim", "#!/bin/sh\necho schedule,model\nexit 3\n")
    for name in FIGURES:
        assert ran("bash", PAPER / name / "make.sh", "broken", "none", status=None).status != 0
    assert not list(Path("none").iterdir())
