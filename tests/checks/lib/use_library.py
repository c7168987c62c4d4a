"""use_library.py RPADVISE ROWS.json OPTION...: a user of the library. ROWS.json is rpsim's output for these options."""

import concurrent.futures
import csv
import json
import locale
import os
import shutil
import subprocess
import sys
import warnings

import rpsim

if "LOCPATH" in os.environ:
    locale.setlocale(locale.LC_ALL, "de_DE")
    assert locale.localeconv()["decimal_point"] == ","

assert rpsim.run(sys.argv[3:]) == json.load(open(sys.argv[2]))
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
asked = {"model": "qwen3-1.7b", "platform": "rtx4090x8", "schedule": ["gpipe", "1f1b"], "max_step_tokens": 1 << 16}
words = [word for key, value in asked.items() for word in ("--" + key.replace("_", "-"), value)]
words = [",".join(word) if isinstance(word, list) else str(word) for word in words]
done = subprocess.run([sys.argv[1], *words, "--format", "json"], capture_output=True, check=True)
ranked = rpsim.advise(**asked, seed=None)
assert ranked == rpsim.advise(words) == json.loads(done.stdout) and len(ranked) == 2 and ranked[0]["decided"]
assert ranked[0]["tokens_per_s"] > ranked[1]["tokens_per_s"]
nearest, = rpsim.advise(gpus=1, host_memory=2, schedule="fsdp", max_step_tokens=1 << 14)
assert nearest["fits"] is False and max(nearest["missing"].values()) > 0
for settings in ({"model": "llama"}, {"help": ""}, {"format": "table"}, {"no_such": 1}):
    try:
        rpsim.advise(**settings)
        sys.exit(f"{settings} are not refused")
    except rpsim.InputError as error:
        assert len(str(error)) > 20, error
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
