#!/usr/bin/env bash
# scale.sh RPSIM [REPETITIONS [MOST_MICROBATCHES]] > scale.csv: an iteration of llama3.1-70b on 1,024 H100 in 128
# servers, eight GPUs per layer and eight places in the pipeline, by its number of microbatches; and on fewer servers.
# Then systems without pipelines, with eight microbatches on each of 128 and 1,024 H100, which are all equal. Seconds
# are the median wall time of the simulation itself; cpu_s and peak_mb are of the whole last process, empty without
# GNU time.
set -euo pipefail
rpsim=$1
repetitions=${2:-5}
most=${3:-4096}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
measured=()
[ -z "$(type -P time)" ] || measured=("$(type -P time)" -f "%U %S %M" -o "$work/used")
echo > "$work/used"
echo "schedule,gpus,program_gpus,microbatches,ops,seconds,us_per_op,cpu_s,peak_mb"
row() # SCHEDULE GPUS MICROBATCHES OPTIONS...
{
    for _ in $(seq "$repetitions"); do
        "${measured[@]}" "$rpsim" --schedule "$1" --platform h100x1024 --gpus "$2" --microbatches "$3" "${@:4}" \
            --microbatch-size 1 --seq-len 4096 --iterations 1 --intervals off --timings --format csv > "$work/csv"
        awk -F, 'NR == 1 { gsub(/"[^"]*"/, ""); for (i = 1; i <= NF; i++) at[$i] = i }
            NR == 2 { gsub(/"[^"]*"/, "list")
                print $at["sim_wall_s"], $at["gpus"], $at["simulated_gpus"], $at["microbatches"], $at["ops"] }' \
            "$work/csv"
    done | sort -g > "$work/runs"
    sed -n "$((repetitions / 2 + 1))p" "$work/runs" |
        awk -v schedule="$1" -v used="$(cat "$work/used")" '{
            printf "%s,%d,%d,%d,%d,%.4f,%.3f,", schedule, $2, $3, $4, $5, $1, 1e6 * $1 / $5
            split(used, u, " ")
            print used == "" ? "," : sprintf("%.2f,%.1f", u[1] + u[2], u[3] / 1024) }'
}
pipeline() # COPIES MICROBATCHES
{
    row 1f1b $((64 * $1)) "$2" --model llama3.1-70b --tensor-parallel 8 --data-parallel "$1"
}
for copies in 1 4 16; do
    pipeline $copies 64
done
for ((microbatches = 256; microbatches <= most; microbatches *= 4)); do
    pipeline 16 $microbatches
done
for gpus in 128 1024; do
    for schedule in fsdp zero3 zero-infinity; do
        row $schedule $gpus $((8 * gpus)) --model llama3.1-8b
    done
done
