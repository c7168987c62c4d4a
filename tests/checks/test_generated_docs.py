"""docs/generated is what docs_pages writes from the rows; a page that is altered, missing or left over is noticed. The
rows of outputs (output_rows.inc), which no program reads, name what programs print. Release only: pages are no program.
"""

import json
import re
import shutil
from pathlib import Path

import pytest

from conftest import BUILD, SOURCE, ran

PAGES = SOURCE / "docs/generated"
RUN = "rpsim --schedule 1f1b --gpus 2 --iterations"
TRAIN = "rpexec --backend host --gpus 2 --steps 2 --schedule 1f1b"
CELLS = """framework,model,seq_len,global_batch,microbatches,calls,grain,sequence_slices
roundpipe,qwen3-1.7b,4096,,,,,
"""


@pytest.fixture(scope="module", autouse=True)
def work(shared):
    Path("written").mkdir()
    ran(BUILD / "tests/docs_pages", "written")  # fails if rows have no meaning, or columns no row


def stale(folder):
    """Pages that the folder has otherwise than the generator."""
    written, kept = ({path.name: path.read_text() for path in Path(name).iterdir()} for name in ("written", folder))
    assert written
    return [name for name in {*written, *kept} if written.get(name) != kept.get(name)]


def test_pages():
    assert not stale(PAGES), "cmake --build build/release --target generated_docs"


@pytest.mark.parametrize("page, damage", [
    ("rpsim.md", lambda text: text.replace("`--piece-mb M`", "`--piece-mb MB`")),
    ("platforms.md", lambda text: re.sub("(?m)^.*`gpus`.*\n", "", text)), ("store.md", None), ("own.md", lambda _: "")])
def test_damage_is_noticed(tmp_path, page, damage):
    file = Path(shutil.copytree(PAGES, tmp_path / "copy"), page)
    if damage:
        file.write_text(damage(file.read_text() if file.exists() else ""))
    else:
        file.unlink()
    assert stale(file.parent) == [page]


def documented(page, *headings):
    """Names in the first column of the tables below these headings."""
    text = (PAGES / f"{page}.md").read_text() + "\n## "
    sections = "".join(re.search(rf"(?ms)^## {re.escape(heading)}$.*?^## ", text)[0] for heading in headings)
    names = set(re.findall(r"(?m)^\| `([^`]*)`", sections))
    assert names
    return names


def places(value, place=""):
    """The members of JSON as the rows have them; [] stands for all elements."""
    if isinstance(value, dict):
        for key, member in value.items():
            inside = f"{place}.{key}" if place else key
            yield inside
            yield from places(member, inside)
    elif isinstance(value, list):
        for element in value:
            yield from places(element, f"{place}[]" if place else "")


def members(command, **expected):
    return set(places(json.loads(ran(command + " --format json", **expected).out)))


def below(names, place):
    return {name.removeprefix(place) for name in names if name.startswith(place)}


def header(file):
    return set(Path(file).read_text().splitlines()[0].split(","))


def test_timelines():
    ran(RUN + " 1 --timeline-out one.csv --chakra-out chakra")
    ran(RUN + " 1 --set costs.fwd_ms*1.1 --timeline-out two.csv")
    assert members("rpdiff one.csv two.csv") == documented("rpdiff", "JSON of two timelines")
    assert members("rpimport --chakra chakra") == documented("rpimport", "JSON of `--chakra`")


def test_rpplan():
    assert members("rpplan") == documented("rpplan", "JSON")


def test_rpsim():
    names = members(RUN + " 2 --intervals 2 --explain")
    assert below(names, "inputs[].") == documented("rpsim", "Inputs of a prediction")
    measured = members("rpsim --schedule 1f1b --model tiny --platform h100x8 --gpus 2 --intervals off --stack nanotron")
    assert below(measured, "ledger.") == documented("rpsim", "Measured runs")
    tables = re.search(r"(?ms)^\| key of.*", (PAGES / "rpsim.md").read_text())[0]
    keys = re.compile(r"(attribution|blame|critical_path|bounds)[a-z_]*(\[\])?\."
                      r"|elasticity\.(of_shared\.|switch|root|intersocket|dram|network|leaf)")
    assert {name for name in below(names, "explain.") if not keys.match(name)} == (
        documented("rpsim", "Explanation") - set(re.findall(r"(?m)^\| `([a-z_]*)`", tables)))


def test_rpadvise():
    platform = (SOURCE / "traces/platforms/rtx4090x8.yaml").read_text()
    Path("rtx4090x8.yaml").write_text(re.sub("(?m)^host_memory_gb: .*", "host_memory_gb: 16", platform))
    fits = members("rpadvise --model tiny --platform rtx3090x8 --gpus 1 --seq-len 128 --budget 300")
    others = set().union(*(members("rpadvise --gpus 1 " + options, status=None) for options in (
        "--model llama3.1-70b --platform h100x8 --schedule fsdp,1f1b",
        "--model qwen3-1.7b --platform ./rtx4090x8.yaml --schedule mobius,1f1b",
        "--model qwen3-1.7b --platform rtx4090x8 --seq-len 256k --schedule mobius")))
    runs = documented("rpadvise", "Runs in these arrays")
    arrays = [f"answer.{name}[]." for name in ("software", "memory_front", "batch_front", "staleness_front", "changes")]
    in_arrays = {array + name for array in arrays for name in runs}
    of_ledger = {f"ledger.{name}" for name in documented("rpsim", "Measured runs")}
    said = (fits | others) - members(RUN + " 2 --intervals 2") - in_arrays
    assert said - of_ledger == documented("rpadvise", "JSON")
    assert below(fits, "answer.memory_front[].") == runs


def test_rpexec():
    names = members(TRAIN + " --record recorded --loss-out loss.csv")
    settings = re.search("(?m)^The settings follow.*", (PAGES / "rpexec.md").read_text())[0]
    assert names == documented("rpexec", "JSON") | set(re.findall("`([a-z_]*)`", settings)) - {"_"}
    assert header("loss.csv") == documented("rpexec", "CSV of `--loss-out`")
    for file in ("links", "starts", "operators"):
        assert header(f"recorded/{file}.csv") == documented("rpexec", f"`{file}.csv` of `--record`")
    ran(TRAIN + " --costs recorded --predict --db runs.db")
    assert members("rpdiff runs.db") == documented("rpdiff", "JSON of a store")
    Path("runs.csv").write_text(ran("rpdiff runs.db --format csv").out)
    assert header("runs.csv") == documented("rpdiff", "CSV of a store")


def test_rppredict():
    Path("cells.csv").write_text(CELLS)
    Path("predicted.csv").write_text(ran("rppredict --cells cells.csv --intervals 2").out)
    assert header("predicted.csv") == documented("rppredict", "CSV of `--cells`")
