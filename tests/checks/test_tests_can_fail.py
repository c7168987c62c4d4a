"""A test that leaves memory, or something of the fake GPU machine, behind must fail although Criterion counts no
assertion of a teardown: each suite of tests/tools/leaking_tests.c, a suite for every kind of teardown, fails with its
leak and passes without. Every condition of tests/support/assertions.h fails when it should, and prints its values. And
the summary of `./bootstrap.sh test` (tests/tools/results.py) lists skipped tests, and those of which a part was
skipped, with reasons; a test without its program has failed.
"""

import re
import sys
from pathlib import Path

import pytest

from conftest import BUILD, SOURCE

SUITES = ["own_arena", "no_arena", "common_arena", "tool", "gpu"]
RESULTS = """add_test(passes true)
add_test(in_part sh -c "echo; echo 'skipped in part: 2 of 5: no tool'; echo 3 passed")
add_test(fails_in_part sh -c "echo 'skipped in part: 1 of 2: no tool'; exit 1")
add_test(no_program "/no/such/program")
add_test(says_why sh -c "echo first; echo 'skipped: no <x> & \\"y\\"'; echo last; exit 77")
add_test(to_stderr sh -c "echo a line >&2; echo no z >&2; exit 77")
add_test(is_silent sh -c "exit 77")
set_tests_properties(says_why to_stderr is_silent no_program PROPERTIES SKIP_RETURN_CODE 77)
add_test(is_disabled true)
set_tests_properties(is_disabled PROPERTIES DISABLED TRUE)
"""
SUMMARY = """2 2 4
says_why: no <x> & "y"
to_stderr: no z
is_silent: it does not say why
is_disabled: disabled
in_part: skipped in part: 2 of 5: no tool
"""


@pytest.fixture
def leaking(run):
    if not (BUILD / "tests/leaking_tests").exists():
        pytest.skip("no tests with Criterion in this build (ThreadSanitizer)")
    return lambda test, **expected: run(BUILD / "tests/leaking_tests", "--jobs", 1, "--filter", test, **expected)


def test_leaks(leaking):
    for suite in SUITES:
        leaking(f"{suite}/leaks", status=1, said=f"left by {suite}/leaks: ")
    leaking("gpu_things/leaks", status=1, said="left by gpu_things/leaks: 1 things of the fake machine")
    leaking("own_arena/*", status=1, said="left by own_arena/leaks: ")  # beside a test without a leak
    leaking("*/gives_back", said=f"Passing: {len(SUITES)} ")
    # The first cause stays in sight, above the teardown's message.
    said = leaking("failed_before/leaks", status=1, said="left by failed_before/leaks: ").said
    assert 0 <= said.find("the first cause") < said.find("left by"), said


def test_conditions(leaking):
    leaking("assertions/hold", said="Passing: 1 ")
    said = leaking("assertions/fail", status=1, said="the last").said
    body = re.search(r"(?ms)^Test\(assertions, fail\).*?^}", (SOURCE / "tests/tools/leaking_tests.c").read_text())[0]
    conditions = len(re.findall(r"(?m)^ *cr_(?:expect|assert)\(", body))
    assert said.count("Assertion Failed") == conditions >= 20, said
    for text in ("the message of 1", "eq(int, 2, 3)", "[-2-]{+3+}", "gt(u32, 2, 2)", "reference: 2", "epsilon: 0.125",
                 "ulp: 3", 'unexpected: "abc"', "text[0] == ',' || text[1] == ')': ", "(abc"):
        assert text in said


def test_summary(run):
    Path("CTestTestfile.cmake").write_text(RESULTS)
    run("ctest --output-junit results.xml", status=None)
    assert run(sys.executable, SOURCE / "tests/tools/results.py", "results.xml").out == SUMMARY
