"""rpsweep report: the page of a small store has the varied parameters, the best points with the store's numbers and a
picture for each parameter; bad input leaves nothing. Release only: sanitizers see rpsweep in checks.rpsweep.
"""

import os
import re
import shutil
from pathlib import Path

import pytest

from conftest import SOURCE, need, ran
from lib.page import wrong
from lib.store import ask

EXPERIMENT = """name: small
question: Which schedule scales?
options: {fidelity: stage}
cross: {schedule: [gpipe, 1f1b, roundpipe], gpus: [1, 2, 4], microbatches: [8, 16]}
"""
DRAWN = 3 if shutil.which("gnuplot") else 0


def page(name):
    """A page, which is well-formed as those of the paper are."""
    assert not wrong(name)
    return Path(name).read_text()


@pytest.fixture(scope="module", autouse=True)
def store(shared):
    Path("e.yaml").write_text(EXPERIMENT)
    ran("rpsweep e.yaml --db s.db", said="18 run")
    ran("rpsweep report s.db", said=f"s.html: 18 runs, 3 parameters that varied, {DRAWN} pictures")
    assert sorted(os.listdir()) == ["e.yaml", "s.db", "s.html"]


def test_page():
    text = page("s.html")
    # A section for each varied parameter, and for nothing that follows from these.
    assert re.findall('id="by-([a-z_]*)"', text) == ["schedule", "gpus", "microbatches"]
    assert "schedule (3), gpus (3), microbatches (2); given by these: " in text
    assert "Which schedule scales?" in text
    # The table of the best has the store's numbers, all digits, in order.
    shown = re.findall('(?m)^<tr><td class="n" data-value="([^"]*)">', text)
    stored = ask("s.db", "SELECT tokens_per_s FROM summary ORDER BY tokens_per_s DESC")
    assert len(shown) == 18 and [f"{float(value):.15g}" for value in shown] == [f"{value:.15g}" for value, in stored]


def test_pictures():
    need("gnuplot")
    text = page("s.html")
    # A picture's text has its lines' ends, the best over the parameters that it does not show.
    pictures = re.findall('(?m)^.*alt="tokens per second against gpus, by schedule.*', text)
    ends = ask("s.db", """SELECT printf('%s: %.0f at 1, %.0f at 4;', schedule,
        max(tokens_per_s) FILTER (WHERE gpus = 1), max(tokens_per_s) FILTER (WHERE gpus = 4))
        FROM summary GROUP BY schedule""")
    assert len(ends) == 3 and all(any(end in picture for picture in pictures) for end, in ends)
    assert not re.search('<img src="data:image/svg[+]xml,[^"]*<', text), "a picture is not encoded"
    assert len(re.findall('(?:src|srcset)="data:image/svg[+]xml,[^"]{4000,}"', text)) == 6


def test_without_gnuplot():
    """The page says so; on stdout it is the same."""
    Path("bin").mkdir()
    env = {"PATH": Path("bin").resolve()}
    ran("rpsweep report s.db --html-out none.html", env=env, said="gnuplot is missing (package gnuplot-nox)")
    text = page("none.html")
    assert "<img" not in text and "Without pictures:" in text
    assert ran("rpsweep report s.db --html-out -", env=env).out == text


def test_text_of_the_store():
    """Text from a store stays text, for HTML as for gnuplot."""
    ask(shutil.copy("s.db", "evil.db"),
        """UPDATE experiments SET question = '<script>alert(1)</script> & "x"'""",
        """UPDATE runs SET config_json = json_set(config_json, '$.schedule',
            char(10) || '''; system "touch made"; `touch made` <b>') WHERE schedule = 'gpipe'""",
        """UPDATE runs SET config_json = json_set(config_json, '$.a"b', id)""")
    ran("rpsweep report evil.db", said="evil.html: 18 runs")
    page("evil.html")
    assert not os.path.exists("made"), "a name in the store has run as a command"


def test_few_runs():
    Path("one.yaml").write_text("name: one\noptions: {schedule: gpipe, fidelity: stage}\n")
    ran("rpsweep one.yaml --db one.db", said="1 run")
    ran("rpsweep report one.db", said="1 run, 0 parameters that varied, 0 pictures")
    page("one.html")
    ask(shutil.copy("s.db", "unfit.db"), "UPDATE results SET fits = (schedule <> 'roundpipe')")
    ran("rpsweep report unfit.db", said="unfit.html")
    text = page("unfit.html")  # points that do not fit are not among the best
    assert "<td>roundpipe</td>" not in text and "6 do not fit into memory" in text


def test_bad_input():
    before, files = Path("s.db").read_bytes(), set(Path().glob("*.html"))
    for command, said in (
        ("report nowhere.db", "No such file or directory"),
        ("report", "expected one store"),
        ("report s.db one.db", "expected one store"),
        ("export summary --db s.db --html-out x.html", "valid with report"),
        ("report s.db --db one.db", "without --db"),
        ("report s.db --jobs 2", "not with export, merge, reference or report"),
        ("report s.db --html-out ./s.db", "is the store itself"),
        ("report s.db --html-out nowhere/x.html", "nowhere"),
        ("report e.yaml", "not a database"),
    ):
        ran("rpsweep " + command, status=2, said=said)
    ran("rpsweep reference --db empty.db --cell gpus=8,platform=rtx4090x8",
        SOURCE / "paper-figures/published/throughput_4090.csv", said="values in")
    ran("rpsweep report empty.db", status=2, said="there is no run in it")
    assert set(Path().glob("*.html")) == files and Path("s.db").read_bytes() == before
