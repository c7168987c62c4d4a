"""Subjects of commits, from the one that adds this lint: "area: imperative summary", one topic.

    subjects.py SOURCE
"""

import re
import subprocess
import sys

AREA = re.compile(r"[a-z0-9][A-Za-z0-9_/.,+* -]*: \S")
RULES = (  # why, whether a subject breaks it
    ("an area and a colon come first", lambda subject: not AREA.match(subject)),
    ("one topic", lambda subject: ";" in subject),
    ("no full stop", lambda subject: subject.endswith(".")),
    ("at most 80 columns", lambda subject: len(subject) > 80),
)


def log(root, *arguments):
    done = subprocess.run(["git", "-C", root, "log", *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        print("skipped: no history here: " + done.stderr.strip())
        sys.exit(77)
    return done.stdout.splitlines()


def main(root):
    first = log(root, "--diff-filter=A", "--format=%H", "--", "tests/lint/subjects.py")
    wrong = 0
    for line in log(root, "--no-merges", "--format=%h %s", f"{first[-1]}..HEAD") if first else []:
        commit, _, subject = line.partition(" ")
        if " " not in subject or subject.startswith("Revert "):
            continue  # a tool's snapshot; git's own words
        for why, broken in RULES:
            if broken(subject):
                print(f"{commit}: {subject}    <- {why}")
                wrong += 1
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
