#!/usr/bin/env bash
# Release only
# Figures 10, 11 and 15 from a real run of rppredict: every published cell once, ours as rppredict
# says it, differences, marks and means from their definitions. Whether rppredict's numbers are right
# is unit.sim_rppredict_prediction's and unit.sim_rpsim_cli_memory's business.
set -euo pipefail
source=$1
build=$2
for tool in awk gnuplot; do
    command -v "$tool" >/dev/null || { echo "skipped: $tool is missing"; exit 77; }
done
source "$(dirname "${BASH_SOURCE[0]}")/lib/check.sh"
published=$source/paper-figures/published
configs=$source/traces/configs/paper.csv

for name in 10-throughput 11-longest-sequences 15-scaling; do
    bash "$source/paper-figures/$name/make.sh" "$build" "$work/out" >"$work/$name.log" 2>"$work/errors" ||
        fail "$name: make.sh: $(cat "$work/errors")"
    for ext in svg png pdf; do
        [ -s "$work/out/$name.$ext" ] || fail "$name.$ext was not drawn"
    done
    for model in $(awk -F, 'NR > 1 { print $2 }' "$source/paper-figures/published/throughput_4090.csv" | sort -u); do
        grep -q ">$model<" "$work/out/$name.svg" || fail "$name: the picture does not name $model"
    done
    grep -v 'tokens fit although' "$work/errors" && fail "$name: messages"
done
[ "$(find "$work/out" -name '.*' | wc -l)" -eq 0 ] || fail "make.sh left temporary files"

# The first screen of the report has a sentence on them, with rppredict's own count.
awk -v what=sentences -f "$source/paper-figures/report/text.awk" -f "$source/paper-figures/report/summary.awk" "$work/out/prediction.md" \
    </dev/null >"$work/sentences"
counted=$(sed -n 's/^Intervals, .*: \([0-9]* of [0-9]*\) published cells.*/\1/p' "$work/out/prediction.md")
grep -q "of the ${counted#* of } published cells that set no constant; ${counted% of *} lie inside" "$work/sentences" ||
    fail "the report does not say that $counted cells lie inside: $(cat "$work/sentences")"

# What plots/gallery/45-predicted-measured says of these tables (Figure 15's 8 GPUs are Figure 10's).
within=$(awk -F, 'FNR > 1 && $6 != "" && !(FILENAME ~ /15-scaling/ && $3 == 8) { cells++; near += $6 <= 10 && $6 >= -10 }
    END { print near " of " cells }' "$work/out/10-throughput.csv" "$work/out/15-scaling.csv")
grep -qF "$within throughputs are within 10 %" "$source/plots/gallery/45-predicted-measured/README.md" ||
    fail "plots/gallery/45-predicted-measured/README.md: $within throughputs are within 10 %"

# check NAME CSV: what differs from the published cells, rppredict's report and the definitions. The
# report's tables are told apart by their headings; kind is in the figure's number.
check()
{
    awk -v name="$1" '
        function key(system_, model, gpus) { return model "," system_ "," gpus }
        function cell(k, value) {
            if (k in paper) print k ": published twice"
            paper[k] = value
            cells++
        }
        FILENAME ~ /prediction\.md$/ {
            gsub(/ *\| */, "|")
            n = split($0, f, "|")
            if (f[2] == "group") table = n > 6 ? "speed" : ""
            if (f[2] == "system") table = "length"
            if (table == "speed" && n == 13 && name !~ /^11/) {
                k = key(f[3], f[4], f[5])
                said[k] = f[7]
                between[k] = f[7] + 0 > 0 ? f[9] "," f[11] : ","
                if (sub(/-set$/, "", f[2])) sets[k] = "yes"
            }
            if (table == "length" && n == 7 && name ~ /^11/) said[key(f[2], f[3], 8)] = f[5] + 0 == 0 ? "OOM" : f[5] / 1024
            next
        }
        FILENAME ~ /paper\.csv$/ { next }
        FILENAME ~ /published/ {
            n = split($0, f, ",")
            if (FNR == 1) { split($0, head, ","); next }
            if (name ~ /^15/) for (i = 2; i <= n; i++) cell(key("roundpipe", head[i], f[1]), f[i])
            else cell(key(f[1], f[2], 8), f[3])
            next
        }
        FNR == 1 { next }
        {
            n = split($0, f, ",")
            k = key(f[2], f[1], f[3])
            if (!(k in paper) || (k in seen)) { print k ": no cell, or its second row"; next }
            seen[k]++
            rows++
            if (f[4] != paper[k]) print k ": published is " paper[k]
            if (paper[k] == "N/A" ? f[5] != "" : paper[k] == "OOM" && name ~ /^10/ ? f[5] != "OOM" || f[8] != "no" : \
                f[5] != said[k]) print k ": ours is " f[5] ", rppredict says " said[k]
            if (name !~ /^11/ && (k in between) && f[n - 1] "," f[n] != between[k]) print k ": p10 and p90 are " f[n - 1] " and " f[n]
            if (f[4] + 0 > 0 && f[5] + 0 > 0) {
                error = (f[5] - f[4]) / f[4] * 100
                if (f[6] == "" || f[6] - error > 0.00501 || error - f[6] > 0.00501) print k ": difference is " error
                # From f[4] tokens/s to f[5]: the sign says who is faster.
                if ((f[5] > f[4] && f[6] < 0) || (f[5] < f[4] && f[6] > 0)) print k ": sign"
                numbers++
            } else if (f[6] != "") print k ": a difference without two numbers"
            if (f[7] != (f[4] + 0 > 0 ? sets[k] : "")) print k ": mark"
            marked += f[7] == "yes"
        }
        END {
            if (rows != cells) print rows " rows, " cells " cells"
            if (numbers != (name ~ /^15/ ? 40 : name ~ /^11/ ? 20 : 22)) print numbers " numbers"
            if (marked != (name ~ /^15/ ? 2 : name ~ /^11/ ? 0 : 5)) print marked " marks"
        }' "$work/out/prediction.md" "$published/$2" "$3"
}

# means NAME COLUMN: the means as printed, from the table; groups are values of the column.
means()
{
    awk -F, -v by="$2" '
        FNR == 1 || $6 == "" { next }
        {
            group = $by ($7 == "yes" ? " (set a constant)" : "")
            n[group]++
            sum[group] += $6
            size[group] += $6 < 0 ? -$6 : $6
        }
        END {
            for (g in n) printf "%s: %d cells, mean error %+.2f %%, mean absolute error %.2f %%\n", g, n[g], sum[g] / n[g], \
                size[g] / n[g]
        }' "$work/out/$1.csv" | LC_ALL=C sort
}

tables=(10-throughput:throughput 11-longest-sequences:max_seqlen 15-scaling:scaling)
for entry in "${tables[@]}"; do
    name=${entry%%:*}
    table=${entry##*:}_4090.csv
    check "$name" "$table" "$work/out/$name.csv" >"$work/differences"
    [ ! -s "$work/differences" ] || fail "$name.csv: $(cat "$work/differences")"
    [ "$(means "$name" $([ "$table" = scaling_4090.csv ] && echo 1 || echo 2))" = \
        "$(grep ' cells, mean error' "$work/$name.log" | LC_ALL=C sort)" ] || fail "$name: other means"
    # The check sees a row too few or too many, another number, and an error's sign.
    for error in '5d' '5p' 's/^\(qwen3-1.7b,roundpipe,8,[^,]*,\)\([0-9]\)/\11\2/' \
        's/^\(qwen3-32b,roundpipe,8,[^,]*,[^,]*,\)/\1-/'; do
        sed "$error" "$work/out/$name.csv" >"$work/wrong.csv"
        [ -n "$(check "$name" "$table" "$work/wrong.csv")" ] || fail "$name: no difference seen after $error"
    done
done
# The cells that set a constant are those that the configurations name.
awk -F, 'NR > 1 && $7 != "" { print $2 "," ($1 == "roundpipe" && $6 == "sync" ? "roundpipe-sync" : $1) }' "$configs" |
    LC_ALL=C sort >"$work/sets"
awk -F, '$7 == "yes" { print $1 "," $2 }' "$work/out/10-throughput.csv" | LC_ALL=C sort | cmp -s - "$work/sets" ||
    fail "other cells set constants than traces/configs/paper.csv says"

# What rppredict said is kept, but not for another program; a program that fails leaves nothing.
touch "$work/before"
bash "$source/paper-figures/15-scaling/make.sh" "$build" "$work/out" >"$work/log" 2>&1 || fail "again: $(cat "$work/log")"
[ "$work/out/prediction.md" -ot "$work/before" ] || fail "the report was made twice"
mkdir "$work/bin"
printf '#!/bin/sh\necho "| x |"\nexit 1\n' >"$work/bin/rppredict"
chmod +x "$work/bin/rppredict"
for name in 10-throughput 15-scaling; do
    ! bash "$source/paper-figures/$name/make.sh" "$work/bin" "$work/none" >"$work/log" 2>&1 ||
        fail "$name: rppredict's failure is lost"
done
[ -z "$(ls -A "$work/none")" ] || fail "left after a failure: $(ls -A "$work/none")"
end
