#!/usr/bin/env bash
# make.sh BINDIR OUTDIR: the data and pictures of this figure. It follows formulas: no program of
# BINDIR is run.
source "$(dirname "${BASH_SOURCE[0]}")/../lib/figure.sh"
awk -v models="$paper/published/models.csv" -v constants="$figure/constants.csv" \
    -v thresholds="$figure/thresholds.csv" -v platforms="$traces/platforms" -v curve="$out/$name-curve.csv" \
    -f "$paper/lib/tables.awk" -f "$paper/lib/layer.awk" -f "$figure/points.awk" > "$out/$name.csv"
draw curve="$out/$name-curve.csv"
