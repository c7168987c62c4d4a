#!/usr/bin/env bash
# make.sh BINDIR OUTDIR: the needs of each schedule, the curves, and the picture.
source "$(dirname "${BASH_SOURCE[0]}")/../../../paper-figures/lib/figure.sh"
source "$(dirname "${BASH_SOURCE[0]}")/../lib/sweep.sh"
sweep microbatches-needed
# Closes in on the thresholds; awk fails when there is nothing left to run.
while
    sqlite3 -readonly "$store" < "$figure/curves.sql" > "$work/runs.csv"
    awk -v exactly="$work/exactly.yaml" -f "$figure/needed.awk" "$work/runs.csv"
do
    sweep "$work/exactly.yaml"
done
awk -v needed="$work/needed.csv" -v curves="$work/curves.csv" -f "$figure/needed.awk" "$work/runs.csv"
mv "$work/curves.csv" "$out/$name-curves.csv"
mv "$work/needed.csv" "$out/$name.csv"
draw curves="$out/$name-curves.csv"
