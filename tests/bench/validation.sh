#!/usr/bin/env bash
# validation.sh BINDIR EXPERIMENT [OUTDIR]: predicted against measured iteration times on the host
# backend, as CSV. Costs are recorded in runs of their own, on one GPU, before; then EXPERIMENT
# (experiments/validation.yaml) runs, every op really computed. Takes minutes and wants an idle machine.
# The CSV is rpdiff's of the store. OUTDIR keeps records and store.
set -euo pipefail
export LC_ALL=C.UTF-8
bin=$(cd "$1" && pwd)
experiment=$(cd "$(dirname "$2")" && pwd)/$(basename "$2")
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
rpdiff=$bin/rpdiff
[ -x "$rpsweep" ] || rpsweep=$bin/rpsweep rpexec=$bin/rpexec

sed -n 's/.*seq-len: \([0-9]*\), costs: \([a-z0-9-]*\).*/\1 \2/p' "$experiment" | while read -r length record; do
    "$rpexec" --backend host --bind --model small --schedule roundpipe --gpus 1 --microbatches 4 --seq-len "$length" --steps 6 \
        --record "$record" </dev/null >/dev/null
done
"$rpsweep" "$experiment" --db validation.db --jobs 1 --rpexec "$rpexec" --resume </dev/null >&2
"$rpdiff" validation.db --format csv
