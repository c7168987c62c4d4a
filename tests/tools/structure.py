#!/usr/bin/env python3
"""Measures how a run goes through the sources: structure.py [TREE] [--list] [--commit HASH]...

Prints a number a line; with --list the places below each. The product is the C, C++ and CUDA of common, sim, exec and
experiments, without exec/cuda/tests. Comments do not count.

structures    structs that hold a run: at least 5 decisions of DECISIONS are members, of different
              meanings. Those of a struct that is embedded by value count, if others stand
              beside them; pointers do not. A rows file that a header includes
              (OPTION(TYPE MEMBER; ...)) is the struct of its folder. Structs of RESULTS describe
              a finished run, not a run to make.
copies        functions that copy a run by hand: at least 5 decisions go from a member to one of
              the same meaning of another variable or an initialiser (`a->gpus = b->gpus`,
              `.gpus = b->gpus`), or to a call with the option's name (add("--gpus", a->gpus))
captures      product files, except common/base/log.[ch], that capture the log
programs      lines that include a header of a program's folder (PROGRAMS) from another folder
option names  messages of libraries that name an option, "--word", and the names in them; tables
              of options (*_rows.inc) and help texts of rows are not messages
op kinds      comparisons with an op kind (== or != RP_OP_..., case RP_OP_...), outside files with
              rows of op kinds (op_*rows.inc, op_rows.[ch], op_kinds.[ch])
cycles        loops of folders that include each other, with folders cut at 1, 2, 3, ... levels
              (a loop counts at the highest level that it is seen at) and pairs of folders
              that include each other directly

--commit counts a commit's files instead: product, tests, data, documents and the rest.
"""

import argparse
import collections
import pathlib
import re
import subprocess
import sys

ROOMS = ("common", "sim", "exec", "experiments")
SUFFIXES = (".c", ".h", ".cc", ".cu", ".cuh", ".inc")
PROGRAMS = re.compile(r"(sim/rp[a-z]+|exec/rpexec|experiments)(?=/)")
LIBRARIES = re.compile(
    r"(common/(?!cli/)|sim/(run|study|engine|tune|interchange)/|exec/(?!rpexec/))"
)
OP_ROWS = re.compile(r"/(op_?[a-z_]*rows\.inc|op_rows\.[ch]|op_kinds\.[ch])$")
FEWEST = 5  # decisions of a struct, and of a copy

# A user's decisions about a run: each meaning with its members' names.
DECISIONS = {
    "gpus": "gpus",
    "nodes": "nodes servers",
    "layout": "layout",
    "data_parallel": "data_parallel copies",
    "tensor_parallel": "tensor_parallel",
    "sequence_parallel": "sequence_parallel",
    "expert_parallel": "expert_parallel",
    "expert_tensor_parallel": "expert_tensor_parallel",
    "zero": "zero",
    "bucket": "bucket_mb bucket_bytes",
    "axes": "axes",
    "collectives": "collectives",
    "microbatches": "microbatches",
    "microbatch_size": "microbatch_size",
    "seq_len": "seq_len",
    "global_batch": "global_batch",
    "calls": "calls accumulate",
    "iterations": "iterations steps",
    "lora_rank": "lora_rank",
    "recompute": "recompute recomputes",
    "grain": "grain layer_grain",
    "dtype": "dtype",
    "accumulation": "accumulation arithmetic",
    "reduce_each": "reduce_each reduce_microbatch reductions",
    "reduce_dtype": "reduce_dtype",
    "round": "round",
    "round_start": "round_start",
    "optimizer": "asynchronous optimizer",
    "piece": "piece_mb piece_bytes",
    "peers": "peers peer_gpus",
}
MEANING = {name: meaning for meaning, names in DECISIONS.items() for name in names.split()}
# Structs of runs that are finished, stored or compiled.
RESULTS = re.compile(r"(^rp_store_.*|result|report|record|metrics|program|summary)$")


def blank(match):
    return re.sub(r"[^\n]", " ", match.group(0))


def without_comments(text):
    """Comments blanked, literals kept."""
    token = re.compile(r'/\*.*?\*/|//[^\n]*|("(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\')', re.S)
    return token.sub(lambda m: m.group(0) if m.group(1) else blank(m), text)


def without_literals(text):
    return re.sub(r'"(?:\\.|[^"\\\n])*"', lambda m: '"' + " " * (len(m.group(0)) - 2) + '"', text)


def read_tree(root):
    """{path: text without comments}."""
    files = {}
    for room in ROOMS:
        for path in sorted((root / room).rglob("*")):
            name = path.relative_to(root).as_posix()
            if path.suffix in SUFFIXES and not name.startswith("exec/cuda/tests/"):
                files[name] = without_comments(path.read_text(encoding="utf-8"))
    return files


def line_of(text, at):
    return text.count("\n", 0, at) + 1


def closing(text, at):
    """Index after the bracket that closes the one at `at`."""
    depth = 0
    for match in re.compile(r"[{}()]").finditer(text, at):
        depth += 1 if match.group(0) in "{(" else -1
        if depth == 0:
            return match.end()
    return len(text)


def members_of(body):
    """(type, name) of a struct body's members; the type of pointers is "*"."""
    out = []
    for statement in re.split(r"[;{}]", body):
        kind = ""
        for at, part in enumerate(re.sub(r"\[[^\]]*\]", "", statement).split(",")):
            found = re.findall(r"\w+", part)
            if at == 0 and len(found) > 1:
                pointer = "(" in part or ("*" in part and "char" not in found)
                kind = "*" if pointer else found[-2]
            if found and kind:
                out.append((kind, found[-1]))
    return out


def structs_of(files):
    """{name: (place, members)} of all structs, rows files among them."""
    out = {}
    for path, text in files.items():
        if path.endswith(".inc"):
            rows = re.findall(r"^\s*[A-Z_]+\(([^\"]*?;?[^\";]*?\w+), *\"", text, re.M)
            if rows and "OPTION" in text:
                out[f"{path.split('/')[-2]} options"] = (f"{path}:1", members_of(";".join(rows)))
            continue
        for match in re.finditer(r"\bstruct\s+(\w*)\s*\{", text):
            end = closing(text, match.end() - 1)
            after = re.match(r"\s*(\w+)?", text[end:]).group(1)
            name = match.group(1) or after or "(none)"
            out.setdefault(
                name,
                (f"{path}:{line_of(text, match.start())}", members_of(text[match.end() : end - 1])),
            )
    return out


def meanings(members):
    return {MEANING[name] for name in members if name in MEANING}


def runs_of(files):
    """[(place, name, meanings)] of the structs that hold a run."""
    structs = {name: row for name, row in structs_of(files).items() if not RESULTS.search(name)}
    own = {
        name: meanings([member for kind, member in members if kind != "*"])
        for name, (_, members) in structs.items()
    }
    held = {name for name, found in own.items() if len(found) >= FEWEST}
    out = []
    for name, (place, members) in structs.items():
        embedded = [own[kind] for kind, _ in members if kind in held and kind != name]
        found = own[name].union(*embedded)
        more = name in held or (embedded and found != max(embedded, key=len))
        if more and len(found) >= FEWEST:
            out.append((place, name, found))
    return sorted(out)


def functions_of(text):
    """(name, begin, end) of each function, whose braces stand in the first column."""
    for match in re.finditer(r"^\{$", text, re.M):
        end = text.find("\n}", match.start())
        head = text[
            max(
                text.rfind("\n\n", 0, match.start()), text.rfind("\n}", 0, match.start()), 0
            ) : match.start()
        ]
        name = re.findall(r"(\w+)\s*\(", head)
        yield (name[0] if name else "?"), match.start(), end if end >= 0 else len(text)


def copied(body):
    """Meanings that statements or initialisers of a function's body copy."""
    out = set()
    value = r"\b(\w+)(?:->|\.)(\w+)"
    target = re.compile(
        r"(?:\b(\w+)(?:->|\.)|[{,(]\s*\.)(\w+)\s*=(?!=)([^;]*?)(?=;|,\s*\.\w+\s*=|\}\s*;)", re.S
    )
    for match in target.finditer(re.sub(r"(->|\.)\s+", r"\1", body)):
        others = [
            name for owner, name in re.findall(value, match.group(3)) if owner != match.group(1)
        ]
        out |= meanings([match.group(2)]) & meanings(others)
    for statement in re.split(r";", body):  # add(list, "--gpus", work->gpus)
        if re.match(r"[\s{}]*(if \(.*?\) \{\s*)?(RP_TRY\()?\w+\(", statement, re.S):
            options = re.findall(r'"(?:--)?([a-z][a-z-]+)"', statement)
            used = meanings([name for _, name in re.findall(value, statement)])
            out |= meanings([option.replace("-", "_") for option in options]) & used
    return out


def copies_of(files):
    for path, text in files.items():
        if path.endswith((".c", ".cc")):
            for name, begin, end in functions_of(text):
                found = copied(text[begin:end])
                if len(found) >= FEWEST:
                    yield f"{path}:{line_of(text, begin)}", f"{name}: {' '.join(sorted(found))}"


def captures_of(files):
    for path, text in files.items():
        calls = [line_of(text, m.start()) for m in re.finditer(r"\brp_log_capture_begin\(", text)]
        if calls and not re.match(r"common/base/log\.[ch]$", path):
            yield f"{path}:{calls[0]}", f"{len(calls)} calls"


def includes_of(files):
    """(path, line, included) of each include of our own."""
    for path, text in files.items():
        for match in re.finditer(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+/[^"]+)"', text, re.M):
            yield path, line_of(text, match.start()), match.group(1)


def programs_of(files):
    for path, line, included in includes_of(files):
        into, own = PROGRAMS.match(included), PROGRAMS.match(path)
        if into and (own is None or own.group(1) != into.group(1)):
            yield f"{path}:{line}", included


def option_names_of(files):
    literals = re.compile(r'"(?:\\.|[^"\\\n])*"(?:\s*(?:PRI\w+\s*)?"(?:\\.|[^"\\\n])*")*')
    for path, text in files.items():
        if LIBRARIES.match(path) and not path.endswith("_rows.inc"):
            for match in literals.finditer(text):
                names = re.findall(r"(?<![\w-])--[a-z][a-z-]*", match.group(0))
                if names and not re.search(r"\.help = \s*$", text[: match.start()]):
                    yield f"{path}:{line_of(text, match.start())}", " ".join(names)


def op_kinds_of(files):
    compared = re.compile(r"[=!]=\s*(RP_OP_\w+)|\bcase\s+(RP_OP_\w+)|\b(RP_OP_\w+)\s*[=!]=")
    for path, text in files.items():
        if not OP_ROWS.search(path):
            for match in compared.finditer(without_literals(text)):
                yield f"{path}:{line_of(text, match.start())}", match.group(match.lastindex)


def loops_of(edges):
    """Sets of nodes that reach each other (Tarjan)."""
    index, low, stack, out = {}, {}, [], []

    def visit(node):
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(edges.get(node, ())):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            at = stack.index(node)
            loop = stack[at:]
            del stack[at:]
            if len(loop) > 1:
                out.append(sorted(loop))

    for node in sorted(edges):
        if node not in index:
            visit(node)
    return out


def cycles_of(files):
    """(loops, pairs): loops of folders, each once, and pairs that include each other directly."""
    edges = collections.Counter(
        (path.rsplit("/", 1)[0], into.rsplit("/", 1)[0]) for path, _, into in includes_of(files)
    )
    loops, seen = [], []
    for level in range(1, 1 + max((own.count("/") + 1 for own, _ in edges), default=0)):
        cut = collections.defaultdict(set)
        for own, into in edges:
            a, b = shortened(own, level), shortened(into, level)
            if a != b:
                cut[a].add(b)
        for loop in loops_of(cut):
            if not any(
                {shortened(folder, upper) for folder in loop} <= set(l) for upper, l in seen
            ):
                seen.append((level, loop))
                loops.append((f"level {level}", " <-> ".join(loop)))
    pairs = [
        (f"{a} <-> {b}", f"{edges[a, b]} : {edges[b, a]}")
        for a, b in sorted(edges)
        if a < b and (b, a) in edges
    ]
    return loops, pairs


def shortened(folder, level):
    return "/".join(folder.split("/")[:level])


def kind_of(path):
    if path.startswith("tests/") or path.startswith("exec/cuda/tests/"):
        return "tests"
    if path.endswith(".md") or path.startswith("docs/"):
        return "documents"
    if path.split("/")[0] in ROOMS and path.endswith(SUFFIXES):
        return "product"
    return "data" if path.startswith(("traces/", "experiments/")) else "others"


def show_commit(root, commit, listed):
    text = subprocess.run(
        ["git", "-C", str(root), "show", "--name-only", "--format=%h %s", commit],
        check=True,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    ).stdout
    subject, *paths = [line for line in text.splitlines() if line]
    kinds = collections.defaultdict(list)
    for path in paths:
        kinds[kind_of(path)].append(path)
    order = ("product", "tests", "data", "documents", "others")
    print(f"{subject}: {', '.join(f'{len(kinds[kind])} {kind}' for kind in order)}")
    if listed:
        print("\n".join(f"    {path}" for path in kinds["product"]))


def measure(root):
    """[(name, number, meaning, [(place, text)])]."""
    files = read_tree(root)
    runs = [(place, f"{name}: {' '.join(sorted(found))}") for place, name, found in runs_of(files)]
    captures, kinds = list(captures_of(files)), list(op_kinds_of(files))
    names = list(option_names_of(files))
    loops, pairs = cycles_of(files)
    calls = sum(int(text.split()[0]) for _, text in captures)
    words = sum(len(text.split()) for _, text in names)
    places = len({place.split(":")[0] for place, _ in kinds})
    rows = [
        ("structures", "structs that hold a run", runs),
        ("copies", "functions that copy a run by hand", list(copies_of(files))),
        ("captures", f"files that capture the log, {calls} calls", captures),
        ("programs", "includes of another program's folder", list(programs_of(files))),
        ("option names", f"messages of libraries with names of options, {words} names", names),
        ("op kinds", f"comparisons with op kinds, in {places} files", kinds),
        ("cycles", "loops of folders", loops),
        ("pairs", "pairs of folders that include each other", pairs),
    ]
    return [(name, len(found), what, found) for name, what, found in rows]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "tree", nargs="?", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parents[2]
    )
    parser.add_argument("--list", action="store_true", help="the places, too")
    parser.add_argument(
        "--commit", action="append", default=[], help="what this commit touched, instead"
    )
    asked = parser.parse_args()
    for commit in asked.commit:
        show_commit(asked.tree, commit, asked.list)
    for name, number, what, rows in measure(asked.tree) if not asked.commit else ():
        print(f"{name:13}{number:4}  {what}")
        if asked.list:
            print("\n".join(f"    {place}: {text}" for place, text in rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
