"""Pages work as typed: each line of the sh blocks of each document runs in a folder that has the sources and, as
build/release, this build, whose programs are on PATH as well. A text block behind an sh block has the first lines that
the block's last command prints; "…" as its last line: more follow. RP_REFRESH=1 writes these lines into the page
instead of comparing them. The examples of the man pages, which the site has, too, run as well. No line on stdout is
wider than COLUMNS, 80 but where the page shows what is printed; with RP_LONG=1 all lines run at 80, at 100 and without
COLUMNS. Other checks run ./bootstrap.sh, cmake, cpack, sudo and the pages of ELSEWHERE. Release only: each program is
tested elsewhere.
"""

import os
import re
import shutil
from pathlib import Path

import pytest

from conftest import BUILD, LONG, PROGRAMS, SOURCE, ran
from lib.widths import fits_into

FIRST = ["README.md", "docs/examples.md", "docs/quickstart.md", "docs/which-schedule.md"]  # others read their files
# checks.walkthroughs, and the programs of the CUDA backend, which need a GPU: tests/gpu/run.sh.
ELSEWHERE = ["CONTRIBUTING.md", "exec/cuda/README.md"]
# With RP_LONG=1 only; studies have checks of their own, and what measures a machine has checks.describe.
SLOW = re.compile(
    r"schedule all (--gpus|--model llama3.1-8b *(--platform l40sx8|#))|/make\.sh |--steps 200|--partition tuned|gnuplot"
    r"|rpadvise --model llama.* --(gpus|optimizer|runnable|schedule|seq-len|tokens) |^rppredict |rppredict --cells"
    r"|rpadvise --model qwen3-235b |rpexec --host-rates -|rpexec --platform-out |fitted\.yaml|qwen3-32b --explain"
    r"|--replicas 1000|--platform my-server.yaml|rpexec --steps 16 --record|rpexec .*--costs r --predict"
    r"|rpdiff (measured\.db|r2)")
# Blocks that take seconds: the first, the fifth ... of them, with RP_LONG=1 each. All other blocks run every day.
COSTLY = re.compile("rpexec --(?!list)|rpadvise --model llama|schedule 1f1b,zb-h1,zb-h2")
# Every day with fewer draws of the inputs, if what they print is not compared: 32 take longer than all else.
DRAWS = re.compile(r"\brpsim (?=--(schedule|model) )(?!.*(--intervals|--fidelity stage|--torch-csv-in|--check))")
# For programs, which do not care how wide it is.
ANY_WIDTH = re.compile(r"--format (json|csv|kv|md)|--dry-run|--host-rates -|rppredict --cells|^\./command ")
# Slurm's array of jobs, one after the other.
SBATCH = """#!/usr/bin/env bash
range=${1#--array=}
[ "$2" = --wrap ] || exit 1
for task in $(seq "${range%-*}" "${range#*-}"); do
    SLURM_ARRAY_TASK_ID=$task sh -ec "$3"
done
"""
ASSIGNMENTS = re.compile(r"""(export )?(\w+=("[^"]*"|\S*) *)+$""")
FILES_OF_MAN_PAGES = {
    "rank0.json": "tests/golden/kineto/zb1p-p2v1m4.0.json", "rank1.json": "tests/golden/kineto/zb1p-p2v1m4.1.json",
    "predicted.csv": "r2/predicted.csv", "record": "r2",
}
BLOCK = re.compile(r"^ *```sh\n(.*?)^ *```$(?:\n*^```text\n(.*?)^```$)?", re.M | re.S)


def documents():
    pages = sorted(str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.md"))
    kept = [page for page in pages if not re.match("build|tests/golden/", page) and page not in FIRST + ELSEWHERE]
    return [page for page in FIRST + kept if BLOCK.search((SOURCE / page).read_text())]


def bare(line):
    return line.partition("#")[0].strip()


class Tree:
    """The folder to run in, as after ./bootstrap.sh run."""

    def __init__(self, folder, width):
        self.width, self.answers = width, {}
        self.compared = self.costly = 0
        for entry in SOURCE.iterdir():
            if not entry.name.startswith((".", "build")):
                (folder / entry.name).symlink_to(entry)
        (folder / "build").mkdir()
        (folder / "build/release").symlink_to(BUILD)
        (folder / "bin").mkdir()
        (folder / "bin/sbatch").write_text(SBATCH)
        (folder / "bin/sbatch").chmod(0o755)
        places = [folder / "bin", *(folder / "build/release" / part for part in ("", "exec", "experiments"))]
        self.env = dict.fromkeys(("COLUMNS", "RP_TRACES", "RP_PLOTS", "RPEXEC_BACKEND"))
        self.env["PATH"] = ":".join([*map(str, places), os.environ["PATH"]])

    def leaves_out(self, lines):
        costly = any(COSTLY.search(line) and not SLOW.search(line) and ("", bare(line)) not in self.answers
                     for line in lines)
        self.costly += costly
        return costly and self.costly % 4 != 1 and not LONG

    def run_line(self, script, command, columns):
        printed = ran("bash -ec", script, env={**self.env, "COLUMNS": columns}).out
        if not ANY_WIDTH.search(command):
            fits_into(printed, columns or 100, f"COLUMNS={columns} {command}")
        return printed

    def run(self, lines, columns, compared=True):
        """Lines share a shell's variables, as at a prompt; what the last one printed, if it did run."""
        variables, printed = "", None
        for line in lines:
            line = line.strip()
            if re.match(r"$|#|\./bootstrap\.sh|cmake|cpack|sudo ", line):
                continue
            if line.startswith("gnuplot") and not shutil.which("gnuplot"):
                continue
            if ASSIGNMENTS.match(line):
                variables += line + "\n"
                continue
            if not compared and not LONG:
                line = DRAWS.sub("rpsim --intervals 2 ", line)
            command = bare(line)
            asked = variables, command
            if asked in self.answers:  # another page has it, too: its answer and its files are there
                printed = self.answers[asked]
            elif SLOW.search(line) and not LONG:
                printed = None
            else:
                printed = self.answers[asked] = self.run_line(variables + line, command, columns)
            if re.search("rpexec.*--resume|^cp", command):
                self.answers.pop(asked, None)
        return printed


@pytest.fixture(scope="module", params=[None, 80, 100] if LONG else ["narrow"])
def tree(request, shared):
    folder = shared / str(request.param)
    folder.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield Tree(folder, request.param)


@pytest.mark.parametrize("page", documents())
def test_page(tree, page):
    text = (SOURCE / page).read_text()
    now = text
    for block, want in BLOCK.findall(text):
        lines = block.splitlines()
        if tree.leaves_out(lines):
            continue
        columns = tree.width if tree.width != "narrow" else None if want else 80
        printed = tree.run(lines, columns, compared=bool(want))
        if want and printed is not None and columns is None:
            more = want.endswith("\n…\n")
            shown = printed.splitlines(True)[:want.count("\n") - more]
            now = now.replace(want, "".join(shown) + "…\n" * more)
            tree.compared += 1
    if os.environ.get("RP_REFRESH") == "1":
        (SOURCE / page).write_text(now)
    else:
        assert now == text, f"{page} shows something else than is printed (RP_REFRESH=1 writes it)"


@pytest.mark.parametrize("name", PROGRAMS)
def test_man_page(tree, name):
    for link, target in FILES_OF_MAN_PAGES.items():
        if not Path(link).is_symlink():
            Path(link).symlink_to(target)
    page = ran(name, "--print-man").out.partition("\n.SH EXAMPLES\n")[2]
    lines = [line.replace(r"\-", "-") for line in page.splitlines() if not line.startswith(".")]
    assert lines, f"{name}.1 has no example"
    if not LONG and not Path("r2").exists():  # nothing has been recorded
        lines = [line for line in lines if not re.search(r" record\b", line)]
    tree.run(lines, 80 if tree.width == "narrow" else tree.width)


def test_enough(tree):
    """A page that nobody can read any more would have no examples."""
    assert len(tree.answers) >= (80 if LONG else 50)
    assert tree.compared >= 2 or tree.width
    assert len(re.findall("(?m)^build/release", (SOURCE / "README.md").read_text())) >= 5
