#!/usr/bin/env bash
# make.sh BINDIR OUTDIR: the study's runs, tables and pictures.
source "$(dirname "${BASH_SOURCE[0]}")/../../../paper-figures/lib/figure.sh"
source "$paper/../experiments/studies/lib/sweep.sh"
sweep robustness-jitter robustness-slow-gpu robustness-seven-gpus
runs robustness-jitter "$work/jitter.csv"
runs robustness-slow-gpu "$work/slow.csv"
runs robustness-seven-gpus "$work/seven.csv"
awk -F, -v points="$work/points.csv" -v tau="$work/tau.csv" -v without="$work/without.csv" \
    -f "$figure/../lib/table.awk" -f "$figure/points.awk" "$work/jitter.csv" "$work/slow.csv" "$work/seven.csv"
for table in tau without; do
    mv "$work/$table.csv" "$out/$name-$table.csv"
done
mv "$work/points.csv" "$out/$name.csv"
awk -F, -f "$figure/table.awk" "$out/$name-tau.csv" "$out/$name.csv" > "$work/table.md"
mv "$work/table.md" "$out/$name.md"
# Bars of the picture: factor 1.5, models numbered in the picture's order.
awk -F, 'BEGIN { split("qwen3-1.7b llama3.1-8b gpt-oss-20b qwen3-32b", order, " ") }
    $1 == "slow-gpu" && $4 == 1.5 {
        for (i = 1; order[i] != $2; i++);
        print i "," $2 "," $3 "," $6 "," $8 "," $9
    }' "$out/$name.csv" > "$work/bars.csv"
draw tau="$out/$name-tau.csv" bars="$work/bars.csv"
