#!/usr/bin/env bash
# make.sh BINDIR OUTDIR: the points, the lead in parts, what waiting costs, and the picture.
source "$(dirname "${BASH_SOURCE[0]}")/../../../paper-figures/lib/figure.sh"
source "$(dirname "${BASH_SOURCE[0]}")/../lib/sweep.sh"
awk -v found="$figure/partitions.csv" -v paper="$traces/partitions/paper.csv" -v stage="$work/found.yaml" \
    -v hardware="$work/hardware.yaml" -f "$figure/points.awk"
sweep recompute-fairness
sweep "$work/found.yaml"
sweep "$work/hardware.yaml"
sqlite3 -readonly "$store" < "$figure/points.sql" > "$work/runs.csv"
awk -v points="$work/runs.csv" -v published="$paper/published/pipeline_bubbles.csv" -v parts="$work/parts.csv" \
    -v costs="$work/costs.csv" -f "$paper/lib/tables.awk" -f "$paper/lib/study.awk" -f "$figure/parts.awk" \
    > "$work/points.csv"
awk -f "$figure/bars.awk" "$work/parts.csv" > "$work/bars.csv"
for table in parts costs bars; do
    mv "$work/$table.csv" "$out/$name-$table.csv"
done
mv "$work/points.csv" "$out/$name.csv"
draw bars="$out/$name-bars.csv"
