"""use_library.py ROWS.json OPTION...: a user of the library. ROWS.json is rpsim's output for these options."""

import concurrent.futures
import csv
import json
import locale
import os
import shutil
import sys
import warnings

import rpsim

if "LOCPATH" in os.environ:
    locale.setlocale(locale.LC_ALL, "de_DE")
    assert locale.localeconv()["decimal_point"] == ","

assert rpsim.run(sys.argv[2:]) == json.load(open(sys.argv[1]))
for options in (["--schedule", "gpip"], ["--schedule", "gpipe", "--gantt-out", "nowhere/a.svg"], ["--help"]):
    try:
        rpsim.run(options)
        sys.exit(f"{options} are not refused")
    except rpsim.InputError as error:
        assert len(str(error)) > 20, error
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    rpsim.run(["--schedule", "all", "--gpus", "6", "--intervals", "off", "--iterations", "1"])
assert any("megatron-tp left out" in str(w.message) for w in said), said
one = ["--schedule", "roundpipe", "--intervals", "off", "--iterations", 2]
row = rpsim.run(one + ["--trace-out", "trace.json", "--timeline-out", "timeline.csv"])[0]
assert json.load(open("trace.json"))
if shutil.which("gnuplot"):
    rpsim.run(["--schedule", "gpipe", "--fidelity", "stage", "--gantt-out", "chart.svg"])
    assert open("chart.svg").read(5) in ("<?xml", "<svg ")
simulation = rpsim.simulate(one)
assert simulation.rows[0]["tokens_per_s"] == row["tokens_per_s"]
ops = simulation.ops()
for op, line in zip(ops, csv.DictReader(open("timeline.csv")), strict=True):
    assert (op.kind, op.queue, op.stage, op.microbatch, op.iteration) == (
        line["kind"], line["queue"], int(line["stage"]), int(line["microbatch"]), int(line["iteration"]))
    assert ("host" if op.gpu is None else str(op.gpu)) == line["gpu"]
    assert abs(op.start_ms * 1e9 - int(line["start_ps"])) < 1 and abs(op.end_ms * 1e9 - int(line["end_ps"])) < 1
    assert op.waited_for is None or ops[op.waited_for].end_ms <= op.start_ms
assert {"qwen3-1.7b"} <= set(rpsim.names("models")) and "1f1b" in rpsim.names("schedules")


def speed(name):
    return [rpsim.run(["--schedule", name, "--iterations", "2"])[0]["tokens_per_s"] for _ in range(3)]


def message(name):
    try:
        rpsim.run(["--schedule", name])
    except rpsim.InputError as error:
        return str(error)


schedules = ["gpipe", "1f1b", "roundpipe", "fsdp"]
with concurrent.futures.ThreadPoolExecutor(8) as pool:
    together = [pool.submit(speed, name) for name in schedules]
    mistakes = [pool.submit(message, name + "-x") for name in schedules]
    assert [future.result() for future in together] == [speed(name) for name in schedules]
    for name, future in zip(schedules, mistakes):
        assert f"'{name}-x'" in future.result(), future.result()
