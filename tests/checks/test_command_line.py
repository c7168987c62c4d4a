"""Texts made from the rows of options: groff accepts the man pages, bash and zsh the completions, and bash completes
correctly (docs/generated: checks.generated_docs).
"""

import os
import re
import shlex
import shutil
from pathlib import Path

import pytest

from conftest import BUILD, need

MADE = BUILD / "command_line"
PROGRAMS = ["rpsim", "rpadvise", "rpexec", "rpdiff", "rpsweep", "rpplan", "rpimport"]
UTF_8 = {"LC_ALL": "C.UTF-8"}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(run, name):
    assert run(name, "-h").out == run(name, "--help").out
    assert re.fullmatch(rf"{name} [0-9][0-9.]* \(commit ([0-9a-f]{{40}}(-dirty)?|unknown)\)\n", run(name, "-V").out)
    assert run(name, "--print-man").out == (MADE / f"man1/{name}.1").read_text()
    assert (MADE / f"site-functions/_{name}").read_text().startswith(f"#compdef {name}\n")
    run("bash -n", MADE / "completions" / name)
    if shutil.which("zsh"):
        run("zsh -n", MADE / f"site-functions/_{name}")


def test_man_pages(run):
    need("man", "groff")

    def warnings(page):
        return run("man -l --warnings -E UTF-8", page, env={"MANROFFOPT": "-ww", **UTF_8}, status=None).err

    for name in PROGRAMS:
        assert warnings(MADE / f"man1/{name}.1") == ""
    page = MADE / "man1/rpsim.1"
    run("man -l -E UTF-8", page, env={"MANWIDTH": 100, **UTF_8}, out="--schedule NAME[,NAME…]|all")
    Path("bad.1").write_text(page.read_text() + ".NOSUCH\n")
    assert warnings("./bad.1"), "a bad man page is not noticed"


COMPLETIONS = [  # the words before the cursor, and bash's offers
    ("rpsim --sch", "--schedule"),
    ("rpsim --trace", "--trace-out"),
    ("rpsim --fidelity ''", "stage;hardware"),
    ("rpsim --fidelity ha", "hardware"),
    ("rpsim --fidelity = h", "hardware"),
    ("rpsim --partition pap", "paper"),
    ("rpsim --schedule inter", "interleaved-1f1b"),
    ("rpsim --platform rtx4090x8", "rtx4090x8"),
    ("rpsim --gpus ''", ""),
    ("rpsim --trace-out a", "a file.csv"),
    ("rpexec --record ''", "folder"),
    ("rpexec --dtype b", "bf16"),
    ("rpsweep ex", "export"),
    ("rpdiff a", "a file.csv"),
    ("rpdiff --w", "--worst"),
    ("rpplan --platform rtx4090x8", "rtx4090x8"),
]
COMPLETE = """source "$1/$2"
    COMP_WORDS=("${@:2}")
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    "_$2"
    printf "%s;" "${COMPREPLY[@]}"
"""


def test_bash(run):
    Path("folder").mkdir()
    Path("a file.csv").touch()
    path = {"PATH": f"{BUILD}:{os.environ['PATH']}"}
    for line, offers in COMPLETIONS:
        found = run("bash", "-c", COMPLETE, "bash", MADE / "completions", *shlex.split(line), env=path)
        assert found.said == offers + ";", line
