"""The first screen's sentences and verdicts, and how far tables are from what is published."""

import csv
import math
import re
from html import escape

NUMBER = re.compile(r"[-+]?[0-9.]+([eE][-+]?[0-9]+)?")


def rows(path):
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def number(text):
    """The number that a cell is, or None."""
    return float(text) if text and NUMBER.fullmatch(text) else None


def cells(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def signed(value, unit):
    if value == 0:
        return "0"
    return (f"{value:+.2g}" if not unit or abs(value) < 0.005 else f"{value:+.2f}") + unit


def comparison(path):
    """Cells, mean, worst and what is not counted, from a table's column difference_pct or, in the table's own unit,
    difference."""
    table = rows(path) if path.is_file() else []
    key = next((key for key in ("difference_pct", "difference") if table and key in table[0]), None)
    unit = " %" if key == "difference_pct" else ""
    out_of_memory = sets = 0
    errors = []
    for row in table:
        published, ours = row.get("published", ""), row.get("ours", "")
        out_of_memory += (published == "OOM" and (number(ours) or 0) > 0
                          or ours in ("OOM", "does not fit") and (number(published) or 0) > 0)
        error = number(row[key]) if key else None
        if error is not None and row.get("set_a_constant") == "yes":
            sets += 1
        elif error is not None:
            errors.append(error)
    apart = [f"{sets} set a constant"] * bool(sets)
    apart += [f"{out_of_memory} out of memory on one side only"] * bool(out_of_memory)
    numbers = (len(errors), signed(sum(errors) / len(errors), unit), signed(max(errors, key=abs), unit)
               ) if errors else ("none", "", "")
    return [*map(str, numbers), "; ".join(apart)]


def figure_17(path):
    """The table of 17-bubbles."""
    off = {}
    for row in rows(path) if path else []:
        published, ours = number(row["published"]), number(row["ours"])
        if published is not None and ours is not None:
            key = row["model"], row["schedule"]
            off[key] = max(off.get(key, 0), abs(ours - published))
    if not off:
        return "The paper&#8217;s own simulation (Figure 17) has not been repeated this time."
    furthest = math.floor(max(off.values()) * 10000 + 0.999999) / 10000  # the next ten thousandth above
    return (f"<b>{sum(gap < 0.001 for gap in off.values())} of {len(off)}</b> rows of the paper&#8217;s own simulation "
            f"come out as published (<a href=\"#17-bubbles\">Figure 17</a>), to within {furthest:.4f} ms or points.")


def throughput(path):
    """rppredict's report. Its first count of intervals is that of the RTX 4090; others, of other servers, follow. Cells
    of the same count: what set nothing, and of the group async what the scaling groups have not."""
    text = path.read_text() if path else ""
    counts = re.search(r"^Intervals, .*?: (\d+) of (\d+) ", text, re.M)
    table = [cells(line) for line in text.splitlines() if line.startswith("|")]
    errors = [abs(number(row[6])) for row in table if len(row) == 11 and number(row[6]) is not None
              and row[0] != "async" and not row[0].endswith("-set")]
    if not errors or not counts or len(errors) != int(counts[2]):
        return "Throughput on RTX 4090 has not been predicted this time."
    return (f"Predicted throughput on RTX 4090 is <b>{sum(errors) / len(errors):.1f} %</b> off on the mean of the "
            f"{len(errors)} published cells that set no constant; {counts[1]} lie inside the 80 % interval "
            "(<a href=\"#10-throughput\">Figures 10</a> and <a href=\"#15-scaling\">15</a>).")


def judged(path):
    """Claim and two verdicts of each row of the first table of claims."""
    table = re.search(r"(?:^\|.*\n)+", path.read_text() if path else "", re.M)
    found = [cells(line) for line in table[0].splitlines() if line.startswith("| ")] if table else []
    return [[row[0], *(re.sub(r"^\*\*|(?<=.)\*\*.*", "", cell) for cell in row[1:3])]
            for row in found if row[0] != "claim"]


def colour(verdict):
    """Good, in part, bad, or nothing to hold it against."""
    for name, pattern in (("yes", r"confirmed|predicted within|predicted$"), ("part", "in part"),
                          ("no", "not (confirmed|reproduced)")):
        if re.match(pattern, verdict):
            return name
    return "open"


def headlines(path):
    claims = judged(path)
    if not claims:
        return ("The paper&#8217;s claims have not been judged this time; our own measurements on a GPU are of one "
                "H200.")
    tally = [[sum(colour(claim[side]) == name for claim in claims) or "none" for name in ("yes", "part")]
             for side in (1, 2)]
    return ("Of {} <a href=\"#claims\">headline claims</a> the published data confirm {} and {} in part, our "
            "simulation {} and {} in part; <b>our own measurements on a GPU are of one H200</b>."
            ).format(len(claims), *tally[0], *tally[1])


def verdicts(path):
    """The verdicts without what stands behind their commas."""
    body = "".join(
        f"<tr><td>{escape(claim, quote=False)}</td>" + "".join(
            f'<td class="v {colour(verdict)}">{escape(verdict.split(",")[0], quote=False)}</td>'
            for verdict in both) + "</tr>\n" for claim, *both in judged(path))
    return body and ('<table class="verdicts"><thead><tr><th>claim of the paper</th><th>published data</th>'
                     f"<th>our simulation</th></tr></thead><tbody>\n{body}</tbody></table>\n")
