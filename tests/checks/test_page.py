"""Pages of --html-out in headless Chromium: what they show, by search, pointer, finger and keys, and that they ask for
nothing from outside. Release only: pages of sanitized programs are the same, and unit.common_page writes them.
"""

import csv
import json
import re
import shutil
from pathlib import Path

import pytest

from conftest import SOURCE, ran

EVIL = "x</script><script>window.evil=1<!--&amp;.yaml"  # a path that would end the script and begin another one
TRAIN = "rpexec --backend host --schedule 1f1b --gpus 2 --seq-len 16 "
TWO = "rpdiff run/predicted.csv run"


@pytest.fixture(scope="module", autouse=True)
def made(shared):
    def write(command, name=None):
        Path(name or "said").write_text(ran(command + (" --format json" if name else "")).out)

    # With its timeline and its program, so that the page is compared with them.
    write("rpsim --schedule roundpipe --gpus 8 --iterations 3 --intervals off --html-out one.html"
          " --timeline-out one.csv --program-out one.txt", "one.out")
    write("rpsim --schedule gpipe,1f1b,roundpipe --gpus 4 --iterations 2 --intervals off --html-out many.html",
          "many.out")
    write("rpsim --schedule roundpipe --gpus 4 --fidelity stage --model qwen3-1.7b,llama3.1-8b --html-out stage.html",
          "stage.out")
    Path(EVIL).parent.mkdir()
    shutil.copy(SOURCE / "traces/platforms/rtx4090x8.yaml", EVIL)
    ran("rpsim --schedule 1f1b --gpus 2 --iterations 2 --intervals off --html-out evil.html --platform", EVIL)
    # A measured run, and its prediction beside it.
    write(TRAIN + "--steps 3 --record costs")
    write(TRAIN + "--steps 2 --costs costs --predict --record run --html-out exec.html")
    write(TWO + " --html-out diff.html")
    write(TWO + "/timeline.csv --html-out bare.html")


def test_files():
    ran("rpsim --schedule roundpipe --gpus 8 --html-out default.html")
    assert Path("default.html").stat().st_size < 2_000_000
    # Each recompute mode of a ranking has ranks of its own, and a table.
    ran("rpsim --schedule all --gpus 2 --microbatches 2 --fidelity stage --html-out all.html")
    page = Path("all.html").read_text()
    assert re.findall("<h2>Runs(?:: recompute (wait|early)<)?", page) in (["wait", "early"], ["early", "wait"])
    ranks = [re.findall(r'(?m)^<tr><td class="n">(\d+)<', table) for table in page.split("<tbody>")[1:]]
    assert sum(map(len, ranks)) > 20
    assert all(table == sorted(table, key=int) for table in ranks)


@pytest.mark.parametrize("status, reason, command", [
    (2, "cannot be written", "rpsim --schedule gpipe --gpus 2 --html-out no/such/page.html"),
    (2, "cannot be written", TRAIN + "--steps 1 --html-out no/such/page.html"),
    (2, "cannot be written", "rpdiff run run --trace-out never.html.json --html-out no/such/page.html"),
    (2, "with two timelines only", "rpdiff runs.db --html-out never.html"),
    (1, "No space left", "rpsim --schedule gpipe --gpus 2 --html-out /dev/full"),
    (2, "valid are up to 64", "rpsim --schedule all --recompute all --model qwen3-1.7b,llama3.1-8b --intervals off"
     " --html-out never.html"),
])
def test_no_output(status, reason, command):
    """An output that cannot be written is no output."""
    ran(command, status=status, said=reason)
    assert not list(Path().glob("never.html*")) and not Path("no").exists()


class Page:
    """The parts of a page that a test reads."""

    def __init__(self, browser):
        self.browser = browser
        self.value = browser.value

    def open(self, name):
        self.browser.open(f"file://{Path.cwd()}/{name}")
        return self

    def fact(self, key):
        return self.value(f"document.querySelector('#op [data-key={key}]')?.textContent ?? null")

    def exact(self, key):
        return int(self.value(f"document.querySelector('#op [data-key={key}]').dataset.ps"))

    def part(self, name, member):
        return self.value(f"document.getElementById('{name}').{member}")

    def selected(self):
        return self.value("document.querySelector('#op h3') === null ? null"
                          " : Number(document.getElementById('op').dataset.op)")

    def cause(self):
        return self.value("Number(document.querySelector('#op [data-cause]')?.dataset.cause ?? -1)")

    def search(self, text):
        self.value("(document.getElementById('search').focus(), document.getElementById('search').value = '')")
        self.browser.type(str(text))
        self.browser.key("Enter")
        return self.part("found", "textContent")

    def follow_cause(self):
        self.part("chart", "focus()")
        self.browser.key("Enter")

    def choose(self, name, run):
        self.part(name, f"value = '{run}'")
        self.part(name, "dispatchEvent(new Event('change'))")
        self.browser.wait(f"document.querySelector('.table[data-run=\"{run}\"]').hidden === false")

    def picture(self):
        """A hash of the pixels: what is drawn has changed where it has."""
        self.browser.settle()
        return self.value("document.getElementById('lanes').toDataURL().split('')"
                          ".reduce((h, c) => (h * 31 + c.charCodeAt(0)) | 0, 7)")

    def box(self):
        return self.value("(r => [r.x, r.y, r.width, r.height])"
                          "(document.getElementById('lanes').getBoundingClientRect())")

    def has_names(self):
        """Everything that can be operated has a name, ids are unique, and no part is wider than the window."""
        unnamed = self.value("""[...document.querySelectorAll('button, input, select, canvas, [role], [tabindex]')]
            .filter(e => !e.ariaHidden && e.role !== 'alert' && !(e.ariaLabel || e.textContent.trim() ||
                e.closest('label')?.textContent.trim() || document.getElementById(e.getAttribute('aria-labelledby'))))
            .map(e => e.outerHTML.slice(0, 90))""")
        assert unnamed == []
        ids = self.value("[...document.querySelectorAll('[id]')].map(e => e.id)")
        assert len(set(ids)) == len(ids) > 0
        assert self.value("document.documentElement.scrollWidth <= innerWidth")

    def has_memory(self, result):
        text = self.part("memory-text", "textContent")
        peak = result["peak_gpu_bytes"][int(self.part("place", "value"))]
        assert f"{peak / 1e9:.1f} GB" in text
        assert text.count(" GB") == 2, "the peak and its limit"


def timeline(path):
    with open(path, encoding="utf-8") as file:
        return [{key: int(value) if key.endswith("_ps") else value for key, value in row.items()}
                for row in csv.DictReader(file)]


def results(path):
    return json.loads(Path(path).read_text())


def name_of(row):
    name = f"{row['stage']}{row['kind']}{row['microbatch']}"
    return name + (f"@{row['iteration']}" if row["iteration"] != "0" else "")


def ms(picoseconds):
    return f"{picoseconds / 1e9:.9f}".rstrip("0").rstrip(".") + " ms"


def waits_of(path):
    """[op] the ops that it waits for, the op before it in its queue first (the program's text form)."""
    waits, first, inside = [], True, False
    for line in Path(path).read_text().splitlines():
        words = line.split()
        if words[0] == "queue":
            first = inside = True
        elif words[0] == "buffer":
            break
        elif inside:
            before = [] if first else [len(waits) - 1]
            after = [int(word) for i, word in enumerate(words) if word.isdigit() and words[i - 1] != "bytes"]
            waits.append(before + sorted(after))
            first = False
    return waits


# ---- one run


@pytest.fixture
def page(browser):
    yield Page(browser)
    assert browser.problems == [], "the page complains, or asks for something"


@pytest.fixture
def one(page):
    return page.open("one.html")


@pytest.fixture(scope="module")
def rows(made):
    return timeline("one.csv")


def test_answer(one):
    [result] = results("one.out")
    assert one.part("problem", "hidden")
    assert f"{result['tokens_per_s']:.0f} tokens/s" in one.part("answer", "textContent")
    one.has_memory(result)
    one.has_names()
    assert one.open("one.html#op=1234").selected() == 1234


def test_facts(one, rows):
    """Ops that are found by number and by name: times are the CSV's, to the picosecond."""
    computed = [row for row in rows if row["queue"] == "compute"]
    for row in [computed[0], computed[len(computed) // 2], computed[-1], rows[7], rows[-1]]:
        one.search(row["op"])
        start, end = row["start_ps"], row["end_ps"]
        assert one.selected() == int(row["op"])
        assert [one.exact(key) for key in ("start", "end", "duration")] == [start, end, end - start]
        where = "host" if row["gpu"] == "host" else f"GPU {row['gpu']}"
        assert one.fact("where") == f"{where}, {row['queue']}"
        if row["queue"] == "compute":
            assert all(one.fact(key) == row[key] for key in ("stage", "microbatch", "iteration"))
    row = computed[len(computed) // 3]
    same = [each["op"] for each in computed if name_of(each) == name_of(row)]
    assert one.search(name_of(row)) == f"1 of {len(same)} ops"
    assert str(one.selected()) in same
    one.search(row["op"])
    assert one.fact("start") == ms(row["start_ps"])


def test_search(one, rows):
    wanted = [row for row in rows if (row["gpu"], row["kind"], row["iteration"]) == ("3", "B", "1")]
    wanted = [int(row["op"]) for row in sorted(wanted, key=lambda row: row["start_ps"])]
    assert one.search("gpu:3 kind:B it:1") == f"1 of {len(wanted)} ops"
    assert one.selected() == wanted[0], "the first in time"
    one.browser.key("Enter")
    assert one.selected() == wanted[1]
    one.browser.key("Enter", shift=True)
    assert one.selected() == wanted[0]
    assert one.search("2Q99") == "no op"
    assert "there are" in one.search("gpus:1"), "a wrong word is not named"


def test_causes(one, rows):
    """What an op waited for is the last of its waits to end, or a transfer that held its copy engine even longer."""
    waits, end = waits_of("one.txt"), [row["end_ps"] for row in rows]
    kinds = set()
    for op in range(3, len(rows), len(rows) // 30):
        one.search(op)
        cause, text = one.cause(), one.fact("cause")
        last = max(waits[op], key=lambda each: end[each], default=-1)
        if text.startswith("its copy engine"):
            assert end[last] < end[cause] <= rows[op]["start_ps"] and rows[cause]["gpu"] == rows[op]["gpu"]
        else:
            assert cause == last, text
        if cause >= 0:
            assert f"ended at {ms(end[cause])}" in text
            one.follow_cause()
            assert one.selected() == cause
        kinds.add(text.split(" ")[0] if cause < 0 else text.split(" ")[1])
    assert len(kinds) > 2


def test_critical_path(one, rows):
    """Each op on it, from the last one of the run backwards, has its cause on it, too."""
    on_path = int(one.search("path").split(" of ")[1].split()[0])
    assert 0 < on_path < len(rows)
    op, steps = int(max(rows, key=lambda row: row["end_ps"])["op"]), 0
    one.search(op)
    while op >= 0 and steps < 60:
        assert one.fact("path") == "on it", f"op {op}"
        op = one.cause()
        one.follow_cause()
        steps += 1
    assert steps > 20


def test_keys(one):
    key = one.browser.key
    one.part("whole", "click()")
    whole = one.picture()
    one.part("chart", "focus()")
    key("+")
    closer = one.picture()
    assert closer != whole
    key("ArrowRight")
    assert one.picture() != closer
    key("ArrowLeft")
    assert one.picture() == closer
    key("-")
    key("Home")
    assert one.picture() == whole
    key("/")
    assert one.value("document.activeElement.id") == "search"
    assert "/" not in one.part("search", "value")
    one.search("2F3")
    key("Escape")
    assert one.value("document.activeElement.id") == "chart", "Esc does not leave the search"
    key("Escape")
    assert one.selected() is None
    key("ArrowDown")
    first = one.selected()
    key("ArrowDown")
    assert first is not None and one.selected() != first, "the down arrow does not go to the next lane"
    key("ArrowUp")
    key("ArrowRight", shift=True)
    second = one.selected()
    key("ArrowLeft", shift=True)
    assert second == one.selected() + 1, "Shift + arrows do not go from op to op"


def test_pointer(one):
    """It finds the op in the middle of the plot, after a search has brought it there."""
    browser = one.browser
    one.search("5B2")
    op, cause = one.selected(), one.cause()
    left, top, width, height = one.box()
    gutter = one.value("document.getElementById('lanes').clientWidth < 600 ? 64 : 110")
    x = left + gutter + (width - gutter) / 2
    for y in range(int(top) + 42, int(top + height), 6):
        browser.mouse("mouseMoved", x, y)
        if not one.part("hint", "hidden") and int(one.part("hint", "dataset.op")) == op:
            break
    else:
        pytest.fail(f"the pointer does not find op {op}")
    text = one.part("hint", "textContent")
    for part in ("5B2", "stage 5, microbatch 2, iteration 0", *map(one.fact, ("start", "duration", "cause"))):
        assert part in text
    assert int(one.part("hint", "dataset.cause")) == cause
    browser.key("Escape")
    browser.click(x, y)
    assert one.selected() == op
    before = one.picture()
    browser.drag(x, y, x + 120, y)
    assert one.picture() != before
    assert one.selected() == op, "a drag selects"
    browser.drag(x, y, x - 120, y)
    assert one.picture() == before
    browser.wheel(x, y, -240, control=True)
    assert one.picture() != before, "Ctrl and the wheel do not zoom"
    one.value("document.activeElement.blur()")
    before = one.picture()
    browser.wheel(x, y, 1)
    assert one.picture() == before, "the wheel alone zooms a timeline that was not clicked"
    one.part("all-lanes", "click()")
    assert one.picture() != before
    one.part("all-lanes", "click()")
    one.part("path", "click()")
    assert one.picture() != before, "the critical path is not emphasized"


def test_phone(page):
    """Fingers, and the colours of the night."""
    browser = page.browser
    browser.resize(390, 844, touch=True)
    page.open("one.html").has_names()
    left, top, width, height = page.box()
    x, y = left + width / 2, top + height / 2
    page.part("whole", "click()")
    whole = page.picture()
    browser.touch("touchStart", [(x - 20, y), (x + 20, y)])
    for i in range(1, 6):
        browser.touch("touchMove", [(x - 20 - 10 * i, y), (x + 20 + 10 * i, y)])
    browser.touch("touchEnd", [])
    closer = page.picture()
    assert closer != whole, "two fingers do not zoom"
    browser.touch("touchStart", [(x, y)])
    for i in range(1, 6):
        browser.touch("touchMove", [(x - 12 * i, y)])
    browser.touch("touchEnd", [])
    light = page.picture()
    assert light != closer, "a finger does not move"
    browser.dark(True)
    assert page.picture() != light
    browser.dark(False)
    browser.resize(1280, 900)


# ---- others


def test_many(page):
    found = results("many.out")
    page.open("many.html")
    names = page.value("[...document.getElementById('run').options].map(o => o.textContent)")
    ranked = [each["schedule"] for each in sorted(found, key=lambda each: -each["tokens_per_s"])]
    assert names == [each["schedule"] for each in found]
    assert names != ranked, "nothing is tested"
    assert page.part("run", "selectedOptions[0].textContent") == ranked[0]
    rows = page.value("[...document.querySelector('table').rows].slice(1).map(row => row.cells[0].textContent.trim())")
    assert rows == ranked
    for number, result in enumerate(found):
        page.choose("run", number)
        shown = page.value("[...document.querySelectorAll('.table[data-run]')].filter(t => !t.hidden)"
                           ".map(t => Number(t.dataset.run))")
        assert set(shown) == {number}
        page.has_memory(result)
    alone = page.picture()
    page.choose("beside", 0)
    assert page.picture() != alone
    assert f"Fastest of 3: {ranked[0]}." in page.part("answer", "textContent")


def test_stage(page):
    """At stage fidelity, where memory is not modelled, there is no curve, and hops are waited for."""
    page.open("stage.html")
    assert page.part("memory", "hidden")
    cells = page.value("[...document.querySelectorAll('main > .table tbody td')].slice(0, 40).map(c => c.textContent)")
    for result in results("stage.out"):
        assert result["model"] in cells and f"{result['makespan_ms']:.3f}" in cells
    page.search("mb:0 it:0 kind:F stage:1")
    assert page.fact("cause").startswith("a tensor of 0F0 (GPU ")
    assert float(page.fact("after").split(" ms")[0]) > 0


def test_pair(page):
    """Predicted and measured on one axis: times are those of both timelines, and both know what ops waited for."""
    sides = [timeline(f"run/{name}.csv") for name in ("predicted", "timeline")]
    waits = waits_of("run/program.txt")
    for name in ("exec", "diff"):
        page.open(f"{name}.html")
        shown = [page.part(part, "selectedOptions[0].textContent") for part in ("run", "beside")]
        assert shown == ["predicted", "measured"]
        for number, rows in enumerate(sides):
            op, end = len(rows) // 3, [row["end_ps"] for row in rows]
            page.open(f"{name}.html#run={number}&op={op}")
            assert (page.exact("start"), page.exact("end")) == (rows[op]["start_ps"], end[op])
            assert page.cause() == max(waits[op], key=lambda each: end[each])
            assert f"start {ms(sides[1 - number][op]['start_ps'])}" in page.fact("twin")
        page.has_names()
    page.open("bare.html#run=1&op=5")
    assert page.fact("cause").startswith("unknown") and page.cause() == -1, "a cause out of nothing"


def test_escapes(page):
    page.open("evil.html")
    assert page.value("typeof window.evil") == "undefined", "a path runs as a script"
    assert EVIL in page.value("document.querySelector('code').textContent")
