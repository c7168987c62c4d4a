#!/usr/bin/env bash
# The studies 31 to 33 against what does not come from them: published rows, closed forms for equal
# stages, runs of rpsim alone, orders that must hold. With fewer models than they have, 31 at hardware fidelity only.
# Release only
set -euo pipefail
source_dir=$1 build_dir=$2 rpsim=$3
for tool in awk sqlite3; do
    command -v $tool >/dev/null || { echo "skipped: $tool is missing"; exit 77; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export LC_ALL=C RP_TRACES=$source_dir/traces RP_EXPERIMENTS=$work/tree/experiments
published=$source_dir/paper-figures/published

fail()
{
    echo "$*"
    exit 1
}

# The studies with the models that a pattern names.
mkdir -p "$work/tree" "$work/out"
cp -r "$source_dir/experiments" "$work/tree/experiments"
for folder in paper-figures plots traces; do
    ln -s "$source_dir/$folder" "$work/tree/$folder"
done
for study in pcie-topology:'llama3.1-8b' microbatches-needed:'llama3.1-8b'; do
    file=$work/tree/experiments/${study%%:*}.yaml
    sed -i "s/^  model: \[.*\]\$/  model: [${study#*:}]/" "$file"
    grep -q "^  model: \[${study#*:}\]\$" "$file" || fail "$file: its models are not where they were"
done
studies=$work/tree/experiments/studies
sed -i 's|^sweep "$work/hardware.yaml"|sed -i "/gpt-oss/d; /qwen3-32b/d; /qwen3-235b/d" "$work/hardware.yaml"; &|' \
    "$studies/31-recompute-fairness/make.sh"
sed -i 's/^  schedule: \[.*/  schedule: [looped-bfs, mobius, roundpipe, roundpipe-overlap]/' "$work/tree/experiments/pcie-topology.yaml"
for study in "$studies"/3[123]-*; do
    bash "$study/make.sh" "$build_dir" "$work/out" >"$work/log" 2>&1 || { cat "$work/log"; fail "$study fails"; }
done

# 31: the points that the paper has, its leads, parts that add up, rules and partitions that cannot
# hurt. In the four baselines each GPU's order is fixed: fewer things to wait for cannot take longer.
awk -F, '
    function off(a, b, by) { return a - b > by || b - a > by }
    function complain(what) { print "31: " what; bad = 1 }
    FNR == 1 { file++; next }
    file == 1 {
        paper[$1, $2] = $4
        if ($1 != "roundpipe" && (!($2 in rival) || $4 < rival[$2])) rival[$2] = $4
        next
    }
    file == 2 && $1 == "stage" && $6 == "paper" && $5 == ($4 == "roundpipe" ? "early" : "wait") {
        equal++
        if (off($8, paper[$4, $3], 0.0006) || off($8 - paper[$4, $3], $11, 0.00001)) complain($4 " " $3)
    }
    file == 2 && $1 == "stage" && $4 != "roundpipe" {
        key = $0
        sub(/^[^"]*/, "", key)
        key = $3 " " $4 " " key
        if ($4 !~ /^zb/) time[$5, key] = $8
        keys[key] = 1
    }
    file == 3 && $10 != "" {
        cases++
        if (off($10 + $11 + $12, $9, 0.0003)) complain("parts of " $3)
        if (off($10, ($13 + $14) / 2, 0.0002) || off($11, ($15 + $16) / 2, 0.0002)) complain("orders of " $3)
        if (off($13 + $16, $14 + $15, 0.0003) || off($9, 100 * log(1 + $8 / 100), 0.0002)) complain("lead of " $3)
        if ($1 == "stage" && $4 == "paper") {
            leads++
            if (off($9, 100 * log(rival[$3] / paper["roundpipe", $3]), 0.0002)) complain("published lead of " $3)
        }
        if ($17 < 0) complain("free rounds hurt " $3)
    }
    END {
        for (key in keys) {
            if ((("wait", key) in time) && (("early", key) in time)) {
                compared++
                if (time["early", key] > time["wait", key] + 1e-6) complain("early is slower: " key)
            }
        }
        if (bad || equal != 25 || leads != 10 || cases < 20 || compared < 40) {
            print "31: " equal " published points, " leads " leads, " cases " cases, " compared " pairs"
            exit 1
        }
    }' "$published/pipeline_bubbles.csv" "$work/out/31-recompute-fairness.csv" \
    "$work/out/31-recompute-fairness-parts.csv"
# The table that its README shows.
awk -F, 'NR > 1 && $1 == "stage" && $4 == "paper" && $5 == "early" {
    printf "| %s | %.1f | %.2f | %.2f | %.2f | %.2f | %s |\n", $3, $8, $9, $10, $11, $12, $7
}' "$work/out/31-recompute-fairness-parts.csv" | while read -r row; do
    grep -qxF "$row" "$studies/31-recompute-fairness/README.md" || fail "31: not in its README: $row"
done

# 32: a point as rpsim has it from the platform file; ranks in SQL; what the uplink has to carry (the
# layers' weights twice up per call, two calls, shared evenly by the GPUs); more sharing or an older generation is never faster.
alone=$("$rpsim" --schedule roundpipe --model llama3.1-8b --gpus 8 --microbatches 16 --accumulate 2 --optimizer async \
    --iterations 16 --format json | sed -n 's/.*"iteration_ms":\([0-9.]*\).*/\1/p')
table=$work/out/32-pcie-topology.csv
awk -F, -v alone="$alone" '
    function complain(what) { print "32: " what; bad = 1 }
    FNR == 1 { file++; next }
    # layers, hidden, heads, kv_heads, intermediate
    file == 1 && $1 == "llama3.1-8b" { up = 2 * 2 * 2 * $2 * (2 * $3 * $3 * (1 + $5 / $4) + 3 * $3 * $6) }
    file == 1 { next }
    { ms[$4, $2, $3] = $5; name[$4] = 1; rows++ }
    $4 == "roundpipe" && $2 == 4 && $3 == 1 && ($5 - alone) ^ 2 > 1e-10 { complain("PCIe 4: " $5 ", alone " alone) }
    $4 ~ /^roundpipe/ && $5 < up * $3 / 8 / (20.97e6 * 2 ^ ($2 - 4)) {
        complain($4 " is faster than its uplink: " $0)
    }
    END {
        for (s in name) {
            for (g = 3; g <= 5; g++) {
                for (k = 1; k <= 8; k *= 2) {
                    if (k < 8 && ms[s, g, k] > ms[s, g, 2 * k] * 1.001) complain(s " gains by sharing")
                    if (g < 5 && ms[s, g + 1, k] > ms[s, g, k] * 1.001) complain(s " loses by PCIe " g + 1)
                }
            }
        }
        if (bad || rows != 48 || !(up > 1e9)) { print "32: " rows " rows, " up " bytes"; exit 1 }
    }' "$published/models.csv" "$table"
wrong=$(sqlite3 -csv :memory: ".import $table p" "
    SELECT count(*) FROM (SELECT p.rank AS given, (SELECT 1 + count(*) FROM p q WHERE q.pcie_gen = p.pcie_gen
            AND q.gpus_per_uplink = p.gpus_per_uplink AND q.fits = 'yes'
            AND CAST(p.step_ms AS REAL) > 1.001 * q.step_ms) AS found
        FROM p WHERE p.fits = 'yes') WHERE given <> found")
[ "$wrong" = 0 ] || fail "32: $wrong ranks differ"

# 33: with equal stages and free hops what is needed is the closed form; with measured times the
# thresholds as runs of rpsim alone have them.
ones()
{
    printf '1,%.0s' $(seq "$1") | sed 's/,$//'
}
cp "$work/out/33-microbatches-needed.csv" "$work/needed.csv"
cat >"$work/tree/experiments/microbatches-needed.yaml" <<TEXT
name: microbatches-needed
options: {fidelity: stage, costs.fwd_ms: 1, costs.bwd_ms: 2, "costs.head_fwd_ms*": 0, "costs.head_bwd_ms*": 0,
    costs.hop_ms: 0}
list:
$(for gpus in 2 4 8; do
    with="gpus: $gpus, microbatches: {from: $gpus, to: $((128 * gpus)), step: $gpus}"
    echo "  - {schedule: [gpipe, 1f1b], model: llama3.1-8b, partition: even, $with}"
    echo "  - {schedule: [looped-bfs, interleaved-1f1b], model: llama3.1-8b, partition: \"$(ones 32)\", $with}"
    echo "  - {schedule: roundpipe, model: qwen3-1.7b, partition: \"3,3,3,3,3,3,3,3,3|$(ones 28)\", $with}"
done)
TEXT
export RP_FORMS=" " # no pictures
bash "$studies/33-microbatches-needed/make.sh" "$build_dir" "$work/uniform" >"$work/log" 2>&1 || { cat "$work/log"; fail "33: equal stages fail"; }
awk -F, '
    NR > 1 {
        # N GPUs, S stages, share q: q (N - 1) / ((1 - q) S), rounded up.
        stages = $5 ~ /bfs|inter/ ? 32 : $5 == "roundpipe" ? 37 : $1
        exact = $8 * ($1 - 1) / ((100 - $8) * stages)
        up = exact == int(exact) ? exact : int(exact + 1)
        rows++
        if ($9 != up || $11 != up || $12 != "0" || $6 != stages) { print "33: equal stages, " exact ": " $0; bad = 1 }
    }
    END { if (bad || rows != 45) { print "33: " rows " rows with equal stages"; exit 1 } }
' "$work/uniform/33-microbatches-needed.csv"
makespan()
{
    "$rpsim" --fidelity stage --gpus 8 --partition paper --model llama3.1-8b --schedule "$1" --microbatches "$2" \
        --format json | sed -n 's/.*"makespan_ms":\([0-9.]*\).*/\1/p'
}
grep '^8,paper,sync,llama3.1-8b,' "$work/needed.csv" >"$work/rows"
[ "$(wc -l <"$work/rows")" = 15 ] || fail "33: $(wc -l <"$work/rows") rows"
while IFS=, read -r _ _ _ _ schedule _ limit share needed _; do
    echo "$schedule $limit $share $needed $(makespan "$schedule" 512) $(makespan "$schedule" 1024)" \
        "$(makespan "$schedule" $((8 * needed))) $(makespan "$schedule" $((8 * needed - 8)))"
done <"$work/rows" | awk '{
    limit = ($6 - $5) / 512
    if ((limit - $2) ^ 2 > 1e-10 || 100 * limit * 8 * $4 < $3 * $7 || 100 * limit * 8 * ($4 - 1) >= $3 * $8) {
        print "33: " $0
        exit 1
    }
}'
# The row that its README shows.
awk -F, '{ cell[$5] = cell[$5] (cell[$5] == "" ? "" : " / ") $9; closed = $5 == "roundpipe" ? closed " / " $11 : closed }
    END {
        printf "| llama3.1-8b | %s | %s | %s | %s | %s | %s |\n", cell["gpipe"], cell["1f1b"], cell["interleaved-1f1b"],
            cell["looped-bfs"], cell["roundpipe"], substr(closed, 4)
    }' "$work/rows" >"$work/row"
grep -qxFf "$work/row" "$studies/33-microbatches-needed/README.md" || fail "33: not in its README: $(cat "$work/row")"
# Asynchronous RoundPipe and PipeDream-2BW need one per GPU.
awk -F, '$3 == "async" { rows++; if ($9 != 1) bad = 1 } END { exit bad || rows != 21 }' "$work/needed.csv" ||
    fail "33: asynchronous"
if command -v gnuplot >/dev/null; then
    for picture in "$work"/out/3[123]-*.{svg,png,pdf}; do
        [ "$(wc -c <"$picture")" -gt 5000 ] || fail "$picture is not drawn"
    done
fi
echo "studies 31 to 33: published rows, sums, orders, ranks and closed forms hold"
