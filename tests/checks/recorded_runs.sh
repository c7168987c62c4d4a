#!/usr/bin/env bash
# Recorded runs (traces/runs) simulated again: what rpsim predicts of each is off by no more than its gate
# (tests/golden/run_gates.csv), and gates can only tighten: one that is more than half a percent too wide fails, too.
# Release only: each run is simulated once.
set -euo pipefail
source_root=$1
build=$2
rpsim=$3
failures=0
cases=0
gates=$source_root/tests/golden/run_gates.csv
fail() {
    echo "$1"
    failures=$((failures + 1))
}
for facts in "$source_root"/traces/runs/*/facts.txt; do
    for what in date device versions; do
        grep -q "^$what: ." "$facts" || fail "$facts does not say its '$what:'"
    done
done
for case in "$source_root"/traces/runs/*/*/; do
    name=${case#"$source_root/traces/runs/"}
    name=${name%/}
    gate=$(awk -F, -v name="$name" '$1 == name { print $2 }' "$gates")
    if [ -z "$gate" ]; then
        fail "$name has no gate in tests/golden/run_gates.csv"
        continue
    fi
    error=$(bash "$source_root/tests/checks/lib/recorded_error.sh" "$case" "$rpsim" "$build/rpdiff")
    verdict=$(awk -v e="$error" -v g="$gate" 'BEGIN { a = e < 0 ? -e : +e; g += 0
        print (a > g) ? "is off by more than its gate" : (a < g - 0.5) ? "is better than its gate: tighten it" : "" }')
    [ -z "$verdict" ] || fail "$name: $verdict ($error %, gate $gate)"
    cases=$((cases + 1))
done
rows=$(awk 'NR > 1' "$gates" | wc -l)
[ "$rows" -eq "$cases" ] || fail "$cases recorded runs, $rows gates"
[ "$cases" -ge 5 ] || fail "only $cases recorded runs"
[ $failures -eq 0 ]
