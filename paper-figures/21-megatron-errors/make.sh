#!/usr/bin/env bash
# make.sh BINDIR OUTDIR: the data of this figure from a run of BINDIR/rppredict, printed with means,
# and the pictures.
source "$(dirname "${BASH_SOURCE[0]}")/../lib/figure.sh"
source "$paper/lib/prediction.sh"
report=$(predicted)
awk -v means="$work/means.csv" -f "$figure/points.awk" "$published/megatron_errors.csv" "$report" > "$work/points.csv"
mv "$work/points.csv" "$out/$name.csv"
mv "$work/means.csv" "$out/$name-means.csv"
cat "$out/$name.csv" "$out/$name-means.csv"
draw means="$out/$name-means.csv"
