#!/usr/bin/env bash
# scale.sh RPSIM [REPETITIONS [MOST_MICROBATCHES]] > scale.csv: an iteration of llama3.1-70b on 1,024 H100 in 128
# servers, eight GPUs per layer and eight places in the pipeline, by its number of microbatches; and on fewer servers.
# Seconds are the median wall time of the simulation itself; peak_mb is of the whole last process, empty without GNU
# time.
set -euo pipefail
rpsim=$1
repetitions=${2:-5}
most=${3:-4096}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
measured=()
[ -z "$(type -P time)" ] || measured=("$(type -P time)" -f %M -o "$work/kib")
echo > "$work/kib"
echo "gpus,simulated_gpus,microbatches,ops,seconds,us_per_op,peak_mb"
row() # COPIES MICROBATCHES
{
    for _ in $(seq "$repetitions"); do
        "${measured[@]}" "$rpsim" --schedule 1f1b --model llama3.1-70b --platform h100x1024 --gpus $((64 * $1)) \
            --tensor-parallel 8 --data-parallel "$1" --microbatches "$2" --microbatch-size 1 --seq-len 4096 \
            --iterations 1 --intervals off --timings --format csv > "$work/csv"
        awk -F, 'NR == 1 { gsub(/"[^"]*"/, ""); for (i = 1; i <= NF; i++) at[$i] = i }
            NR == 2 { gsub(/"[^"]*"/, "list")
                print $at["sim_wall_s"], $at["gpus"], $at["simulated_gpus"], $at["microbatches"], $at["ops"] }' \
            "$work/csv"
    done | sort -g > "$work/runs"
    sed -n "$((repetitions / 2 + 1))p" "$work/runs" |
        awk -v kib="$(cat "$work/kib")" '{ printf "%d,%d,%d,%d,%.4f,%.3f,", $2, $3, $4, $5, $1, 1e6 * $1 / $5
            print kib == "" ? "" : sprintf("%.1f", kib / 1024) }'
}
for copies in 1 4 16; do
    row $copies 64
done
for ((microbatches = 256; microbatches <= most; microbatches *= 4)); do
    row 16 $microbatches
done
