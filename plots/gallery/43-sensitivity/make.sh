#!/usr/bin/env bash
# make.sh BINDIR OUTDIR: data and picture of this plot, from experiments/gallery-sensitivity.yaml.
source "$(dirname "${BASH_SOURCE[0]}")/../../../paper-figures/lib/figure.sh"
source "$plots/gallery/lib/runs.sh"
sweep gallery-sensitivity
ask gallery-sensitivity "schedule, optimizer, json_extract(config_json, '\$.set') AS changed, tokens_per_s" \
    'schedule, optimizer, changed' > "$work/runs.csv"
awk -F, -f "$figure/points.awk" "$work/runs.csv" "$work/runs.csv" > "$work/points.csv"
mv "$work/points.csv" "$out/$name.csv"
draw
