#!/usr/bin/env python3
"""stage.py SOURCE OUT: the sources from which MkDocs builds the site, and the site's rule for documents.

OUT gets mkdocs.yml with the entries of nav written out, theme/, and pages/ with every document that nav names at its
path from the root and the files that they link to. Documents are written for GitHub's Markdown: lists are indented as
Python-Markdown wants them.
stage.py SOURCE --check: only tells which documents have no entry, and which entries have no document (lint/docs.sh).
"""
import html
import pathlib
import re
import shutil
import subprocess
import sys

ENTRY = re.compile(r"^( *)- (?:(?P<title>[^:]+(?:\?)?): )?(?P<path>[\w*./-]+\.md)$")
LINK = re.compile(r"(!?\[[^\]]*\]\()([^)#\s]*)(#[^)\s]*)?(\))")


def documents(source):
    """Every document of the repository, also in an unpacked archive without git."""
    listed = subprocess.run(["git", "-C", source, "ls-files", "-co", "--exclude-standard", "*.md"],
                            capture_output=True, text=True)
    names = listed.stdout.split() if listed.returncode == 0 else \
        [path.relative_to(source).as_posix() for path in source.rglob("*.md")]
    names = [name for name in names if not name.startswith(("build", ".github/"))]
    return sorted(name for name in names if (source / name).is_file())


def navigation(lines, names, title_of):
    """mkdocs.yml with a line per document for each entry of nav; names win over patterns. And both failures."""
    entries = [ENTRY.match(line) for line in lines]
    single = {entry["path"] for entry in entries if entry and "*" not in entry["path"]}
    out, used, wrong = [], set(), []
    for line, entry in zip(lines, entries):
        if not entry:
            out.append(line)
            continue
        pattern = re.compile(re.escape(entry["path"]).replace(r"\*", "[^/]*"))
        found = [name for name in names if pattern.fullmatch(name) and ("*" not in entry["path"] or name not in single)]
        if not found:
            wrong.append(f"docs/site/mkdocs.yml:1: no document matches {entry['path']}")
        for name in found:
            title = entry["title"] or title_of(name).replace('"', "'")
            out.append(f'{entry[1]}- "{title}": {name}')
        used.update(found)
    wrong += [f"{name}:1: no entry of nav in docs/site/mkdocs.yml names it" for name in names if name not in used]
    return out, wrong


def heading(path):
    for line in path.read_text().splitlines():
        if line.startswith("# "):
            return line[2:].strip().replace("`", "")
    return path.parent.name


def relist(text):
    """An item's part of a list, indented as GitHub's Markdown needs it (2 or 3), made 4 a level."""
    out, stack, fence, parts = [], [], False, False
    for line in text.split("\n"):
        if line.lstrip().startswith("```"):
            fence = not fence
        item = None if fence else re.match(r"( *)([-*]|\d+\.) ", line)
        depth = len(line) - len(line.lstrip(" "))
        if line.strip():
            while stack and depth < stack[-1] and (item or depth == 0 or not out[-1].strip()):
                stack.pop()
        if stack and line.strip() and depth >= stack[-1]:
            line = "    " * len(stack) + line[stack[-1]:]
        if item:
            if parts and out[-1].strip():
                out.append("")  # the next item would belong to the last paragraph of this one
            parts = False
            stack.append(len(item[0]))
        parts = parts or (bool(stack) and not line.strip())
        out.append(line)
    return "\n".join(out)


def bars(text):
    """Code in tables with bars, as HTML: Python-Markdown shows the backslashes that GitHub's Markdown takes away."""
    def code(match):
        return f"<code>{html.escape(match[1]).replace(chr(92) + '|', '&#124;')}</code>"

    return "\n".join(re.sub(r"`([^`]*\\\|[^`]*)`", code, line) if line.startswith("|") else line
                     for line in text.split("\n"))


def stage_page(source, pages, name, names):
    """A page, and its links to pictures, sources and folders' documents, which are no pages."""
    folder = pathlib.PurePosixPath(name).parent
    wrong = []

    def link(match):
        start, target, anchor, end = match[1], match[2], match[3] or "", match[4]
        if not target or re.match(r"[a-z]+:", target):
            return match[0]
        path = (source / folder / target).resolve()
        inside = path.relative_to(source).as_posix() if path.is_relative_to(source) else ""
        if path.is_dir() and f"{inside}/README.md" in names:
            target = target.rstrip("/") + "/README.md"
        elif inside and path.is_file():
            if inside not in names:
                (pages / inside).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, pages / inside)
        else:
            wrong.append(f"{name}:1: dead link {target}")
        if inside in names and re.fullmatch(r"\[[\w./-]+\.md\]\(", start):
            start = f"[{heading(path)}]("  # a reader of the site sees no files
        return start + target + anchor + end

    parts = re.split(r"(?ms)(^ *```.*?^ *```$)", (source / name).read_text())
    parts[::2] = [bars(LINK.sub(link, part)) for part in parts[::2]]
    (pages / name).parent.mkdir(parents=True, exist_ok=True)
    (pages / name).write_text(relist("".join(parts)))
    return wrong


def main(source, out=None):
    source = pathlib.Path(source).resolve()
    names = documents(source)
    lines = (source / "docs/site/mkdocs.yml").read_text().splitlines()
    lines, wrong = navigation(lines, names, lambda name: heading(source / name))
    if out:
        pages = pathlib.Path(out) / "pages"
        shutil.rmtree(pages, ignore_errors=True)
        pages.mkdir(parents=True)
        for name in names:
            wrong += stage_page(source, pages, name, set(names))
        shutil.copyfile(source / "docs/site/site.css", pages / "site.css")
        shutil.copytree(source / "docs/site/theme", pathlib.Path(out) / "theme", dirs_exist_ok=True)
        (pathlib.Path(out) / "mkdocs.yml").write_text("\n".join(lines) + "\n")
    print("\n".join(wrong), end="\n" if wrong else "")
    return 1 if wrong else 0


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[2] == "--check":
        sys.exit(main(sys.argv[1]))
    sys.exit(main(*sys.argv[1:3]))
