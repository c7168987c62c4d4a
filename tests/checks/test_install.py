"""An installation is whole and may be moved: programs find their data and each other from their own place, without the
source tree and from any folder, and no file names the sources, the build or the prefix. -DRP_EXEC=OFF needs neither
OpenBLAS, hwloc nor Criterion; with RP_LONG=1 it is built, too.
"""

import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from conftest import BUILD, LONG, SANITIZED, SOURCE, ran
from lib.installed import install, naming, run_programs

PROGRAMS = "rpadvise rpdiff rpexec rpimport rpplan rppredict rpsim rpsweep".split()
OF_PROGRAM = ["man/man1/{}.1", "bash-completion/completions/{}", "zsh/site-functions/_{}"]
DOCUMENTS = "README.md LICENSE copyright CHANGELOG.md docs/examples.md common/cli/cli.md".split()
ONLY_HERE = "--schedule gpipe --model only-here --costs qwen3-1.7b@rtx4090"


@pytest.fixture(scope="module", autouse=True)
def moved(shared):
    """An installation, whose data have a model that is only there. The current folder has nothing of it."""
    install(shared / "opt")
    moved = (shared / "opt").rename(shared / "moved")
    like(moved, moved / "share/rpsim/traces/models/only-here.yaml")
    (shared / "run").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(shared / "run")
        for name in ("RP_TRACES", "RP_PLOTS", "RP_DATA"):
            patch.delenv(name, raising=False)
        yield moved


def like(moved, model):
    """Makes a model like an installed model."""
    text = (moved / "share/rpsim/traces/models/qwen3-1.7b.yaml").read_text()
    model.write_text(re.sub("(?m)^name: .*", f"name: {model.stem}", text))


def test_files(moved):
    assert sorted(os.listdir(moved / "bin")) == PROGRAMS
    files = [place.format(name) for name in PROGRAMS for place in OF_PROGRAM]
    for file in files + [f"doc/rpsim/{name}" for name in DOCUMENTS]:
        assert (moved / "share" / file).stat().st_size > 0, file
    names = [moved.with_name("opt")]
    if re.search("(?m)^CMAKE_BUILD_TYPE:[^=]*=Release$", (BUILD / "CMakeCache.txt").read_text()):
        names += [SOURCE, BUILD]  # others have lines for debuggers
    assert naming(moved, *names) == []


def test_data(moved, tmp_path):
    """The installed data are read: a broken style breaks the chart. Own data lie over them; without any it fails."""
    ran(moved / "bin/rpsim", "--list", "models", said="only-here")
    ran(f"{moved}/bin/rpsim {ONLY_HERE} --format csv", said="gpipe,only-here,")
    ran(f"{moved}/bin/rpsim --schedule gpipe --gantt-out chart.svg")
    assert Path("chart.svg").stat().st_size > 0
    style = moved / "share/rpsim/plots/style.gp"
    text = style.read_text()
    style.write_text("this is no gnuplot\n")
    ran(f"{moved}/bin/rpsim --schedule gpipe --gantt-out broken.svg", status=1, said="gnuplot")
    style.write_text(text)
    assert not os.path.exists("broken.svg")
    (tmp_path / "models").mkdir()
    like(moved, tmp_path / "models/my-own.yaml")
    own = {"RP_TRACES": tmp_path}
    ran(f"{moved}/bin/rpsim {ONLY_HERE.replace('only-here', 'my-own')} --format csv", env=own, said="gpipe,my-own,")
    ran(f"{moved}/bin/rpsim --list models", env=own, said="only-here")
    ran(f"{moved}/bin/rpsim --list models", env={"RP_TRACES": "none"}, status=2, said="'none' is no folder")
    ran("rpsim --list models", env={"RP_DATA": moved / "share/rpsim"}, said="only-here")
    ran(Path(shutil.copy(moved / "bin/rpsim", "alone")).resolve(), "--list", "models", status=2, said="set RP_DATA")


def test_programs(moved):
    """Every program runs; the library finds the data from its own place."""
    run_programs(moved)
    if not SANITIZED:
        script = "import rpsim, sys; print(rpsim.run((sys.argv[1] + ' --intervals off').split())[0]['model'])"
        path = {"PYTHONPATH": moved / "lib/python3/dist-packages"}
        ran(Path(sys.executable), "-c", script, ONLY_HERE, env=path, out="only-here")


def test_simulator_alone(run, tmp_path):
    """With only its libraries known."""
    os.mkdir("pc")
    for name in ("yaml-0.1", "jansson", "gsl", "zlib", "sqlite3"):
        folder = run("pkg-config --variable=pcfiledir", name).out.strip()
        shutil.copy(f"{folder}/{name}.pc", "pc")
    run("cmake -B alone -DRP_EXEC=OFF -DRP_WERROR=OFF -S", SOURCE, env={"PKG_CONFIG_LIBDIR": tmp_path / "pc"})
    commands = Path("alone/compile_commands.json").read_text()
    assert not re.search('"command":.*(openblas|hwloc|criterion|nvcc|/exec/|/tests/)', commands)
    if LONG:
        run("cmake --build alone -j 2", timeout=None)
        run("cmake --install alone --prefix simulator")
        run("simulator/bin/rpsim --schedule roundpipe", said="tokens/s")
        libraries = run("ldd", *Path("simulator/bin").iterdir()).out
        assert not re.search("(?i)openblas|hwloc|cuda|libmpi", libraries)
