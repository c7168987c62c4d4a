#!/usr/bin/env bash
# make.sh BINDIR OUTDIR: data and picture of this plot, from the tables of figures 10, 11 and 15 in OUTDIR;
# a table that is not there is made (by rppredict, most of a minute for all three).
source "$(dirname "${BASH_SOURCE[0]}")/../../../paper-figures/lib/figure.sh"
source "$plots/gallery/lib/runs.sh"
echo "quantity,model,system,gpus,set_a_constant,published,ours,difference_pct" > "$work/points.csv"
for from in 10-throughput:throughput 11-longest-sequences:length 15-scaling:throughput; do
    table=$out/${from%:*}.csv
    [ -s "$table" ] || bash "$paper/${from%:*}/make.sh" "$1" "$2" > /dev/null
    # Figure 15's column of 8 GPUs is Figure 10's.
    awk -F, -v quantity="${from#*:}" '
        FNR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
        $at["published"] + 0 > 0 && $at["ours"] + 0 > 0 && !(FILENAME ~ /15-scaling/ && $at["gpus"] == 8) {
            printf "%s,%s,%s,%s,%s,%s,%s,%.4f\n", quantity, $at["model"], $at["system"], $at["gpus"],
                $at["set_a_constant"], $at["published"], $at["ours"], 100 * ($at["ours"] / $at["published"] - 1)
        }' "$table" >> "$work/points.csv"
done
mv "$work/points.csv" "$out/$name.csv"
draw
