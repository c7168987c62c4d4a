"""The prose gate: habits of English that make readers read twice, measured over all comments, and the words of all documents.

    prose.py SOURCE [--files]     --files: the files with the most hits per habit

Rates are hits per 1,000 words of comments in C, CUDA, Python, shell, awk and CMake. docs/generated, which programs
write, is no document.
"""

import ast
import collections
import io
import pathlib
import re
import sys
import tokenize

HABITS = (  # name, pattern, most hits per 1,000 words
    ("what", re.compile(r"\bwhat\b", re.I), 1.0),
    ("one or ones", re.compile(r"\bones?\b", re.I), 4.0),
    ("where", re.compile(r"\bwhere\b", re.I), 1.5),
    ("an opening 'Of'", re.compile(r"(?:^|[.:] )Of\b"), 0.0),
)
DOCUMENT_WORDS = 60_000
DOCUMENTS = {".md", ".txt", ".rst", ".html"}
DATA = re.compile(r"(build[^/]*|\.git|exec/probes|tests/(bad|golden|fuzz/corpus[^/]*)|traces/runs|docs/generated)(/|$)")
C_FAMILY = {".c", ".h", ".cu", ".cuh", ".cc", ".inc"}
C_TOKEN = re.compile(r"""/\*(?P<block>.*?)\*/|//(?P<line>[^\n]*)|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""", re.S)
RULER = re.compile(r"[-*=]{3,}")


def c_comments(text):
    for match in C_TOKEN.finditer(text):
        comment = match["block"] if match["block"] is not None else match["line"]
        if comment is not None:
            yield re.sub(r"\n[ \t]*\*?", " ", comment).lstrip("*<!/")


def python_comments(text):
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.string.lstrip("#!")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.FunctionDef, ast.ClassDef)) and ast.get_docstring(node):
            yield ast.get_docstring(node)


def hash_comments(text):
    for match in re.finditer(r"(?:^|[ \t])#(?!!)([^\n]*)", text):
        yield match[1]


def comments(path, text):
    if path.suffix in C_FAMILY:
        return c_comments(text)
    if path.suffix == ".py":
        return python_comments(text)
    return hash_comments(text)


def is_code(path):
    return path.suffix in C_FAMILY | {".py", ".sh", ".awk", ".cmake"} or path.name == "CMakeLists.txt"


def main(root, show_files):
    words = documents = 0
    hits = {habit[0]: collections.Counter() for habit in HABITS}
    for path in sorted(root.rglob("*")):
        name = path.relative_to(root).as_posix()
        if DATA.match(name) or not path.is_file() or path.is_symlink():
            continue
        if path.suffix in DOCUMENTS:
            documents += len(path.read_text(encoding="utf-8").split())
        if is_code(path):
            for comment in comments(path, path.read_text(encoding="utf-8")):
                comment = RULER.sub(" ", comment).strip()
                words += len(comment.split())
                for habit, pattern, _ in HABITS:
                    hits[habit][name] += len(pattern.findall(comment))
    failed = report("documents", f"{documents} words", documents > DOCUMENT_WORDS, DOCUMENT_WORDS)
    print(f"comments: {words} words")
    for habit, _, most in HABITS:
        rate = 1000 * hits[habit].total() / max(words, 1)
        high = report(habit, f"{rate:.2f} per 1,000 words of comments", rate > most, most)
        failed |= high
        for name, count in (+hits[habit]).most_common(20 if show_files or high else 0):
            print(f"   {name}: {count}")
    return int(failed)


def report(name, figure, high, most):
    print(f"{name}: {figure}" + (f"    <- at most {most}" if high else ""))
    return high


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]).resolve(), "--files" in sys.argv))
