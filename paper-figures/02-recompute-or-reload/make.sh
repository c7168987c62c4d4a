#!/usr/bin/env bash
# make.sh BINDIR OUTDIR: the data and pictures of this figure. It follows formulas: no program of
# BINDIR is run.
source "$(dirname "${BASH_SOURCE[0]}")/../lib/figure.sh"
awk -v models="$paper/published/models.csv" -v constants="$figure/constants.csv" \
    -v measured="$paper/published/layer_times_4090.csv" -v platform="$traces/platforms/rtx4090x8.yaml" \
    -f "$paper/lib/tables.awk" -f "$paper/lib/layer.awk" -f "$figure/points.awk" > "$out/$name.csv"
draw
