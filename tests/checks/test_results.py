"""docs/results.md: the tables of stage fidelity against fresh runs, those of tuned partitions and of prediction errors
against the reports in experiments. Release only: each run is tested elsewhere.
"""

import csv
import re

import pytest

from conftest import SOURCE, ran

PAGE = (SOURCE / "docs/results.md").read_text()
LINES = PAGE.replace("*", "").splitlines()  # without marks of emphasis


def rows(*options):
    out = ran("rpsim --fidelity stage --format csv", *options).out
    return [{key: float(value) if key.endswith(("_ms", "_pct")) else value for key, value in row.items() if value}
            for row in csv.DictReader(out.splitlines())]


def cells(text):
    """The cells of the lines that are rows of tables."""
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]


def groups(page, heading):
    """Name, number of cells and mean error in percent, as the table of groups below a heading has them."""
    return [(row[0], int(row[1]), float(row[2].removesuffix(" %")))
            for row in cells(re.search(rf"(?ms)^## {heading}.*?^## ", page)[0]) if row[1].isdigit()]


@pytest.mark.parametrize("model", ["qwen3-1.7b", "llama3.1-8b", "gpt-oss-20b", "qwen3-32b", "qwen3-235b"])
def test_pipeline_study(model):
    times = {}
    for recompute in ("wait", "early"):
        found = rows("--schedule", "gpipe,1f1b,interleaved-1f1b,looped-bfs,roundpipe", "--model", model,
                     "--recompute", recompute)
        shown = "".join(f" {row['makespan_ms']:.1f} ({row['bubble_pct']:.1f}) |" for row in found)
        assert f"| {model} | {recompute} |{shown}" in LINES
        times[recompute] = [row["makespan_ms"] for row in found]
    [run] = rows(*f"--schedule roundpipe --model {model} --optimizer async --iterations 32".split())
    ours, paper = run["iteration_ms"], run["iteration_paper_ms"]
    error = 100 * (paper / ours - 1)
    assert f"| {model} | {run['makespan_ms']:.1f} | {ours:.1f} | {paper:.1f} | {error:+.2f} % |" in LINES
    (*wait, wait_roundpipe), (*early, early_roundpipe) = times["wait"], times["early"]
    ratios = min(wait) / early_roundpipe, min(early) / early_roundpipe, min(wait) / wait_roundpipe
    ends = re.search(r"takes (\S+) to (\S+) times .*, (\S+) to (\S+) if both .*\n(\S+) to (\S+) if both", PAGE).groups()
    for ratio, least, most in zip(ratios, ends[::2], ends[1::2]):
        assert float(least) - 0.0005 <= ratio <= float(most) + 0.0005
        assert f"{ratio:.3f}" == {"qwen3-235b": least, "gpt-oss-20b": most}.get(model, f"{ratio:.3f}")
    # The first table of the report, without its columns for our own schedule with the published partition.
    report = cells((SOURCE / "experiments/optimality.md").read_text())
    row = next(row for row in report if row[0] == model)
    assert "| {} | {} | {} | {} | {} | {} % | {} % |".format(*(row[i] for i in (0, 1, 2, 4, 5, 7, 9))) in LINES


def test_prediction_errors():
    """They are the report's with a digit less. The README has the least and the largest, Mobius apart."""
    shown = groups(PAGE, "Predicted against published")
    known = groups((SOURCE / "experiments/prediction.md").read_text(), "Groups")
    assert len(shown) == 10
    for group in shown:
        assert any(group[1] == count and abs(error - group[2]) < 0.051 for _, count, error in known), group
    errors = [error for name, _, error in shown if "Mobius" not in name]
    assert f"{min(errors):g} to {max(errors):g} %" in (SOURCE / "README.md").read_text()
