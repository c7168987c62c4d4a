"""Does what CONTRIBUTING.md says: puts the files and patches of its walk-throughs into a copy of the tree, where they
keep our rules and compile. With RP_LONG=1 the copy is built, and everything new is found and works.
"""

import os
import re
import shutil
from pathlib import Path

import pytest

from conftest import BUILD, LONG, SOURCE, need, ran
from lib.store import ask

PAGE = (SOURCE / "CONTRIBUTING.md").read_text()
BLOCKS = re.findall(r"^<!-- (file|patch): (\S+) -->\n```\w*\n(.*?)^```$", PAGE, re.M | re.S)
FILES = {path: text for kind, path, text in BLOCKS if kind == "file"}
PATCHES = [(path, text) for kind, path, text in BLOCKS if kind == "patch"]
PATCHED = {path for path, _ in PATCHES}
built = pytest.mark.skipif(not LONG, reason="RP_LONG=1")


def name_in(folder):
    """The name that the walk-through's file in a folder makes known."""
    return Path(next(path for path in FILES if path.startswith(folder + "/"))).stem


SCHEDULE, MODEL, PLATFORM, BACKEND = map(name_in, ("common/schedules", "traces/models", "traces/platforms",
                                                   "exec/backends"))
FIGURE = next(path for path in FILES if path.startswith("plots/gallery/")).split("/")[2]


@pytest.fixture(scope="module", autouse=True)
def tree(shared):
    need("patch")

    def unwanted(folder, names):
        return [name for name in names if Path(folder) == SOURCE and re.match(r"build|\.git$", name)]

    shutil.copytree(SOURCE, "tree", symlinks=True, ignore=unwanted)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("RP_TRACES", raising=False)
        patch.chdir("tree")
        for path, text in FILES.items():
            assert not Path(path).exists(), f"{path} is in the tree already"
            assert text
            Path(path).parent.mkdir(exist_ok=True)
            Path(path).write_text(text)
        for path, text in PATCHES:
            ran("patch --quiet --fuzz=0 -p0", input=f"--- {path}\n+++ {path}\n{text}")
        yield Path.cwd()


def test_blocks():
    assert len(BLOCKS) == PAGE.count("<!-- file: ") + PAGE.count("<!-- patch: "), "malformed"
    assert sum("my_option" in text for _, text in PATCHES) == 2, "an option is more than its row and its use"


@pytest.mark.parametrize("lint", ["style", "includes", "allocation", "status", "random"])
def test_lint(tree, lint):
    """The examples keep our own rules."""
    found = ran("bash", f"tests/lint/{lint}.sh", tree, status=None)
    assert found.status in (0, 1, 77)
    assert not [line for line in found.said.splitlines() if any(path in line for path in {*FILES, *PATCHED})]


@pytest.mark.skipif(LONG, reason="they are built")
@pytest.mark.parametrize("path", sorted(path for path in {*FILES, *PATCHED} if path.endswith(".c")))
def test_compiles(path):
    # Generated headers are this build's: they do not know the new files, but have all names.
    ran(os.environ.get("CC", "cc"), *"-std=gnu17 -fsyntax-only -I.".split(), f"-I{BUILD}", f"-I{BUILD}/generated", path)


def listed(name, *command, **options):
    """The command's output has the name as a word."""
    out = ran(*command, **options).out.replace("\\-", "-")
    assert re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])", out), f"no {name} in {out}"


@pytest.fixture(scope="module")
def rpsim(tree):
    options = "-DRP_TESTS=OFF -DRP_CUDA=OFF -DCMAKE_BUILD_TYPE=None"  # the quickest to compile
    options += " -G Ninja" if shutil.which("ninja") else ""
    options += " -DCMAKE_C_COMPILER_LAUNCHER=ccache" if shutil.which("ccache") else ""
    ran("cmake -S . -B build " + options)
    ran("cmake --build build -j 2 --target rpsim rpexec rpsim_command_line", timeout=3600)
    Path("build/dev").symlink_to(".")
    return tree / "build/rpsim"


@built
def test_typed(rpsim):
    """Lines that the page types into a shell, but for cmake."""
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE, re.M | re.S)
    lines = [line for block in blocks for line in block.splitlines() if not line.startswith("cmake")]
    assert len(lines) >= 10
    for line in lines:
        ran("bash -ec", line)


@built
def test_files_are_found(rpsim):
    for kind, name in ("schedules", SCHEDULE), ("models", MODEL), ("platforms", PLATFORM):
        listed(name, rpsim, "--list", kind)
    listed(BACKEND, "build/exec/rpexec", "--list", "backends")
    said = ran("build/exec/rpexec", "--backend", BACKEND, *"--gpus 2 --steps 2 --check".split()).err
    assert re.search(rf"(?m)^rpexec: warning: {BACKEND} runs \d* ops$", said)
    machine = "--model", MODEL, "--platform", PLATFORM, "--gpus", 4, "--format", "csv"
    listed(SCHEDULE, rpsim, "--schedule", SCHEDULE, *"--gpus 4 --format csv".split())
    listed(MODEL, rpsim, "--schedule", SCHEDULE, *machine)
    listed(PLATFORM, rpsim, "--schedule", "gpipe", *machine)


@built
def test_column(rpsim):
    """In JSON, CSV, the text table and the store, by two files of code at most."""
    row = dict(PATCHES)["sim/study/columns.c"]
    column = re.search(r"(?m)^\+    X\(([a-z_]+),", row)[1]
    heading = re.search(r'(?m)^\+.*TABLE\([A-Z]+, \d+, "([^"]+)"', row)[1]
    assert len({path for path, text in PATCHES if column in text and not path.endswith(".md")}) <= 2
    run = "--schedule gpipe --gpus 4 --accumulate 2 --fidelity hardware".split()
    assert column not in re.findall(r"\w+", ran("rpsim", *run, "--format", "csv").out)
    listed(column, rpsim, *run, "--format", "json")
    listed(column, rpsim, *run, "--format", "csv")
    listed(heading, rpsim, *run, "--db", "column.db", env={"COLUMNS": 200})
    assert ask("column.db", f"SELECT value FROM metrics WHERE name = '{column}'") == [(16,)]


@built
def test_property(rpsim):
    """It is in the program's text, and halves the bytes between GPUs."""
    def sent(schedule):
        ran(rpsim, "--schedule", schedule, *"--platform h100x8 --gpus 4 --program-out program".split())
        sends = re.findall(r"(?m)^ *\d+SEND.*", Path("program").read_text())
        return sum(int(size) for send in sends for size in re.findall(r" bytes (\d+)", send))

    assert sent("gpipe") == 2 * sent(SCHEDULE) > 0
    assert "traits half-boundaries" in Path("program").read_text().splitlines()


@built
def test_option(rpsim):
    """It is everywhere where options are, and decides the run."""
    [option] = {f"--{name}" for _, text in PATCHES for name in re.findall(r'(?m)^\+OPTION\(.*"(.*)", "N"', text)}
    listed(option, rpsim, "--help")
    for text in ("man1/rpsim.1", "completions/rpsim", "site-functions/_rpsim"):
        listed(option, "cat", f"build/command_line/{text}")
    gpipe = rpsim, "--schedule", "gpipe"
    ran(*gpipe, option, 7, "--db", "option.db")
    assert ask("option.db", "SELECT microbatches, config_json ->> 'my_option' FROM runs") == [(56, 7)]
    for words, reason in (
        (("--fidelity", "stage", option, 7), "valid only with --fidelity hardware\n"),
        (("--microbatches", 8, option, 7), "--microbatches says it, too; valid is one of them\n"),
        ((option, 101), "'101' is not valid; valid values are integers from 1 to 100"),
    ):
        ran(*gpipe, *words, status=2, err=f"rpsim: {option}: {reason}")


@built
def test_figure(rpsim):
    for folder in Path("plots/gallery").glob("[0-9]*"):  # checks.plots makes the others
        if folder.name != FIGURE:
            shutil.rmtree(folder)
    ran("plots/gallery/make_all.sh build figures")
    assert Path(f"figures/{FIGURE}.csv").stat().st_size > 0
    for ending in ("svg", "png", "pdf"):
        assert Path(f"figures/{FIGURE}.{ending}").stat().st_size >= 2000
