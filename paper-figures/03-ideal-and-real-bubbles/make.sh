#!/usr/bin/env bash
# make.sh BINDIR OUTDIR: the data and pictures of this figure, from fresh runs of BINDIR/rpsim.
source "$(dirname "${BASH_SOURCE[0]}")/../lib/figure.sh"
source "$paper/lib/study.sh"
study "$work/ours.csv"
awk -v published="$published" -v ours="$work/ours.csv" -v models="$paper/published/models.csv" \
    -f "$paper/lib/tables.awk" -f "$paper/lib/study.awk" -f "$figure/points.awk" > "$work/points.csv"
mv "$work/points.csv" "$out/$name.csv"
draw
