"""The store on the command line: where a run comes from, values to compare with, and a database that is read-only,
locked, full, no database or of another version, for every command that opens a store. Nothing may be lost or
half-written.
"""

import contextlib
import functools
import os
import re
import shutil
import sqlite3
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from conftest import need, program, ran
from lib.store import ask, content, count

GPIPE = "rpsim --schedule gpipe --fidelity stage"
EXPERIMENT = """name: small
options: {fidelity: stage}
cross: {schedule: [gpipe, 1f1b], microbatches: [8, 12, 16]}
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("made")
    (folder / "e.yaml").write_text(EXPERIMENT)
    columns = "framework,model,tokens_per_s,max_seqlen_k"
    (folder / "p.csv").write_text(f"{columns}\nroundpipe,a,100,OOM\nroundpipe-sync,a,200.5,\n")
    ran("rpsweep e.yaml --db good.db", cwd=folder)
    ran("rpsim --schedule gpipe,1f1b --fidelity stage --seed 5 --db runs.db", cwd=folder)
    return folder


@pytest.fixture
def work(tmp_path, made):
    """The test's folder, with a store of six points (good.db), a store of two runs (runs.db), and their inputs."""
    return Path(shutil.copytree(made, tmp_path, dirs_exist_ok=True))


def writers(run, database, **expected):
    """Each command that writes a store."""
    for command in (GPIPE, "rpsweep e.yaml --resume", "rpsweep merge good.db", "rpsweep reference p.csv"):
        run(command, "--db", database, **expected)


def readers(run, database, **expected):
    run("rpsweep merge --db target.db", database, **expected)
    run("rpsweep export best --db", database, **expected)


def commit_in(file):
    return re.search('return "(.*)";', file.read_text())[1]


def test_commit_of_a_tree(tmp_path, run, source):
    need("git")
    tree, made = tmp_path / "tree", tmp_path / "commit.c"

    def commit():
        run("cmake", f"-DSOURCE={tree}", f"-DOUT={made}", "-P", source / "cmake/Commit.cmake")
        return commit_in(made)

    def git(words):
        return run("git -c user.name=t -c user.email=t@t -c commit.gpgsign=false " + words, cwd=tree).out.strip()

    tree.mkdir()
    assert commit() == "unknown", "outside of git"
    git("init -q")
    assert commit() == "unknown", "without a commit"
    (tree / "a").write_text("a\n")
    git("add a")
    git("commit -qm one")
    one = git("rev-parse HEAD")
    assert commit() == one
    os.utime(made, (0, 0))
    assert commit() == one and made.stat().st_mtime == 0, "a file that is right already is written again"
    (tree / "b").write_text("a file that git does not track\n")
    assert commit() == one
    (tree / "a").write_text("b\n")
    assert commit() == one + "-dirty"
    git("commit -qam two")
    assert commit() == git("rev-parse HEAD") != one
    (tree / "below").mkdir()
    tree.rename(tmp_path / "above")
    tree.symlink_to(tmp_path / "above/below")
    assert commit() == "unknown", "a folder inside of another work tree"


def test_origin_of_runs(work, run, build):
    version = run("rpsim --version").out.split()[1]
    assert ask("runs.db", """SELECT DISTINCT git_commit, host, version, seed, created_utc > '2026',
        duration_s > 0 AND duration_s < 100 FROM runs""") == [
            (commit_in(build / "generated/commit.c"), os.uname().nodename, version, "5", 1, 1)]


def test_references(work, run):
    for _ in range(2):
        run("rpsweep reference p.csv --db runs.db --cell gpus=8,platform=p,source=x", said="p.csv: 3 values in")
    assert ask("runs.db", """SELECT kind, source, schedule, optimizer, model, platform, gpus, quantity,
        ifnull(value, 'OOM') FROM reference ORDER BY optimizer, quantity DESC""") == [
            ("published", "x", "roundpipe", "async", "a", "p", 8, "tokens_per_s", 100),
            ("published", "x", "roundpipe", "async", "a", "p", 8, "max_seqlen_k", "OOM"),
            ("published", "x", "roundpipe", "sync", "a", "p", 8, "tokens_per_s", 200.5)]
    run("rpsweep export error_per_cell --db runs.db", out="published,x,tokens_per_s,roundpipe,a,p")
    # The program knows all quantities that the table allows: a column each.
    [[table]] = ask("runs.db", "SELECT sql FROM sqlite_schema WHERE name = 'reference'")
    quantities = re.findall(r"'(\w+)'", re.search(r"quantity IN \((.*?)\)", table, re.S)[1])
    Path("all.csv").write_text(f"schedule,model,{','.join(quantities)}\na,b{',1' * len(quantities)}\n")
    run("rpsweep reference all.csv --db runs.db", said="all.csv: 21 values")


def test_references_that_are_refused(work, run):
    for table, reason in (
        ("schedule,model,speed\n", "bad.csv:1: column 'speed' is neither"),
        ("schedule,model\n", "bad.csv:1: no quantity"),
        ("model,tokens_per_s\n", "bad.csv:1: no schedule"),
        ("schedule,model,tokens_per_s\na,b,1\na,b,fast\n", "bad.csv:3: row 3, column 3: 'tokens_per_s' is 'fast'"),
        ("schedule,model,tokens_per_s,gpus\na,b,1,0\n", "bad.csv:2: gpus: '0' is not valid"),
        ("schedule,model,tokens_per_s\n,b,1\n", "bad.csv:2: no schedule"),
    ):
        Path("bad.csv").write_text(table)
        run("rpsweep reference bad.csv --db good.db", status=2, said=reason)
    for command, reason in (
        ("reference p.csv --cell gpus", "--cell: 'gpus' is not valid"),
        ("reference p.csv --cell kind=guessed", "--cell: 'kind=guessed' is not valid"),
        ("export best --cell gpus=8", "--cell: valid with reference"),
        ("reference", "valid is rpsweep reference FILE.csv"),
        ("reference nowhere.csv", "nowhere.csv"),
    ):
        run("rpsweep " + command, "--db", "good.db", status=2, said=reason)
    assert count("good.db", "reference") == 0


@pytest.mark.parametrize("version, reason", [
    (None, "cannot read its version: file is not a database"),
    (5, "the database has version 5; this program knows versions up to 4: use a newer one"),
    (2, "the database has version 2, which no release has written; valid are versions from 3 on: store the runs again"),
])
def test_files_that_are_refused(work, run, version, reason):
    other = work / "other.db"
    if version:
        ask(shutil.copy(work / "good.db", other), f"PRAGMA user_version = {version}")
    else:
        other.write_text("schedule,model,makespan_ms\n" * 300)
    before = other.read_bytes()
    writers(run, other, status=2, said=f"other.db: {reason}")
    readers(run, other, status=2, said=f"other.db: {reason}")
    assert other.read_bytes() == before


def test_no_file(work, run):
    writers(run, "nowhere/x.db", status=2, said="nowhere/x.db: cannot be made: No such file or directory")
    readers(run, "nowhere/x.db", status=2, said="nowhere/x.db: No such file or directory")
    writers(run, work, status=2, said="cannot be opened: not a regular file")
    run("rpsweep export best --db good.db", env={"RP_STORE_WAIT_S": "long"}, status=2,
        said="RP_STORE_WAIT_S: 'long' is not valid")


def test_read_only(made, source):
    nobody = []  # root may write everything, so it has to be somebody else
    if os.geteuid() == 0:
        need("setpriv")
        nobody = "setpriv --reuid 65534 --regid 65534 --clear-groups".split()
    with tempfile.TemporaryDirectory() as folder:  # everybody may enter it, unlike pytest's
        work, locked = Path(folder), Path(folder, "locked")
        run = functools.partial(ran, cwd=folder, prefix=nobody)
        shutil.copytree(made, work, dirs_exist_ok=True)
        work.chmod(0o777)
        data = source / "traces/models/qwen3-1.7b.yaml"
        if run("test -x", program("rpsweep"), "-a", "-r", data, status=None).status != 0:
            pytest.skip("nobody else may read the build: read-only stores were not tested")
        locked.mkdir()
        for name in ("good.db", "locked/good.db", "locked/a?b#c%41.db", "readonly.db"):
            shutil.copy(made / "good.db", work / name)
            (work / name).chmod(0o444 if name == "readonly.db" else 0o666)
        (locked / "empty.db").touch()
        locked.chmod(0o555)
        for name, reason in (
            ("readonly.db", "the database is read-only; make the file and its folder writable"),
            ("locked/good.db", "cannot read its version: attempt to write a readonly database: its folder cannot be"
             " written"),
            ("locked/new.db", "cannot be made: Permission denied"),
        ):
            writers(run, name, status=2, said=f"{name}: {reason}")
        for index, name in enumerate(("readonly.db", "locked/good.db", "locked/a?b#c%41.db")):  # reading is enough
            run(f"rpsweep merge --db merged{index}.db", name, said="6 points added")
            best = run("rpsweep export best --db", name).out.splitlines()
            assert [line.split(",")[3] for line in best] == ["schedule", "1f1b", "1f1b", "1f1b"]
        run("rpsweep export best --db locked/empty.db", status=2,
            said="locked/empty.db: the database is empty and cannot be written")
        assert (work / "readonly.db").read_bytes() == (made / "good.db").read_bytes()
        assert len(list(locked.iterdir())) == 3


@contextlib.contextmanager
def held(database, *statements):
    """This process has the lock of a store."""
    with contextlib.closing(sqlite3.connect(database, isolation_level=None)) as holder:
        for statement in statements:
            holder.execute(statement)
        yield
        holder.execute("COMMIT")


def test_locked(work, run):
    before = content("good.db")
    busy = shutil.copy("good.db", "busy.db")
    at_once = functools.partial(run, env={"RP_STORE_WAIT_S": 0})
    with held(busy, "BEGIN EXCLUSIVE"):
        writers(at_once, busy, status=1, said="busy.db: cannot lock it: database is locked by another program for more"
                " than 0 s; wait until it has ended and run this again")
        at_once("rpsweep export best --db busy.db", out="1f1b")  # readers see earlier commits
    with held(busy, "PRAGMA locking_mode = EXCLUSIVE", "BEGIN EXCLUSIVE", "UPDATE runs SET seed = seed WHERE id = 1"):
        writers(at_once, busy, status=1, said="busy.db: cannot")
        readers(at_once, busy, status=1, said="locked by another program")
    assert content(busy) == before
    at_once("rpsweep e.yaml --db busy.db --resume", said="6 were in")
    command = [program("rpsim"), *GPIPE.split()[1:], "--db", busy]
    with held(busy, "BEGIN IMMEDIATE"):
        waiting = subprocess.Popen(command, env={**os.environ, "RP_STORE_WAIT_S": "30"}, stdout=subprocess.DEVNULL)
        time.sleep(0.4)
        assert waiting.poll() is None, "a lock is not waited for"
    assert waiting.wait(60) == 0
    assert count(busy, "runs") == 7


def test_full_disk(work, run):
    before = content("good.db")
    shutil.copy("good.db", "full.db")
    ask(shutil.copy("good.db", "other.db"), "UPDATE experiments SET name = 'other'")
    for command in ("rpsim --schedule gpipe,1f1b,roundpipe --fidelity stage --db-ops", "rpsweep merge other.db"):
        run(command, "--db", "full.db", prefix=["prlimit", "--fsize=40960"], status=1, said="full.db: cannot")
    assert content("full.db") == before
    assert ask("full.db", "PRAGMA integrity_check") == [("ok",)]
    run("sh", "-c", '"$0" export summary --db good.db >/dev/full', program("rpsweep"), status=1, err="standard output")


def test_order_of_runs(work, run):
    """The same rows in any order give the same export."""
    for shard in range(3):
        run(f"rpsweep e.yaml --db part{shard}.db --shard {shard}/3")
    run("rpsweep merge part0.db part1.db part2.db --db up.db")
    run("rpsweep merge part2.db part0.db part1.db --db down.db")
    for view in ("best", "wins", "error_per_cell", "failures"):
        up, down = (run(f"rpsweep export {view} --db {name}.db").out for name in ("up", "down"))
        assert re.sub("(?m)^[0-9]*,", "", up) == re.sub("(?m)^[0-9]*,", "", down), view


def test_documented_queries(run, source):
    """The queries of common/store/README.md run, each in a copy."""
    run(GPIPE + " --db-ops --db runs.db")
    queries = re.findall(r"(?ms)^```sql\n(.*?)^```", (source / "common/store/README.md").read_text())
    assert len(queries) >= 5
    for query in queries:
        ask(shutil.copy("runs.db", "copy.db"), query)
