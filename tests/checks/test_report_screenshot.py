"""The report in headless Chromium, on a phone and on a desktop: it is drawn, no part makes the page itself scroll
sideways, every text can be read, the summary comes first, methods are folded, it has a dark form, and it prints.
Release only: see test_report.py.
"""

import base64
import shutil
import struct
import sys
from pathlib import Path

import pytest

from conftest import BUILD, SOURCE, need, ran

# Where the part that is to be read first ends, and how much is unfolded; then, with all tables open, how wide the page
# is, and how large the smallest text of the page and of each picture is.
MEASURE = """(() => {
    const scale = t => { const m = t.getScreenCTM(); return Math.hypot(m.c, m.d); };
    const height = t => parseFloat(getComputedStyle(t).fontSize) * (t.ownerSVGElement ? scale(t) : 1);
    const shown = t => t.textContent.trim() !== "" && t.checkVisibility() && t.getBoundingClientRect().width > 0;
    const least = list => Math.min(99, ...[...list].filter(shown).map(height));
    const all = query => [...document.querySelectorAll(query)];
    const sizes = {
        open: all("details").filter(d => d.open).length,
        sentences: all(".sentences li").length,
        bottom: document.querySelector(".sentences").getBoundingClientRect().bottom,
    };
    all("details").forEach(d => d.open = true);
    return {...sizes, window: innerWidth, width: document.documentElement.scrollWidth,
        text: least(all("p, li, td, th, figcaption, a, summary")),
        background: getComputedStyle(document.body).backgroundColor,
        pictures: all("svg").filter(s => s.getBoundingClientRect().width > 0)
            .map(s => least(s.querySelectorAll("text")))};
})()"""


@pytest.fixture(scope="module")
def page(shared, browser):
    need("sqlite3", "cmark-gfm", "gnuplot")
    Path("logs").mkdir()
    for name in ("02-recompute-or-reload", "05-intensity"):
        ran("bash", SOURCE / f"paper-figures/{name}/make.sh", BUILD, shared)
        Path(f"logs/{name}.status").write_text("0 0\n")
    ran(sys.executable, SOURCE / "paper-figures/report", "--assemble", BUILD, shared, status=None)

    def opened(width, height, dark=False):
        browser.resize(width, height)
        browser.dark(dark)
        browser.open(f"file://{shared}/index.html", ready="document.readyState === 'complete'")
        return browser
    return opened


@pytest.mark.parametrize("width, height, dark", [(390, 844, False), (1280, 800, False), (390, 844, True)])
def test_screen(page, width, height, dark):
    browser = page(width, height, dark)
    browser.picture("screen.png")
    picture = Path("screen.png").read_bytes()
    assert struct.unpack(">II", picture[16:24]) == (width, height)
    assert len(picture) > 20000, "nothing is drawn"
    sizes = browser.value(MEASURE)
    assert sizes["width"] <= sizes["window"] == width
    assert sizes["text"] >= 11
    assert sizes["sentences"] == 3 and sizes["bottom"] <= height
    assert sizes["open"] == 0
    assert (sizes["background"] == "rgb(255, 255, 255)") != dark
    assert len(sizes["pictures"]) == 2 and min(sizes["pictures"]) >= (10.95 if width < 500 else 10)
    assert browser.problems == []


def test_print(page):
    pdf = page(1280, 800).call("Page.printToPDF")["data"]
    Path("page.pdf").write_bytes(base64.b64decode(pdf))
    assert Path("page.pdf").read_bytes().startswith(b"%PDF-")
    if shutil.which("pdftotext"):
        assert "What did not reproduce" in ran("pdftotext page.pdf -").out
