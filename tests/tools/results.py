"""results.py REPORT.xml: results of one ctest run from its JUnit file.

A line with the numbers of tests that passed, failed and were skipped, then for each skipped one its name and why. Only a
test that said so itself was skipped: ctest writes "skipped" for a missing program too, and that is a failure here.
"""

import sys
from xml.etree import ElementTree


def reason(case):
    """Why a test was skipped (None: it was not): the last line that says so, or else the last line."""
    if case.get("status") == "disabled":
        return "disabled"
    skipped = case.find("skipped")
    if skipped is None or not skipped.get("message", "").startswith("SKIP_"):
        return None
    lines = [line for line in case.findtext("system-out", "").splitlines() if line.strip()]
    said = [line.removeprefix("skipped: ") for line in lines if line.startswith("skipped: ")] or lines
    return said[-1] if said else "it does not say why"


cases = list(ElementTree.parse(sys.argv[1]).iter("testcase"))
passed = sum(case.get("status") == "run" for case in cases)
reasons = {case.get("name"): reason(case) for case in cases if reason(case)}
print(passed, len(cases) - passed - len(reasons), len(reasons))
for name, why in reasons.items():
    print(f"{name}: {why}")
