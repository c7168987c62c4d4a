#!/usr/bin/env bash
# make.sh BINDIR OUTDIR: the study's runs, tables and pictures. RP_PRICES and RP_SERVERS: files instead of
# paper-figures/published/prices.csv and servers.csv.
source "$(dirname "${BASH_SOURCE[0]}")/../../../paper-figures/lib/figure.sh"
source "$paper/../experiments/studies/lib/sweep.sh"
sweep usd-per-token
runs usd-per-token "$work/runs.csv"
# Memory in whole GiB, as the cards are sold.
awk '/^name:/ { name = $2 } /^memory_gib:/ { gib[name] = int($2 + 0.5) } /^gpu:/ { print name "," gib[$2] }' \
    "$traces"/gpus/*.yaml "$traces"/platforms/*.yaml > "$work/gpu_gb.csv"
awk -F, -v prices="${RP_PRICES:-$paper/published/prices.csv}" -v servers="${RP_SERVERS:-$figure/servers.csv}" \
    -v gpu_gb="$work/gpu_gb.csv" -v points="$work/points.csv" -v best="$work/best.csv" -v table="$work/table.md" \
    -f "$figure/../lib/table.awk" -f "$figure/points.awk" "$work/runs.csv"
mv "$work/table.md" "$out/$name.md"
mv "$work/best.csv" "$out/$name-best.csv"
mv "$work/points.csv" "$out/$name.csv"
# Bars of the picture: model's number, server, USD per 10^9 tokens (best, other), break-even prices, its own price.
awk -F, 'BEGIN { split("qwen3-1.7b llama3.1-8b gpt-oss-20b qwen3-32b qwen3-235b-lora", order, " ") }
    FNR > 1 {
        for (i = 1; i <= 5 && order[i] != $1; i++);
        if (i <= 5) print i "," $2 "," $12 "," $13 "," $15 "," $16 "," $11
    }' "$out/$name-best.csv" > "$work/bars.csv"
draw bars="$work/bars.csv"
