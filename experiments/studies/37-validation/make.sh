#!/usr/bin/env bash
# make.sh BINDIR OUTDIR: the picture and tables of the committed measurement; nothing is measured here,
# since that takes minutes of an idle machine (tests/bench/validation.sh).
source "$(dirname "${BASH_SOURCE[0]}")/../../../paper-figures/lib/figure.sh"
results=$paper/../tests/bench/results/validation.csv
grep -E '^(kind|configuration),' "$results" | cut -d, -f2-14 > "$out/.$name.csv"
mv "$out/.$name.csv" "$out/$name.csv"
awk -F, -f "$figure/table.awk" "$results" > "$out/.$name.md"
mv "$out/.$name.md" "$out/$name.md"
draw
