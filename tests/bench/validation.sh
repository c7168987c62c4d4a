#!/usr/bin/env bash
# validation.sh BINDIR EXPERIMENT [OUTDIR]: predicted against measured iteration times on the host
# backend, as CSV. Costs are recorded in runs of their own, on one GPU, before; then EXPERIMENT
# (experiments/validation.yaml) runs, every op really computed. Takes minutes and wants an idle machine.
# One row per configuration: measured is the median over runs of the median iteration, spread how far
# the runs are apart. Then rows with the means, and Kendall's tau of the schedules' order per size and
# number of GPUs, pairs closer than the spread left out as ties. OUTDIR keeps records and store.
set -euo pipefail
export LC_ALL=C.UTF-8
bin=$(cd "$1" && pwd)
experiment=$(cd "$(dirname "$2")" && pwd)/$(basename "$2")
script=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/validation.awk
if [ $# -gt 2 ]; then
    mkdir -p "$3"
    cd "$3"
else
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    cd "$work"
fi
rpsweep=$bin/experiments/rpsweep
rpexec=$bin/exec/rpexec
[ -x "$rpsweep" ] || rpsweep=$bin/rpsweep rpexec=$bin/rpexec

sed -n 's/.*seq-len: \([0-9]*\), costs: \([a-z0-9-]*\).*/\1 \2/p' "$experiment" | while read -r length record; do
    "$rpexec" --model small --schedule roundpipe --gpus 1 --microbatches 4 --seq-len "$length" --steps 6 \
        --record "$record" </dev/null >/dev/null
done
"$rpsweep" "$experiment" --db validation.db --jobs 1 --rpexec "$rpexec" --resume </dev/null >&2
sqlite3 -readonly -csv validation.db "
    SELECT seq_len, gpus, microbatches, schedule, seed,
        max(value) FILTER (WHERE name = 'predicted_iteration_ps') / 1e9,
        max(value) FILTER (WHERE name = 'iteration_median_ps') / 1e9
    FROM runs JOIN metrics ON run_id = runs.id GROUP BY runs.id ORDER BY 1, 2, 3, 4, 5" |
    awk -f "$script"
