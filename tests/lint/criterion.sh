#!/usr/bin/env bash
# Three faults of Criterion that a test's author does not see. It prints a failed assertion in a .fini but lets the test
# pass, so no teardown, nor anything of tests/ that it calls, may have an assertion; rp_test_none_left
# (tests/support/test_arena.h) really fails. It loses 48 bytes when a test starts whose time limit ends before that of
# the test beside it, and LeakSanitizer then fails the program now and then, so the tests of a file have the same limit.
# Its gt accepts equal values, so assertions come from tests/support/assertions.h, which also compile in a third of the
# time.
source "$(dirname "$0")/lib/lint.sh"

mapfile -t files < <(lint_files "c h" tests)
lint_bare "${files[@]}" >"$lint_work/bare"
awk -f "$lint_root_of_script/teardown.awk" "$lint_work/bare" |
    lint_report "an assertion of a teardown fails no test: rp_test_none_left does"
awk '
    match($0, /\.timeout *= *[0-9.]+/) {
        file = substr($0, 1, index($0, ":") - 1)
        limit = substr($0, RSTART, RLENGTH)
        gsub(/[^0-9.]|^\./, "", limit)
        if (file in first && first[file] != limit) print
        if (!(file in first)) first[file] = limit
    }' "$lint_work/bare" | lint_report "the tests of a file have one time limit"
{ grep -E ':#include <criterion/new/assert\.h>' "$lint_work/bare" || true; } |
    { grep -v '^tests/support/assertions\.c:' || true; } |
    lint_report "assertions are those of tests/support/assertions.h"
lint_end
