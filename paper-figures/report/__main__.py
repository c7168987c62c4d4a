"""python3 paper-figures/report BINDIR OUTDIR: every entry from an empty store, then one self-contained page,
OUTDIR/index.html. An entry is a folder with a make.sh in one of the places below; none is named here. If one fails, the
others go on: the page says so, and the status is 1.
python3 paper-figures/report --assemble BINDIR OUTDIR: only the page, from the files in OUTDIR.
"""

import csv
import datetime
import hashlib
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import time
from html import escape as escape_quotes
from pathlib import Path

import readme
import summary
import svg

PARTS = Path(__file__).resolve().parent
PAPER, ROOT = PARTS.parent, PARTS.parent.parent
# Entries of these places, with the heading of their section and its short form; a place may be missing.
PLACES = [(PAPER, "Figures of the paper", "Figures"),
          (ROOT / "experiments/studies", "Studies that nobody has published", "Studies"),
          (ROOT / "plots/gallery", "Further pictures", "Pictures")]
ROWS = 400  # of a table
RUNS = """SELECT coalesce(e.name, '(runs of no experiment)') AS experiment, count(DISTINCT r.id) AS runs,
    count(DISTINCT CASE WHEN p.failure IS NOT NULL THEN p.id END) AS failed_points
    FROM (SELECT id, point_id FROM runs UNION ALL SELECT NULL, id FROM points WHERE failure IS NOT NULL) r
    LEFT JOIN points p ON p.id = r.point_id LEFT JOIN experiments e ON e.id = p.experiment_id
    GROUP BY 1 ORDER BY 1"""
MARKDOWN = [  # links to files and pictures of the tree lead nowhere from a page that stands alone: their text stays
    ("<!-- raw HTML omitted -->", ""), ('<img src="[^"]*" alt="([^"]*)"[^>]*/>', r"\1"),
    (r'(?s)<a (?!href="https?:)[^>]*>(.*?)</a>', r"\1"),
    ("<(/?)h4>", r"<\1h6>"), ("<(/?)h3>", r"<\1h5>"), ("<(/?)h[12]>", r"<\1h4>"),
    (r'<td(?: align="[a-z]*")?>([-+−]?[0-9][0-9.]*( ?(%|points|k|ms|GB))?)</td>', r'<td class="n">\1</td>'),
    ("<td>([^< \n]{1,28})</td>", r'<td class="nb">\1</td>'),
    ("<table>", '<div class="scroll" tabindex="0"><table>'), ("</table>", "</table></div>"),
]


def fail(text):
    print(f"report: {text}", file=sys.stderr)
    sys.exit(2)


def escape(text):
    return escape_quotes(text, quote=False)


def said(*command, cwd=None):
    """What a command prints; nothing if it fails."""
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def html_of(markdown):
    """Markdown without its first heading, headings two levels deeper."""
    html = subprocess.run(["cmark-gfm", "-e", "table", "--to", "html"], input=re.sub(r"\A# .*\n", "", markdown),
                          capture_output=True, text=True, check=True).stdout
    for pattern, replacement in MARKDOWN:
        html = re.sub(pattern, replacement, html)
    return html


def cell(text):
    """Long fractions are rounded to six significant digits."""
    rounded = f"{float(text):.6g}" if len(text) > 9 and re.fullmatch(r"-?\d+\.\d+", text) else text
    kind = ' class="n"' if summary.NUMBER.fullmatch(text) else ""
    return f"<td{kind}>{escape(rounded)}</td>"


def table(rows):
    head, *body = ([str(value) for value in row] for row in rows)
    heads = "".join(f"<th>{escape(name.replace('_', ' '))}</th>" for name in head)
    return f'<table class="data"><thead><tr>{heads}</tr></thead><tbody>\n' + "".join(
        f"<tr>{''.join(map(cell, row))}</tr>\n" for row in body) + "</tbody></table>\n"


def heading(level, name, text):
    """With a link to itself; the id is that of its section."""
    link = f'<a class="permalink" href="#{name}" aria-label="link to this section">#</a>'
    return f"<h{level}>{text} {link}</h{level}>\n"


def folded(kind, title, html):
    return f'<details class="{kind}"><summary>{title}</summary>{html}</details>\n'


class Entry:
    def __init__(self, folder, out):
        self.folder, self.name, self.out = folder, folder.name, out
        file = folder / "README.md"
        self.readme = file.read_text() if file.is_file() else ""
        self.parts = readme.parts(self.readme)
        first = re.search("^# *(.*)$", self.readme, re.M)
        self.title = escape(first[1] if first else self.name)
        self.log, self.times = (out / f"logs/{self.name}.{kind}" for kind in ("log", "status"))

    @property
    def status(self):
        """The exit status of its make.sh; None if that has not run."""
        return int(self.times.read_text().split()[0]) if self.times.is_file() else None

    @property
    def link(self):
        return f'<a href="#{self.name}">{self.title}</a>'

    def make(self, binaries):
        begin = time.monotonic()
        with open(self.log, "wb") as log:
            status = subprocess.run(["bash", self.folder / "make.sh", binaries, self.out], stdin=subprocess.DEVNULL,
                                    stdout=log, stderr=log, check=False).returncode
        seconds = round(time.monotonic() - begin)
        self.times.write_text(f"{status} {seconds}\n")
        print(f"    {self.name}: {seconds} s" + (f", FAILED, exit status {status}" if status else ""), flush=True)
        if status:
            print(self.last_words(), file=sys.stderr)

    def last_words(self):
        return "\n".join(re.sub("[\0-\x08\x0b-\x1f]", "", self.log.read_text(errors="replace")).splitlines()[-20:])

    def files(self, ending, entries):
        """NAME.ENDING and NAME-*.ENDING, without those of an entry with a longer name and narrow forms of pictures."""
        longer = tuple(each.name for each in entries if each.name.startswith(self.name + "-"))
        for file in [self.out / f"{self.name}.{ending}", *sorted(self.out.glob(f"{self.name}-*.{ending}"))]:
            others = any(file.stem == name or file.stem.startswith(name + "-") for name in longer)
            if file.is_file() and file.stat().st_size and not others and ".narrow." not in file.name:
                yield file

    def drawing(self, name, file, suffix="", caption=""):
        title = f"{self.title}{caption and ': ' + caption}".replace("&lt;", "<").replace("&gt;", ">")
        return svg.part(file, name, title.replace("&amp;", "&") + ". " + readme.shows(self.readme, suffix))

    def picture(self, file):
        """With its narrow form, if it has one, for narrow windows."""
        base = file.stem
        suffix = base.removeprefix(self.name)
        caption = suffix.removeprefix("-").replace("-", " ")
        narrow = file.with_suffix(".narrow.svg")
        narrow = narrow if narrow.is_file() and narrow.stat().st_size else None
        html = (f'<figure><div class="larger"><input type="checkbox" id="{base}-larger" />'
                f'<label for="{base}-larger">larger</label></div>\n'
                f'<div class="picture{" wide" if narrow else ""}" tabindex="0">\n'
                f"{self.drawing(base, file, suffix, caption)}</div>\n")
        if narrow:
            drawing = self.drawing(f"{base}-narrow", narrow, suffix, caption)
            html += f'<div class="picture narrow">\n{drawing}</div>\n'
        return html + (f"<figcaption><b>{self.title}{caption and ': ' + caption}.</b> "
                       f"{escape(readme.shows(self.readme, suffix))}</figcaption></figure>\n")

    def text(self, file):
        """A written part of the answer: parts with a heading are folded."""
        first, *others = re.split("^<h4>(.*)</h4>\n", html_of(file.read_text()), flags=re.M)
        return first + "".join(folded("method", *pair) for pair in zip(others[::2], others[1::2]))

    def data(self, file):
        """A CSV file, folded, with a link to the file beside the page."""
        with open(file, encoding="utf-8", newline="") as lines:
            rows = list(filter(None, csv.reader(lines)))
        more = f"<p>The first {ROWS} rows:</p>\n" if len(rows) - 1 > ROWS else ""
        return folded("data", f"{file.name}: {len(rows) - 1} rows",
                      f'<p><a href="{file.name}">The file</a> beside this page has all rows and digits.</p>\n{more}'
                      f'<div class="scroll tall" tabindex="0">\n{table(rows[:ROWS + 1])}</div>')

    def part(self, name):
        return html_of(self.parts[name]) if self.parts[name].strip() else ""

    def section(self, level, entries):
        """Question and findings, the pictures and tables; folded below them method and data."""
        html = f'<section class="entry" id="{self.name}">\n' + heading(level, self.name, self.title)
        if self.status is None:
            html += '<p class="failed">Not made: its make.sh has not run.</p>\n'
        elif self.status:
            html += (f'<p class="failed">Failed: its make.sh ended with exit status {self.status}. It said:</p>'
                     f"<pre>\n{escape(self.last_words())}\n</pre>\n")
        html += "".join(map(self.part, ("question", "kind", "finding")))
        files = {ending: list(self.files(ending, entries)) if self.status == 0 else []
                 for ending in ("svg", "md", "csv")}
        html += "".join(map(self.picture, files["svg"])) + "".join(map(self.text, files["md"]))
        method = self.part("method")
        html += folded("method", "How this was made", "\n" + method) if method else ""
        return html + "".join(map(self.data, files["csv"])) + "</section>\n"

    def difference(self):
        """A row per entry with something published to compare with."""
        html = f'<tr><td class="nb"><a href="#{self.name}">{self.title.partition(":")[0]}</a></td>'
        html += f"<td>{readme.kinds(self.readme) or 'not said'}</td>\n"
        if self.status != 0:
            return html + f'<td colspan="4" class="failed">{"failed" if self.status else "not made"}</td></tr>\n'
        *numbers, apart = summary.comparison(self.out / f"{self.name}.csv")
        return html + "".join(f'<td class="n">{text}</td>' for text in numbers) + f"<td>{apart}</td></tr>\n"

    def missing(self):
        html = f"<h4>{self.link}</h4>\n"
        if self.status != 0:
            html += '<p class="failed">It could not be made this time; see there.</p>\n'
        text = readme.missing(self.readme)
        return html + (html_of(text) if text else "<p>Its README names nothing.</p>\n")


def comparison(figures):
    missing = "".join(entry.missing() for entry in figures)
    return f"""<section id="comparison">
{heading(2, "comparison", "Figures of the paper: differences")}<p>Signed differences, ours against published: in percent
of the published value, or without a unit in that of the table (ms, percentage points). Cells that a constant of the
model was set on are no predictions: they are counted and left out. Cells that are out of memory on one side only have
no difference and are counted, too.</p>
<div class="scroll" tabindex="0"><table><thead><tr><th>figure</th><th>kind</th><th class="n">cells</th>
<th class="n">mean</th><th class="n">worst</th><th>not counted</th></tr></thead><tbody>
{"".join(entry.difference() for entry in figures)}</tbody></table></div></section>
<section id="not-reproduced">
{heading(2, "not-reproduced", "What did not reproduce, and why")}{missing}</section>
"""


def commit():
    name = said("git", "-C", ROOT, "rev-parse", "HEAD")
    if not name:
        return f"not known: {ROOT} is no git checkout"
    changed = len(said("git", "-C", ROOT, "status", "--porcelain").splitlines())
    day = said("git", "-C", ROOT, "log", "-1", "--format=%cs")
    return f"{name} of {day}" + (f", and {changed} files changed or new since" if changed else "")


def compiler(binaries):
    cache = binaries / "CMakeCache.txt"
    found = dict(re.findall("^(CMAKE_C_COMPILER|CMAKE_BUILD_TYPE):[A-Z]*=(.*)$",
                            cache.read_text() if cache.is_file() else "", re.M))
    if not found.get("CMAKE_C_COMPILER"):
        return f"not known: no CMakeCache.txt in {binaries}"
    version = said(found["CMAKE_C_COMPILER"], "--version").partition("\n")[0]
    return f"{version}, build type {found.get('CMAKE_BUILD_TYPE') or 'none'}"


def runs(out):
    if not (out / "paper.db").exists():
        return "<p>No entry has put a run into the store.</p>\n"
    cursor = sqlite3.connect(out / "paper.db").execute(RUNS)
    rows = [[column[0] for column in cursor.description], *cursor]
    return ("<p>Runs in this build's store, which began empty:</p><div class=\"scroll\" tabindex=\"0\">\n"
            f"{table(rows)}</div>\n")


def provenance(binaries, out):
    system, host, release, _, machine = os.uname()
    processor = re.search("^model name[^:]*: (.*)$", Path("/proc/cpuinfo").read_text(), re.M)
    seconds = sum(int(file.read_text().split()[1]) for file in (out / "logs").glob("*.status"))
    facts = {
        "commit": commit(),
        "version": said(binaries / "rpsim", "--version") or f"not known: no rpsim in {binaries}",
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "host": f"{host}, {system} {release} {machine}, {len(os.sched_getaffinity(0))} cores, "
                f"{processor[1] if processor else ''}",
        "compiler": compiler(binaries),
        "pictures": said("gnuplot", "--version") or "gnuplot is missing: no pictures",
        "store": f"sqlite {sqlite3.sqlite_version}",
        "time for all entries": f"{seconds} s",
    }
    data = sorted(str(file.relative_to(ROOT)) for folder in ("paper-figures", "traces", "experiments")
                  for file in (ROOT / folder).rglob("*") if file.suffix in (".csv", ".yaml") and file.is_file())
    sums = "".join(f"{hashlib.sha256((ROOT / file).read_bytes()).hexdigest()}  {escape(file)}\n" for file in data)
    rows = "".join(f"<tr><th>{name}</th><td>{escape(text)}</td></tr>\n" for name, text in facts.items())
    return f"""<section id="provenance">
{heading(2, "provenance", "Provenance")}<div class="scroll" tabindex="0"><table class="facts"><tbody>
{rows}</tbody></table></div>
{runs(out)}<details><summary>SHA-256 of the data that all this is computed from</summary><pre class="sums">
{sums}</pre></details>
</section>
"""


def contents(sections, last):
    """A bar that stays at the top, with a list that opens while it has the focus: the page has no scripts, and after a
    link is followed the list is closed again."""
    def items(entries):
        return "".join(f"<li>{entry.link}</li>\n" for entry in entries)

    parts = "".join(f'<li><a href="#part-{i}">{title}</a><ul>\n{items(entries)}</ul></li>\n'
                    for i, (title, _, entries) in enumerate(sections) if entries)
    short = "".join(f'<li><a href="#part-{i}">{name}</a></li>\n'
                    for i, (_, name, entries) in enumerate(sections) if entries)
    return f"""<nav id="contents" aria-label="Contents"><ul class="bar">
<li class="all"><span tabindex="0" role="button" aria-haspopup="true">Contents</span>
<div class="list" tabindex="-1"><ul>
<li><a href="#summary">Summary</a></li>
{items(last)}<li><a href="#comparison">Figures of the paper: differences</a></li>
<li><a href="#not-reproduced">What did not reproduce, and why</a></li>
{parts}<li><a href="#provenance">Provenance</a></li></ul></div></li>
<li><a href="#summary">Summary</a></li><li><a href="#comparison">Differences</a></li>
{short}</ul></nav>
"""


def first_screen(out, entries, failed):
    """Three sentences, the verdicts on the paper's claims, a picture."""
    by_name = {entry.name: entry for entry in entries}

    def made(name, file):
        """Files of a failed entry do not count."""
        good = name in by_name and by_name[name].status == 0
        return out / file if good and (out / file).is_file() and (out / file).stat().st_size else None

    claims = made("claims", "claims.md")
    sentences = "".join(f"<li>{sentence}</li>\n" for sentence in (
        summary.figure_17(made("17-bubbles", "17-bubbles.csv")),
        summary.throughput(made("10-throughput", "prediction.md")), summary.headlines(claims)))
    if failed:
        links = "\n".join(f'<a href="#{entry.name}">{entry.name}</a>' for entry in failed)
        failed = f'<p class="failed">Not everything could be made:\n{links}\n</p>\n'
    picture = made("claims", "claims.narrow.svg") or made("claims", "claims.svg")
    if picture:
        picture = (f"<figure>\n{by_name['claims'].drawing('summary-picture', picture)}<figcaption>Four of the claims, "
                   "model by model: published and simulated, and what is claimed.</figcaption></figure>\n")
    return f"""<section id="summary">
{(PARTS / "introduction.html").read_text()}<div class="columns"><div><ul class="sentences">
{sentences}</ul>
{summary.verdicts(claims)}{failed or ""}</div>
{picture or ""}</div>
{(PARTS / "words.html").read_text()}</section>
"""


def main():
    words = sys.argv[1:]
    assemble = words[:1] == ["--assemble"]
    if len(words) != 2 + assemble:
        fail("usage: [--assemble] BINDIR OUTDIR")
    binaries, out = (Path(word).resolve() for word in words[-2:])
    if not binaries.is_dir():
        fail(f"no folder {binaries}")
    if not shutil.which("cmark-gfm"):
        fail("cmark-gfm is missing (Debian package cmark-gfm)")

    # Entries with a number come in its order; the others, which read the files of these, have sections of their own.
    def found(place, pattern):
        return [Entry(script.parent, out) for script in sorted(place.glob(f"{pattern}/make.sh"))]

    sections = [(title, short, found(place, "[0-9]*")) for place, title, short in PLACES]
    last = [entry for place, *_ in PLACES for entry in found(place, "[!0-9]*")]
    entries = [entry for *_, section in sections for entry in section] + last
    if len(entries) == len(last):
        fail("no entry with a make.sh")
    out.mkdir(parents=True, exist_ok=True)
    if not assemble:
        # Only a folder that was made here is emptied.
        if any(out.iterdir()) and not (out / ".report").is_file():
            fail(f"{out} is neither empty nor a folder of this report")
        for path in out.iterdir():
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        (out / ".report").touch()
        (out / "logs").mkdir()
        for entry in entries:
            entry.make(binaries)
    failed = [entry for entry in entries if entry.status != 0]
    summaries = "".join(entry.section(2, entries) for entry in last)
    parts = "".join(
        f'<section id="part-{i}">\n{heading(2, f"part-{i}", title)}'
        f'{"".join(entry.section(3, entries) for entry in section)}</section>\n'
        for i, (title, _, section) in enumerate(sections) if section)
    page = f"""{(PARTS / "head.html").read_text()}<style>
{(PARTS / "page.css").read_text()}</style></head><body id="top">
{contents(sections, last)}<main>
{first_screen(out, entries, failed)}{summaries}{comparison(sections[0][2])}{parts}{provenance(binaries, out)}
</main></body></html>
"""
    (out / ".index.html").write_text(page)
    (out / ".index.html").replace(out / "index.html")
    print(out / "index.html")
    if failed:
        print("report: failed:", *(entry.name for entry in failed), file=sys.stderr)
    return bool(failed)


sys.exit(main())
