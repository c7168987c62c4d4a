#!/usr/bin/env bash
# Model, platform, schedule, GPU count and sequence length combine freely at hardware fidelity: every case of a fixed
# walk through all combinations either runs (exit 0, one row with a positive iteration time) or is refused (exit 2 and a
# message that names what is valid). Nothing else: no crash, no empty answer.
# Usage: combine.sh SOURCE BUILD RPSIM
set -euo pipefail
source_dir=$1
rpsim=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

names()
{
    "$rpsim" --list "$1" | awk '{ print $1 }'
}

mapfile -t schedules < <(names schedules)
mapfile -t models < <(names models)
mapfile -t platforms < <(names platforms)
gpus=(1 2 3 8 64)
lengths=(512 2048 8192)
cases=$((${#schedules[@]} * 25))
ran=0
refused=0
failed=0
for ((i = 0; i < cases; i++)); do
    # Steps that share no factor with the lists' lengths: neighbours in one list meet all of the others in turn.
    schedule=${schedules[i % ${#schedules[@]}]}
    model=${models[(i * 7 + i / 12) % ${#models[@]}]}
    platform=${platforms[(i * 5 + i / 6) % ${#platforms[@]}]}
    gpu_count=${gpus[(i * 3 + i / 5) % ${#gpus[@]}]}
    length=${lengths[(i + i / 3) % ${#lengths[@]}]}
    line=(--fidelity hardware --schedule "$schedule" --model "$model" --platform "$platform" --gpus "$gpu_count"
        --seq-len "$length" --microbatches 16 --partition auto --format json)
    status=0
    timeout 60 "$rpsim" "${line[@]}" >"$work/out" 2>"$work/err" || status=$?
    if [ "$status" -eq 0 ] && grep -qE '"iteration_ms": ?[0-9.]*[1-9]' "$work/out" && ! grep -qiE 'nan|inf[^oi]' "$work/out"; then
        ran=$((ran + 1))
    elif [ "$status" -eq 2 ] && [ ! -s "$work/out" ] && grep -q 'valid' "$work/err"; then
        refused=$((refused + 1))
    else
        failed=$((failed + 1))
        echo "combine: exit $status: rpsim ${line[*]}"
        head -c 400 "$work/out" "$work/err"
    fi
done
echo "combine: $cases cases: $ran ran, $refused refused with a reason, $failed failed"

# A longer sequence is more work of every kind, so a step takes longer, whatever the schedule.
steps_ms()
{
    "$rpsim" --fidelity hardware --schedule "$1" --model "$2" --platform "$3" --gpus 8 --seq-len "$4" --microbatches 16 \
        --partition even --format json | grep -oE '"iteration_ms": ?[0-9.]+' | grep -oE '[0-9.]+$'
}
mapfile -t eights < <(printf '%s\n' "${platforms[@]}" | grep 'x8$')
grown=0
for ((i = 0; i < 3 * ${#schedules[@]}; i++)); do
    schedule=${schedules[i % ${#schedules[@]}]}
    model=${models[(i * 5 + 1) % ${#models[@]}]}
    platform=${eights[(i * 3 + i / 12) % ${#eights[@]}]}
    before=0
    for length in 512 1024 2048 4096 16384; do
        now=$(steps_ms "$schedule" "$model" "$platform" "$length")
        if awk -v a="$before" -v b="$now" 'BEGIN { exit !(b > a) }'; then
            grown=$((grown + 1))
        else
            failed=$((failed + 1))
            echo "combine: $schedule $model $platform: $now ms with sequences of $length, $before ms with shorter ones"
        fi
        before=$now
    done
done
echo "combine: $grown steps longer with a longer sequence"

# A walk that is refused everywhere, or nowhere, tests nothing.
[ "$failed" -eq 0 ] && [ "$ran" -ge $((cases / 3)) ] && [ "$refused" -gt 0 ]
