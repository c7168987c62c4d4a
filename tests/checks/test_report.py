"""The report (paper-figures/report): a tree of made-up entries, of which one fails; then the page of real READMEs
with two real figures. Release only: it runs no compiled code but rpsim --version.
"""

import os
import re
import shutil
import sys
from pathlib import Path

import pytest

from conftest import BUILD, SOURCE, need, ran
from lib.page import wrong

REPORT = "paper-figures/report"
PICTURE = """<?xml version="1.0"?>
<!DOCTYPE svg>
<svg width="300" height="100"
 xmlns="http://www.w3.org/2000/svg">
<g id="gnuplot_canvas"><title>gnuplot_plot_1</title><g id="gnuplot_canvas"/>
<defs><pattern id='hatch1' width="4" height="4"/></defs><rect fill='url(#hatch1)' width="9"/>
<defs><pattern id='hatch1' width="8" height="8"/></defs><rect fill="url(#hatch1)" width="10"/>
<use xlink:href='#mark' xmlns:xlink="http://www.w3.org/1999/xlink"/><circle id='mark' r="1"/></g>
</svg>
"""
# Differences of +4 and -7 % (mean -1.5), one cell that set a constant, one out of memory on one side.
TABLE = """model,published,ours,difference_pct,set_a_constant
"a, <b>",100,104,4.00,
c,100,93.00000000001,-7.00,
d,100,300,200.00,yes
e,OOM,5,,
"""
STORE = """CREATE TABLE experiments (id INTEGER PRIMARY KEY, name TEXT);
CREATE TABLE points (id INTEGER PRIMARY KEY, experiment_id INTEGER, failure TEXT);
CREATE TABLE runs (id INTEGER PRIMARY KEY, point_id INTEGER);
INSERT INTO experiments VALUES (1, 'my-study'); INSERT INTO points VALUES (1, 1, NULL), (2, 1, 'why');
INSERT INTO runs VALUES (1, 1), (2, 1), (3, NULL);"""
ENTRIES = {  # README.md and make.sh
    "paper-figures/02-good": ("""# Figure 2: a < b & c

Kind: *predicted*. [A file](../published/x.csv), [a page](https://example.org/), ![remote](https://example.org/p.png)
<script>alert(1)</script>

What did not reproduce: the middle of it, and these:

| what | by |
|---|---|
| row of the table | 3 % |

**What the picture shows.** A square of 9 units beside a larger one of 10, both hatched, and
a *circle* after them with `one` "unit".

- `-b`: an item that is not of this picture.

**Method.** Nothing of this paragraph.
""", 'cp picture.svg "$2/02-good.svg"; cp table.csv "$2/02-good.csv"'),
    "paper-figures/02-good-too": ("""# Its longer name

**Question.** Asked?

**Pictures.** Two pictures that look the same and are told apart by name:

- ``: the first of both
  on two lines.
- `-b`: the second of both, which [leads](nowhere) on.

**Result.** First finding.

1. Second finding.

**Files.** Folded away.
""", 'cp picture.svg "$2/02-good-too.svg"; cp picture.svg "$2/02-good-too-b.svg"'),
    "paper-figures/03-bad": ("# Figure 3: fails", "echo 'cause: 1 < 2 & 3' >&2; echo half >\"$2/03-bad.csv\"; exit 3"),
    "experiments/studies/31-study": (
        "# A study", 'sqlite3 "$2/paper.db" <store.sql; seq -f "row,%g" 0 900 >"$2/31-study.csv"'),
    "plots/gallery/41-more": ("# More", 'printf "| x |\\n|---|\\n| of the gallery |\\n" >"$2/41-more.md"'),
    "paper-figures/all": ("# What runs last", 'ls "$2"/*.{csv,md} >"$2/all.md"'),
}
NAMES = [Path(folder).name for folder in ENTRIES]
ON_THE_PAGE = [
    'aria-label="Figure 2: a &lt; b &amp; c. A square of 9 units beside a larger one of 10, both hatched, and a circle '
    'after them with one &quot;unit&quot;."',
    'same and are told apart by name: the first of both on two lines."',
    'told apart by name: the second of both, which leads on."',
    '<a href="02-good.csv">', '<a class="permalink" href="#02-good"', '<a href="https://arxiv.org/abs/2604.27085">',
    "exit status 3", "cause: 1 &lt; 2 &amp; 3", "Figure 2: a &lt; b &amp; c",
    '<td class="n">2</td><td class="n">-1.50 %</td>',
    '<td class="n">-7.00 %</td><td>1 set a constant; 1 out of memory on one side only</td>', "a, &lt;b&gt;",
    "the middle of it", "row of the table", "The first 400 rows:", "of the gallery", "41-more.md",
    '<td>my-study</td><td class="n">2</td><td class="n">1</td>', 'href="https://example.org/"', 'viewBox="0 0 300 100"',
]
ERRORS = [
    ("</nav>", ""), ('href="02-good.csv"', 'href="02-bad.csv"'),
    ('aria-label="Figure 2[^"]*"', 'aria-label="Figure 2"'),
    (' id="31-study"', ' id="41-more"'), ("<h1>", '<h1><img src="http://x/y" />'), ('href="#all"', 'href="#nobody"'),
    (r"url\(#02-good-hatch1-2\)", "url(http://x)"), ("<h1>", "<script></script><h1>"),
]


def report(*words, **expected):
    return ran(sys.executable, REPORT, *words, **expected)


@pytest.fixture(scope="module", autouse=True)
def made(shared):
    """What the report says when one entry fails."""
    need("sqlite3", "cmark-gfm")
    Path("bin").mkdir()
    shutil.copytree(SOURCE / REPORT, REPORT)
    for folder, (readme, body) in ENTRIES.items():
        os.makedirs(folder)
        Path(folder, "README.md").write_text(readme + "\n")
        Path(folder, "make.sh").write_text(body + "\n")
    for file, text in ("picture.svg", PICTURE), ("table.csv", TABLE), ("store.sql", STORE):
        Path(file).write_text(text)
    said = report("bin", "out", status=1).said
    assert re.search("(?m)failed: 03-bad$", said)
    return Path("out/index.html").read_text()


def test_page(made):
    assert not wrong("out/index.html")
    for text in ON_THE_PAGE + [f'<section class="entry" id="{name}">' for name in NAMES] + [
            f'<a href="#{name}">' for name in NAMES]:
        assert text in made
    assert "<td>half" not in made, "a failed entry has left it"
    assert made.count("<svg") == 3
    assert len(re.findall("(?m)^.*Nothing of this paragraph.*$", made)) == 1, "this did reproduce"
    # Findings before the picture, the rest folded after it; alternative texts of the right paragraph.
    section = re.search('(?s)<section class="entry" id="02-good-too">.*?</section>', made)[0]
    assert re.findall('Asked|First finding|Second finding|<svg|<details class="method">|Folded away', section) == [
        "Asked", "First finding", "Second finding", "<svg", "<svg", '<details class="method">', "Folded away"]
    # The second rectangle of each picture has the second pattern, and not the first of that name.
    for name in ("02-good", "02-good-too", "02-good-too-b"):
        assert f'<pattern id="{name}-hatch1-2" width="8"' in made
        assert f'<rect fill="url(#{name}-hatch1-2)" width="10"' in made


@pytest.mark.parametrize("old, new", ERRORS)
def test_errors_are_seen(made, old, new):
    damaged, count = re.subn(old, new, made)
    assert count
    Path("out/wrong.html").write_text(damaged)
    assert wrong("out/wrong.html")


def test_runs_again(made):
    bad = Path("paper-figures/03-bad/make.sh")
    # Mended: the store and everything else are made anew.
    bad.write_text('touch "$2/03-bad.csv"; [ ! -e "$2/paper.db" ]\n')
    report("bin", "out")
    assert 'class="failed"' in made and 'class="failed"' not in Path("out/index.html").read_text()
    # Interrupted: no page, whole or half, is left.
    bad.write_text("kill -TERM $PPID\n")
    assert report("bin", "out", status=None).status != 0
    assert not [name for name in os.listdir("out") if "index" in name]


def test_bad_use():
    """A folder with something else in it is left alone."""
    Path("other").mkdir()
    Path("other/precious").touch()
    report("bin", "other", status=2)
    assert os.listdir("other") == ["precious"]
    report("bin", status=2)


def test_real_tree(run):
    """Every README and the pictures of two formulas; what has not run is said to be missing."""
    Path("logs").mkdir()
    for name in ("02-recompute-or-reload", "05-intensity"):
        run("bash", SOURCE / f"paper-figures/{name}/make.sh", BUILD, Path.cwd())
        Path(f"logs/{name}.status").write_text("0 0\n")
    run(sys.executable, SOURCE / REPORT, "--assemble", BUILD, Path.cwd(), status=1)
    assert not wrong("index.html")
    page = Path("index.html").read_text()
    scripts = [script for place in ("paper-figures", "experiments/studies", "plots/gallery")
               for script in (SOURCE / place).glob("*/make.sh")]
    assert len(scripts) > 20
    for script in scripts:
        assert f'<section class="entry" id="{script.parent.name}">' in page
    assert "its make.sh has not run" in page
    assert "not said" not in page, "a README does not name the kind of its figure"
