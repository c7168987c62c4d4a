#!/usr/bin/env bash
# make.sh BINDIR OUTDIR: data and picture of this plot, from runs of BINDIR/rpsim at stage fidelity.
source "$(dirname "${BASH_SOURCE[0]}")/../../../paper-figures/lib/figure.sh"
source "$plots/gallery/lib/runs.sh"
gpus=8

# bubble PANEL STAGES OPTION...: rows of rpsim's runs; STAGES 0: as many as the partition has.
bubble()
{
    local panel=$1 stages=$2
    shift 2
    "$bin/rpsim" --fidelity stage --gpus $gpus --format json "$@" |
        awk -v panel="$panel" -v stages="$stages" -f "$figure/row.awk" >> "$work/points.csv"
}

# rounds PANEL MULTIPLE MICROBATCHES: RoundPipe with 4 MULTIPLE + 1 stages that are all alike.
rounds()
{
    local layers=$((3 * $2)) forward=3 backward=0 i
    for ((i = 1; i < $2; i++)); do forward+=,3; done
    for ((i = 0; i < layers; i++)); do backward+=,1; done
    sed "s/^layers: .*/layers: $layers/" "$figure/uniform-head.yaml" > "$work/costs.yaml"
    bubble "$1" $((4 * $2 + 1)) --schedule roundpipe --costs "$work/costs.yaml" --microbatches "$3" \
        --partition "$forward|$backward"
}

echo "panel,schedule,gpus,microbatches,stages,bubble_pct" > "$work/points.csv"
uniform=(--costs "$figure/uniform.yaml" --recompute none --partition even)
for microbatches in 8 16 24 32 48 64 96 128; do
    bubble microbatches 8 "${uniform[@]}" --schedule gpipe,1f1b,zb-h1 --microbatches $microbatches
    bubble microbatches 16 "${uniform[@]}" --schedule interleaved-1f1b,zbv --stages 16 --microbatches $microbatches
    rounds microbatches 4 $microbatches
done
for stages in 8 16 32 64; do
    bubble stages $stages "${uniform[@]}" --schedule interleaved-1f1b,looped-bfs --stages $stages --microbatches 16
done
for multiple in 2 3 4 6 8 12 16; do
    rounds stages $multiple 16
done
for stages in 8 16 32 64; do
    bubble qwen3-32b $stages --model qwen3-32b --schedule interleaved-1f1b,looped-bfs --partition even --stages $stages \
        --microbatches 16
done
# RoundPipe's even partition of that many stages, if none is empty.
for stages in $(seq 4 44); do
    bubble qwen3-32b 0 --model qwen3-32b --schedule roundpipe --partition even --stages "$stages" --microbatches 16
done
mv "$work/points.csv" "$out/$name.csv"
draw
