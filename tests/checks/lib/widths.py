"""Width of output for people, and the contents of its first 80 columns."""

import re


def fits_into(text, columns, command):
    """No line is wider than columns; tables of runs have throughput, memory and whether it fits in their first 80.

    rpadvise names no run that does not fit, and at stage fidelity memory is not modelled.
    """
    lines = text.splitlines()
    wide = [line for line in lines if len(line) > columns]
    assert not wide, f"{command}: wider than {columns}: {wide[:3]}"
    if "--columns" in command or any(re.search("stage( |$)", line) for line in lines[:2]):
        return
    fits = "" if "rpadvise" in command else " fits"
    for head, row in zip(lines, [*lines[1:], "0 0.0"]):
        if re.match(r" *(\* )?schedule .* tokens/s ", head):
            assert re.search(f"tokens/s .*GPU GB .*{fits}", head[:80]), f"{command}: {head}"
            assert re.search(r"[0-9]+ .*[0-9]+\.[0-9]", row[:80]), f"{command}: {row}"
