#!/usr/bin/env bash
# make.sh BINDIR OUTDIR: data and pictures of this plot, from experiments/gallery-scaling.yaml.
source "$(dirname "${BASH_SOURCE[0]}")/../../../paper-figures/lib/figure.sh"
source "$plots/gallery/lib/runs.sh"
sweep gallery-scaling
ask gallery-scaling 'fidelity, schedule, gpus, makespan_ms, busy_ms, tokens_per_s, fits' 'fidelity, schedule, gpus' \
    > "$work/points.csv"
mv "$work/points.csv" "$out/$name.csv"
draw fidelity=stage families="$figure/families.csv"
draw fidelity=hardware families="$figure/families.csv" out="$out/$name-on-a-server"
