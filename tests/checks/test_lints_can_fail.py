"""A lint that cannot fail protects nothing: each gets a copy of the tree with a violation per rule and must exit 1 and
name the file that breaks the rule. Harmless text must not be blamed.
"""

import contextlib
import csv
import re
import shutil
import sys
from pathlib import Path

import pytest

from conftest import SOURCE, program, ran

LINTS = sorted(path for path in (SOURCE / "tests/lint").iterdir() if path.suffix in (".sh", ".py"))
WIDE = "z" * 121
HARMLESS = {  # words in comments and strings, members of other names
    "common/zz_harmless.c": r"""/* malloc(1), rand(), time(NULL), stderr and #include "sim/sim.h" in prose */
#include "common/base/status.h"
#define ZZ_MACRO(x)                                                                                \
    do {                                                                                           \
        (x)++;                                                                                     \
    } while (0)

static const char text[] = "free(x); exit(1); \"if (x) y;\" // stderr";
static int zz_free_op(const char *rp_time)
{
    do {
        if (rp_time == text) {
            return 1;
        }
    } while (0);
    for (int i = 0; i < 2; i++) {
        // if (x) y;
    }
    return '"';
}
""",
    "tests/common/zz_harmless.c": """static void begin(void)
{
    cr_assert(x);
}
static void end(void)
{
    rp_end(x); // cr_expect(x)
}
TestSuite(zz, .init = begin, .fini = end);
""",
    "common/zz_harmless/README.md": f"```\n{WIDE}\n```\n- https://example.org/{WIDE}\n",
}
SUITE = "TestSuite(zz, .init = begin, .fini = end, .timeout = 60);\n"
with open(SOURCE / "paper-figures/published/pipeline_bubbles.csv", encoding="utf-8") as table:
    MAKESPAN = next(csv.DictReader(table))["makespan_ms"]


def function(lines, name="zz_f"):
    return f"int {name}(int x)\n{{\n" + "    x++;\n" * (lines - 4) + "    return x;\n}\n"


def functions(count, lines):
    return "".join(function(lines, f"zz_f{number}") for number in range(count))


def replacing(*pairs):
    """An edit of a file: regular expressions and replacements."""
    def edit(text):
        for pattern, other in pairs:
            text = re.sub(f"(?m){pattern}", other, text)
        return text
    return edit


# A run of a lint: rows of a fault ("": none, the file is only needed), a file, its text or an edit, and the lint's
# message, which is the file if the row has nothing else. A second new file of a name gets a number.
RUNS = [
    ("includes", [
        ("common includes sim", "common/zz_a.c", '#include "sim/engine.h"'),
        ("common includes exec", "common/zz_b.c", "#  include <exec/run/backend.h>"),
        ("sim includes exec", "sim/zz_c.c", '#include "exec/run/backend.h"'),
        ("exec includes sim", "exec/zz_d.c", '#include "../sim/engine.h"'),
        ("GSL in common", "common/zz_e.h", "#include <gsl/gsl_rng.h>"),
        ("GSL in exec", "exec/zz_f.c", "#include <gsl/gsl_rng.h>"),
        ("GSL in another file of sim", "sim/zz_f.c", "#include <gsl/gsl_blas.h>"),
        ("random numbers in the fit", "sim/rppredict/fit.c", "#include <gsl/gsl_rng.h>"),
        ("CUDA in sim", "sim/zz_g.c", "#include <cuda_runtime.h>"),
        ("cuBLAS in common", "common/zz_h.c", "#include <cublas_v2.h>"),
        ("a loop over options", "sim/zz_options.c", "#include <getopt.h>"),
    ]),
    ("rooms", [
        ("", "common/yy/yy.c", '#include "common/zz/zz_a.h"'),
        ("rooms that include each other", "common/zz/zz_a.c", '#include "common/yy/yy.h"'),
    ]),
    ("rooms", [
        ("", "common/yy/yy.c", '#include "common/yy/xx/xx.h"'),
        ("a folder and its sub-folder that include each other", "common/yy/xx/zz_a.c", '#include "common/yy/yy.h"'),
    ]),
    ("rooms", [
        ("", "common/yy/xx/xx.c", '#include "common/yy/ww/left/ww.h"'),
        ("sub-folders that include each other by theirs", "common/yy/ww/right/zz_a.c",
         '#include "common/yy/xx/in/xx.h"'),
    ]),
    ("rooms", [
        ("a file at the top that a shell's > made", "0", "0"),
        ("a private header of another folder", "common/zz/zz_b.c", '#include "common/yy/yy_internal.h"'),
        ("the executor knows the host backend", "exec/run/zz_c.c", '#include "exec/host/lane.h"'),
        ("a program includes another program's folder", "sim/rppredict/zz_d.c", '#include "sim/rpsim/artefacts.h"'),
        ("a room includes a program's folder", "sim/run/zz_d.c", '#include "sim/rpsim/artefacts.h"'),
        ("the library includes a program", "sim/library/zz_d.c", '#include "sim/rpsim/command.h"'),
        ("rpsweep includes another program's folder", "experiments/zz_e.c", '#include "sim/rppredict/cells.h"'),
        ("rpsweep includes rpsim", "experiments/zz_f.c", '#include "sim/rpsim/command.h"'),
        ("a schedule looked up by name", "exec/plan/zz_f.c",
         "static const void *zz(const rp_program *p) { return rp_schedule_find(p->schedule); }"),
        ("an op kind compared", "sim/run/zz_g.c", "static bool zz(const rp_op *op) { return op->kind == RP_OP_SEND; }"),
        ("an op kind as a case", "exec/run/zz_h.c", "    case RP_OP_SEND:"),
        *(("", f"common/yy/yy_{number:02}.c", "") for number in range(1, 26)),
        ("26 files in a folder", "common/yy/yy_26.c", "", "common/yy:1:"),
    ]),
    ("allocation", [("a call", "sim/zz_alloc.c", f"    {call};") for call in (
        "void *p = malloc(8)", "p = realloc (p, 8)", "free(p)", "q = strdup(p)", "mmap(0, 1, 2, 3, 4, 0)",
        "getline(&p, &n, f)", 'asprintf(&p, "")', "(void)calloc(1, 1)")]),
    ("sizes", [
        ("a function of 124 lines", "common/zz_long.c", function(124)),
        ("a file of 601 lines", "exec/zz_file.c", "// line\n" * 601),
    ]),
    ("sizes", [("a median of 24 lines", "tests/zz_median.c", functions(3000, 24), "all functions: median")]),
    ("sizes", [("too many functions of 64 lines", "tests/zz_share.c", functions(300, 64), "longer than 60 lines")]),
    ("style", [
        ("101 columns", "common/zz_wide.c", "// " + "x" * 98),
        ("a tab", "common/zz_tab.c", "\tint x;"),
        ("a tab in a plot", "plots/zz_tab.gp", 'set title\t"x"'),
        ("a trailing blank", "common/zz_blank.c", "int x; "),
        ("a header without #pragma once", "common/zz_guard.h", "int zz_x;"),
        *((f"no braces: {body}", "common/zz_braces.c", f"    {body}") for body in (
            "if (x) return;", "for (;;) x++;", "while (f(x, (y))) x++;", "if (x) { } else y();", "do x++; while (x);",
            "if (x &&\n        y)\n        z();")),
        *((f"_t: {body}", "common/zz_type.h", f"#pragma once\n{body}") for body in (
            "typedef struct zz_x zz_x_t;", "typedef struct {\n    int x;\n} zz_x_t;", "typedef void (*zz_x_t)(void);",
            "struct zz_x_t {\n    int x;\n};")),
        ("an include beside the file", "common/zz_root.c", '#include "status.h"'),
        ("#ifdef of CUDA", "exec/zz_weave.c", "#ifdef RP_CUDA\n#endif"),
        ("#if of a program", "sim/zz_weave.c", "#if defined(RP_SIM)\n#endif"),
        ("#if 0", "common/zz_weave.c", "#if 0\n#endif"),
    ]),
    ("format", [("a blank too many", "exec/zz_form.c", "int zz_x  = 3;")]),
    ("prose", [
        *((f"too many: {word}", "exec/zz_prose.c", f"/* {word} */" * 2000, f"zz_prose{number}.c: ") for number, word in (
            ("", "what"), ("2", "ones"), ("3", "where"), ("4", "Of it"))),
        ("too many words", "docs/zz-words.md", "word " * 60001, "<- at most 60000"),
    ]),
    ("published", [(f"a published makespan in {file}", file, text) for file, text in (
        ("sim/zz_result.c", f"static double x = {MAKESPAN};"),
        ("tests/common/zz_result.c", f"static double x = {MAKESPAN.removesuffix('0')};"),  # without its last zero
        ("plots/zz_result.sh", f"echo {MAKESPAN}"),
        ("paper-figures/10-throughput/zz_result.awk", f"BEGIN {{ x = {MAKESPAN} }}"),
        ("paper-figures/lib/zz_result.gp", f"x = {MAKESPAN}"),
        ("paper-figures/zz_result/make.sh", f"x={MAKESPAN}"),
        ("plots/gallery/zz_result/zz.sql", f"SELECT {MAKESPAN};"),
        ("experiments/zz_result.yaml", f"options: {{costs.fwd_ms: {MAKESPAN}}}"),
        ("paper-figures/zz_result/constants.csv", f"x,{MAKESPAN}"))]),
    ("docs", [
        ("a document that is not there", "exec/zz_cites.c", "/* Rules: nowhere.md 2. */"),
        ("a prototype without a comment", "common/zz_docs.h", "#pragma once\n\nint zz_x(int y);"),
        ("a long prototype without one", "common/zz_docs.h", "#pragma once\n\nstruct zz *zz_x(int y,\n    int z);"),
        ("a schedule that nobody lists", "common/schedules/zz-hidden.c", "// zz"),
        ("a wide line", "docs/zz-wide.md", WIDE),
        ("a wide row of a table", "common/zz/zz-wide.md", "| " + "é" * 119),
        ("a README without the commands", "README.md", replacing(("bootstrap.sh (run|test)", "zz")),
         "does not name ./bootstrap.sh run", "does not name ./bootstrap.sh test"),
        ("a changelog without Unreleased, with an entry of two lines, of another version", "CHANGELOG.md",
         lambda text: replacing((".*Unreleased.*\n", ""), (r"^## \[[0-9.]*\]", "## [9.9.9]"))(text) + "zz goes on\n",
         "no Unreleased section", "zz goes on", "CMakeLists.txt:"),
    ]),
    ("docs", [
        ("another version in the citation", "CITATION.cff", replacing(("^version: .*", "version: 9.9.9"))),
        ("a long README", "README.md", lambda text: text + "- zz\n" * 2500, "README.md:1: "),
        ("a long ARCHITECTURE", "ARCHITECTURE.md", lambda text: text + "- zz\n" * 2500, "ARCHITECTURE.md:1: "),
    ]),
    ("docs without rpsim", [("a platform that nobody lists", "traces/platforms/zz-hidden.yaml", "name:")]),
    ("site", [
        ("a document that the site lacks", "docs/zz-page.md", "# zz"),
        ("an entry without a document", "docs/site/mkdocs.yml", lambda text: text + "      - zz: docs/zz-nowhere.md\n",
         "docs/site/mkdocs.yml:1: no document matches docs/zz-nowhere.md"),
    ]),
    ("random", [(f"a call in {room}", f"{room}/zz_random.c", f"    {call};") for room in ("common", "sim") for call in (
        "x = rand()", "srandom(1)", "t = time(NULL)", "clock_gettime(0, &t)", "char *d = __DATE__")]),
    ("settings", [
        ("a library names an option", "common/zz_option.c", '    rp_log_error("--gpus: 0");'),
        ("a library reads a command line", "sim/run/zz_argv.c", "int zz(int argc, char **argv)"),
        ("a caller that decides captures", "exec/run/zz_capture.c", "    rp_log_capture_begin(a, sizeof a);"),
    ]),
    ("status", [
        ("a silent broken invariant", "exec/zz_broken.c", "    return RP_BROKEN;"),
        ("fprintf to stderr", "common/zz_status.c", '    fprintf(stderr, "x");'),
        ("fputs to stderr", "sim/zz_status.c", '    fputs("x", stderr);'),
        ("perror", "sim/zz_status.c", '    perror("x");'),
        ("exit", "common/zz_status.c", "    exit(2);"),
    ]),
    # It looks at functions of all files.
    ("criterion", [("an assertion of a .fini", "tests/common/zz_end.c",
                    "static void end(void)\n{\n    cr_expect(x);\n}\n\n" + SUITE)]),
    ("criterion", [("one in what it calls", "tests/common/zz_end.c",
                    "static void zz_check(int x)\n{\n    cr_assert(eq(int, x, 0));\n}\n"
                    "static void end(void)\n{\n    zz_check(1);\n}\n" + SUITE)]),
    ("criterion", [("", "tests/common/zz_end.c", "Test(zz, zz, .fini = zz_check)"),
                   ("one in another file, of a single test", "tests/support/zz_check.c",
                    "void zz_check(int x,\n              int y)\n{\n    cr_assert(lt(int, x, y));\n}",
                    "tests/support/zz_check.c:4:")]),
    ("criterion", [
        ("two time limits in a file", "tests/common/zz_limits.c",
         "TestSuite(zz, .timeout = 60);\n\nTest(zz, one, .timeout = 90)\n{\n}"),
        ("Criterion's own assertions", "tests/common/zz_assert.c", "#include <criterion/new/assert.h>"),
    ]),
]


@pytest.fixture(scope="module")
def tree(shared):
    """A copy without the sources: the rules look at a file at a time, and without those each run is a blink."""
    def left_out(folder, names):
        room = folder.removeprefix(str(SOURCE)).lstrip("/")
        if not room:
            return {name for name in names if name.startswith("build") or name == ".git"}
        if room == "tests":
            return {"bad", "golden", "fuzz"}
        if room.split("/")[0] in ("common", "sim", "exec", "tests") and not room.endswith("/schedules"):
            return {name for name in names if name.endswith((".c", ".h"))}
        return set()

    return shutil.copytree(SOURCE, shared / "tree", symlinks=True, ignore=left_out)


@contextlib.contextmanager
def written(tree, rows):
    """The tree with the files of these rows: their paths."""
    before = {}
    for _, name, content, *_ in rows:
        path, number = tree / name, 1
        while path in before:
            number += 1
            path = (tree / name).with_stem(f"{Path(name).stem}{number}")
        assert path.exists() == callable(content), f"{name} exists already: choose another name"
        before[path] = path.read_text() if callable(content) else None
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content(before[path]) if callable(content) else content.rstrip("\n") + "\n")
    try:
        yield [str(path.relative_to(tree)) for path in before]
    finally:
        for path, text in before.items():
            path.unlink() if text is None else path.write_text(text)


def run_lint(name, tree, rpsim):
    script = next(path for path in LINTS if path.stem == name)
    done = ran("bash" if script.suffix == ".sh" else sys.executable, script, tree, "no-build", rpsim, status=None)
    if done.status == 77:
        pytest.skip(done.out)
    return done


@pytest.mark.parametrize("name", [path.stem for path in LINTS])
def test_harmless(tree, name):
    with written(tree, [("", file, text) for file, text in HARMLESS.items()]):
        assert "zz_harmless" not in run_lint(name, tree, program("rpsim")).said


@pytest.mark.parametrize("lint, rows", RUNS)
def test_violations(tree, lint, rows):
    with written(tree, rows) as files:
        done = run_lint(lint.split()[0], tree, "" if "without rpsim" in lint else program("rpsim"))
    assert done.status == 1
    for file, (what, _, _, *needles) in zip(files, rows):
        for needle in (needles or [f"{file}:"]) if what else []:
            assert needle in done.said, f"{what}: no {needle!r} in {done}"


def test_subjects(tmp_path, source):
    """A history that begins with the lint: later subjects count."""
    def commit(subject):
        ran("git", *"-c user.name=x -c user.email=x@localhost commit -q --allow-empty -m".split(), subject, cwd=tmp_path)

    (tmp_path / "tests/lint").mkdir(parents=True)
    lint = shutil.copy(source / "tests/lint/subjects.py", tmp_path / "tests/lint")
    ran("git init -q", cwd=tmp_path)
    ran("git add .", cwd=tmp_path)
    commit("Anything; before.")
    commit("sim/run: count hops once")
    ran(sys.executable, lint, tmp_path)
    for subject in ("Count hops once", "sim: count; hops", "sim: count hops.", "sim: " + "x" * 80):
        commit(subject)
        assert subject in ran(sys.executable, lint, tmp_path, status=1).out
