#!/usr/bin/env bash
# make.sh BINDIR OUTDIR: the study's runs, tables and pictures.
source "$(dirname "${BASH_SOURCE[0]}")/../../../paper-figures/lib/figure.sh"
source "$paper/../experiments/studies/lib/sweep.sh"
sweep offload-throughput offload-link offload-fits
runs offload-throughput "$work/throughput.csv"
runs offload-link "$work/link.csv"
runs offload-fits "$work/lengths.csv"
awk -f "$figure/constants.awk" "$traces"/models/*.yaml "$traces"/platforms/*.yaml > "$work/constants.csv"
awk -F, -v constants="$work/constants.csv" -v points="$work/points.csv" -v cross="$work/crossover.csv" \
    -v fits="$work/fits.csv" -f "$figure/../lib/table.awk" -f "$figure/points.awk" \
    "$work/throughput.csv" "$work/link.csv" "$work/lengths.csv"
# sorted FILE KEY...: FILE with its rows in order behind the header.
sorted()
{
    local file=$1
    shift
    head -n 1 "$file"
    tail -n +2 "$file" | sort -t, "$@"
}
sorted "$work/crossover.csv" -k2,2 -k1,1 -k4,4 -k3,3n > "$out/$name-crossover.csv"
sorted "$work/fits.csv" -k2,2 -k1,1 -k3,3n -k4,4 > "$out/$name-fits.csv"
sorted "$work/points.csv" -k2,2 -k1,1 -k3,3n -k4,4 -k7,7n > "$out/$name.csv"
awk -F, -f "$figure/table.awk" "$out/$name-crossover.csv" "$out/$name-fits.csv" > "$work/table.md"
mv "$work/table.md" "$out/$name.md"
# The line of the host: tokens per second that its optimizer allows a step of so many tokens.
host=$(awk -F, '$1 == "host rtx4090x8" { h = $2 } $1 == "parameters llama3.1-8b" { p = $2 } END { print h / (50 * p) }' \
    "$work/constants.csv")
draw cross="$out/$name-crossover.csv" host="$host"
