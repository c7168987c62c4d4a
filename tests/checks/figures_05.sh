#!/usr/bin/env bash
# Figure 5 of the paper: every point against the formula as the figure's README has it, evaluated here on its own, and
# the thresholds against peak over link rate.
set -euo pipefail
source_dir=$1 build_dir=$2
command -v awk >/dev/null || { echo "skipped: awk is missing"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export LC_ALL=C
bash "$source_dir/paper-figures/05-intensity/make.sh" "$build_dir" "$work" >/dev/null
for platform in rtx5090x8 a800x8 rtx4090x8 h100x8; do
    awk -v name=$platform '$1 == "fp16_tflops_fp16_acc:" { peak = $2 } $1 == "link_gb_per_s:" { link = $2 }
        END { printf "%s,%.17g\n", name, peak * 1e12 / (link * 1e9) }' "$source_dir/traces/platforms/$platform.yaml"
done >"$work/derived"
awk -F, '
    function same(what, found, wanted) {
        compared++
        if (!(found > 0) || (found - wanted) ^ 2 > (4e-16 * wanted) ^ 2) {
            printf "%s: %.17g, not %.17g\n", what, found, wanted
            bad = 1
        }
    }
    FNR == 1 { file++ }
    file == 1 { derived[$1] = $2; next }
    FNR == 1 || NF == 0 { next }
    file == 2 {
        # h = $3, a = $4, k = $5, m = $6, active = $7, E = $8; s = 2048
        per_batch = 2048 * $3 * (4 * $3 + 4 * $3 * $5 / $4 + 4 * 2048 + 6 * $6 * $7 + ($8 > 1 ? 2 * $8 : 0))
        weights = $3 * (4 * $3 + 4 * $3 * $5 / $4 + 6 * $6 * $8 + ($8 > 1 ? 2 * $8 : 0))
        for (b = 1; b <= 256; b++) {
            flop[$1, b] = b * per_batch
            bytes[$1, b] = weights + 2 * b * 2048 * $3
        }
        next
    }
    file == 3 { same($1 " " $2, $3, flop[$1, $2] / bytes[$1, $2]); curve += !seen[$1, $2]++; next }
    $1 == "threshold" {
        same($2, $8, derived[$2])
        if ($7 != int(derived[$2] + 0.5)) { print $2 ": threshold " $7; bad = 1 }
        limit[$3] = $7
        thresholds++
    }
    $1 == "intensity" {
        same($2 " " $4, $8, flop[$2, $4] / bytes[$2, $4])
        same($2 " " $4, $5, flop[$2, $4])
        same($2 " " $4, $6, bytes[$2, $4])
        points++
    }
    $1 == "batch to reach" {
        for (b = 1; b <= 256 && flop[$2, b] < limit[$3] * bytes[$2, b]; b++) {
        }
        if ($8 != (b > 256 ? "" : b)) { print $2 " on " $3 ": " $8 ", not " b; bad = 1 }
        crossings++
    }
    END {
        if (bad || thresholds != 4 || points != 45 || curve != 5 * 256 || crossings != 20) {
            print "figure 5 differs: " thresholds, points, curve, crossings
            exit 1
        }
        print "figure 5: " compared " values equal their definitions"
    }' "$work/derived" "$source_dir/paper-figures/published/models.csv" "$work/05-intensity-curve.csv" \
    "$work/05-intensity.csv"
if command -v gnuplot >/dev/null; then
    for ext in svg png pdf; do
        [ "$(wc -c <"$work/05-intensity.$ext")" -gt 2000 ] || { echo "$ext is not drawn"; exit 1; }
    done
fi
