"""The installed library, moved to another folder and used by a stranger: programs in C by pkg-config and by CMake, and
a script in Python, print the same as rpsim. It exports the declarations of its header.

Release only: unit tests run its code sanitized, and a sanitized library does not load into Python.
"""

import base64
import hashlib
import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import LONG, SOURCE, program, ran
from lib.installed import install, naming

OPTIONS = "--schedule roundpipe,1f1b --model llama3.1-8b --intervals 4 --seed 3"
PYTHON = Path(sys.executable)
SCRIPT = SOURCE / "tests/checks/lib/use_library.py"


@pytest.fixture(scope="module", autouse=True)
def installed(shared):
    """The installation's folder and library. The current folder has programs in C that use it."""
    install(shared / "opt")
    moved = (shared / "opt").rename(shared / "moved")
    library, = moved.rglob("librpsim.so.0")
    package, = moved.rglob("rpsim/__init__.py")
    shutil.copytree(SOURCE / "docs/library", "examples")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("RP_TRACES", "RP_PLOTS", "RP_DATA", "RP_LIBRARY"):
            patch.delenv(name, raising=False)
        patch.setenv("LD_LIBRARY_PATH", str(library.parent))
        patch.setenv("PKG_CONFIG_PATH", str(library.parent / "pkgconfig"))
        patch.setenv("PYTHONPATH", str(package.parents[1]))
        Path("rpsim.json").write_text(ran(f"{moved}/bin/rpsim {OPTIONS} --format json").out)
        flags = ran("pkg-config --cflags --libs rpsim").out.split()
        ran("cc -std=c11 -Wall -Wextra -Wpedantic -Werror examples/command.c -o with_pkg_config", *flags)
        ran(f"cmake -S examples -B by_cmake -DCMAKE_PREFIX_PATH={moved}")
        ran("cmake --build by_cmake")
        yield moved, library


def test_what_is_installed(installed):
    moved, library = installed
    declared = re.findall(r"(?m)^RP_API .*[ *](rp_[a-z0-9_]+)\(", (moved / "include/rpsim.h").read_text())
    exported = [line.split()[2] for line in ran("nm -D --defined-only", library).out.splitlines()]
    assert sorted(declared) == sorted(exported)
    assert ran("readelf -d", library).out.count("[librpsim.so.0]") == 1
    assert ran("pkg-config --modversion rpsim").out.strip() == ran(f"{moved}/bin/rpsim --version").out.split()[1]
    places = naming(moved / "include", moved.with_name("opt")) + naming(library.parent, moved.with_name("opt"))
    assert [place for place in places if ".so" not in place] == []
    assert naming(library.parent / "cmake", SOURCE) + naming(library.parent / "pkgconfig", SOURCE) == []


def test_programs_in_c(installed):
    moved = installed[0]
    for program in ("./with_pkg_config", "by_cmake/command"):
        assert ran(f"{program} {OPTIONS}").out == Path("rpsim.json").read_text()
    text = ran(f"{moved}/bin/rpsim --schedule roundpipe --model llama3.1-8b --platform h100x8 --format json").out
    tokens = json.loads(text)[0]["tokens_per_s"]
    ran("by_cmake/throughput llama3.1-8b", said=f"llama3.1-8b on h100x8: {tokens:.0f} tokens/s")
    ran("by_cmake/throughput llama", status=2, said="unknown model 'llama'")
    models = moved / "share/rpsim/traces/models"  # a model that only this installation has
    own = re.sub("(?m)^name: .*", "name: only-here", (models / "qwen3-1.7b.yaml").read_text())
    (models / "only-here.yaml").write_text(own)
    command = "./with_pkg_config --schedule gpipe"
    ran(f"{command} --model only-here --costs qwen3-1.7b@rtx4090", said='"model":"only-here"')
    ran("./with_pkg_config --schedule roundpip", status=2, said="unknown schedule 'roundpip'")
    ran("./with_pkg_config --help", status=2, said="help: gives text")
    ran(f"{command} --trace-out -", status=2, said="standard output")
    ran(f"{command} --format csv", status=2, said="valid is json")
    header = "#include <rpsim.h>\nrp_settings settings = RP_SETTINGS_INIT;\nrp_result result = RP_RESULT_INIT;\n"
    ran(f"c++ -x c++ -fsyntax-only -Wall -Wextra -Wpedantic -Werror -I{moved}/include -", input=header)


def test_reader_that_goes_away():
    """It is an error, and does not end the calling program by a signal."""
    os.mkfifo("pipe")
    reader = os.open("pipe", os.O_RDWR)
    command = "./with_pkg_config --schedule roundpipe --intervals off --trace-out pipe".split()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as program:
        os.read(reader, 1)
        os.close(reader)
        said = program.communicate(timeout=60)[1]
    assert program.returncode == 1 and "Broken pipe" in said


def test_python():
    # A host with decimal commas, if the system has the sources of such a locale.
    os.mkdir("locales")
    commas = shutil.which("localedef") and ran("localedef -f UTF-8 -i de_DE locales/de_DE", status=None).status == 0
    env = {"LD_LIBRARY_PATH": "", "LOCPATH": os.path.abspath("locales") if commas else None}
    assert ran(PYTHON, SCRIPT, program("rpadvise"), "rpsim.json", *OPTIONS.split(), env=env).said == ""
    nowhere = {"RP_LIBRARY": "/nowhere/librpsim.so"}
    ran(PYTHON, "-c", "import rpsim", env=nowhere, status=1, said="RP_LIBRARY names its file")


def test_notebook():
    if ran(PYTHON, "-c", "import matplotlib", status=None).status != 0:
        pytest.skip("no matplotlib")
    ran(PYTHON, SOURCE / "docs/library/notebook.py", env={"MPLBACKEND": "Agg"})
    assert os.path.getsize("timeline.png") > 0 and os.path.getsize("sweep.png") > 0


def whole():
    """RoundPipe's files are those of its list: neither package has a file of the other."""
    site, = Path("venv/lib").glob("python*/site-packages")
    files = importlib.metadata.Distribution.at(next(site.glob("[Rr]ound[Pp]ipe-*.dist-info"))).files
    hashes = [base64.urlsafe_b64encode(hashlib.sha256(file.locate().read_bytes()).digest()) for file in files]
    return len(files) > 10 and all(file.hash is None or file.hash.value == digest.rstrip(b"=").decode()
                                   for file, digest in zip(files, hashes))


@pytest.mark.skipif(not LONG, reason="RP_LONG is not 1")
def test_wheel(installed):
    """In an environment of its own, also beside the paper's own library, which PyPI has as RoundPipe."""
    version = ran("pkg-config --modversion rpsim").out.strip()
    for folder in ("wheel", "again"):
        ran(PYTHON, SOURCE / "sim/library/python/make_wheel.py", SOURCE, installed[1], version, folder)
    wheel, again = sorted(Path().glob("*/*.whl"), reverse=True)
    assert wheel.read_bytes() == again.read_bytes()
    ran(PYTHON, "-m", "venv", "venv")
    ran("venv/bin/pip install --quiet --no-index --no-deps", wheel)
    alone = {"LD_LIBRARY_PATH": "", "PYTHONPATH": ""}
    ran("venv/bin/python", SCRIPT, program("rpadvise"), "rpsim.json", *OPTIONS.split(), env=alone)
    assert f"\nVersion: {version}\n" in ran("venv/bin/pip show rpsim").out
    if ran("venv/bin/pip install --quiet --no-deps RoundPipe==0.1.1", status=None).status != 0:
        pytest.skip("not checked: the wheel beside RoundPipe 0.1.1, which pip cannot fetch here")
    assert whole()
    ran("venv/bin/python", "-c", "import rpsim; rpsim.names('models')", env=alone)
    ran("venv/bin/pip uninstall --quiet -y rpsim")
    assert whole()
    ran("venv/bin/python", "-c", "import rpsim", env=alone, status=1)
