"""Fixtures of the checks: tests of whole programs, as a user runs them.

CTest runs each test_NAME.py as checks.NAME: RP_BUILD is the build folder. By hand:
    RP_BUILD=build/release python3 -m pytest tests/checks/test_NAME.py
Exit status 77, which CTest counts as skipped, means that every test of the file was skipped.
"""

import contextlib
import dataclasses
import functools
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

import pytest

from lib.browser import Browser, DoesNotStart

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("RP_BUILD", SOURCE / "build/release")).resolve()
PROGRAMS = "rpsim rpadvise rpplan rpimport rpdiff rppredict rpexec rpsweep".split()
PLACES = {"rpexec": "exec/rpexec", "rpsweep": "experiments/rpsweep"}
LONG = os.environ.get("RP_LONG", "0") == "1"  # ./bootstrap.sh test --long
DATA = BUILD / "tests/data"  # golden, bad and corpus, with their archives as folders (tests/tools/folded.py)
SANITIZED = re.search(r"^RP_SANITIZE:\w*=.", (BUILD / "CMakeCache.txt").read_text(), re.M) is not None
PYTHON = pathlib.Path(os.environ.get("RP_PYTHON", "python3"))  # the one with packages that a test needs


def program(name):
    """The path of a built program: rpsim, rpexec, rpsweep ..."""
    return BUILD / PLACES.get(name, name)


@dataclasses.dataclass
class Ran:
    """A command that has ended: its exit status and both streams as text."""

    command: list
    status: int
    out: str
    err: str

    @property
    def said(self):
        return self.out + self.err

    def __str__(self):
        words = " ".join(map(str, self.command))
        return f"{words}\nexit status {self.status}\n--- stdout\n{self.out}\n--- stderr\n{self.err}"


def ran(command, *arguments, cwd=None, prefix=(), status=0, out="", err="", said="", env=None, input="", timeout=600):
    """Runs a built program by its name, or any command by its path; prefix: a command that runs it.

    ran("rpsim --list", kind) is ran("rpsim", "--list", kind): a command is split at its blanks, arguments are not.
    Fails unless the exit status is `status` (None: any) and each text given is in its stream (said: in
    either). env is added to the environment; a value of None removes its name.
    """
    name, *words = command.split() if isinstance(command, str) else [command]
    path = program(name) if os.sep not in str(name) and program(name).is_file() else name
    command = [str(word) for word in (*prefix, path, *words, *arguments)]
    environment = {**os.environ, **(env or {})}
    environment = {key: str(value) for key, value in environment.items() if value is not None}
    done = subprocess.run(
        command, cwd=cwd, env=environment, input=input, capture_output=True, text=True, errors="replace",
        timeout=timeout, check=False,
    )
    result = Ran(command, done.returncode, done.stdout, done.stderr)
    assert status is None or result.status == status, str(result)
    assert out in result.out and err in result.err and said in result.said, f"no {out or err or said!r} in {result}"
    return result


@pytest.fixture
def run(tmp_path, monkeypatch):
    """run(COMMAND, ARGUMENT..., status=0, out=TEXT, ...): ran() in tmp_path, the current folder of the test."""
    monkeypatch.chdir(tmp_path)
    return functools.partial(ran, cwd=tmp_path)


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A folder for all tests of a file, which is their current one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("shared"))
        yield pathlib.Path.cwd()


@pytest.fixture
def source():
    return SOURCE


@pytest.fixture
def build():
    return BUILD


@pytest.fixture
def long():
    return LONG


@pytest.fixture(scope="module")
def browser():
    """A headless Chromium; without one that starts the test is skipped."""
    for name in ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome"):
        if shutil.which(name):
            try:
                with Browser(name, 1280, 900) as started:
                    yield started
                    return
            except DoesNotStart as error:
                pytest.skip(str(error))
    pytest.skip("no Chromium here")


def need(*tools):
    """Skips the test if a command is not installed."""
    for tool in tools:
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is missing")


def need_python(*modules, advice=""):
    """Skips the test if PYTHON lacks a module."""
    for module in modules:
        code = "import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)"
        if subprocess.run([PYTHON, "-c", code, module], capture_output=True, check=False).returncode != 0:
            pytest.skip(f"no {module} for {PYTHON} (RP_PYTHON{advice and ', ' + advice})")


@pytest.fixture(scope="session", autouse=True)
def folders_that_go(request, tmp_path_factory):
    """Folders of tests stay only if a test has failed."""
    yield
    if not request.session.testsfailed:
        shutil.rmtree(tmp_path_factory.getbasetemp(), ignore_errors=True)
        with contextlib.suppress(OSError):
            tmp_path_factory.getbasetemp().parent.rmdir()  # pytest_configure's, which is empty now


def pytest_configure(config):
    """Each run has a folder of its own: pytest's default one may be removed by another run."""
    if not config.option.basetemp and not config.option.collectonly:
        config.option.basetemp = os.path.join(tempfile.mkdtemp(prefix="rp-checks-"), "run")


def pytest_sessionfinish(session, exitstatus):
    report = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = report.stats.get("skipped", [])
    reasons = [str(one.longrepr[2]).removeprefix("Skipped: ").removeprefix("skipped: ").strip() for one in skipped]
    if exitstatus == 0 and skipped and not report.stats.get("passed"):
        print("\nskipped: " + reasons[0])
        session.exitstatus = 77
    else:  # for the summary of ./bootstrap.sh test; with --long the tests of RP_LONG run
        for reason in sorted({reason for reason in reasons if "RP_LONG" not in reason}):
            print(f"\nskipped in part: {reasons.count(reason)} of {session.testscollected}: {reason}")
