"""Figures 12, 13, 14 and 16, which are predicted: rppredict --cells against rpsim, a program with another way to the
same model; the tables with made-up answers and made-up measured values. Intervals are over 4 draws, with RP_LONG=1 over the
usual 32.
"""

import collections
import re
import shutil
import sys
from pathlib import Path

import pytest

from conftest import LONG, need, ran
from lib.figures import PAPER, PUBLISHED, make, rows, simulated, stand_in, table

FIGURES = ("12-a800-throughput", "13-a800-longest-sequences", "14-usd-per-billion-tokens", "16-sequence-lengths")
CELLS = """framework,model,seq_len,global_batch,microbatches,calls,grain,sequence_slices,why
roundpipe,llama3.1-8b,2048,,,,,,published
roundpipe,llama3.1-8b,4096,40,10,2,layer,1,given
megatron-pp,llama3.1-8b,2048,,,,,,published
megatron-pp,qwen3-1.7b,longest,,,,,,published
deepspeed-zero2,qwen3-32b,2048,16,8,1,layer,1,does not fit
"""
INTERVALS = "" if LONG else " --intervals 4"
PRICES = {row.platform: row.usd_per_hour for row in table(PUBLISHED / "prices.csv")}
SPEEDS = table(PUBLISHED / "throughput_4090.csv")
# Made-up answers: a row's number times 100, OOM in every seventh row.
RPPREDICT = f"""#!{sys.executable}
import csv, sys
if sys.argv[1] != "--cells":
    sys.exit(print(open(sys.argv[0].replace("rppredict", "report.md")).read()))
print("framework,model,platform,gpus,seq_len,fits,tokens_per_s")
for n, (framework, model, length, *_) in list(enumerate(csv.reader(open(sys.argv[2])), 1))[1:]:
    fits = n % 7 != 0
    if length == "longest":
        length, speed = n * 1024 * fits, ""
    else:
        speed = f"{{n * 100}}.50" if fits else ""
    print(framework, model, sys.argv[4], 8, length, "yes" if fits else "no", speed, sep=",")
"""
MEASURED = {  # a lower and a higher value, out of memory, and a cell that is not predicted
    "12-a800-throughput": "framework,model,tokens_per_s\nroundpipe,qwen3-1.7b,4000\nmobius,qwen3-32b,1500\n"
                          "deepspeed-zero2,qwen3-1.7b,OOM\nmegatron-tp,qwen3-235b-lora,N/A\n",
    "13-a800-longest-sequences": "framework,max\n",
    "16-sequence-lengths": "framework,seq_len,tokens_per_s\nroundpipe,4096,1000\n",
}


def test_cells(run):
    Path("cells.csv").write_text(CELLS)
    found = rows(run(f"rppredict --cells cells.csv --platform a800x8{INTERVALS}").out.splitlines())

    def speed(options):
        row = simulated(f"--platform a800x8 --model llama3.1-8b --iterations 16{INTERVALS} {options}")
        return [round(value, 2) for value in (row.tokens_per_s, row.tokens_per_s_p10, row.tokens_per_s_p50,
                                              row.tokens_per_s_p90)]

    assert [list(vars(row).values()) for row in found] == [
        ["roundpipe", "llama3.1-8b", "a800x8", 8, 2048, "yes"]
        + speed("--schedule roundpipe --config paper --optimizer async"),
        ["roundpipe", "llama3.1-8b", "a800x8", 8, 4096, "yes"]
        + speed("--schedule roundpipe --partition auto --optimizer async --round all --seq-len 4096 --global-batch 40"
                " --microbatches 10 --accumulate 2 --grain layer"),
        ["megatron-pp", "llama3.1-8b", "a800x8", 8, 2048, "yes"] + speed("--schedule megatron-pp --config paper"),
        ["megatron-pp", "qwen3-1.7b", "a800x8", 8, 41984, "yes", "", "", "", ""],
        ["deepspeed-zero2", "qwen3-32b", "a800x8", 8, 2048, "no", "", "", "", ""],
    ]
    assert list(vars(found[0])) == ("framework model platform gpus seq_len fits tokens_per_s tokens_per_s_p10"
                                    " tokens_per_s_p50 tokens_per_s_p90").split()


@pytest.mark.parametrize("arguments, reason", [
    ("", "valid is one argument"),
    (f"{PUBLISHED} --cells cells.csv", "valid is one argument"),
    (f"{PUBLISHED} --platform a800x8", "only with --cells"),
    ("--cell5 x", "--cell5: unknown or incomplete option"),
    ("--cells cells.csv --platform no-such-platform", "no-such-platform"),
])
def test_bad_use(run, arguments, reason):
    Path("cells.csv").write_text(CELLS)
    assert run(f"rppredict {arguments}", status=2, err=reason).out == ""


@pytest.mark.parametrize("text, other, reason", [
    ("roundpipe,llama3.1-8b,2048", "roundpoop,llama3.1-8b,2048", "cells.csv:2: framework: unknown schedule"),
    ("4096,40,10", "4096,19,10", "cells.csv:3: a microbatch"),
    ("2,layer,1,given", "2,tape,1,given", "cells.csv:3: column grain"),
    ("roundpipe,llama3.1-8b,4096,40", "roundpipe,llama3.1-8b,4096,", "global_batch"),
    (",longest", ",long", "cells.csv:5"),
    ("2048,16,8,1,layer,1", "2048,,,,,", "cells.csv:6: --config: the paper lists no run"),
    ("qwen3-32b", "no-such-model", "cells.csv:6: "),
    ("grain,sequence", "grainy,sequence", "grain"),
])
def test_bad_cells(run, text, other, reason):
    assert text in CELLS
    Path("cells.csv").write_text(CELLS.replace(text, other))
    assert run("rppredict --cells cells.csv", status=2, err=reason).out == ""


@pytest.fixture(scope="module")
def made(shared):
    """The tables of the figures, with made-up answers and the shipped measured values: none."""
    need("gnuplot")
    stand_in("bin/rppredict", RPPREDICT)
    Path("bin/report.md").write_text("".join(  # a quarter more than published
        f"| x | {row.framework} | {row.model} | 8 | {row.tokens_per_s} | {row.tokens_per_s * 1.25:.4f} | +25.00 | 1 | 2"
        " | 3 | outside |\n" for row in SPEEDS if isinstance(row.tokens_per_s, float)))
    for name in FIGURES:
        make(PAPER / name, folder="bin", RP_MEASURED=PAPER / "measured")
    return {name[:2]: table(f"out/{name}.csv") for name in FIGURES}


@pytest.mark.parametrize("name", FIGURES)
def test_figure(made, name):
    picture = Path(f"out/{name}.svg").read_text()
    groups = [2**power for power in range(9, 17)] if name.startswith("16") else {row.model for row in SPEEDS}
    assert "PREDICTED" in picture and all(f">{group}<" in picture for group in groups)
    assert "Kind: *predicted*" in (PAPER / name / "README.md").read_text()
    for row in made[name[:2]]:
        assert "predicted" in row.kind
        if name.startswith("14"):
            assert row.platform != "a800x8" or row.published == ""
        else:
            assert row.measured == row.difference_pct == ""


def answers(cells, answer="{}00.50"):
    """The made-up answer for each row of a table of cells."""
    found = table(cells)
    return [(row, "OOM" if n % 7 == 0 else float(answer.format(n))) for n, row in enumerate(found, 2)]


@pytest.mark.parametrize("figure, cells, answer, count", [
    ("12", "throughput", "{}00.50", 39), ("13", "lengths", "{}", 34)])
def test_answers(made, figure, cells, answer, count):
    """Every cell once, with its own answer."""
    expected = {(row.model, row.framework): ours for row, ours in answers(PAPER / f"lib/cells/{cells}.csv", answer)}
    assert {(row.model, row.system): row.ours for row in made[figure]} == expected
    assert len(made[figure]) == count


def test_sequence_lengths(made):
    """Eight lengths of eight systems; of RoundPipe's two grains the first that fits."""
    expected = {}
    for row, ours in answers(PAPER / "16-sequence-lengths/cells.csv"):
        assert row.seq_len * row.global_batch / max(1, row.sequence_slices) == 2**20
        assert row.microbatches * row.calls <= row.global_batch, "an empty microbatch"
        if expected.get((row.framework, row.seq_len), "OOM") == "OOM":
            expected[row.framework, row.seq_len] = ours
    assert {(row.system, row.seq_len): row.ours for row in made["16"]} == expected
    assert len(made["16"]) == len(expected) == 8 * 8


def check_costs(points, a800):
    """Hours for a billion tokens times the price. 4090: published, and a quarter more throughput, a fifth less cost."""
    given = {("rtx4090x8", row.model, row.framework): row.tokens_per_s for row in SPEEDS}
    given |= {("a800x8", row.model, row.system): row.ours for row in a800}
    for row in points:
        rate = given.get((row.platform, row.model, row.system), "")
        if isinstance(rate, str):  # nothing to compare with, although the made-up answers may say that it fits
            assert isinstance(row.published, str) and row.difference_pct == ""
            assert row.platform != "a800x8" or isinstance(row.ours, str)
            continue
        cost = pytest.approx(1e9 / rate / 3600 * PRICES[row.platform], rel=1e-4)
        if row.platform == "a800x8":
            assert row.ours == cost
        else:
            assert row.published == cost and row.ours / 0.8 == cost and row.difference_pct == -20
    assert collections.Counter(row.platform for row in points) == {"rtx4090x8": 40, "a800x8": 39}


def test_costs(made):
    check_costs(made["14"], made["12"])
    wrong = re.sub("(?m)(^rtx.*?),([0-9])", r"\1,1\2", Path(f"out/{FIGURES[2]}.csv").read_text(), count=1)
    with pytest.raises(AssertionError):
        check_costs(rows(wrong.splitlines()), made["12"])


@pytest.fixture(scope="module")
def measured(made):
    """The tables of the figures with measured values."""
    Path("measured").mkdir()
    for name, text in MEASURED.items():
        Path(f"measured/{name}.csv").write_text(text)
    shutil.copytree("out", "beside")
    for name in FIGURES[0], FIGURES[2], FIGURES[3]:
        make(PAPER / name, "beside", "bin", RP_MEASURED=Path("measured").resolve(), RP_FORMS="svg")
        assert "measured" in Path(f"beside/{name}.svg").read_text(), "no key for measured bars"
    return {name[:2]: table(f"beside/{name}.csv") for name in FIGURES}


def test_measured_values(measured):
    """They are beside the predictions."""
    expected = {("qwen3-1.7b", "deepspeed-zero2", "OOM", 200.5, ""), ("qwen3-235b-lora", "megatron-tp", "N/A", "", "")}
    for row, ours in answers(PAPER / "lib/cells/throughput.csv"):
        value = {("roundpipe", "qwen3-1.7b"): 4000, ("mobius", "qwen3-32b"): 1500}.get((row.framework, row.model))
        if value:
            expected.add((row.model, row.framework, value, ours, round(100 * ours / value - 100, 2)))
    assert len(expected) == 4 and {(row.model, row.system, row.measured, row.ours, row.difference_pct)
                                   for row in measured["12"] if row.measured != ""} == expected
    assert [(row.system, row.seq_len, row.measured) for row in measured["16"] if row.measured != ""] == [
        ("roundpipe", 4096, 1000)]
    assert sum(row.platform == "a800x8" and row.difference_pct != "" for row in measured["14"]) == 2


def test_measured_values_with_other_columns(measured):
    """They are refused, and the table stays."""
    name = FIGURES[1]
    done = ran("bash", PAPER / name / "make.sh", "bin", "beside", env={"RP_MEASURED": Path("measured").resolve()},
               status=None, said="framework, model and the value")
    assert done.status != 0 and Path(f"beside/{name}.csv").read_bytes() == Path(f"out/{name}.csv").read_bytes()
