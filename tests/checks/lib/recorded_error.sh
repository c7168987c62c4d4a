#!/usr/bin/env bash
# recorded_error.sh CASEDIR RPSIM RPDIFF: how far rpsim's prediction of a recorded run is off, in percent:
# median of the iterations but the first, predicted over measured, less 1.
# CASEDIR: program.txt, timeline.csv, args (model and sequence length), and, there or one above, costs.yaml and
# platform.yaml of another run.
set -euo pipefail
case=$1
costs=$case
[ -f "$case/costs.yaml" ] || costs=$case/..
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
read -r model length <"$case/args"
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
[ ! -f "$root/$model" ] || model=$root/$model # a file of this repository
"$2" --program-in "$case/program.txt" --model "$model" --seq-len "$length" --costs "$costs/costs.yaml" \
    --platform "$costs/platform.yaml" --fidelity hardware --timeline-out "$work/predicted.csv" --format json >"$work/said"
"$3" "$work/predicted.csv" "$case" --format json >"$work/diff"
awk 'function median(v, n,  i, k, t) {
        for (i = 2; i <= n; i++) for (k = i; k > 1 && v[k] < v[k - 1]; k--) { t = v[k]; v[k] = v[k - 1]; v[k - 1] = t }
        return n % 2 ? v[(n + 1) / 2] : (v[n / 2] + v[n / 2 + 1]) / 2 }
    /"iterations"/ { inside = 1; next }
    inside && /\]/ { exit }
    inside && seen++ { n++; gsub(/[{}"a-z_:]/, ""); split($0, f, ","); p[n] = f[1]; m[n] = f[2] }
    END { if (n == 0) exit 1
          printf "%.4f\n", 100 * (median(p, n) / median(m, n) - 1) }' "$work/diff"
