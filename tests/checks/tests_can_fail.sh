#!/usr/bin/env bash
# A test that leaves memory, or something of the fake GPU machine, behind must fail although
# Criterion counts no assertion of a teardown: each suite of tests/tools/leaking_tests.c, which has
# one for every kind of teardown, fails with its leak and passes without. Every condition of tests/support/assertions.h
# fails where it should, and its values are printed. And the summary of `./bootstrap.sh test`
# (tests/tools/results.awk) says which tests were skipped and why; a test without its program has failed.
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

expect 0 assertions/hold "Passing: 1 "
expect 1 assertions/fail "the last"
conditions=$(sed -n '/^Test(assertions, fail)/,/^}/p' "$1/tests/tools/leaking_tests.c" | grep -cE '^ *cr_(expect|assert)')
failed=$(grep -cF "Assertion Failed" "$work/output")
if [ "$failed" -ne "$conditions" ] || [ "$conditions" -lt 20 ]; then
    echo "assertions/fail: $failed of $conditions assertions failed:"
    cat "$work/output"
    failures=$((failures + 1))
fi
for text in "the message of 1" "eq(int, 2, 3)" "[-2-]{+3+}" 'gt(u32, 2, 2)' "reference: 2" "epsilon: 0.125" "ulp: 3" \
    'unexpected: "abc"' "text[0] == ',' || text[1] == ')': " "(abc"; do
    if ! grep -qF -- "$text" "$work/output"; then
        echo "assertions/fail: no \"$text\" in its messages"
        failures=$((failures + 1))
    fi
done
mkdir "$work/results"
cat >"$work/results/CTestTestfile.cmake" <<'CMAKE'
add_test(passes true)
add_test(fails false)
add_test(no_program "/no/such/program")
add_test(says_why sh -c "echo first; echo 'skipped: no <x> & \"y\"'; echo last; exit 77")
add_test(to_stderr sh -c "echo a line >&2; echo no z >&2; exit 77")
add_test(is_silent sh -c "exit 77")
set_tests_properties(says_why to_stderr is_silent no_program PROPERTIES SKIP_RETURN_CODE 77)
add_test(is_disabled true)
set_tests_properties(is_disabled PROPERTIES DISABLED TRUE)
CMAKE
(cd "$work/results" && ctest --output-junit results.xml >ctest.log 2>&1) || true
awk -f "$1/tests/tools/results.awk" "$work/results/results.xml" >"$work/results/found"
cat >"$work/results/expected" <<'TEXT'
1 2 4
says_why: no <x> & "y"
to_stderr: no z
is_silent: it does not say why
is_disabled: disabled
TEXT
if ! diff "$work/results/expected" "$work/results/found"; then
    echo "the summary of a run differs (<: expected)"
    failures=$((failures + 1))
fi
echo "$suites kinds of teardown, $conditions conditions, a summary, $failures unexpected"
[ "$failures" -eq 0 ]
