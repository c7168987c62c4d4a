"""advise.py BINDIR GRIDDIR [CASE...]: rpadvise's best against the best of a full grid that rpsim runs point by point,
as CSV; fails where a case misses its targets (99.5 % of the grid's best, 20 s, a command that replays). The grid: every
schedule, both optimizer modes, 1, 2, 4 and 8 sequences per microbatch, N, 2N and 4N microbatches, both grains;
everything else as plain rpsim has it. Points that do not fit GPU or host memory, or that rpsim refuses, do not count.
GRIDDIR keeps a grid's store per case and commit, so that a second run times rpadvise alone, and CASE.csv with its 50
best points and the best of every schedule. JOBS: processes of the grid (2). SCHEDULES: a list, the grid's (all).
MOST_SECONDS: the most that rpadvise may take (20).
"""

import csv
import json
import os
import resource
import shlex
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

BIN, WORK, *CHOSEN = sys.argv[1:]
BIN, WORK = Path(BIN).resolve(), Path(WORK).resolve()
CASES = [(f"{model}-{platform[:-1]}{gpus}", model, platform, gpus) for model, platform, gpus in (
    ("qwen3-1.7b", "rtx4090x8", 8), ("llama3.1-8b", "rtx4090x8", 8), ("gpt-oss-20b", "rtx4090x8", 8),
    ("qwen3-32b", "rtx4090x8", 8), ("qwen3-235b", "rtx4090x8", 8), ("llama3.1-8b", "rtx3090x8", 8),
    ("llama3.1-8b", "rtx5090x8", 8), ("llama3.1-8b", "l40sx8", 4))]
HEAD = ("case model platform gpus grid_points grid_fit grid_tokens_per_s grid_schedule grid_optimizer"
        " grid_microbatch_size grid_microbatches grid_grain seconds cpu_seconds tokens_per_s ratio command").split()
GRID = """name: {}
question: Which of all these points is fastest?
options: {{model: {}, platform: {}, gpus: {}, intervals: "off"}}
cross:
  schedule: [{}]
  optimizer: [sync, async]
  microbatch-size: [1, 2, 4, 8]
  microbatches: {}
  grain: [stage, layer]
"""
FIT = "fits IS NOT 0 AND tokens_per_s IS NOT NULL"
COUNTS = f"""SELECT (SELECT count(*) FROM points), (SELECT count(*) FROM results),
    (SELECT count(*) FROM results WHERE {FIT}), (SELECT failure FROM failures LIMIT 1)"""
BEST = f"""WITH point AS (
        SELECT results.schedule, results.optimizer, results.microbatch_size, results.microbatches,
               json_extract(config_json, '$.grain') AS grain, tokens_per_s, peak_gpu_bytes, peak_host_bytes,
               results.recompute, results.partition, round(1e3 * duration_s, 1) AS point_ms,
               row_number() OVER (ORDER BY tokens_per_s DESC) AS rank,
               row_number() OVER (PARTITION BY results.schedule ORDER BY tokens_per_s DESC) AS of_schedule
          FROM results JOIN runs ON runs.id = run_id WHERE {FIT})
    SELECT rank, schedule, optimizer, microbatch_size, microbatches, grain, tokens_per_s, peak_gpu_bytes,
           peak_host_bytes, recompute, partition, point_ms
      FROM point WHERE rank <= 50 OR of_schedule = 1 ORDER BY rank"""


def ran(*command):
    return subprocess.run(command, cwd=BIN, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)


def first_row(command):
    """A command that prints JSON: its exit status, and the first row or the end of its messages."""
    name, *words = shlex.split(command)
    done = ran(BIN / name, *words, "--format", "json")
    return done.returncode, done.stderr[-200:] if done.returncode else json.loads(done.stdout)[0]


def speed_of(command):
    status, row = first_row(command)
    return row["tokens_per_s"] if status == 0 else row


def grid(name, model, platform, gpus, store):
    """Runs all that the store lacks. Numbers of points, of those that have run and that fit, a failure; the best."""
    schedules = os.environ.get("SCHEDULES")
    if not schedules:
        schedules = ", ".join(line.split(",")[0] for line in
                              ran(BIN / "rpsim", "--list", "schedules", "--format", "csv").stdout.splitlines()[1:])
    file = WORK / f"{name}.yaml"
    file.write_text(GRID.format(name, model, platform, gpus, schedules, [gpus, 2 * gpus, 4 * gpus]))
    done = ran("nice", BIN / "experiments/rpsweep", file, "--db", store, "--resume", "--jobs",
               os.environ.get("JOBS", "2"))
    (WORK / f"{name}.log").write_text(done.stdout + done.stderr)  # refused points count as failures
    rows = sqlite3.connect(f"file:{store}?mode=ro", uri=True)
    counts, best = rows.execute(COUNTS).fetchone(), rows.execute(BEST)
    found = [[column[0] for column in best.description], *best]
    rows.close()
    with open(WORK / f"{name}.csv", "w", encoding="utf-8", newline="") as listing:
        csv.writer(listing, lineterminator="\n").writerows(found)
    return counts, found[1][1:7] if len(found) > 1 else None


def check(name, model, platform, gpus, commit):
    """The row of a case, and what it misses."""
    store, server = WORK / f"{name}-{commit}.db", f"--model {model} --platform {platform} --gpus {gpus}"
    (points, run, fit, failure), found = grid(name, model, platform, gpus, store)
    if 2 * run < points:
        for path in WORK.glob(f"{store.name}*"):
            path.unlink()
        return None, [f"only {run} of {points} points have run: {failure}"]
    missed, best = [], 0
    schedule, optimizer, size, count, grain, best = found or [""] * 5 + [0]
    if found:  # one process of rpsim says the same as the sweep did, or the store is of other code
        again = speed_of(f"rpsim --schedule {schedule} {server} --optimizer {optimizer} --microbatch-size {size}"
                         f" --microbatches {count} --grain {grain} --intervals off")
        if isinstance(again, str) or abs(again - best) > 1e-9 * best:
            missed.append(f"{store} has {best} tokens/s, rpsim says {again}; remove the store")
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    status, advice = first_row(f"rpadvise {server}")
    seconds, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    row = [name, model, platform, gpus, points, fit, best, schedule, optimizer, size, count, grain, f"{seconds:.1f}",
           f"{cpu:.1f}"]
    if seconds >= float(os.environ.get("MOST_SECONDS", "20")):
        missed.append(f"takes {seconds:.1f} s")
    if status == 1 and not best:  # nothing fits, as the grid says
        return [*row, 0, "", ""], missed
    if status != 0:
        return [*row, "", "", ""], [*missed, f"rpadvise fails: {advice}"]
    speed, command = advice["tokens_per_s"], advice["command"]
    ratio = speed / best if best else float("inf")
    again = speed_of(command)
    missed += [f"{ratio:.4f} of the grid's best"] * (ratio < 0.995)
    missed += [f"{command} prints {again} tokens/s instead of {speed}"] * (again != speed)
    return [*row, speed, f"{ratio:.4f}", command], missed


def main():
    WORK.mkdir(parents=True, exist_ok=True)
    # The state of all that a point's result depends on: a grid is kept until it changes.
    root = Path(__file__).resolve().parents[2]
    log = "log -1 --format=%h -- common sim/engine sim/run sim/study traces".split()
    commit = ran("git", "-C", root, *log).stdout.strip() or "unknown"
    table, status = csv.writer(sys.stdout, lineterminator="\n"), 0
    table.writerow(HEAD)
    for case in CASES:
        if not CHOSEN or case[0] in CHOSEN:
            row, missed = check(*case, commit)
            table.writerows([row] if row else [])
            for text in missed:
                status = 1
                print(f"advise.py: {case[0]}: {text}", file=sys.stderr)
    return status


sys.exit(main())
