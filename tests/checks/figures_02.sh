#!/usr/bin/env bash
# Figure 2 of the paper: every point against the formulas as the figure's README has them, evaluated here on their own.
set -euo pipefail
source_dir=$1 build_dir=$2
command -v awk >/dev/null || { echo "skipped: awk is missing"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export LC_ALL=C
bash "$source_dir/paper-figures/02-recompute-or-reload/make.sh" "$build_dir" "$work" >/dev/null
# b = 4, s = 2048, 330 TFLOP/s and 32 GB/s are the definition's; 20.97 GB/s the hop times' rate.
awk -F, '
    function same(what, found, wanted) {
        compared++
        if (!(found > 0) || (found - wanted) ^ 2 > (4e-16 * wanted) ^ 2) {
            printf "%s: %.17g, not %.17g\n", what, found, wanted
            bad = 1
        }
    }
    FNR == 1 { file++; next }
    file == 1 {
        # layers, hidden, heads, kv_heads, intermediate, active experts
        tokens = 4 * 2048
        flop[$1] = tokens * (4 * $3 * $3 + 4 * $3 * $3 * $5 / $4 + 4 * 2048 * $3 + 6 * $3 * $6 * $7)
        bytes[$1] = tokens * (12 * $3 + 4 * $3 * $5 / $4 + 6 * $6 * $7)
        models++
        next
    }
    file == 2 { forward[$1] = $3; next }
    { rows[$1]++; seen[$1, $2]++ }
    $1 == "recompute" || $1 == "forward measured" { same($1 " " $2, $6, flop[$2] / 330e9); same($2, $3, flop[$2]) }
    $1 == "reload" { same($1 " " $2, $6, bytes[$2] / 32e6); same($2, $3, bytes[$2]) }
    $1 == "reload at measured rate" { same($1 " " $2, $6, bytes[$2] / 20.97e6) }
    $1 == "forward measured" {
        if ($5 != forward[$2]) { print $2 ": published " $5; bad = 1 }
        if (($7 - (100 * $6 / forward[$2] - 100)) ^ 2 > 1e-20) { print $2 ": difference " $7; bad = 1 }
    }
    END {
        for (kind in rows) if (rows[kind] != models) bad = 1
        for (point in seen) if (seen[point] != 1) bad = 1
        if (bad || models != 5 || compared != 35) { print "figure 2 differs: " compared " values"; exit 1 }
        print "figure 2: " compared " values equal their definitions"
    }' "$source_dir/paper-figures/published/models.csv" "$source_dir/paper-figures/published/layer_times_4090.csv" \
    "$work/02-recompute-or-reload.csv"
if command -v gnuplot >/dev/null; then
    for ext in svg png pdf; do
        [ "$(wc -c <"$work/02-recompute-or-reload.$ext")" -gt 2000 ] || { echo "$ext is not drawn"; exit 1; }
    done
fi
