#!/usr/bin/env bash
# Criterion prints an assertion that fails in a .fini, but lets the test pass: no teardown, nor
# anything of tests/ that it calls, may have one. rp_test_none_left (tests/support/test_arena.h)
# really fails.
source "$(dirname "$0")/lib/lint.sh"

mapfile -t files < <(lint_files "c h" tests)
lint_bare "${files[@]}" | awk -f "$lint_root_of_script/teardown.awk" |
    lint_report "an assertion of a teardown fails no test: rp_test_none_left does"
lint_end
