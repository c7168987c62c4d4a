#!/usr/bin/env bash
# Chakra traces come to their end in a reader that has one communication of a rank in flight, as ASTRA-sim's feeder
# (tests/reference/chakra_feeder.py): every system, and layouts. A longest path over the nodes takes as long as the run,
# with the host's ops as nodes and as delays. Skipped without python3.
# Sanitized: --long
set -euo pipefail
source_dir=$1 rpsim=$3
feeder=$source_dir/tests/reference/chakra_feeder.py
python=${RP_PYTHON:-python3}
if ! "$python" -c 'import json' 2>/dev/null; then
    echo "skipped: no python3"
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export RP_TRACES=$source_dir/traces PYTHONDONTWRITEBYTECODE=1
count=0
plays=3
if [ -n "${RP_LONG:-}" ]; then
    plays=20
fi

# try ARGUMENTS: the run's end is the trace's, and every play of it ends.
try() {
    local mode end found cpu
    for mode in keep delay; do
        rm -f "$work"/t.*
        "$rpsim" "$@" --timeline-out "$work/t.csv" --chakra-out "$work/t" --chakra-host-ops $mode \
            --format csv > "$work/out" 2> "$work/err" || { cat "$work/err"; echo "chakra_feeder: $*"; exit 1; }
        end=$(awk -F, '!/^#/ && $NF + 0 > most + 0 { most = $NF } END { print most }' "$work/t.csv")
        "$python" "$feeder" "$work/t" $plays > "$work/played" ||
            { cat "$work/played"; echo "chakra_feeder: $* ($mode) never ends"; exit 1; }
        read -r found cpu < "$work/played"
        [ "$end" = "$found" ] || { echo "chakra_feeder: $* ($mode): $found ps, and the run took $end"; exit 1; }
        [ $mode = keep ] || [ "$cpu" = 0 ] || { echo "chakra_feeder: $* has $cpu CPU nodes"; exit 1; }
        count=$((count + 1))
    done
}

sharded=(fsdp fsdp-offload megatron-tp zero2 zero3 zero-infinity zero-offload)
pipelines=(1f1b roundpipe)
if [ -n "${RP_LONG:-}" ]; then
    mapfile -t pipelines < <("$rpsim" --list schedules --format csv | tail -n +2 | cut -d, -f1)
fi
small=(--model gpt:512x8x4 --platform a100-80x8 --intervals off)
for schedule in "${sharded[@]}"; do
    try --schedule "$schedule" "${small[@]}" --gpus 8 --microbatches 16 --iterations 1
done
for schedule in "${pipelines[@]}"; do
    try --schedule "$schedule" --gpus 2 --microbatches 4 --iterations 2 --intervals off
done
try --schedule 1f1b "${small[@]}" --gpus 8 --microbatches 2 --iterations 2 --tensor-parallel 2 --data-parallel 2
if [ -n "${RP_LONG:-}" ]; then
    for schedule in "${sharded[@]}"; do
        try --schedule "$schedule" --gpus 8 --microbatches 16 --iterations 2 --intervals off
    done
    for schedule in gpipe interleaved-1f1b zb-h1 zbv megatron-pp; do
        try --schedule "$schedule" "${small[@]}" --microbatches 4 --iterations 2 --nodes 2 --tensor-parallel 2 --data-parallel 2
        try --schedule "$schedule" "${small[@]}" --microbatches 4 --iterations 2 --nodes 4 --tensor-parallel 8 --data-parallel 2
    done
fi
echo "chakra_feeder: $count traces end, $plays plays of each"
