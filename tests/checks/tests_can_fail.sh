#!/usr/bin/env bash
# A test that leaves memory, or something of the fake GPU machine, behind must fail although
# Criterion counts no assertion of a teardown: each suite of tests/tools/leaking_tests.c, which has
# one for every kind of teardown, fails with its leak and passes without.
set -euo pipefail
binary=$2/tests/leaking_tests
if [ ! -x "$binary" ]; then
    echo "skipped: no tests with Criterion in this build (ThreadSanitizer)"
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
suites=0

# expect STATUS TEST TEXT: TEST ends with that exit status and prints TEXT.
expect()
{
    local status=0
    "$binary" --jobs 1 --filter "$2" >"$work/output" 2>&1 || status=$?
    if [ "$status" -ne "$1" ] || ! grep -qF -- "$3" "$work/output"; then
        echo "$2: exit status $status instead of $1, or no \"$3\":"
        cat "$work/output"
        failures=$((failures + 1))
    fi
}

for suite in own_arena no_arena common_arena tool gpu; do
    expect 1 "$suite/leaks" "left by $suite/leaks: "
    suites=$((suites + 1))
done
expect 1 gpu_things/leaks "left by gpu_things/leaks: 1 things of the fake machine"
# One test that leaks beside one that does not.
expect 1 "own_arena/*" "left by own_arena/leaks: "
expect 0 "*/gives_back" "Passing: $suites "
# The first cause stays in sight, above what the teardown finds.
expect 1 failed_before/leaks "left by failed_before/leaks: "
first=$(grep -nF "the first cause" "$work/output" | cut -d: -f1 | head -1)
second=$(grep -nF "left by" "$work/output" | cut -d: -f1 | head -1)
if [ -z "$first" ] || [ "$first" -gt "${second:-0}" ]; then
    echo "failed_before: the teardown hides the assertion that failed before:"
    cat "$work/output"
    failures=$((failures + 1))
fi
echo "$suites kinds of teardown, $failures unexpected"
[ "$failures" -eq 0 ]
