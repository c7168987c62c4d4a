#!/usr/bin/env bash
# Recorded runs (traces/runs) simulated again: what rpsim predicts of each is off by no more than its gate
# (tests/golden/run_gates.csv), and gates can only tighten: one that is more than half a percent too wide fails, too.
# Runs in an archive of the device suite are held together, too, to what is asked of them (experiments/gpu.md).
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
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# updates LOGS GPUS: the median rate of UPDATEs in all timelines of so many GPUs, in GB/s. Medians, since the UPDATEs of
# a tied table wait for each other; first iterations do not count.
updates() {
    for run in "$1"/run-*-"$2"-*/; do
        awk -F, 'FNR == NR && /^queue/ { ops = 1; next } # ops are numbered over all queues
            FNR == NR && ops && match($0, / bytes [0-9]+/) { bytes[n] = substr($0, RSTART + 7, RLENGTH - 7) }
            FNR == NR { n += ops; next }
            $4 == "U" && $7 > 0 { printf "%.6f\n", 1e3 * bytes[$1] / ($9 - $8) }' "$run/program.txt" "$run/timeline.csv"
    done | sort -g | awk '{ v[NR] = $1 } END { print (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2 }'
}

# An archive's runs as cases, in $work/NAME/CASE. Records have no rate of the GPU's memory: facts.txt says why.
for archive in "$source_root"/traces/runs/*/*.tar.gz; do
    folder=$work/$(basename "$(dirname "$archive")")
    mkdir -p "$folder.logs"
    tar -xzf "$archive" -C "$folder.logs"
    for record in "$folder.logs"/logs/record-[0-9]*/; do
        gpus=$(basename "$record")
        gpus=${gpus#record-}
        [ -f "$record/costs.yaml" ] || continue
        rate=$(updates "$folder.logs/logs" "$gpus")
        for run in "$folder.logs"/logs/run-*-"$gpus"-*/; do
            case=$(basename "$run")
            mkdir -p "$folder/${case#run-}"
            cp "$run"/* "$record/costs.yaml" "$folder/${case#run-}/"
            cp "$folder.logs/logs/$case.args" "$folder/${case#run-}/args"
            sed -E "s/^(memory(_effective)?_gb_per_s): .*/\1: $rate/" "$record/platform.yaml" >"$folder/${case#run-}/platform.yaml"
        done
    done
    rm -r "$folder.logs"
done
"$source_root/tests/tools/folded.py" unfold "$work" "$source_root/traces/runs"
for case in "$work"/*/*/ "$work"/runs/*/*/; do
    [ -f "$case/program.txt" ] || continue
    folder=${case%/*/}
    name=$(basename "$folder")/$(basename "$case")
    gate=$(awk -F, -v name="$name" '$1 == name { print $2 }' "$gates")
    if [ -z "$gate" ]; then
        fail "$name has no gate in tests/golden/run_gates.csv"
        continue
    fi
    error=$(bash "$source_root/tests/checks/lib/recorded_error.sh" "$case" "$rpsim" "$build/rpdiff")
    verdict=$(awk -v e="$error" -v g="$gate" 'BEGIN { a = e < 0 ? -e : +e; g += 0
        print (a > g) ? "is off by more than its gate" : (a < g - 0.5) ? "is better than its gate: tighten it" : "" }')
    [ -z "$verdict" ] || fail "$name: $verdict ($error %, gate $gate)"
    [ "${folder%/*}" != "$work" ] || echo "$name $error" >>"$work/errors"
    cases=$((cases + 1))
done
rows=$(awk 'NR > 1' "$gates" | wc -l)
[ "$rows" -eq "$cases" ] || fail "$cases recorded runs, $rows gates"
[ "$cases" -ge 5 ] || fail "only $cases recorded runs"
awk -v page="$source_root/experiments/gpu.md" '
    { e = $2 < 0 ? -$2 : +$2
      split($1, part, "-")
      gpus = part[length(part) - 1]
      n[gpus]++
      sum[gpus] += e
      worst[gpus] = e > worst[gpus] ? e : worst[gpus] }
    END { while ((getline line < page) > 0) text = text " " line
          for (gpus in n) {
              said = sprintf("%d virtual GPUs %.1f %% on the mean, %.1f %% at worst", gpus, sum[gpus] / n[gpus], worst[gpus])
              if (!index(text, said)) { print page " does not say: " said; bad = 1 }
              if (worst[gpus] > 10) bad = 1
              all += n[gpus]
              total += sum[gpus] }
          exit bad || all < 16 || total / all > 5 }' "$work/errors" || fail "5 % on the mean and 10 % at worst are asked of archives"
[ $failures -eq 0 ]
