"""results.py REPORT.xml: results of one ctest run from its JUnit file.

Prints the numbers of passed, failed and skipped tests, then name and reason of each skipped test, and of each passed
test that says "skipped in part: ". Only tests that report it themselves were skipped: ctest also writes "skipped" for a
missing program, which is a failure here.
"""

import sys
from xml.etree import ElementTree


def reason(case):
    """Why a test was skipped (None: it was not): the last line with a reason, or else the last line."""
    if case.get("status") == "disabled":
        return "disabled"
    skipped = case.find("skipped")
    if skipped is None or not skipped.get("message", "").startswith("SKIP_"):
        return None
    lines = [line for line in case.findtext("system-out", "").splitlines() if line.strip()]
    said = [line.removeprefix("skipped: ") for line in lines if line.startswith("skipped: ")] or lines
    return said[-1] if said else "it does not say why"


def parts(case):
    """What a test that has passed says of its skipped parts."""
    lines = case.findtext("system-out", "").splitlines() if case.get("status") == "run" else []
    return [line for line in lines if line.startswith("skipped in part: ")]


cases = list(ElementTree.parse(sys.argv[1]).iter("testcase"))
passed = sum(case.get("status") == "run" for case in cases)
reasons = {case.get("name"): reason(case) for case in cases if reason(case)}
print(passed, len(cases) - passed - len(reasons), len(reasons))
for name, why in reasons.items():
    print(f"{name}: {why}")
for case in cases:
    for line in parts(case):
        print(f"{case.get('name')}: {line}")
