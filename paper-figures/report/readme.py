"""What a README says of its entry."""

import re

KINDS = ["formula", "simulated and compared", "predicted", "measured", "simulated"]
LABELS = {  # first words of a paragraph
    "kind": r"kind[.:]",
    "question": r"question[.:]",
    "picture": r"(what the pictures? shows?|pictures?)[.:]",
    "finding": r"(what it says|what it shows|result|what did not reproduce|not reproduced)[^.:]*[.:]",
    "method": r"published numbers|published data|method|experiment|files|checks|limits|cells that|means are|uncertain",
}


def parts(text):
    """Its paragraphs by LABELS; method is everything else, too. A finding goes on until a paragraph with a label, and
    the list of a picture until its end."""
    found, now, begins = {label: [] for label in LABELS}, "method", True
    for number, line in enumerate(text.splitlines()):
        if number == 0 and line.startswith("# "):
            continue
        if not line.strip():
            begins = True
        elif begins or number < 2:
            begins = False
            words = line.lower().replace("*", "")
            label = next((label for label, pattern in LABELS.items() if re.match(pattern, words)), None)
            if label or line.startswith(("**", "#")):
                now = label or "method"
            elif now != "finding" and not (now == "picture" and line[0] in "-|"):
                now = "method"
        found[now].append(line)
    return {label: "\n".join(lines) + "\n" for label, lines in found.items()}


def kinds(text):
    """The kinds that it names *so* in its paragraph "Kind". Other words there are none: "nothing has been measured"."""
    paragraph = re.search(r"^(\*\*)?kind[.:].*?(?=^[ \t]*$|\Z)", text.lower(), re.M | re.S)
    named = " ".join(re.findall(r"\*[^*]+\*", re.sub(r"\*\*[^*]*\*\*", "", paragraph[0].replace("\n", " ")))
                     if paragraph else [])
    found = []
    for kind in KINDS:
        if kind in named:
            found.append(kind)
            named = named.replace(kind, "")
    return ", ".join(found)


def missing(text):
    """Its words under "Not reproduced" or "What did not reproduce": the rest of that paragraph, and the table or list
    after it if it ends with a colon; or the whole section of that name."""
    said, last = [], ""
    inside = section = table = False
    for line in text.splitlines():
        section = section and not line.startswith("#")
        if re.match("#+ *what did not reproduce", line.lower()):
            section = True
            continue
        if section:
            said.append(line)
            continue
        label = re.search(r"(\*\*)?(what did not reproduce|not reproduced)[^.:]*[.:](\*\*)?", line.lower())
        if label and not inside:
            inside, line = True, line[label.end():].lstrip(" ")
            if re.match("[a-z]+[ ,;:]", line):  # not the name of a model
                line = line[0].upper() + line[1:]
        if inside and not line.strip():
            if last.endswith(":"):
                table, last = True, ""
                said.append("")
            elif last:
                inside = False
                said.append("")
        elif inside and table and line[0] not in "|*-":
            inside = False
        elif inside:
            said.append(line)
            last = line
    return "\n".join(said)


def shows(text, suffix):
    """What a picture shows, as plain text. Where an entry has several, an item of a list that begins with a picture's
    suffix in backquotes belongs to that picture alone."""
    common, items, item = [], {}, None
    for line in parts(text)["picture"].splitlines():
        begin = re.match(r"- `([^`]*)`[.:]? *", line)
        if not line.strip():
            item = None
        elif begin:
            item = items[begin[1]] = [line[begin.end():]]
        else:
            (common if item is None else item).append(line.strip())
    label = r"^(\*\*)?([Ww]hat the pictures? shows?|[Pp]ictures?)[.:](\*\*)? *"
    words = " ".join(filter(None, [re.sub(label, "", " ".join(common)), *items.get(suffix, [])]))
    words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", re.sub("[*`]", "", words))
    return words[:1].upper() + words[1:]
