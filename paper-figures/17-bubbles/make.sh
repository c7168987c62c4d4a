#!/usr/bin/env bash
# make.sh BINDIR OUTDIR: the data and pictures of this figure, from fresh runs of BINDIR/rpsim.
source "$(dirname "${BASH_SOURCE[0]}")/../lib/figure.sh"
source "$paper/lib/study.sh"
study "$work/ours.csv"
study "$work/steady.csv" --schedule roundpipe --optimizer async --iterations 32
awk -v published="$published" -v ours="$work/ours.csv" -v steady="$work/steady.csv" -v bars="$work/bars.csv" \
    -f "$paper/lib/tables.awk" -f "$paper/lib/study.awk" -f "$figure/points.awk" > "$work/points.csv"
mv "$work/bars.csv" "$out/$name-bars.csv"
mv "$work/points.csv" "$out/$name.csv"
draw bars="$out/$name-bars.csv"
