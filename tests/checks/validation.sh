#!/usr/bin/env bash
# The committed measurement of predictions (tests/bench/results/validation.csv): errors and Kendall's tau, worked out
# here again from predicted and measured times, are what rpdiff has written, within the gates below, and what
# README.md and docs/results.md say.
# The script that has measured it records anew before each block of runs and goes on where it was stopped.
# Release only: data, and a bench.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/little.yaml" <<'YAML'
name: little
program: rpexec
options: {backend: host, model: tiny, microbatches: 2, steps: 2, seq-len: 8, costs: tiny-8, predict: true, bind: true}
cross:
  schedule: [gpipe, 1f1b]
  gpus: [2]
repeats: 2
seed: 1
YAML
for attempt in 1 2; do
    bash "$1/tests/bench/validation.sh" "$2" "$work/little.yaml" "$work/out" >"$work/csv" 2>"$work/log"
    if [ "$(awk -F, '$1 == "configuration" && $10 == 2 { print $9 }' "$work/csv" | xargs)" != "1f1b gpipe" ]; then
        echo "two schedules, twice each:"
        cat "$work/csv" "$work/log"
        exit 1
    fi
    for round in 1 2; do
        stat -c %Y.%i "$work/out/round-$round-tiny-8-2.record/costs.yaml" "$work/out/round-$round-tiny-8-2.db"
    done >"$work/made-$attempt"
    rm "$work/out/round-2-tiny-8-2.db"
done
if [ "$(head -n 2 "$work/made-1")" != "$(head -n 2 "$work/made-2")" ] ||
    [ "$(sort "$work/made-1" "$work/made-2" | uniq -d | wc -l)" -ne 2 ]; then
    echo "not the second round alone was measured again:"
    paste "$work/made-1" "$work/made-2"
    exit 1
fi
awk -F, -v pages="$1/README.md $1/docs/results.md" '
    function size(x) { return x < 0 ? -x : x }
    function most(a, b) { return a > b ? a : b }
    function wrong(text) { print text; bad = 1 }
    $1 == "configuration" {
        n++
        group = $6 "," $7
        k = ++members[group]
        predicted[group, k] = $11
        measured[group, k] = $12
        spread[group, k] = $13 / 100
        seen[$9]++
        error = 100 * ($11 / $12 - 1)
        if (size(error - $14) > 0.011) wrong("error of " $9 " in " group " is " error ", not " $14)
        sum += size(error)
        worst = most(worst, size(error))
    }
    $1 == "order" { tau[$6 "," $7] = $15; pairs[$6 "," $7] = $16 }
    $1 == "mean |error|" { said_mean = $14 }
    $1 == "worst |error|" { said_worst = $14 }
    END {
        for (s in seen) schedules++
        for (group in members) {
            groups++
            agree = count = 0
            for (i = 1; i <= members[group]; i++) for (j = 1; j < i; j++) {
                apart = measured[group, i] - measured[group, j]
                near = most(spread[group, i], spread[group, j]) * most(measured[group, i], measured[group, j])
                if (size(apart) <= near) continue
                count++
                agree += (apart * (predicted[group, i] - predicted[group, j]) > 0) ? 1 : -1
            }
            ours = agree / count
            if (size(ours - tau[group]) > 0.001 || count != pairs[group])
                wrong("tau of " group " is " ours " of " count " pairs, not " tau[group] " of " pairs[group])
            pairs_in_all += count
            if (ours < 0.8 || count < 6) wrong("tau of " group " is " ours " of " count " pairs")
        }
        mean = sum / n
        if (n < 24 || schedules < 6 || groups < 4) wrong(n " configurations of " schedules " schedules in " groups " groups")
        if (pairs_in_all < 40) wrong(pairs_in_all " pairs are too few for an order")
        if (mean > 10 || worst > 20) wrong("errors of " mean " % on the mean and " worst " % at worst")
        if (size(mean - said_mean) > 0.011 || size(worst - said_worst) > 0.011) wrong("mean " mean ", worst " worst)
        text = sprintf("%.1f %% off on the mean, %.1f %% at worst", mean, worst)
        pages_in_all = split(pages, page, " ")
        for (i = 1; i <= pages_in_all; i++) {
            found = 0
            while ((getline line < page[i]) > 0) found = found || index(line, text)
            if (!found) wrong(page[i] " does not say: " text)
        }
        exit bad
    }' "$1/tests/bench/results/validation.csv"
