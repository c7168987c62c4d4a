#!/usr/bin/env bash
# Tables of figures 10, 11 and 15 from a made-up report: a tenth more than published everywhere. Whether
# rppredict's numbers are right is unit.prediction's and unit.cli_memory's business.
set -euo pipefail
source=$1
command -v awk >/dev/null || { echo "skipped: awk is missing"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
published=$source/paper-figures/published
mkdir "$work/bin"
awk -F, '
    FNR == 1 { split($0, head, ","); next }
    FILENAME ~ /scaling/ {
        for (i = 2; i <= NF; i++)
            if ($1 < 8) printf "| x | roundpipe | %s | %d | %.2f | %.4f | +10.00 |\n", head[i], $1, $i, $i * 1.1
    }
    FILENAME ~ /throughput/ && $3 + 0 > 0 {
        set = $1 == "mobius" ? "x-set" : "x"
        printf "| %s | %s | %s | 8 | %.2f | %.4f | +10.00 |\n", set, $1, $2, $3, $3 * 1.1
    }
    FILENAME ~ /max_seqlen/ && $3 != "N/A" {
        printf "| %s | %s | %d | %d | +0.00 |\n", $1, $2, $3 * 1024, $3 * 1126.4
    }' "$published"/{scaling,throughput,max_seqlen}_4090.csv >"$work/report"
printf '#!/bin/sh\ncat "%s"\n' "$work/report" >"$work/bin/rppredict"
chmod +x "$work/bin/rppredict"
for name in 10-throughput 11-longest-sequences 15-scaling; do
    bash "$source/paper-figures/$name/make.sh" "$work/bin" "$work/out" >"$work/$name.log"
    awk -F, -v name="$name" '
        FNR > 1 {
            rows++
            if ($4 + 0 > 0) { numbers++; if ($6 < 9.8 || $6 > 10.05) { print name ": " $0; bad = 1 } }
            else if ($6 != "" || $5 + 0 > 0) { print name ": a difference to no number: " $0; bad = 1 }
            if (($7 == "yes") != ($2 == "mobius" && name ~ /^10/ && $4 + 0 > 0)) { print name ": mark: " $0; bad = 1 }
        }
        END {
            if (name ~ /^15/ ? rows != 40 || numbers != 40 : name ~ /^11/ ? rows != 35 || numbers != 20 : rows != 40 || numbers != 25) {
                print name ": " rows " rows, " numbers " numbers"
                bad = 1
            }
            exit bad
        }' "$work/out/$name.csv"
    grep -q 'roundpipe: 5 cells\|qwen3-32b: 8 cells' "$work/$name.log" || { echo "$name: no means"; exit 1; }
done
