#!/usr/bin/env bash
# make.sh BINDIR OUTDIR: the numbers of every claim and their verdicts, from the published tables,
# the tables that other entries have written to OUTDIR, and runs of BINDIR/rpsim.
source "$(dirname "${BASH_SOURCE[0]}")/../lib/figure.sh"
bin=$(cd "$1" && pwd)
published=$paper/published
# On the file system of OUTDIR, so that a move there leaves nothing half written.
work=$(mktemp -d "$out/.$name.XXXXXX")
trap 'rm -rf "$work"' EXIT

# RoundPipe as the published runs were configured: on both servers, and on a single GPU. No claim rests on intervals.
models=$(sed -n '1s/^gpus,//p' "$published/scaling_4090.csv")
for platform in rtx4090x8 a800x8; do
    "$bin/rpsim" --schedule roundpipe --config paper --platform $platform --model "$models" --intervals off \
        --db "$store" --format csv > "$work/$platform.csv"
done
"$bin/rpsim" --schedule roundpipe --config paper --gpus 1 --model qwen3-32b,qwen3-235b-lora --intervals off \
    --db "$store" --format csv > "$work/one.csv"

tables=()
# table ID FILE: a table that other entries write; there may be none.
table()
{
    [ ! -s "$2" ] || tables+=("$1=$2")
}
table throughput "$out/10-throughput.csv"
table lengths "$out/11-longest-sequences.csv"
table a800_systems "$(find "$out" -maxdepth 1 -name '12-a800-throughput.csv')"
table scaling "$out/15-scaling.csv"
table bubbles "$out/17-bubbles.csv"
awk -v text="$work/claims.md" -v platform="$traces/platforms/rtx4090x8.yaml" -f "$paper/lib/tables.awk" \
    -f "$figure/text.awk" -f "$figure/data.awk" -f "$figure/claims.awk" \
    "claims=$published/claims.csv" "prices=$published/prices.csv" "limits=$figure/limits.csv" \
    "published_throughput=$published/throughput_4090.csv" "published_lengths=$published/max_seqlen_4090.csv" \
    "published_scaling=$published/scaling_4090.csv" "published_bubbles=$published/pipeline_bubbles.csv" \
    "published_times=$published/layer_times_4090.csv" \
    "rtx4090=$work/rtx4090x8.csv" "a800=$work/a800x8.csv" "one=$work/one.csv" "${tables[@]}" > "$work/claims.csv"
# The picture's data: four claims, their models' numbers and their bounds.
awk -f "$figure/text.awk" -f "$figure/bars.awk" "$work/claims.csv" "$published/claims.csv" > "$work/bars.csv"
mv "$work/claims.csv" "$out/$name.csv"
mv "$work/claims.md" "$out/$name.md"
draw bars="$work/bars.csv"
