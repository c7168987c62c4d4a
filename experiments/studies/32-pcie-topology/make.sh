#!/usr/bin/env bash
# make.sh BINDIR OUTDIR: the points with their ranks, RoundPipe's lead per topology, and the picture.
source "$(dirname "${BASH_SOURCE[0]}")/../../../paper-figures/lib/figure.sh"
source "$(dirname "${BASH_SOURCE[0]}")/../lib/sweep.sh"
sweep pcie-topology
sqlite3 -readonly "$store" < "$figure/points.sql" > "$work/runs.csv"
awk -v leads="$work/leads.csv" -f "$figure/rank.awk" "$work/runs.csv" "$work/runs.csv" > "$work/points.csv"
mv "$work/leads.csv" "$out/$name-leads.csv"
mv "$work/points.csv" "$out/$name.csv"
draw leads="$out/$name-leads.csv"
