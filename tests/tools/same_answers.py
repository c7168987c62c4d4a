#!/usr/bin/env python3
"""Compares two builds byte for byte: same_answers.py OLD_BUILD NEW_BUILD [options].
       same_answers.py --self-test BUILD BUILD: finds no difference except those that it makes.

Runs the command lines of same_answers_lines.py in both builds, each case in its own folder, and compares standard
output, standard error, exit status and every written file; stores by the rows of their tables. Prints each difference's
first line, and counts; exit status 1 if same_answers_exceptions.txt does not list all differences.

The script first copies the programs, so that a build may go on beside it. Each side runs with its own sources' data
files (traces/) and with the inputs of the old side; relative paths, and folder names of equal length, keep paths out of
the differences.

Not compared, and why:
  commit      a build's git commit (--version, stores, pages)
  folders     of builds and sources; temporary ones of rpsweep
  clock       of stores: created_utc, duration_s; of --timings: sim_wall_s; of rpsweep: how long it
              took, dates of its pages
  measured    of rpexec: times, and rates computed from them; losses, norms and bytes are compared
  load        of rpexec: whether other processes used the machine meanwhile
  pictures    of rpexec's timelines, records of rates: texts are compared, all numbers are times
Everything else is compared.
"""

import argparse
import collections
import concurrent.futures
import csv
import io
import os
import pathlib
import re
import shutil
import sqlite3
import subprocess
import sys
import tempfile

import folded
import same_answers_lines as lines

HERE = pathlib.Path(__file__).resolve().parent
PLACES = {"rpexec": "exec/rpexec", "rpsweep": "experiments/rpsweep"}
LIMIT_S = 600  # of a command line, on a busy machine

NUMBER = rb"-?[0-9]+(?:\.[0-9]+)?(?:e[-+]?[0-9]+)?"
MEASURED = (
    rb"iteration_ms|tokens_per_s|wall_tokens_per_s|executed_flop_per_s|busy_pct|makespan_ms|"
    rb"prediction_error_pct|predicted_iteration_ms|attention_[a-z]+_us"
)
# (programs, beginning of text or file, pattern, replacement); see the head of this file for reasons.
MASKS = [
    ("rpsweep", b"", rb"[0-9.]+ (s|ms|min|points/s)\b", rb"# \1"),
    ("rpsweep", b"", rb"\b[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z", b"TIME"),
    ("rpsweep", b"", rb"/tmp/rpsweep_\w{6}", b"/tmp/rpsweep_"),
    ("rpsim|c|python", b"", rb'("?sim_wall_s"?[:=] ?)' + NUMBER, rb"\1#"),
    (
        "rpsim",
        b"<!doctype html",
        rb"<td>" + NUMBER + rb"(</td><td>s</td><td>sim_wall_s)",
        rb"<td>#\1",
    ),
    ("rpexec", b"{", rb'"(' + MEASURED + rb')": (\[[^\]]*\]|' + NUMBER + b")", rb'"\1": #'),
    ("rpexec", b"step,loss,iteration_ms,", rb"^([^,]*,[^,]*),[^,]*", rb"\1,#"),
    ("rpexec", b"op,queue,gpu,", rb",[0-9]+,[0-9]+$", b",#,#"),
    ("rpexec", b"", rb" *" + NUMBER + rb" (tokens/s|ms|us|s|GFLOP/s|GB/s)\b", rb" # \1"),
    ("rpexec", b"", rb"^rpexec: warning: --(record|predict): other processes used .*\n", b""),
]
# Beginnings of rpexec's files in which all numbers are times, or come from them.
PICTURES = (
    b"<!doctype html",
    b"<?xml",
    b'{\n  "displayTimeUnit"',
    b"# The host's part",
    b"name: ",
    b"way,beside,",
    b"layer,phase,operator",
    b"what,where,samples",
)
UNCOMPARED = {"created_utc", "duration_s", "git_commit"}

PYTHON = """import json, sys, warnings
import rpsim
warnings.simplefilter("always")
warnings.showwarning = lambda message, *_: print("warning:", message)
try:
    if sys.argv[1] == "run":
        print(json.dumps(rpsim.run(sys.argv[2:]), indent=1))
    elif sys.argv[1] == "simulate":
        simulation = rpsim.simulate(sys.argv[2:])
        print(json.dumps(simulation.rows, indent=1))
        print("\\n".join(map(str, simulation.ops())))
    elif sys.argv[1] == "names":
        for kind in ("models", "platforms", "costs", "schedules", "nothing"):
            print(kind, rpsim.names(kind))
    else:
        for name in sorted(vars(rpsim)):
            print(name, getattr(vars(rpsim)[name], "_fields_", ""))
except Exception as error:
    print(type(error).__name__, error)
    sys.exit(1)
"""


class Side:
    """A build: copies of its programs, its library, and their data."""

    def __init__(self, root, build):
        self.root, self.build = root, build
        cache = (build / "CMakeCache.txt").read_text(encoding="utf-8")
        self.source = pathlib.Path(
            re.search(r"^CMAKE_HOME_DIRECTORY:INTERNAL=(.*)$", cache, re.M).group(1)
        )
        for program in lines.PROGRAMS:
            place = PLACES.get(program, program)
            if (build / place).exists():
                (root / "build" / place).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(build / place, root / "build" / place)
        if (build / "sim/library").exists():
            ignored = shutil.ignore_patterns("CMake*")
            shutil.copytree(build / "sim/library", root / "lib", symlinks=True, ignore=ignored)
        (root / "build/share").symlink_to(build / "share")  # experiments by their names
        (root / "traces").symlink_to(self.source / "traces")
        (root / "plots").symlink_to(self.source / "plots")
        shutil.copytree(self.source / "sim/library/python/rpsim", root / "python/rpsim")
        (root / "work").mkdir()
        (root / "home").mkdir()
        self.environment = {
            "PATH": f"/usr/local/bin:{os.environ['PATH']}",
            "HOME": f"{root}/home",
            "LC_ALL": "C.UTF-8",
            "TZ": "UTC",
            "RP_TRACES": "../../traces",
            "RP_PLOTS": "../../plots",
            "LD_LIBRARY_PATH": f"{root}/lib",
            "RP_LIBRARY": f"{root}/lib/librpsim.so.0",
            "PYTHONPATH": f"{root}/python",
            "PYTHONDONTWRITEBYTECODE": "1",
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        }
        version = self.text("rpsim", "--version")
        self.commit = re.search(r"commit (\S+)\)", version).group(1).encode()

    def program(self, name):
        places = {
            "python": [sys.executable, "../../in/library.py"],
            "c": ["../../command"],
            "c-throughput": ["../../throughput"],
        }
        return places.get(name) or [f"../../build/{PLACES.get(name, name)}"]

    def text(self, program, *words):
        folder = self.root / "work/first"
        folder.mkdir(exist_ok=True)
        return subprocess.run(
            [*self.program(program), *words],
            cwd=folder,
            check=True,
            timeout=LIMIT_S,
            env=self.environment,
            stdout=subprocess.PIPE,
            encoding="utf-8",
        ).stdout

    def compile_callers(self):
        """Small C programs that call the library, from the side's own documentation."""
        for name in ("command", "throughput"):
            subprocess.run(
                [
                    "cc",
                    "-std=c11",
                    f"-I{self.source}/sim/library",
                    str(self.source / f"docs/library/{name}.c"),
                    f"-L{self.root}/lib",
                    "-lrpsim",
                    "-o",
                    str(self.root / name),
                ],
                check=True,
            )

    def run(self, folder, words):
        """Exit status, output and messages of a command line."""
        name, *rest = words
        environment = {**self.environment, **({"COLUMNS": "1000"} if name == "rpexec" else {})}
        command = self.program(name) + [word.replace("@IN@", "../../in") for word in rest]
        try:
            done = subprocess.run(
                command,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                timeout=LIMIT_S,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                check=False,
            )
        except OSError as error:
            return "not run", b"", str(error).encode()
        except subprocess.TimeoutExpired:
            return f"not over after {LIMIT_S} s", b"", b""
        return str(done.returncode), done.stdout, done.stderr

    def clean(self, program, text):
        """Removes text that may differ from run to run."""
        text = text.replace(self.commit, b"COMMIT").replace(bytes(self.root), b"ROOT")
        text = text.replace(bytes(self.source), b"SOURCE").replace(bytes(self.build), b"BUILD")
        if program == "rpexec" and text.startswith(PICTURES):
            text = re.sub(rb"[A-Za-z0-9+/=]{200,}", b"PACKED", text)
            text = re.sub(rb"; beside others[^\n\"]*|Ops shorter than [^<]*", b"", text)
            text = re.sub(rb"[ ,]*(#[ ,]*)+", b"#", re.sub(NUMBER, b"#", text))
            return b"\n".join(sorted(set(re.split(rb"[\n{}<>]", text))))
        for programs, begins, pattern, replacement in MASKS:
            if re.fullmatch(programs, program) and text.startswith(begins):
                text = re.sub(pattern, replacement, text, flags=re.M)
        if b",sim_wall_s" in text.split(b"\n", 1)[0]:
            text = without_column(text.decode(), "sim_wall_s").encode()
        return text


def without_column(text, name):
    rows = list(csv.reader(io.StringIO(text)))
    at = rows[0].index(name)
    return "\n".join(repr(row[:at] + row[at + 1 :]) for row in rows)


def rows_of(path, measured):
    """The tables of a store, row by row, without measured numbers."""
    out = []
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as store:
        for kind, name, sql in store.execute(
            "SELECT type, name, sql FROM sqlite_master ORDER BY type, name"
        ).fetchall():
            out.append(f"{kind} {name}: {sql}")
            if kind != "table":
                continue
            cursor = store.execute(
                f'SELECT * FROM "{name}" ORDER BY rowid'
                if "WITHOUT ROWID" not in sql
                else f'SELECT * FROM "{name}"'
            )
            columns = [column[0] for column in cursor.description]
            for row in cursor:
                cells = dict(zip(columns, row))
                timed = cells.get("name") == "sim_wall_s"
                for column, value in cells.items():
                    drop = column in UNCOMPARED or (timed and column == "value")
                    drop = drop or (
                        measured
                        and isinstance(value, (int, float))
                        and name in ("metrics", "results", "ops")
                    )
                    cells[column] = "#" if drop and value is not None else value
                out.append(f"{name} {cells}")
    return "\n".join(out).encode()


def outcome(side, number, case):
    """{stream: text} of a case, streams of later lines and files with their number and name."""
    folder = side.root / "work" / f"{number:05}"
    folder.mkdir()
    out = {}
    for at, words in enumerate(case):
        prefix = f"{at + 1}. " if len(case) > 1 else ""
        status, output, messages = side.run(folder, words)
        out[prefix + "exit status"] = status.encode()
        out[prefix + "stdout"] = side.clean(words[0], output)
        out[prefix + "stderr"] = side.clean(words[0], messages)
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_file():
            data = path.read_bytes()
            if data.startswith(b"SQLite format 3\0"):
                data = rows_of(path, case[0][0] == "rpexec" or "executed.yaml" in " ".join(case[0]))
            out[name] = side.clean(case[0][0], data)
        else:
            out[name] = b"a folder"
    shutil.rmtree(folder)
    return out


def first_difference(old, new):
    if old is None or new is None:
        return (
            "is written by the new build alone"
            if old is None
            else "is written by the old build alone"
        )
    ours, theirs = old.split(b"\n"), new.split(b"\n")
    at = next(
        (i for i, pair in enumerate(zip(ours, theirs)) if pair[0] != pair[1]),
        min(len(ours), len(theirs)),
    )

    def shown(rows):
        if at >= len(rows):
            return "(no such line)"
        other = (theirs if rows is ours else ours)[at : at + 1] or [b""]
        same = len(os.path.commonprefix([rows[at], other[0]]))
        begin = max(0, same - 60)
        return ("..." if begin else "") + rows[at][begin : begin + 160].decode("utf-8", "replace")

    return f"line {at + 1}\n    old: {shown(ours)}\n    new: {shown(theirs)}"


class Exceptions:
    """Lines of REGEX of the command line, STREAM or STREAM: REGEX of text left out, reason."""

    def __init__(self, name, text):
        self.rows = []
        for number, line in enumerate(text.splitlines(), 1):
            if line.strip() and not line.startswith("#"):
                cells = line.split("\t")
                if len(cells) != 3 or not cells[2].strip():
                    sys.exit(
                        f"{name}:{number}: valid are command line, stream and reason, with tabs"
                    )
                stream, _, part = cells[1].partition(": ")
                self.rows.append(
                    [re.compile(cells[0]), re.compile(stream), part.encode(), 0, number]
                )

    def allow(self, command, stream, old, new):
        for row in self.rows:
            if row[0].search(command) and row[1].fullmatch(stream):
                if not row[2] or (
                    old is not None
                    and new is not None
                    and re.sub(row[2], b"", old) == re.sub(row[2], b"", new)
                ):
                    row[3] += 1
                    return True
        return False


def prepare_inputs(sides):
    """Inputs of command lines, from the sources of the old build; `made` by its programs."""
    old = sides[0]
    inputs = old.root / "in"
    inputs.mkdir()
    for name, place in (
        ("published", "paper-figures/published"),
        ("experiments", "experiments"),
        ("paper.csv", "traces/configs/paper.csv"),
    ):
        (inputs / name).symlink_to(old.source / place)
    for place in ("tests/bad", "tests/golden", "traces/runs"):
        folded.unfold(inputs / pathlib.Path(place).name, old.source / place)
    for name, text in lines.FILES.items():
        (inputs / name).write_text(text, encoding="utf-8")
    (inputs / "library.py").write_text(PYTHON, encoding="utf-8")
    (inputs / "few").mkdir()  # some published runs of each table
    for path in sorted((inputs / "published").glob("*.csv")):
        rows = path.read_text(encoding="utf-8").splitlines()
        (inputs / "few" / path.name).write_text(
            "\n".join(rows[:1] + rows[1::11]) + "\n", encoding="utf-8"
        )
    (old.root / "work/made").mkdir()
    for text in lines.MADE:
        status, _, messages = old.run(old.root / "work/made", lines.words(text))
        if status != "0":
            sys.exit(f"{text}: {messages.decode()}")
    (old.root / "work/made").rename(inputs / "made")
    (sides[1].root / "in").symlink_to(inputs)


def make_sides(folder, builds):
    sides = []
    for name, build in zip(("old", "new"), builds):
        (pathlib.Path(folder) / name).mkdir()
        sides.append(Side(pathlib.Path(folder) / name, build.resolve()))
    prepare_inputs(sides)
    return sides


def make_cases(side, asked):
    """The requested cases, by the tables of the old side."""
    tables = {name: lines.options(side.text(name, "--print-man")) for name in lines.PROGRAMS}
    listed = {
        what: side.text("rpsim", "--list", what, "--format", "csv").splitlines()[1:]
        for what in ("schedules", "costs")
    }
    names, costs = ([row.split(",")[0] for row in rows] for rows in listed.values())
    cases = lines.all_lines(tables, names, costs, side.root / "in", asked.every_pair)
    if asked.only:
        found = re.compile(asked.only).search
        cases = [case for case in cases if any(found(" ".join(words)) for words in case)]
    if asked.sample and asked.sample < len(cases):
        cases = [cases[i * len(cases) // asked.sample] for i in range(asked.sample)]
    return cases


def compare(sides, cases, exceptions, jobs):
    """Runs and compares the cases. @return differences that no exception allows"""
    count = {"differ": 0, "excepted": 0, "files": 0}
    statuses = collections.Counter()
    if any(words[0].startswith("c") for case in cases for words in case):
        for side in sides:
            side.compile_callers()

    def both(case_number):
        return [outcome(side, case_number, cases[case_number]) for side in sides]

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for number, (old, new) in enumerate(pool.map(both, range(len(cases)))):
            command = "; ".join(" ".join(words) for words in cases[number])
            for stream in dict.fromkeys([*old, *new]):
                ours, theirs = old.get(stream), new.get(stream)
                if stream.endswith("exit status"):
                    statuses[(ours or b"").decode()] += 1
                elif not stream.endswith(("stdout", "stderr")):
                    count["files"] += 1
                if ours == theirs:
                    continue
                if exceptions.allow(command, stream, ours, theirs):
                    count["excepted"] += 1
                    continue
                count["differ"] += 1
                print(f"{command}\n  {stream}: {first_difference(ours, theirs)}", flush=True)
    parts = ", ".join(f"{n} with exit status {s}" for s, n in sorted(statuses.items()))
    print(f"{sum(statuses.values())} command lines ({parts}), {count['files']} files: ", end="")
    print(f"{count['differ']} differences, {count['excepted']} excepted")
    return count["differ"]


def self_test(sides, exceptions):
    """A build equals itself; a changed output, message, exit status, file or store is found."""
    texts = (
        "rpsim --schedule gpipe --model tiny --iterations 1 --intervals off --program-out o.txt",
        "rpsim --schedule gpipe --fidelity stage --db o.db",
        "rpsim --schedule gpip",
        "rpexec --backend host --model tiny --seq-len 8 --steps 1 --gpus 2 --format json",
        "rpplan --model tiny",
    )
    cases = [[lines.words(text)] for text in texts]
    same = compare(sides, cases, exceptions, 2)
    program = sides[1].root / "build/rpsim"
    program.rename(f"{program}.true")
    program.write_text(
        """#!/bin/sh
"$0.true" "$@" >stdout 2>stderr
status=$?
sed s/gpipe/gpipes/ stdout
sed s/gpipe/gpipes/ stderr >&2
rm stdout stderr
[ ! -e o.txt ] || echo "# a line" >>o.txt
[ ! -e o.db ] || sqlite3 o.db "UPDATE runs SET gpus = gpus + 1"
exit $((status + 1))
""",
        encoding="utf-8",
    )
    program.chmod(0o755)
    expected = 4 if shutil.which("sqlite3") is None else 5  # 2 outputs, a message, a file, a store
    allowed = Exceptions("", "^rpsim .*gpip\texit status\tthe three that were made")
    differ = compare(sides, cases, allowed, 2)
    print(f"{same} differences from itself, {differ} of the {expected} that were made")
    return 0 if same == 0 and differ == expected else 1


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("builds", nargs=2, type=pathlib.Path, metavar="BUILD", help="old and new")
    parser.add_argument("--jobs", type=int, default=2, help="cases at a time (2)")
    parser.add_argument("--only", metavar="REGEX", help="only command lines that it is found in")
    parser.add_argument("--sample", type=int, metavar="K", help="only K cases, evenly spread")
    parser.add_argument("--every-pair", action="store_true", help="all pairs of options, not some")
    parser.add_argument("--list", action="store_true", help="print the command lines, run nothing")
    parser.add_argument("--self-test", action="store_true")
    parser.add_argument(
        "--exceptions", type=pathlib.Path, default=HERE / "same_answers_exceptions.txt"
    )
    asked = parser.parse_args()
    exceptions = Exceptions(asked.exceptions, asked.exceptions.read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory(prefix="same_answers.") as folder:
        sides = make_sides(folder, asked.builds)
        if asked.self_test:
            return self_test(sides, exceptions)
        cases = make_cases(sides[0], asked)
        if asked.list:
            print("\n".join("; ".join(" ".join(words) for words in case) for case in cases))
            return 0
        differ = compare(sides, cases, exceptions, asked.jobs)
    for row in exceptions.rows if asked.only is None and asked.sample is None else ():
        if row[3] == 0:
            print(f"{asked.exceptions}:{row[4]}: was not needed")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
