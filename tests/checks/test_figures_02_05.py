"""Figures 2 and 5 of the paper: every point against the formulas as the figures' READMEs have them, evaluated here on
their own, and the thresholds against peak over link rate.
"""

import re

import pytest

from lib.figures import PAPER, PUBLISHED, SOURCE, make, near, number, table

MODELS = table(PUBLISHED / "models.csv")
TOKENS = 4 * 2048  # b = 4, s = 2048


def same(wanted):
    return pytest.approx(wanted, rel=4e-16, abs=0)


def test_recompute_or_reload(shared):
    """330 TFLOP/s and 32 GB/s are the definition's, 20.97 GB/s the rate of the hop times."""
    make(PAPER / "02-recompute-or-reload")
    forward = {row.model: row.fwd_ms for row in table(PUBLISHED / "layer_times_4090.csv")}
    rows = table("out/02-recompute-or-reload.csv")
    points = {(row.quantity, row.model): row for row in rows}
    assert len(points) == len(rows) == 20 and len(MODELS) == 5
    for m in MODELS:
        share = m.kv_heads / m.heads
        flop = TOKENS * m.hidden * (4 * m.hidden * (1 + share) + 4 * 2048 + 6 * m.intermediate * m.active_experts)
        size = TOKENS * (12 * m.hidden + 4 * m.hidden * share + 6 * m.intermediate * m.active_experts)
        for quantity in ("recompute", "forward measured"):
            assert points[quantity, m.model].ours_ms == same(flop / 330e9)
            assert points[quantity, m.model].amount == same(flop)
        assert points["reload", m.model].ours_ms == same(size / 32e6)
        assert points["reload", m.model].amount == same(size)
        assert points["reload at measured rate", m.model].ours_ms == same(size / 20.97e6)
        measured = points["forward measured", m.model]
        assert measured.published_ms == forward[m.model]
        assert measured.difference_pct == near(100 * measured.ours_ms / forward[m.model] - 100, 1e-10)


def rate(platform, key):
    gpu = platform.rsplit("x", 1)[0]
    text = "".join((SOURCE / f"traces/{path}.yaml").read_text() for path in (f"platforms/{platform}", f"gpus/{gpu}"))
    return number(re.search(rf"^{key}: *([0-9.]+)", text, re.M)[1])


def layer(m, batch):
    """FLOP and bytes."""
    router = 2 * m.experts if m.experts > 1 else 0
    common = 4 * m.hidden * (1 + m.kv_heads / m.heads) + router
    flop = batch * 2048 * m.hidden * (common + 4 * 2048 + 6 * m.intermediate * m.active_experts)
    return flop, m.hidden * (common + 6 * m.intermediate * m.experts) + 2 * batch * 2048 * m.hidden


def test_intensity(shared):
    make(PAPER / "05-intensity")
    layers = {(m.model, batch): layer(m, batch) for m in MODELS for batch in range(1, 257)}
    curve = table("out/05-intensity-curve.csv")
    assert [row.flop_per_byte for row in curve] == [same(flop / size) for flop, size in (
        layers[row.name, row.batch] for row in curve)]
    assert {(row.name, row.batch) for row in curve} == layers.keys() and len(curve) == 5 * 256
    rows = {}
    for row in table("out/05-intensity.csv"):
        rows.setdefault(row.quantity, []).append(row)
    for row in rows["threshold"]:
        limit = rate(row.name, "fp16_tflops_fp16_acc") * 1e12 / (rate(row.name, "link_gb_per_s") * 1e9)
        assert row.ours == same(limit) and row.published == int(limit + 0.5)
    assert {row.name for row in rows["threshold"]} == {"rtx5090x8", "a800x8", "rtx4090x8", "h100x8"}
    for row in rows["intensity"]:
        flop, size = layers[row.name, row.batch]
        assert (row.ours, row.flop, row.bytes) == (same(flop / size), same(flop), same(size))
    limits = {row.gpu: row.published for row in rows["threshold"]}
    for row in rows["batch to reach"]:
        flop_per_byte = (flop / size for flop, size in (layers[row.name, batch] for batch in range(1, 257)))
        reached = (batch for batch, found in enumerate(flop_per_byte, 1) if found >= limits[row.gpu])
        assert row.ours == next(reached, ""), row
    assert {key: len(some) for key, some in rows.items()} == {"threshold": 4, "intensity": 45, "batch to reach": 20}
