"""page_test.py BROWSER FOLDER: looks at the pages that page.sh has written into FOLDER."""
import csv
import json
import sys

from browser import Browser

failures = []


def expect(holds, what):
    if not holds:
        failures.append(what)
        print(what)


class Page:
    """The parts of a page that a test reads."""

    def __init__(self, browser):
        self.browser = browser
        self.value = browser.value

    def fact(self, key):
        return self.value(f"document.querySelector('#op [data-key={key}]')?.textContent ?? null")

    def exact(self, key):
        return int(self.value(f"document.querySelector('#op [data-key={key}]').dataset.ps"))

    def selected(self):
        return self.value("document.querySelector('#op h3') === null ? null : Number(document.getElementById('op').dataset.op)")

    def cause(self):
        return self.value("Number(document.querySelector('#op [data-cause]')?.dataset.cause ?? -1)")

    def search(self, text):
        self.value("(document.getElementById('search').focus(), document.getElementById('search').value = '')")
        self.browser.type(text)
        self.browser.key("Enter")
        return self.value("document.getElementById('found').textContent")

    def focus(self):
        self.value("document.getElementById('chart').focus()")

    def picture(self):
        """A hash of the pixels, which changes with the drawing."""
        self.browser.settle()
        return self.value("document.getElementById('lanes').toDataURL().split('').reduce((h, c) => (h * 31 + c.charCodeAt(0)) | 0, 7)")

    def box(self):
        return self.value("(r => ({x: r.x, y: r.y, w: r.width, h: r.height}))(document.getElementById('lanes').getBoundingClientRect())")


def read_timeline(path):
    with open(path) as file:
        return [row for row in csv.DictReader(file)]


def read_name(row):
    name = f"{row['stage']}{row['kind']}{row['microbatch']}"
    return name + (f"@{row['iteration']}" if row["iteration"] != "0" else "")


# ---- a run ----

def check_facts(page, rows):
    """Ops that are found by number and by name: times are the CSV's, to the picosecond."""
    computed = [row for row in rows if row["queue"] == "compute"]
    for row in [computed[0], computed[len(computed) // 2], computed[-1], rows[7], rows[-1]]:
        page.search(row["op"])
        start, end = int(row["start_ps"]), int(row["end_ps"])
        expect(page.selected() == int(row["op"]), f"a search for {row['op']} finds {page.selected()}")
        expect(page.exact("start") == start, f"op {row['op']} starts at {page.exact('start')}, not {start}")
        expect(page.exact("end") == end, f"op {row['op']} ends at {page.exact('end')}, not {end}")
        expect(page.exact("duration") == end - start, f"op {row['op']} takes {page.exact('duration')}")
        where = "host" if row["gpu"] == "host" else f"GPU {row['gpu']}"
        expect(page.fact("where") == f"{where}, {row['queue']}", f"op {row['op']} is on {page.fact('where')}")
        if row["queue"] == "compute":
            expect(page.fact("stage") == row["stage"] and page.fact("microbatch") == row["microbatch"] and
                   page.fact("iteration") == row["iteration"], f"op {row['op']} is {page.fact('stage')}, {page.fact('microbatch')}")
    row = computed[len(computed) // 3]
    same = [each for each in computed if read_name(each) == read_name(row)]
    expect(page.search(read_name(row)) == f"1 of {len(same)} ops", f"{read_name(row)}: {page.search(read_name(row))}")
    expect(str(page.selected()) in [each["op"] for each in same], f"{read_name(row)} is op {page.selected()}")
    ms = f"{int(row['start_ps']) / 1e9:.9f}".rstrip("0").rstrip(".")
    page.search(row["op"])
    expect(page.fact("start") == f"{ms} ms", f"{page.fact('start')} is shown for {ms} ms")


def check_search(page, rows):
    wanted = [row for row in rows if row["gpu"] == "3" and row["kind"] == "B" and row["iteration"] == "1"]
    expect(page.search("gpu:3 kind:B it:1") == f"1 of {len(wanted)} ops", "gpu:3 kind:B it:1: " + page.search("gpu:3 kind:B it:1"))
    expect(str(page.selected()) == min(wanted, key=lambda row: int(row["start_ps"]))["op"], "the first match is not the first in time")
    page.browser.key("Enter")
    expect(str(page.selected()) == sorted(wanted, key=lambda row: int(row["start_ps"]))[1]["op"], "Enter does not go to the next match")
    page.browser.key("Enter", shift=True)
    expect(str(page.selected()) == min(wanted, key=lambda row: int(row["start_ps"]))["op"], "Shift + Enter does not go back")
    expect(page.search("2Q99") == "no op", "what is not there is found: " + page.search("2Q99"))
    expect("there are" in page.search("gpus:1"), "a wrong word is not named: " + page.search("gpus:1"))


def read_waits(path):
    """[op] the ops that it waits for, the op before it in its queue first (the program's text form)."""
    waits, first, inside = [], True, False
    for line in open(path):
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


def check_causes(page, rows, waits):
    """An op's cause is the last of its waits to end, or a transfer that held its copy engine even longer."""
    end = [int(row["end_ps"]) for row in rows]
    kinds = set()
    for op in range(3, len(rows), len(rows) // 30):
        page.search(str(op))
        cause, text = page.cause(), page.fact("cause")
        last = max(waits[op], key=lambda each: end[each], default=-1)
        if text.startswith("its copy engine"):
            expect(end[cause] > end[last] and rows[cause]["gpu"] == rows[op]["gpu"] and end[cause] <= int(rows[op]["start_ps"]),
                   f"op {op} did not wait for {cause} on its copy engine")
        else:
            expect(cause == last, f"op {op} waited for {last}, and the page says {cause}: {text}")
        if cause >= 0:
            expect(f"ended at {end[cause] / 1e9:.9f}".rstrip("0").rstrip(".") + " ms" in text, f"{text}: ended at {end[cause]}")
            page.focus()
            page.browser.key("Enter")
            expect(page.selected() == cause, f"Enter goes to {page.selected()}, not {cause}")
        kinds.add(text.split(" ")[0] if cause < 0 else text.split(" ")[1])
    expect(len(kinds) > 2, f"only causes of {kinds}")


def check_path(page, rows, result):
    """Along the critical path time is contiguous: the ops on it reach from 0 to the end, without a gap between all of them."""
    page.search("path")
    on_path = int(page.value("document.getElementById('found').textContent").split(" of ")[1].split()[0])
    expect(0 < on_path < len(rows), f"{on_path} of {len(rows)} ops are on the critical path")
    last = max(rows, key=lambda row: int(row["end_ps"]))
    page.search(last["op"])
    op, steps = int(last["op"]), 0
    while op >= 0 and steps < 60:
        expect(page.fact("path") == "on it", f"op {op} is not on the critical path, which it ends or leads to")
        op = page.cause()
        page.focus()
        page.browser.key("Enter")
        steps += 1
    expect(steps > 20, f"the path has {steps} ops")


def check_keys(page):
    page.value("document.getElementById('whole').click()")
    whole = page.picture()
    page.focus()
    page.browser.key("+")
    closer = page.picture()
    expect(closer != whole, "+ does not zoom")
    page.browser.key("ArrowRight")
    expect(page.picture() != closer, "the right arrow does not move")
    page.browser.key("ArrowLeft")
    expect(page.picture() == closer, "left does not undo right")
    page.browser.key("-")
    page.browser.key("Home")
    expect(page.picture() == whole, "Home does not show the whole run")
    page.browser.key("/")
    expect(page.value("document.activeElement.id") == "search", "/ does not go to the search")
    expect("/" not in page.value("document.getElementById('search').value"), "/ is typed, too")
    page.search("2F3")
    page.browser.key("Escape")
    expect(page.value("document.activeElement.id") == "chart", "Esc does not leave the search")
    page.browser.key("Escape")
    expect(page.selected() is None, "Esc keeps the selection")
    page.browser.key("ArrowDown")
    first = page.selected()
    page.browser.key("ArrowDown")
    expect(first is not None and page.selected() != first, "the down arrow does not go to the next lane")
    page.browser.key("ArrowUp")
    page.browser.key("ArrowRight", shift=True)
    second = page.selected()
    page.browser.key("ArrowLeft", shift=True)
    expect(second == page.selected() + 1, "Shift + arrows do not go from op to op")


def check_pointer(page):
    """After a search has brought an op to the middle of the plot, the pointer finds it there."""
    page.search("5B2")
    op, cause = page.selected(), page.cause()
    box = page.box()
    gutter = page.value("document.getElementById('lanes').clientWidth < 600 ? 64 : 110")
    x = box["x"] + gutter + (box["w"] - gutter) / 2
    found = None
    for y in range(int(box["y"]) + 30, int(box["y"] + box["h"]), 6):
        page.browser.mouse("mouseMoved", x, y)
        hovered = page.value("document.getElementById('hint').hidden ? null : Number(document.getElementById('hint').dataset.op)")
        if hovered == op and y > box["y"] + 40:
            found = y
            break
    expect(found is not None, f"the pointer does not find op {op}")
    if found is None:
        return
    text = page.value("document.getElementById('hint').textContent")
    for part in ["5B2", "stage 5, microbatch 2, iteration 0", page.fact("start"), page.fact("duration"), page.fact("cause")]:
        expect(part in text, f"the hint does not say '{part}': {text}")
    expect(page.value("Number(document.getElementById('hint').dataset.cause)") == cause, "the hint has another cause")
    page.browser.key("Escape")
    page.browser.click(x, found)
    expect(page.selected() == op, f"a click selects {page.selected()}, not {op}")
    before = page.picture()
    page.browser.drag(x, found, x + 120, found)
    expect(page.picture() != before, "a drag does not move")
    expect(page.selected() == op, "a drag selects")
    page.browser.drag(x, found, x - 120, found)
    expect(page.picture() == before, "a drag back does not move back")
    page.browser.wheel(x, found, -240, control=True)
    expect(page.picture() != before, "Ctrl and the wheel do not zoom")
    page.value("document.activeElement.blur()")
    before = page.picture()
    page.browser.wheel(x, found, 1)
    expect(page.picture() == before, "the wheel alone zooms a timeline that was not clicked")
    page.value("document.getElementById('all-lanes').click()")
    expect(page.picture() != before, "no more lanes")
    page.value("document.getElementById('all-lanes').click()")
    page.value("document.getElementById('path').click()")
    expect(page.picture() != before, "the critical path is not emphasized")


def check_fingers(page):
    box = page.box()
    x, y = box["x"] + box["w"] / 2, box["y"] + box["h"] / 2
    page.value("document.getElementById('whole').click()")
    whole = page.picture()
    page.browser.touch("touchStart", [(x - 20, y), (x + 20, y)])
    for i in range(1, 6):
        page.browser.touch("touchMove", [(x - 20 - 10 * i, y), (x + 20 + 10 * i, y)])
    page.browser.touch("touchEnd", [])
    closer = page.picture()
    expect(closer != whole, "two fingers do not zoom")
    page.browser.touch("touchStart", [(x, y)])
    for i in range(1, 6):
        page.browser.touch("touchMove", [(x - 12 * i, y)])
    page.browser.touch("touchEnd", [])
    expect(page.picture() != closer, "a finger does not move")


def check_memory(page, result):
    text = page.value("document.getElementById('memory-text').textContent")
    peak = result["peak_gpu_bytes"][int(page.value("document.getElementById('place').value"))]
    expect(f"{peak / 1e9:.1f} GB" in text, f"the peak of {peak / 1e9:.1f} GB is not in: {text}")
    expect(text.count(" GB") == 2, f"more than the peak and its limit: {text}")


def check_names(page):
    """Everything that can be operated has a name, ids are unique, and no part is wider than the window."""
    unnamed = page.value("""[...document.querySelectorAll('button, input, select, canvas, [role], [tabindex]')].filter(e => !e.ariaHidden && e.role !== 'alert' &&
        !(e.ariaLabel || e.textContent.trim() || e.closest('label')?.textContent.trim() || document.getElementById(e.getAttribute('aria-labelledby')))
        ).map(e => e.outerHTML.slice(0, 90))""")
    expect(unnamed == [], f"without a name: {unnamed}")
    expect(page.value("new Set([...document.querySelectorAll('[id]')].map(e => e.id)).size === document.querySelectorAll('[id]').length"),
           "ids are not unique")
    expect(page.value("document.documentElement.scrollWidth <= innerWidth"), "the page is wider than the window")


def check_one(browser, folder):
    page = Page(browser)
    rows = read_timeline(f"{folder}/one.csv")
    result = json.load(open(f"{folder}/one.out"))[0]
    waits = read_waits(f"{folder}/one.txt")
    browser.open(f"file://{folder}/one.html")
    expect(page.value("document.getElementById('problem').hidden"), "the page has a problem")
    expect(f"{result['tokens_per_s']:.0f} tokens/s" in page.value("document.getElementById('answer').textContent"), "no answer")
    check_facts(page, rows)
    check_search(page, rows)
    check_causes(page, rows, waits)
    check_path(page, rows, result)
    check_keys(page)
    check_pointer(page)
    check_memory(page, result)
    check_names(page)
    browser.open(f"file://{folder}/one.html#op=1234")
    expect(page.selected() == 1234, f"#op=1234 opens op {page.selected()}")
    browser.resize(390, 844, touch=True)
    browser.open(f"file://{folder}/one.html")
    check_names(page)
    check_fingers(page)
    light = page.picture()
    browser.dark(True)
    expect(page.picture() != light, "the night has the colours of the day")
    browser.dark(False)
    browser.resize(1280, 900)


# ---- others ----

def check_many(browser, folder):
    page = Page(browser)
    results = json.load(open(f"{folder}/many.out"))
    browser.open(f"file://{folder}/many.html")
    names = page.value("[...document.getElementById('run').options].map(o => o.textContent)")
    expect(names == [each["schedule"] for each in results], f"the runs are {names}")
    best = max(results, key=lambda each: each["tokens_per_s"])["schedule"]
    expect(page.value("document.getElementById('run').selectedOptions[0].textContent") == best, "the fastest is not shown first")
    ranked = [each["schedule"] for each in sorted(results, key=lambda each: -each["tokens_per_s"])]
    expect(names != ranked, "the runs are ranked already, so that nothing is tested")
    rows = page.value("[...document.querySelector('table').rows].slice(1).map(row => row.cells[0].textContent.trim())")
    expect(rows == ranked, f"the table of runs has {rows}, not {ranked}")
    for number, result in enumerate(results):
        page.value(f"(c => (c.value = '{number}', c.dispatchEvent(new Event('change'))))(document.getElementById('run'))")
        browser.wait(f"document.querySelector('.table[data-run=\"{number}\"]').hidden === false")
        shown = page.value("[...document.querySelectorAll('.table[data-run]')].filter(t => !t.hidden).map(t => Number(t.dataset.run))")
        expect(set(shown) == {number}, f"run {number} shows the tables of {shown}")
        check_memory(page, result)
    alone = page.picture()
    page.value("(c => (c.value = '0', c.dispatchEvent(new Event('change'))))(document.getElementById('beside'))")
    browser.wait("document.querySelector('.table[data-run=\"0\"]').hidden === false")
    expect(page.picture() != alone, "a second run is not shown")
    expect(f"Fastest of 3: {best}." in page.value("document.getElementById('answer').textContent"), "not the fastest")


def check_stage(browser, folder):
    """At stage fidelity, which does not model memory, there is no curve, and ops wait for hops."""
    page = Page(browser)
    results = json.load(open(f"{folder}/stage.out"))
    browser.open(f"file://{folder}/stage.html")
    expect(page.value("document.getElementById('memory').hidden"), "memory that nobody has modelled")
    cells = page.value("[...document.querySelectorAll('main > .table tbody td')].slice(0, 40).map(c => c.textContent)")
    for result in results:
        expect(result["model"] in cells and f"{result['makespan_ms']:.3f}" in cells, f"{result['model']} is not in {cells}")
    page.search("mb:0 it:0 kind:F stage:1")
    expect(page.fact("cause").startswith("a tensor of 0F0 (GPU "), "the second stage waits for " + page.fact("cause"))
    hop = page.fact("after").split(" ms")[0]
    expect(float(hop) > 0, f"its tensor takes {hop} ms")


def check_pair(browser, folder):
    """Predicted and measured on one axis: the times are those of both timelines, and both have their ops' causes."""
    page = Page(browser)
    sides = [read_timeline(f"{folder}/run/{name}.csv") for name in ("predicted", "timeline")]
    waits = read_waits(f"{folder}/run/program.txt")
    for name in ("exec", "diff"):
        browser.open(f"file://{folder}/{name}.html")
        shown = page.value("['run', 'beside'].map(id => document.getElementById(id).selectedOptions[0].textContent)")
        expect(shown == ["predicted", "measured"], f"{name}: {shown} are shown")
        for number, rows in enumerate(sides):
            end = [int(row["end_ps"]) for row in rows]
            op = len(rows) // 3
            browser.open(f"file://{folder}/{name}.html#run={number}&op={op}")
            expect(page.exact("start") == int(rows[op]["start_ps"]) and page.exact("end") == end[op],
                   f"{name}, {shown[number]}: op {op} at {page.exact('start')}")
            expect(page.cause() == max(waits[op], key=lambda each: end[each]), f"{name}, {shown[number]}: op {op} waited for {page.cause()}")
            other = sides[1 - number][op]
            expect(f"start {int(other['start_ps']) / 1e9:.9f}".rstrip("0").rstrip(".") + " ms" in page.fact("twin"),
                   f"{name}: beside it {page.fact('twin')}")
        check_names(page)
    browser.open(f"file://{folder}/bare.html#run=1&op=5")
    expect(page.fact("cause").startswith("unknown") and page.cause() == -1, "a cause out of nothing: " + page.fact("cause"))


def check_escapes(browser, folder):
    page = Page(browser)
    browser.open(f"file://{folder}/evil.html")
    expect(page.value("typeof window.evil") == "undefined", "a path runs as a script")
    command = page.value("document.querySelector('code').textContent")
    expect("x</script><script>window.evil=1<!--&amp;.yaml" in command, "the path is not shown as it is: " + command)


def main():
    program, folder = sys.argv[1:]
    with Browser(program, 1280, 900) as browser:
        check_one(browser, folder)
        check_many(browser, folder)
        check_stage(browser, folder)
        check_pair(browser, folder)
        check_escapes(browser, folder)
        expect(browser.problems == [], f"the pages complain, or ask for something: {browser.problems}")
    sys.exit(1 if failures else 0)


main()
