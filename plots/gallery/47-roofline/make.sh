#!/usr/bin/env bash
# make.sh BINDIR OUTDIR: data and picture of this plot. It follows formulas: no program of BINDIR is run.
source "$(dirname "${BASH_SOURCE[0]}")/../../../paper-figures/lib/figure.sh"
source "$plots/gallery/lib/runs.sh"
awk -v models="$paper/published/models.csv" -v constants="$paper/05-intensity/constants.csv" \
    -v batches="1 4 16 64 256" -v servers="rtx4090x8 rtx5090x8 a800x8 h100x8" -v platforms="$traces/platforms" \
    -f "$paper/lib/tables.awk" -f "$paper/lib/layer.awk" -f "$figure/points.awk" > "$work/points.csv"
mv "$work/points.csv" "$out/$name.csv"
draw
