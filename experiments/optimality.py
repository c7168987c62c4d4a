#!/usr/bin/env python3
"""optimality.py RPSIM [REPORT]: writes experiments/optimality.md, or REPORT: RoundPipe as published, RoundPipe tuned,
our own schedule and lower bounds, for the five models of the paper. Every number comes from the runs made here, which
take some minutes.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MODELS = "qwen3-1.7b llama3.1-8b gpt-oss-20b qwen3-32b qwen3-235b".split()
ROUNDPIPE, OWN, PAPER = "--schedule roundpipe", "--schedule roundpipe-overlap", "--partition paper"
REPORT = """# How far from optimal

Written by `experiments/optimality.py` (target `optimality`). 8 × RTX 4090, 16 microbatches, recompute early (as
published for RoundPipe), stage fidelity, times in ms. *Own* is `roundpipe-overlap`. *Tuned* is `--partition tuned`,
seed 1, with 50000 simulations (steady states 3000); other columns have the published partition. *Gap* is the distance
of the first column to the bound, *closed* the part of it that a column closes, in percent.

## One synchronous iteration

Makespan. The bound holds for every schedule with the same semantics (`lower_bound_same_ms`, the lowest of the runs;
proof in `sim/run/bounds/bounds.h`). *Same work* is the bound of partitions that fuse no layers with the head's stage
(`lower_bound_any_ms`).

{stage_sync}

## Steady state of asynchronous iterations

Period, over the second half of 32 iterations. The bound is the published run's work divided by the GPUs; a period may
lie below it by the ends of its window.

{stage_async}
{less_work}"""
LESS_WORK = """
A search may fuse stages that no GPU could hold and that recompute nothing. These runs have less work than the bound
assumes:

{}
"""


def run(*options):
    """The rows of rpsim by model, each with its time (a period where it is asynchronous) and its work per GPU."""
    words = " ".join(options).split()
    rows = {}
    for model in MODELS:
        command = [sys.argv[1], *"--gpus 8 --seed 1 --intervals off --format json --model".split(), model, *words]
        [row] = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
        row["ms"] = row["makespan_ms" if row["optimizer"] == "sync" else "iteration_ms"]
        row["work_ms"] = row["makespan_ms"] - row["bubble_ms"] / row["gpus"]
        rows[model] = row
    print(*words, file=sys.stderr)
    return rows


def table(heads, rows):
    lines = ["| " + " | ".join(row) + " |" for row in [heads.split(" / "), *rows]]
    return "\n".join([lines[0], "|---" * len(rows[0]) + "|", *lines[1:]])


def compared(heads, columns, bounds, more=None):
    """A row for each model: the times, the bound, the gap of the first column to it, and how much of that gap each
    other column closes (where there is one)."""
    rows = []
    for model in MODELS:
        times, bound = [column[model]["ms"] for column in columns], bounds[model]
        gap = times[0] - bound
        cells = [f"{ms:.1f}" for ms in times]
        cells += [f"{bound:.1f}", f"{100 * gap / times[0]:.1f}"]
        cells += [f"{100 * (times[0] - ms) / gap:.0f}" if times[0] > 1.0005 * bound else "-" for ms in times[1:]]
        rows.append([model, *cells, *([f"{more[model]:.1f}"] if more else [])])
    return table(heads, rows)


def of(rows, key):
    return {model: row[key] for model, row in rows.items()}


def lowest(columns):
    """The lowest bound that any of the runs has: it holds for all of them."""
    return {model: min(column[model]["lower_bound_same_ms"] for column in columns) for model in MODELS}


def stage(optimizer, budget):
    how = f"--fidelity stage --microbatches 16 --optimizer {optimizer}"
    tuned = f"--partition tuned --tune-budget {budget}"
    return [run(how, schedule, partition) for schedule in (ROUNDPIPE, OWN) for partition in (PAPER, tuned)]


def main():
    if len(sys.argv) not in (2, 3) or not os.access(sys.argv[1], os.X_OK):
        print(f"Usage: {sys.argv[0]} RPSIM [REPORT]   (takes some minutes)", file=sys.stderr)
        sys.exit(2)
    os.environ.setdefault("RP_TRACES", str(ROOT / "traces"))
    # Steady states take as many times longer as they have iterations.
    stages = {"sync": stage("sync", 50000), "async": stage("async --iterations 32", 3000)}
    less_work = [
        f"- {model}, {row['schedule']}, {optimizer}: {row['work_ms']:.1f} ms of work per GPU instead of {whole:.1f}"
        for optimizer, (published, *others) in stages.items() for column in others for model, row in column.items()
        for whole in [published[model]["work_ms"]] if row["work_ms"] < 0.9999 * whole]
    head = "model / published / tuned / own / own, tuned / bound / gap / closed: tuned / own / own, tuned"
    published = stages["sync"][0]
    Path(sys.argv[2] if len(sys.argv) > 2 else ROOT / "experiments/optimality.md").write_text(REPORT.format(
        stage_sync=compared(head + " / same work", stages["sync"], lowest(stages["sync"]),
                            of(published, "lower_bound_any_ms")),
        stage_async=compared(head, stages["async"], of(stages["async"][0], "work_ms")),
        less_work=LESS_WORK.format("\n".join(less_work)) if less_work else "",
    ), encoding="utf-8")


main()
