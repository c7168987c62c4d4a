"""The documentation site builds without a warning, has no dead link, loads nothing from a network, can be searched, and
has the options of all programs; a dead link and a script from elsewhere are found. Release only: pages are no program.
"""

import json
import re
import shutil
import sys
from pathlib import Path

import pytest

from conftest import LONG, PROGRAMS, SOURCE, ran

QUICKSTART = "docs/quickstart.html"


@pytest.fixture(scope="module", autouse=True)
def site(shared):
    done = ran("bash", SOURCE / "docs/site/make.sh", "site", status=None)
    if done.status == 77:
        pytest.skip(done.err.strip().removeprefix("docs-site: "))
    assert done.status == 0, str(done)
    return shared / "site/html"


def test_options(site):
    pages = {program: (site / f"docs/generated/{program}.html").read_text() for program in PROGRAMS}
    assert all("<code>-h, --help</code>" in page for page in pages.values())
    # Options keep all their values, and tables no backslash before a bar.
    assert re.search("<code>--format table&#124;json[^<]*</code>", pages["rpsim"])
    assert not [page for page in site.rglob("*.html") if re.search(r"<code>[^<\n]*\\\|", page.read_text())]


def test_search(site, request):
    found = {entry["location"] for entry in json.loads((site / "search/search_index.json").read_text())["docs"]
             if "--max-seqlen" in entry["text"] or "bubble" in entry["text"]}
    assert {"docs/generated/rpsim.html#work", "docs/glossary.html#idle-time"} <= found and len(found) >= 5
    if LONG and shutil.which("chromium"):  # also from pages that are opened as files
        browser = request.getfixturevalue("browser")
        browser.open(f"file://{site}/{QUICKSTART}?q=bubble", ready="/^[1-9][0-9]* matching documents$/.test("
                     "document.querySelector('.md-search-result__meta')?.textContent.trim())")


def test_dead_links(site):
    targets = ("nowhere.html", "glossary.html#nowhere", "https://example.org/x.js")
    page = site / QUICKSTART
    text = page.read_text()
    page.write_text(text + '<a href="{}">\n<a href="{}">\n<script src="{}">\n'.format(*targets))
    said = ran(sys.executable, SOURCE / "docs/site/links.py", site, status=1, said=" 3 of them wrong").said
    for number, target in enumerate(targets, 1 + text.count("\n")):
        assert f"{QUICKSTART}:{number}: {target}: " in said
