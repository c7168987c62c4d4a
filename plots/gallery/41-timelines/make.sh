#!/usr/bin/env bash
# make.sh BINDIR OUTDIR: the chart of several schedules at hardware fidelity, drawn by BINDIR/rpsim, and
# the parts of their bubbles.
source "$(dirname "${BASH_SOURCE[0]}")/../../../paper-figures/lib/figure.sh"
source "$plots/gallery/lib/runs.sh"
run=("$bin/rpsim" --schedule 1f1b,interleaved-1f1b,zb-h1,mobius,roundpipe --model qwen3-1.7b --gpus 4 --microbatches 8
    --iterations 1)
formats=()
if command -v gnuplot > /dev/null; then
    formats=(svg png pdf)
else
    echo "$name: not drawn, gnuplot is missing (Debian package gnuplot-nox)" >&2
fi
for ext in "${formats[@]}"; do
    "${run[@]}" --gantt-out "$out/$name.$ext" > /dev/null
    echo "$out/$name.$ext"
done
"${run[@]}" --db "$work/store.db" > /dev/null
sqlite3 -batch -header -csv "$work/store.db" "SELECT schedule, recompute, gpus, makespan_ms, bubble_ms, bubble_pct,
    fill_pct, switch_pct, intra_pct, drain_pct, comm_exposed_ms FROM summary ORDER BY run_id" | tr -d '\r' > "$work/points.csv"
mv "$work/points.csv" "$out/$name.csv"
for ext in "${formats[@]}"; do
    gnuplot -e "root='$plots'; db='$work/store.db'; out='$out/$name-bubbles'; ext='$ext'" "$plots/bubbles.gp"
    echo "$out/$name-bubbles.$ext"
done
