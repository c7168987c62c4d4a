"""The committed measurement of predictions (tests/bench/results/validation.csv): errors and Kendall's tau, worked out
again from predicted and measured times, are those that rpdiff has written, within the gates below, and those of
README.md and docs/results.md. The script that has measured it records anew before each block of runs, and goes on
where it was stopped.

Release only: data, and a bench.
"""

import collections
import csv
import itertools
import re
import statistics
from pathlib import Path

import pytest

from conftest import BUILD, LONG, SOURCE, ran

LITTLE = """name: little
program: rpexec
options: {backend: host, model: tiny, microbatches: 2, steps: 2, seq-len: 8, costs: tiny-8, predict: true, bind: true}
cross:
  schedule: [gpipe, 1f1b]
  gpus: [2]
repeats: 2
seed: 1
"""


@pytest.mark.skipif(not LONG, reason="records four times, with RP_LONG=1")
def test_script(shared):
    Path("little.yaml").write_text(LITTLE)
    made = []
    for _ in range(2):
        done = ran("bash", SOURCE / "tests/bench/validation.sh", BUILD, "little.yaml", "out")
        rows = [row for row in csv.DictReader(done.out.splitlines()) if row["kind"] == "configuration"]
        twice = [row["schedule"] for row in rows if row["count"] == "2"]
        assert twice == ["1f1b", "gpipe"], f"two schedules, twice each: {done}"
        names = [f"out/round-{number}-tiny-8-2{end}" for number in (1, 2) for end in (".record/costs.yaml", ".db")]
        made.append([(Path(name).stat().st_mtime_ns, Path(name).stat().st_ino) for name in names])
        Path(names[-1]).unlink()
    # The second round alone is measured again.
    assert made[0][:2] == made[1][:2] and not set(made[0][2:]) & set(made[1][2:])


def tau(rows):
    """Kendall's, and how many pairs have it: measured times that differ by no more than their spread are no pair."""
    signs = []
    for first, second in itertools.combinations(rows, 2):
        apart = first["measured_ms"] - second["measured_ms"]
        spread, longest = (max(first[key], second[key]) for key in ("spread_pct", "measured_ms"))
        if abs(apart) > spread / 100 * longest:
            signs.append(1 if apart * (first["predicted_ms"] - second["predicted_ms"]) > 0 else -1)
    return statistics.mean(signs), len(signs)


def test_results():
    kinds = collections.defaultdict(list)
    with (SOURCE / "tests/bench/results/validation.csv").open() as table:
        for row in csv.DictReader(table):
            numbers = {key: float(row[key] or 0) for key in row if re.search("_ms$|_pct$|tau|pairs", key)}
            kinds[row["kind"]].append({**row, **numbers})
    runs, errors, pairs_in_all = kinds["configuration"], [], 0
    for row in runs:
        errors.append(100 * (row["predicted_ms"] / row["measured_ms"] - 1))
        assert row["error_pct"] == pytest.approx(errors[-1], abs=0.011), row
    for order in kinds["order"]:
        ours, pairs = tau([row for row in runs if (row["seq_len"], row["gpus"]) == (order["seq_len"], order["gpus"])])
        assert order["tau"] == pytest.approx(ours, abs=0.001) and order["pairs"] == pairs, order
        assert ours >= 0.8 and pairs >= 6, order
        pairs_in_all += pairs
    orders, groups = ({(row["seq_len"], row["gpus"]) for row in rows} for rows in (kinds["order"], runs))
    assert orders == groups and len(groups) >= 4 and pairs_in_all >= 40
    assert len(runs) >= 24 and len({row["schedule"] for row in runs}) >= 6
    mean, worst = statistics.mean(map(abs, errors)), max(map(abs, errors))
    assert mean <= 10 and worst <= 20
    assert kinds["mean |error|"][0]["error_pct"] == pytest.approx(mean, abs=0.011)
    assert kinds["worst |error|"][0]["error_pct"] == pytest.approx(worst, abs=0.011)
    for page in ("README.md", "docs/results.md"):
        text = f"{mean:.1f} % off on the mean, {worst:.1f} % at worst"
        assert any(text in line for line in (SOURCE / page).read_text().splitlines()), f"{page} does not say {text}"
