"""Studies 31 to 36 and 39 against what does not come from them: published rows, closed forms, prices, runs of rpsim
alone, orders that must hold. With fewer points than they have; RP_LONG=1 has more than a plain test.
"""

import collections
import itertools
import math
import re
import shutil
import statistics
from pathlib import Path

import pytest

from conftest import LONG, need, ran
from lib.figures import PUBLISHED, SOURCE, change, make, near, rows, simulated, table
from lib.store import ask

STUDIES = Path("tree/experiments/studies")
PAPER = {(row.schedule, row.model): row.makespan_ms for row in table(PUBLISHED / "pipeline_bubbles.csv")}
LLAMA = 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336 + 2 * 4096) + 4096 + 2 * 128256 * 4096  # parameters
HOST = 95e9 / (50 * LLAMA)  # steps per second of llama3.1-8b that the host's optimizer allows
LINK = {"h100x8": 2 * 0.655 * 32e9, "a800x8": 0.655 * 32e9, "rtx4090x8": 20.97e9}


@pytest.fixture(scope="module", autouse=True)
def tree(shared):
    need("sqlite3")
    shutil.copytree(SOURCE / "experiments", "tree/experiments")
    for folder in ("paper-figures", "plots", "traces"):
        Path("tree", folder).symlink_to(SOURCE / folder)


def study(name, experiments, out="out", **env):
    """The main table of a study, made with changed experiment files."""
    for experiment, changes in experiments.items():
        change(Path(f"tree/experiments/{experiment}.yaml"), *changes)
    make(STUDIES / name, out, RP_EXPERIMENTS=Path("tree/experiments").resolve(), **env)
    return table(f"{out}/{name}.csv")


def readme(name):
    return (STUDIES / name / "README.md").read_text().splitlines()


def test_recompute_fairness():
    """31: the points that the paper has, its leads, parts that add up, rules and partitions that cannot hurt. In the
    four baselines each GPU's order is fixed: fewer things to wait for cannot take longer."""
    name = "31-recompute-fairness"
    left_out = ["gpt-oss", "qwen3-32b", "qwen3-235b"] + ["llama3"] * (not LONG)  # at hardware fidelity
    leave_out = "".join(f'sed -i /{model}/d "$work/hardware.yaml"\n' for model in left_out)
    change(STUDIES / name / "make.sh", ('^sweep "[$]work/hardware.yaml"', leave_out + r"\g<0>"))
    points = [row for row in study(name, {}) if row.fidelity == "stage"]
    equal = [row for row in points
             if row.partition_of == "paper" and row.recompute == ("early" if row.schedule == "roundpipe" else "wait")]
    assert {(row.schedule, row.model) for row in equal} == PAPER.keys() and len(equal) == len(PAPER) == 25
    for row in equal:
        paper = PAPER[row.schedule, row.model]
        assert row.iteration_ms == near(paper, 0.0006) and row.iteration_ms - paper == near(row.difference_ms, 1e-5)

    times = {(row.recompute, row.model, row.schedule, row.partition): row.iteration_ms for row in points
             if row.schedule != "roundpipe" and not row.schedule.startswith("zb")}
    both = [key for rule, *key in times if rule == "early" and ("wait", *key) in times]
    assert len(both) >= 40 and all(times["early", *key] <= times["wait", *key] + 1e-6 for key in both)

    parts = [row for row in table(f"out/{name}-parts.csv") if row.recompute != ""]
    assert len(parts) >= 20
    for row in parts:
        assert row.recompute + row.partition + row.schedule == near(row.lead, 0.0003)
        assert row.recompute == near((row.recompute_first + row.recompute_second) / 2, 0.0002)
        assert row.partition == near((row.partition_first + row.partition_second) / 2, 0.0002)
        assert row.recompute_first + row.partition_second == near(row.recompute_second + row.partition_first, 0.0003)
        assert row.lead == near(100 * math.log(1 + row.lead_pct / 100), 0.0002)
        assert row.rounds >= 0, "free rounds hurt"
    leads = [row for row in parts if (row.fidelity, row.rivals) == ("stage", "paper")]
    assert len(leads) == 10
    for row in leads:
        rival = min(time for (schedule, model), time in PAPER.items() if schedule != "roundpipe" and model == row.model)
        assert row.lead == near(100 * math.log(rival / PAPER["roundpipe", row.model]), 0.0002)
        if row.equal == "early":
            cells = (row.lead_pct, row.lead, row.recompute, row.partition, row.schedule)
            shown = f"| {row.model} | {{:.1f}} | {{:.2f}} | {{:.2f}} | {{:.2f}} | {{:.2f}} | {row.rival_equal} |"
            assert shown.format(*cells) in readme(name)


def test_pcie_topology():
    """32: a point as rpsim has it from the platform file; ranks; the load of the uplink (the layers' weights twice up
    per call, two calls, shared evenly by the GPUs); more sharing or an older generation is never faster."""
    changes = [("^  model: .*", "  model: [llama3.1-8b]"),
               ("^  schedule: .*", "  schedule: [looped-bfs, mobius, roundpipe, roundpipe-overlap]")]
    if not LONG:
        changes += [(r"gpus_per_root: .*", "gpus_per_root: [1, 8]"), ("^.*pcie_gen: 5.*\n", "")]
    points = study("32-pcie-topology", {"pcie-topology": changes})
    alone = simulated("--schedule roundpipe --model llama3.1-8b --gpus 8 --microbatches 16 --accumulate 2"
                      " --optimizer async --iterations 16")
    llama = next(row for row in table(PUBLISHED / "models.csv") if row.model == "llama3.1-8b")
    layer = llama.hidden * (2 * llama.hidden * (1 + llama.kv_heads / llama.heads) + 3 * llama.intermediate)
    times = {(row.schedule, row.pcie_gen, row.gpus_per_uplink): row.step_ms for row in points}
    assert len(times) == len(points) == (48 if LONG else 16) and layer > 1e8
    assert times["roundpipe", 4, 1] == near(alone.iteration_ms, 1e-5)
    for row in points:
        if row.schedule.startswith("roundpipe"):
            rate = 20.97e6 * 2 ** (row.pcie_gen - 4)
            assert row.step_ms >= 8 * llama.layers * layer * row.gpus_per_uplink / 8 / rate, "faster than its uplink"
        rank = 1
        for other in points:
            older, shared = row.pcie_gen - other.pcie_gen, other.gpus_per_uplink - row.gpus_per_uplink
            if other.schedule == row.schedule and older >= 0 and shared >= 0:
                assert row.step_ms <= other.step_ms * 1.001, "gains by sharing or by an older generation"
            rank += older == shared == 0 and other.fits == "yes" and row.step_ms > 1.001 * other.step_ms
        assert row.fits != "yes" or row.rank == rank


def test_microbatches_needed():
    """33: the thresholds as runs of rpsim alone have them."""
    name = "33-microbatches-needed"
    points = study(name, {"microbatches-needed": [("^  model: .*", "  model: [llama3.1-8b]")]})
    paper = [row for row in points if (row.gpus, row.partition, row.optimizer) == (8, "paper", "sync")]
    assert len(paper) == 15
    for row in paper:
        def time(per_gpu):
            return simulated("--fidelity stage --gpus 8 --partition paper --model llama3.1-8b --microbatches",
                             f"{8 * per_gpu:g}", "--schedule", row.schedule).makespan_ms

        needed = row.needed_per_gpu
        limit = (time(128) - time(64)) / 512
        assert limit == near(row.limit_ms, 1e-5)
        assert 100 * limit * 8 * needed >= row.share_pct * time(needed)
        assert 100 * limit * 8 * (needed - 1) < row.share_pct * time(needed - 1)
    needed = [[f"{row.needed_per_gpu:g}" for row in paper if row.schedule == schedule]
              for schedule in ("gpipe", "1f1b", "interleaved-1f1b", "looped-bfs", "roundpipe")]
    closed = [f"{row.uniform:g}" for row in paper if row.schedule == "roundpipe"]
    assert "| llama3.1-8b | " + " | ".join(map(" / ".join, needed + [closed])) + " |" in readme(name)
    # Asynchronous RoundPipe and PipeDream-2BW need one per GPU.
    assert [row.needed_per_gpu for row in points if row.optimizer == "async"] == 21 * [1]


def test_microbatches_needed_by_equal_stages():
    """33: with equal stages and free hops the closed form is needed."""
    lines, sizes = [], (2, 4, 8) if LONG else (2, 4)
    for gpus in sizes:
        these = f"gpus: {gpus}, microbatches: {{from: {gpus}, to: {128 * gpus}, step: {gpus}}}"
        lines += [f"  - {{schedule: {schedules}, partition: {partition}, {these}}}" for schedules, partition in (
            ("[gpipe, 1f1b], model: llama3.1-8b", "even"),
            ("[looped-bfs, interleaved-1f1b], model: llama3.1-8b", '"' + ",".join(32 * "1") + '"'),
            ("roundpipe, model: qwen3-1.7b", '"' + ",".join(9 * "3") + "|" + ",".join(28 * "1") + '"'))]
    Path("tree/experiments/microbatches-needed.yaml").write_text("name: microbatches-needed\noptions: {fidelity: stage,"
        ' costs.fwd_ms: 1, costs.bwd_ms: 2, "costs.head_fwd_ms*": 0, "costs.head_bwd_ms*": 0, costs.hop_ms: 0}\nlist:\n'
        + "\n".join(lines) + "\n")
    points = study("33-microbatches-needed", {}, "uniform", RP_FORMS=" ")
    stages = {"looped-bfs": 32, "interleaved-1f1b": 32, "roundpipe": 37}
    assert len(points) == 15 * len(sizes)
    for row in points:
        assert row.stages == stages.get(row.schedule, row.gpus)
        # N GPUs, S stages, share q: q (N - 1) / ((1 - q) S), rounded up.
        exact = -(-row.share_pct * (row.gpus - 1) // ((100 - row.share_pct) * row.stages))
        assert (row.needed_per_gpu, row.uniform, row.from_uniform) == (exact, exact, 0)


def test_usd_per_token():
    """34: hours and costs anew from throughput, price and memory; a price, a purchase and electricity that the user
    fills in."""
    name = "34-usd-per-token"
    prices = (PUBLISHED / "prices.csv").read_text() + "rtx3090x8,1.5,test\n"
    Path("prices.csv").write_text(prices)
    shutil.copy(STUDIES / name / "servers.csv", "servers.csv")
    change(Path("servers.csv"), ("^(rtx3090x8,350,.*),,$", r"\1,8000,0.25"))
    changes = [
        (r"model: \[qwen3-1.7b, llama3.1-8b[^]]*\]", "model: llama3.1-8b"),
        (".*schedule: fsdp, microbatches: 128.*\n", ""), ("global-batch: 128", "global-batch: 64"),
        (r"microbatches: \[64, 128\]", "microbatches: 64"), ("microbatches: 128", "microbatches: 64"),
        ("model: qwen3-235b-lora", "model: llama3.1-8b"),
    ]
    if not LONG:
        changes += [(r"microbatches: \[(..), ..\]", r"microbatches: \1"),
                    (".*schedule: (zero-infinity|megatron-tp).*\n", "")]
    points = study(name, {"usd-per-token": changes},
                   RP_PRICES=Path("prices.csv").resolve(), RP_SERVERS=Path("servers.csv").resolve())
    usd = {row.platform: row.usd_per_hour for row in rows(prices.splitlines())}
    gib = {"rtx3090x8": 24, "rtx4090x8": 24, "rtx5090x8": 32, "a800x8": 80}
    top = collections.Counter()
    assert len(points) >= (40 if LONG else 20)
    for row in points:
        rate, hours = row.tokens_per_s, row.hours_per_1e9_tokens
        assert rate * hours * 3600 == near(1e9, 2e3 * rate)
        assert row.fits == (row.peak_gb <= gib[row.platform] * 1.073741824 - 0.45)
        assert row.best == "" or row.fits
        if row.fits and row.platform in usd:
            assert row.usd_per_1e9_tokens / usd[row.platform] == pytest.approx(hours, rel=1e-5)
        else:
            assert row.usd_per_1e9_tokens == ""
        top[row.platform] = max(top[row.platform], rate * row.fits)
    best = {row.platform: row for row in table(f"out/{name}-best.csv")}
    assert best.keys() == gib.keys()
    for platform, row in best.items():
        assert row.tokens_per_s == pytest.approx(top[platform], rel=1e-5), "not the fastest that fits"
        for known, price, said in (("a800x8", 8.16, row.break_even_a800_usd_per_hour),
                                   ("rtx4090x8", 2.32, row.break_even_4090_usd_per_hour)):
            worth = price / best[known].tokens_per_s * row.tokens_per_s
            assert platform == known or said == pytest.approx(worth, rel=1e-5)
    speeds = [best[name].tokens_per_s for name in ("rtx3090x8", "rtx4090x8", "rtx5090x8")]
    assert speeds == sorted(speeds), "a newer card is slower"
    mine = best["rtx3090x8"]
    assert (mine.usd_per_hour, mine.usd_per_1e9_tokens) == (1.5, near(1.5 * mine.hours_per_1e9_tokens, 1e-5))
    assert mine.payback_hours == near(8000 / (1.5 - 8 * 0.35 * 0.25), 0.01)


def test_when_offloading_pays():
    """35: the host's and the link's bound."""
    name = "35-when-offloading-pays"
    points = study(name, {
        "offload-throughput": [
            (".*model: qwen3-32b.*\n", ""), (r"model: \[qwen3-1.7b, llama3.1-8b\]", "model: llama3.1-8b"),
            (r"gpus: \[1, 2, 4, 8\]", "gpus: [1, 2]"), ("gpus: 8, schedule", "gpus: 2, schedule"),
            *(() if LONG else [(", zero2, zero-infinity", "")])],
        "offload-fits": [(".*zero-infinity.*\n", ""), (r"model: \[.*\]", "model: llama3.1-8b"), (".*gpus: 8.*\n", "")],
    })
    alone = collections.Counter()  # the fastest pipeline of one GPU
    links = []
    for row in points:
        if (row.system, row.gpus) == ("interleaved-1f1b", 1):
            alone[row.platform] = max(alone[row.platform], row.tokens_per_s)
    for row in points:
        allowed = row.tokens_per_step * HOST
        if row.weights == "host" and row.system != "roundpipe-fast-host":
            assert row.tokens_per_s <= 1.001 * allowed, "faster than the host allows"
        if row.system == "roundpipe" and allowed < 0.4 * row.gpus * alone[row.platform]:
            assert row.tokens_per_s >= 0.99 * allowed, "slower than the host allows"
        if row.system == "roundpipe-fast-host" and row.tokens_per_step == 2048:
            links.append(row.platform)
            assert 0.98 <= row.tokens_per_s / (2048 * LINK[row.platform] / (4 * LLAMA)) <= 1.05, "not T B / 4 P"
    for row, more in itertools.pairwise(points):
        if row.weights == "host" and (row.platform, row.gpus, row.system) == (more.platform, more.gpus, more.system):
            assert more.tokens_per_s >= 0.999 * row.tokens_per_s, "slower with more tokens"
    assert len(points) >= 60 and len(links) == 3

    crossovers = table(f"out/{name}-crossover.csv")
    assert len(crossovers) == 12
    for row in crossovers:
        rate = row.host_tokens * HOST / row.gpus  # the table's rate of one GPU
        assert rate == near(alone[row.platform], 1)
        assert row.link_tokens == near(4 * LLAMA * rate / LINK[row.platform], 2)
        assert row.closed_form_tokens == near(0.95 * row.host_tokens, 2)
        if row.mode == "async" and row.crossover_if_memory_allowed != "":
            assert 0.5 <= row.crossover_if_memory_allowed / row.closed_form_tokens <= 2

    lengths = table(f"out/{name}-fits.csv")
    longest = collections.Counter({(row.platform, row.gpus, row.system): row.max_seqlen for row in lengths})
    assert len(lengths) >= 10 and longest["rtx4090x8", 1, "roundpipe"] > 0 == longest["rtx4090x8", 1, "fsdp"]
    for gpus, system in itertools.product((1, 2), ("roundpipe", "interleaved-1f1b", "fsdp")):
        assert longest["a800x8", gpus, system] >= longest["rtx4090x8", gpus, system], "shorter in more memory"


UNIFORM = """name: uniform
source: test
layers: 4
fwd_ms: 3
bwd_ms: 5
head_fwd_ms: 0
head_bwd_ms: 0
hop_ms: 0
microbatch_size: 1
seq_len: 128
"""


def test_a_slow_gpu():
    """Equal stages, no hops: GPipe takes (M f + P - 1)(F + B), wherever the slow GPU is. 1F1B is bound by its slow
    stage: its 8 pairs in a row, and a first and last pass over the others."""
    Path("uniform.yaml").write_text(UNIFORM)
    for gpu in (0, 1, 3):
        gpipe, other = rows(ran("rpsim --schedule gpipe,1f1b --costs uniform.yaml --gpus 4 --microbatches 8"
                                " --fidelity stage --recompute none --partition 1,1,1,1 --jitter 0 --replicas 1"
                                f" --format csv --slow-gpu {gpu}*1.5").out.splitlines())
        assert gpipe.iteration_median_ms == near((8 * 1.5 + 3) * 8, 1e-6)
        assert 8 * 1.5 * 8 - 1e-6 <= other.iteration_median_ms <= 120 + 1e-6


def test_robustness():
    """36: one slow GPU is a longest path whose lengths grow linearly with f: 1 <= slowdown <= f, growing and convex in
    f. Noise: one seed again, outside the store; the mean and tau of one cell by other formulas."""
    name = "36-robustness"
    points = study(name, {} if LONG else {"robustness-jitter": [(r"jitter: \[.*\]", "jitter: [0.1]")]})
    slow = sorted((row for row in points if row.what == "slow-gpu"), key=lambda row: (row.model, row.schedule, row.x))
    assert len(slow) == 4 * 7 * 4
    for _, cell in itertools.groupby(slow, key=lambda row: (row.model, row.schedule)):
        x, y, rise = 1, 1, 0
        for row in cell:
            assert 1 - 1e-6 <= row.slowdown_min <= row.slowdown_mean <= row.slowdown_max <= row.x + 1e-6
            assert row.evenly_spread == near(8 / (7 + 1 / row.x), 1e-6)
            slope = (row.slowdown_mean - y) / (row.x - x)
            assert slope >= rise - 3e-5, "not convex"  # six digits over steps of 0.1
            x, y, rise = row.x, row.slowdown_mean, slope

    base, times = {}, {}
    for schedule, seed, base[schedule], times[schedule, int(seed)] in ask("out/paper.db", """
            SELECT r.schedule, r.seed, iteration_ps / 1e9, value / 1e9 FROM results AS r JOIN runs ON runs.id = r.run_id
            JOIN points ON points.id = point_id JOIN experiments ON experiments.id = experiment_id
            JOIN metrics AS m ON m.run_id = r.run_id AND m.name = 'iteration_median_ps'
            WHERE experiments.name = 'robustness-jitter' AND r.model = 'llama3.1-8b' AND r.jitter_cv = 0.1"""):
        pass
    seeds = {seed for _, seed in times}
    again = rows(ran("rpsim --fidelity stage --gpus 8 --microbatches 16 --recompute early --replicas 1 --jitter 0.1"
                     " --model llama3.1-8b --seed 7 --schedule roundpipe --format csv").out.splitlines())
    assert again[0].iteration_median_ms == near(times["roundpipe", 7], 2e-6)

    slowdowns = [times["roundpipe", seed] / base["roundpipe"] for seed in seeds]
    [cell] = [row for row in points if vars(row).items() >= {
        "what": "jitter", "model": "llama3.1-8b", "schedule": "roundpipe", "x": 0.1}.items()]
    assert len(seeds) == 30 and cell.slowdown_mean == near(statistics.mean(slowdowns), 2e-6)
    assert cell.half_width_95 == near(2.0452296 * statistics.stdev(slowdowns) / math.sqrt(30), 2e-6)

    # Each pair of schedules that is told apart without noise.
    pairs = [(a, b) for a, b in itertools.permutations(base, 2) if base[a] > base[b] * 1.005]
    agree = sum((times[a, seed] > times[b, seed] * 1.005) - (times[b, seed] > times[a, seed] * 1.005)
                for a, b in pairs for seed in seeds)
    [cell] = [row for row in table(f"out/{name}-tau.csv") if vars(row).items() >= {
        "what": "jitter", "model": "llama3.1-8b", "x": 0.1}.items()]
    assert (cell.pairs, cell.tau_mean) == (len(pairs), near(agree / len(pairs) / 30, 2e-6))


def test_whose_software():
    """39: runs as rpsim alone has them; which runs count; ratios anew; the numbers of the README and of
    docs/results.md."""
    name = "39-whose-software"
    if not LONG:
        change(STUDIES / name / "make.sh", ("^for platform in .*; do", "for platform in rtx4090x8; do"),
               ("    for model in .*; do", "    for model in llama3.1-8b; do"))
    points = study(name, {})
    measured = {(row.framework.removeprefix("deepspeed-").removesuffix("-zero3"), row.model)
                for row in table(PUBLISHED / "throughput_4090.csv") if isinstance(row.tokens_per_s, float)}
    cells = collections.defaultdict(list)
    for row in points:
        ran_there = row.platform == "rtx4090x8" and row.layouts == "figure" and (row.schedule, row.model) in measured
        assert (row.counts == "true") == (row.fits == "true" or ran_there)
        assert row.p10 == "" or row.counts == "true" and row.p10 < row.tokens_per_s * 1.05 and row.p10 < row.p90
        assert row.global_batch == {"qwen3-1.7b": 512, "llama3.1-8b": 256}[row.model] or row.schedule == "fsdp"
        cells[row.platform, row.model, row.software, row.dtype].append(row)
    assert len(cells) == (18 if LONG else 5)
    for row in [row for row in points if row.p10 != ""][:: 1 if LONG else 4]:
        alone = simulated(f"--gpus 8 --intervals 16 {row.options}")
        assert (alone.tokens_per_s, alone.tokens_per_s_p10, alone.tokens_per_s_p90, str(alone.fits).lower()) == (
            near(row.tokens_per_s, 1e-5), near(row.p10, 1e-5), near(row.p90, 1e-5), row.fits)
        stack = {"table": None, "one": "rpexec"}.get(row.software, {
            "roundpipe": "roundpipe", "mobius": "torch", "fsdp": "torch"}.get(row.schedule, "megatron"))
        assert (alone.stack, alone.dtype) == (stack, row.dtype)

    ratios = {(row.platform, row.model, row.software, row.dtype, row.layouts): row
              for row in table(f"out/{name}-ratios.csv")}
    for cell, runs in cells.items():
        for layouts in {row.layouts for row in runs}:
            counted = [row for row in runs if row.counts == "true" and layouts in ("free", row.layouts)]
            mine = max((row for row in counted if row.schedule == "roundpipe"), key=lambda row: row.tokens_per_s)
            rival = max((row for row in counted if row.schedule != "roundpipe"), key=lambda row: row.tokens_per_s)
            low, high = mine.p10 / rival.p90, mine.p90 / rival.p10
            row = ratios[*cell, layouts]
            assert (row.ratio, row.low, row.high) == tuple(
                near(number, 1e-4) for number in (mine.tokens_per_s / rival.tokens_per_s, low, high))
            assert row.faster == ("RoundPipe" if low > 1 else "rival" if high < 1 else "undecided")
    lead_in_pages(cells, ratios)


def lead_in_pages(cells, ratios):
    """The sentences of study 39's README, and the table of docs/results.md; of llama3.1-8b alone unless LONG."""
    page = " ".join(" ".join(readme("39-whose-software")).split())
    results = (SOURCE / "docs/results.md").read_text()
    models = ("qwen3-1.7b", "llama3.1-8b") if LONG else ("llama3.1-8b",)

    def find(software, dtype="bf16", layouts="figure", platform="rtx4090x8"):
        return [ratios[platform, model, software, dtype, layouts] for model in models]

    def said(before, texts, after=""):
        first = "" if LONG else r"\S+( \([^)]*\))? and "  # of the other model
        assert re.search(re.escape(before) + first + re.escape(" and ".join(texts) + after), page), (before, texts)

    def errors(system):
        for model in models:
            [run] = [row for row in cells["rtx4090x8", model, "own", "fp16"] if row.schedule == system]
            [row] = [row for row in table(PUBLISHED / "throughput_4090.csv")
                     if (row.framework, row.model) == (system, model)]
            yield round(100 * (run.tokens_per_s / row.tokens_per_s - 1))

    for software, before, faster in (("one", "leads by ", "RoundPipe"), ("own", "decides nothing: ", "undecided")):
        said(before, [f"{row.ratio:.2f} ({row.low:.2f} to {row.high:.2f})" for row in find(software)])
        assert {row.faster for row in find(software)} == {faster}
    for before, found in (("published are ", find("published", "fp16")), ("they give ", find("own", "fp16")),
                          ("systems, give ", find("table", "fp16")), ("in bf16 ", find("table"))):
        said(before, [f"{row.ratio:.2f}" for row in found])
    said("RoundPipe ", [f"{-error}" for error in errors("roundpipe")], " % too slow")
    if LONG:
        assert f"Megatron PP is {next(errors('megatron-pp'))} % too fast on qwen3-1.7b" in page
        cards = ("h100x8", "b200x8")
        own, one = ([row for card in cards for row in find(software, layouts="free", platform=card)]
                    for software in ("own", "one"))
        low, high, least, most = (f"{end(row.ratio for row in found):.2f}"
                                  for found in (own, one) for end in (min, max))
        assert f"{low} to {high} of ZeRO-1 copies in own software, {least} to {most} in one" in page
        assert {row.name for row in own + one} == {"data-parallel"} and {row.faster for row in own} == {"rival"}
        undecided = one + [row for card in cards for name in ("own", "one") for row in find(name, platform=card)]
        assert {row.faster for row in undecided} == {"undecided"}
        assert " and ".join(f"{row.ratio:.2f}" for row in find("one")) in " ".join(results.split())
    for platform, card in (("rtx4090x8", "RTX 4090"), ("h100x8", "H100"), ("b200x8", "B200"))[: 3 if LONG else 1]:
        columns = [find(software, layouts=layouts, platform=platform)
                   for software, layouts in (("own", "figure"), ("one", "figure"), ("one", "free"))]
        marks = {"undecided": "", "RoundPipe": "**", "rival": "**"}
        texts = [", ".join(f"{marks[row.faster]}{row.ratio:.2f}{marks[row.faster]}" for row in column)
                 for column in columns]
        line = next(line for line in results.splitlines() if line.startswith(f"| {card} | "))
        assert all(cell.strip().endswith(text) for cell, text in zip(line.split("|")[2:], texts, strict=False)), line
