"""Writes the bad programs: base.txt, with one edit per row of expected.tsv.

    bad_programs.py tests/bad/programs OUT

From line `at` on, `cut` lines give way to `text`, whose \\n, \\r, \\t, \\\\ and \\xNN are escapes.
"""

import csv
import pathlib
import sys


def main(source, out):
    out.mkdir(parents=True, exist_ok=True)
    lines = (source / "base.txt").read_bytes().splitlines(keepends=True)
    with open(source / "expected.tsv", encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE):
            text = row["text"].encode("ascii").decode("unicode_escape").encode("latin-1")
            at = int(row["at"]) - 1
            edited = lines[:at] + [text] + lines[at + int(row["cut"]) :]
            (out / f"{row['name']}.txt").write_bytes(b"".join(edited))


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
