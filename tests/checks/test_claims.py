"""The claims (paper-figures/claims): published numbers and verdicts recomputed from the published tables by other code,
and verdicts for made-up tables. rpsim's runs are tested elsewhere.
"""

import collections
import re
import shutil
from pathlib import Path

import pytest

from conftest import SOURCE, need, program, ran
from lib.figures import PAPER, PUBLISHED, change, make, near, stand_in, table

# Hands out the same as rpsim did before.
RPSIM = """#!/bin/sh
said=$(dirname "$0")/$(echo "$*" | sed 's/--db [^ ]*//' | tr ' ' _)
[ -s "$said" ] || PROGRAM "$@" >"$said" || exit 1
cat "$said"
"""
HEAD = "model,system,gpus,published,ours,difference_pct,set_a_constant\n"


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    need("gnuplot")
    folder = tmp_path_factory.mktemp("said")
    stand_in(folder / "rpsim", RPSIM.replace("PROGRAM", str(program("rpsim"))))
    return folder


@pytest.fixture
def claims(tmp_path, monkeypatch, said):
    """Makes the claims in a tree that may be changed: their rows, and the verdicts on the published data and on our
    simulation by claim."""
    monkeypatch.chdir(tmp_path)
    for name in ("lib", "claims", "published"):
        shutil.copytree(PAPER / name, f"paper-figures/{name}")
    for name in ("traces", "plots"):
        Path(name).symlink_to(SOURCE / name)
    Path("out").mkdir()

    def made():
        make(Path("paper-figures/claims"), folder=said, RP_FORMS="svg")
        found = table("out/claims.csv")
        for row in found:
            if "" not in (row.published, row.ours):
                off, told = row.ours - row.published, row.difference_points
                if told == "":
                    off, told = 100 * off / row.published, row.difference_pct
                assert told == near(off, 0.01)
        line = r"^\| (.*) \| \*\*(.*?)\*\*.* \| \*\*(.*?)\*\*.* \|$"
        return found, {row[0]: row[1:] for row in re.findall(line, Path("out/claims.md").read_text(), re.M)}

    return made


def judged(verdicts, *expected):
    """Claims are named by a part of their wording; None: any verdict."""
    for part, *wanted in expected:
        [found] = [found for wording, found in verdicts.items() if part in wording]
        assert all(want in (None, got) for want, got in zip(wanted, found, strict=True)), f"{part}: {found}"


def test_published_alone(claims):
    """Nothing of ours is made up; no verdict is typed: the numbers are the same from the tables, by other code."""
    found, verdicts = claims()
    nothing = "not available"
    judged(verdicts, ("times the throughput of", "confirmed", nothing), ("Near-zero", "in part", nothing),
           ("scales linearly", "in part", nothing), ("on one GPU of", "confirmed", None),
           ("LoRA of 235B at 31K", "in part", nothing), ("close to that of the A800", "cannot be checked", None),
           ("as long as FSDP", "confirmed", nothing), ("cheaper per token", "cannot be checked", None))
    assert "other systems on A800: not available" in Path("out/claims.md").read_text()

    speed = collections.defaultdict(dict)
    for row in table(PUBLISHED / "throughput_4090.csv"):
        if isinstance(row.tokens_per_s, float):
            speed[row.model][row.framework] = row.tokens_per_s
    lengths = {(row.framework, row.model): row.max_seqlen_k for row in table(PUBLISHED / "max_seqlen_4090.csv")
               if isinstance(row.max_seqlen_k, float)}
    busy = {row.model: (row.layers * (2 * row.fwd_ms + row.bwd_ms) + row.lmhead_fwd_ms + row.lmhead_bwd_ms) / 8192
            for row in table(PUBLISHED / "layer_times_4090.csv")}
    [price] = [row.usd_per_hour for row in table(PUBLISHED / "prices.csv") if row.platform == "rtx4090x8"]
    scaling = {row.gpus: vars(row) for row in table(PUBLISHED / "scaling_4090.csv")}
    expected = [("bubbles", row.model, row.switch_pct + row.intra_pct)
                for row in table(PUBLISHED / "pipeline_bubbles.csv") if row.schedule == "roundpipe"]
    for model, speeds in speed.items():
        others = [value for system, value in speeds.items() if not system.startswith("roundpipe")]
        expected += [("speedup", model, speeds["roundpipe"] / max(others))] if others else []
    for (system, model), length in lengths.items():
        if system == "roundpipe":
            expected.append(("contexts", model, length))
        elif system == "fsdp-zero3":
            expected.append(("longer", model, lengths["roundpipe", model] / length))
    for model in list(scaling[1])[1:]:
        one, eight = scaling[1][model], scaling[8][model]
        expected += [("scaling", model, 100 * eight / 8 / one), ("cost", model, price * 1e9 / (3600 * eight)),
                     ("bubbles", model, 100 - 100 * eight / 8 * busy[model.removesuffix("-lora")] / 1000)]
        expected += [("one_gpu", model, one)] if re.search("32b|235b", model) else []
    published = [(row.claim, row.model, f"{row.published:.4g}") for row in found if row.published != ""]
    assert sorted(published) == sorted((claim, model, f"{value:.4g}") for claim, model, value in expected)
    assert len(published) >= 30


def make_up():
    """RoundPipe a tenth faster, everything else as published; 8 GPUs a tenth slower than published."""
    for name, published in (("10-throughput", "throughput_4090"), ("11-longest-sequences", "max_seqlen_4090")):
        rows = [vars(row).values() for row in table(PUBLISHED / f"{published}.csv")]
        Path(f"out/{name}.csv").write_text(HEAD + "".join(
            f"{model},{system},8,{value},{value * 1.1 if faster else value},,\n" for system, model, value in rows
            for faster in [name[:2] == "10" and system == "roundpipe" and isinstance(value, float)]))
    rows = [vars(row) for row in table(PUBLISHED / "scaling_4090.csv")]
    Path("out/15-scaling.csv").write_text(HEAD + "".join(
        f"{model},roundpipe,{row['gpus']:g},,{row[model] * (0.9 if row['gpus'] == 8 else 1)},,\n"
        for row in rows for model in list(row)[1:]))


def test_made_up_tables(claims):
    make_up()
    found, verdicts = claims()
    error = max(abs(row.difference_pct) for row in found if row.claim == "one_gpu" and row.difference_pct != "")
    judged(verdicts, ("times the throughput of", None, "predicted within 10.0 %"),
           ("LoRA of 235B at 31K", None, "in part"), ("as long as FSDP", None, "predicted within 0.0 %"),
           ("scales linearly", None, "not reproduced"), ("Near-zero", None, "not available"),
           ("on one GPU of", None, f"predicted within {error:.1f} %"),
           ("cheaper per token", None, "predicted, nothing to compare with"))
    assert [row.difference_pct for row in found if row.claim == "speedup"] == 4 * [10]
    assert sum("" not in (row.published, row.ours) for row in found) >= 20
    # A system that is not published to have run is no baseline, however fast it would be.
    change(Path("out/10-throughput.csv"), ("^(gpt-oss-20b,megatron-pp,8,OOM),[^,]*", r"\1,99999"))
    judged(claims()[1], ("times the throughput of", None, "predicted within 10.0 %"))


def test_other_claims(claims):
    """One model below the bound, other bounds, a longer sequence than anybody has, a cheap A800."""
    make_up()
    change(Path("out/10-throughput.csv"), ("^(qwen3-32b,roundpipe,8,[0-9.]*),.*", r"\1,2600,,"))
    change(Path("paper-figures/published/claims.csv"), *((f"^({claim}),{old},", rf"\1,{new},") for claim, old, new in (
        ("speedup,at_most", 2.16, 2.26), ("longer,at_most", 7, 12), ("bubbles,near_zero", 5, 70),
        ("scaling,linear", 90, 40), ("contexts,lora_235b", 31, 32), ("contexts,smaller_models", 64, 16))))
    change(Path("paper-figures/published/prices.csv"), ("^a800x8,[0-9.]*", "a800x8,1"))
    judged(claims()[1], ("times the throughput of", "not confirmed", "in part"),
           ("cheaper per token", None, "not reproduced"), ("as long as FSDP", "not confirmed", "not reproduced"),
           ("Near-zero", "confirmed", None), ("scales linearly", "confirmed", None),
           ("LoRA of 235B at 31K", "not confirmed", None))


def test_other_systems_on_a800(claims, said):
    """Half and twice as fast as ours there; one for a model that no other system ran is left out."""
    claims()
    [path] = said.glob("*a800x8*")
    others = {row.model: row.tokens_per_s * (2 if "1.7b" in row.model else 0.5) for row in table(path)}
    Path("out/12-a800-throughput.csv").write_text("model,system,platform,ours\n" + "".join(
        f"{model},fsdp-zero3,a800x8,{speed}\n" for model, speed in others.items()))
    ours = {}
    for row in claims()[0]:
        if row.claim == "a800":
            ours["best other system" in row.quantity, row.model] = row.ours
    ratios = {model: ours[True, model] / ours[False, model] for other, model in ours if other}
    assert ratios == {model: pytest.approx(0.5 if "1.7b" in model else 2, rel=1e-3) for model in ratios}
    assert len(ratios) == 4


def test_rents(source):
    """They are in one file alone, one for each server."""
    found = [path for folder in ("paper-figures", "experiments", "plots") for path in (source / folder).rglob("*.csv")
             if re.search("^platform,.*usd_per_hour", path.read_text(), re.M)]
    assert found == [PUBLISHED / "prices.csv"]
    platforms = [row.platform for row in table(found[0])]
    assert len(set(platforms)) == len(platforms) > 0


def test_a_claim_without_a_number(claims, said):
    """It is an error and leaves nothing half written."""
    change(Path("paper-figures/published/claims.csv"), ("^speedup,at_least,1.48", "speedup,at_least,many"))
    assert ran("bash", "paper-figures/claims/make.sh", said, "out", status=None).status != 0
    assert not list(Path("out").glob("claims*"))
