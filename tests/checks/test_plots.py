"""The gallery of plots: every entry's CSV against something that its script does not compute, and pictures that are
there. SVG only: the three types come from one script, and types are checked elsewhere. 8 and 16 GPUs only with
RP_LONG=1.
"""

import collections
import itertools
import re
import shutil
from pathlib import Path

import pytest

from conftest import LONG, SOURCE, need, ran
from lib.figures import PAPER, change, drawn, near, programs, simulated, table

GALLERY = SOURCE / "plots/gallery"
ENTRIES = sorted(path.parent.name for path in GALLERY.glob("*/make.sh"))
assert len(ENTRIES) >= 7
SIZES = 5 if LONG else 3  # numbers of GPUs in 42-scaling
COSTS = SOURCE / "traces/costs"
PREDICTED = """model,system,gpus,published,ours,difference_pct,set_a_constant
qwen3-1.7b,roundpipe,8,20000,21000,5.00,
llama3.1-8b,roundpipe,4,10000,10500,5.00,yes
qwen3-32b,mobius,4,1000,800,-20.00,
gpt-oss-20b,mobius,4,OOM,,,
"""


@pytest.fixture(scope="module", autouse=True)
def made(shared):
    need("sqlite3")
    programs("bin", "rpsim", "rpsweep")
    Path("out").mkdir()
    for figure in ("10-throughput", "11-longest-sequences", "15-scaling"):
        Path(f"out/{figure}.csv").write_text(PREDICTED)
    shutil.copytree(SOURCE / "experiments", "experiments", ignore=lambda *_: ["studies", "report"])
    if not LONG:
        change(Path("experiments/gallery-scaling.yaml"), (r"gpus: \[1, 2, 4, 8, 16\]", "gpus: [1, 2, 4]"))
    done = ran("bash", GALLERY / "make_all.sh", "bin", "out",
               env={"RP_FORMS": "svg", "RP_EXPERIMENTS": Path("experiments").resolve()})
    assert "warning" not in done.said.lower() and not list(Path("out").glob(".*")), str(done)


@pytest.mark.parametrize("name", ENTRIES)
def test_entry(name):
    text = (GALLERY / name / "README.md").read_text()
    assert len(table(f"out/{name}.csv")) >= 3 and text.startswith("# ") and "\nKind: *" in text
    assert name in (SOURCE / "plots/README.md").read_text()
    drawn("out", name, forms=["svg"], least=4000)


def test_timelines():
    points = table("out/41-timelines.csv")
    assert len(points) == 5
    for row in points:
        assert row.bubble_pct == near(100 * row.bubble_ms / (row.gpus * row.makespan_ms), 1e-6)
        assert row.bubble_pct == near(row.fill_pct + row.switch_pct + row.intra_pct + row.drain_pct, 1e-6)


def test_scaling():
    """One GPU does everything one after the other: 32 microbatches of the cost table."""
    cost = dict(re.findall(r"^(\w+): ([0-9.]+)", (COSTS / "llama3.1-8b@rtx4090.yaml").read_text(), re.M))
    layers, *times = (float(cost[key]) for key in "layers fwd_ms bwd_ms head_fwd_ms head_bwd_ms".split())
    forward = 32 * layers * times[0]
    plain = forward + 32 * (layers * times[1] + times[2] + times[3])
    points, recomputes = table("out/42-scaling.csv"), 0
    for row in points:
        if row.fidelity == "hardware":
            assert row.fits in (0, 1)
            continue
        if row.gpus == 1:
            assert row.makespan_ms in (near(plain, 1e-3), near(plain + forward, 1e-3))
            recomputes += row.makespan_ms > plain + 1
        assert row.tokens_per_s == pytest.approx(128 * 2048 / row.makespan_ms * 1000, rel=1e-3)
        assert row.makespan_ms >= plain / row.gpus - 1e-3, "too fast"
    assert collections.Counter(row.fidelity for row in points) == {"stage": 19 * SIZES, "hardware": 27 * SIZES}
    assert recomputes == 6


def test_sensitivity():
    """More time is never faster, and one input alone is not more than everything; one run again, from a table with the
    changed time in it."""
    points = table("out/43-sensitivity.csv")
    assert len(points) == 3 * 11 * 4 and sorted(points, key=lambda row: row.place) == points
    for row in points:
        assert row.effect_pct == near(100 * (row.tokens_per_s / row.unchanged_tokens_per_s - 1), 1e-4)
        assert not row.input.endswith("_ms") or (row.effect_pct >= 0 if row.factor < 1 else row.effect_pct <= 0)
        assert 100 * (1 / 1.2 - 1) <= row.effect_pct <= 100 * (1 / 0.8 - 1)
        assert "launch_overhead" not in row.input or row.effect_pct == 0, "the table is measured"
    costs = Path("slow.yaml")
    costs.write_text((COSTS / "qwen3-1.7b@rtx4090.yaml").read_text())
    change(costs, ("^fwd_ms: ([0-9.]*)", lambda found: f"fwd_ms: {float(found[1]) * 1.2:.12g}"))
    slow = simulated("--schedule 1f1b --model qwen3-1.7b --gpus 8 --microbatches 16 --costs slow.yaml")
    assert [row.tokens_per_s for row in points if (row.schedule, row.input, row.factor) == (
        "1f1b", "costs.fwd_ms", 1.2)] == [near(slow.tokens_per_s, 1e-3)]


def test_memory():
    points, most, held = table("out/44-memory.csv"), collections.Counter(), {}
    for row in points:
        schedule, place, _, *parts, total = vars(row).values()
        assert sum(parts) == total and len(parts) == 8
        most[schedule, place] = max(total, most[schedule, place])
        if place == "host":
            held[schedule] = row.fixed
        else:  # context, workspace, communicators, process
            assert row.fixed == 750000000 + 33554432 + 600000000 * ("fsdp" in schedule) + 3000000000 * (
                schedule == "roundpipe")
    for row, later in itertools.pairwise(points):
        assert (row.schedule, row.place) != (later.schedule, later.place) or row.time_ms <= later.time_ms
    assert {(row.schedule, row.place): row.peak_bytes for row in table("out/44-memory-peaks.csv")} == most
    assert len(most) == 20 and held["mobius"] == held["roundpipe"] >= 16 * 1.7e9 and held["1f1b"] == 0


def test_predicted_measured():
    """Predictions that are 5 % above the published numbers, but for one that is 20 % below and one that is OOM."""
    points = table("out/45-predicted-measured.csv")
    assert collections.Counter(row.quantity for row in points) == {"throughput": 5, "length": 3}
    for row in points:
        assert row.difference_pct == near(100 * row.ours / row.published - 100, 1e-3)
    assert sum(abs(row.difference_pct) > 10 for row in points) == 3


def test_bubble_closed_forms():
    """N = 8. ZB-V has its form from 2 N - 1 microbatches on."""
    compared, real = 0, 0
    for row in table("out/46-bubble-closed-forms.csv"):
        count = row.microbatches
        if row.panel == "qwen3-32b":
            assert 0 < row.bubble_pct < 50
            real += 1
        elif row.schedule != "zbv" or count >= 15:
            slots = {"roundpipe": row.stages * count / 8, "gpipe": count, "1f1b": count}.get(
                row.schedule, 3 * count if row.schedule.startswith("zb") else row.stages / 8 * count)
            idle = 3.5 if row.schedule == "zbv" else 7
            assert row.bubble_pct == near(100 * idle / (slots + idle), 1e-6)
            compared += 1
    assert compared == 62 and real >= 16


def test_roofline():
    """The kink is at the published threshold; a dense layer of hidden size h, the hard way."""
    threshold = {row.platform: row.flop_per_byte for row in table(PAPER / "05-intensity/thresholds.csv")}
    points, hard = table("out/47-roofline.csv"), 0
    assert len(points) == 100
    for row in points:
        kink = 1000 * row.peak_tflops / row.link_gb_per_s
        assert kink == near(threshold[row.platform], 1) and row.flop_per_byte == near(row.flop / row.bytes, 1e-3)
        assert row.attainable_tflops == near(min(row.flop_per_byte * row.link_gb_per_s / 1000, row.peak_tflops), 1e-5)
        assert (row.bound_by == "peak") is (row.flop_per_byte >= kink)
        if (row.model, row.batch) == ("qwen3-32b", 4):
            tokens, weights = 4 * 2048, 2 * 5120 * 5120 + 2 * 5120 * 640 + 3 * 5120 * 25600
            assert row.flop == pytest.approx(2 * tokens * weights + 4 * tokens * 2048 * 5120, rel=1e-12)
            assert row.bytes == near(2 * weights + 2 * tokens * 5120, 1)
            hard += 1
    assert hard == 4
