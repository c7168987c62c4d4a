#!/usr/bin/env bash
# Release only
# Figures 10, 11 and 15 from a real run of rppredict: every published cell once, ours as rppredict
# says it, differences, marks and means from their definitions. The accuracy of throughputs that has been reached is a
# gate that can only tighten (tests/golden/prediction_gates.csv; experiments/prediction.md says what it rests on);
# lengths have theirs in unit.sim_rpsim_cli_memory. Intervals are over 4 draws, with RP_LONG=1 over 32 as in reports.
set -euo pipefail
source=$1
build=$2
for tool in awk gnuplot; do
    command -v "$tool" >/dev/null || { echo "skipped: $tool is missing"; exit 77; }
done
source "$(dirname "${BASH_SOURCE[0]}")/lib/check.sh"
published=$source/paper-figures/published
configs=$source/traces/configs/paper.csv
export RP_INTERVALS=4
[ "${RP_LONG:-0}" != 1 ] || unset RP_INTERVALS

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

# held REPORT: what breaks the gates, or is not what the rows of the report say. A cell that was measured and does not fit
# here is no prediction of a rate. Of mobius batch and microbatches are not known: a range, wider than any input's, and
# no error. Intervals of 80 % that hold nearly everything, or little more than half, say the wrong thing about
# themselves; so do those that are as wide as a guess: that counts for the cells of the RTX 4090 and with those of the
# A100.
held()
{
    awk '
        BEGIN { split("megatron-pp llama3.1-8b,mobius gpt-oss-20b,mobius qwen3-32b", f, ","); for (i in f) full[f[i]] }
        FILENAME ~ /gates\.csv$/ { if (FNR > 1) { split($0, f, ","); cells[f[1]] = f[2]; most[f[1]] = f[3] } next }
        { gsub(/ *\| */, "|"); n = split($0, f, "|") }
        n == 7 && f[4] ~ /^[0-9.]+$/ && !(f[2] in said) { said[f[2]] = f[4]; said_cells[f[2]] = f[3] }
        n == 13 && f[6] ~ /^[0-9.]+$/ {
            rows++
            name = f[3] " " f[4]
            mobius = f[3] == "mobius"
            if ((f[7] == "does not fit") != (name in full)) print name ": " f[7]
            missing += f[7] == "does not fit"
            if ((f[8] == "-") != (mobius || (name in full))) print name ": error " f[8]
            if (f[9] != "-" || mobius) {
                if (!(f[11] > (mobius ? 1.5 : 1) * f[9] && f[9] < f[10] && f[10] < f[11])) print name ": " f[9] ", " f[10] ", " f[11]
            }
            if (mobius) { wide++; next }
            if (f[8] == "-") next
            sum[f[2]] += f[7] > f[6] ? f[7] / f[6] - 1 : 1 - f[7] / f[6]
            count[f[2]]++
            if (f[2] ~ /-set$/ || f[2] == "async") next
            counted++
            inside += f[6] + 0 >= f[9] + 0 && f[6] + 0 <= f[11] + 0
        }
        /^Intervals, p10 to p90 over '"${RP_INTERVALS:-32}"' draws of the inputs/ {
            told = $0
            width = $0
            sub(/.*Median width on dense models: /, "", width)
        }
        /^Intervals, .* with the cells of the RTX 4090 / { both = $0; sub(/.* RTX 4090 /, "", both); split(both, b, " ") }
        /^3 of these cells were measured although/ { although++ }
        END {
            for (g in cells) {
                mean = count[g] ? 100 * sum[g] / count[g] : -1
                covered += count[g]
                if (count[g] != cells[g] || said_cells[g] != cells[g]) print g ": " count[g] " cells, said " said_cells[g]
                if (mean - said[g] > 0.006 || said[g] - mean > 0.006) print g ": the mean is " mean ", said " said[g]
                if (mean > most[g]) print g ": " mean " %, more than " most[g]
                if (mean < most[g] - 0.25) print g " is better than its gate (" mean " %): tighten it"
            }
            if (covered + wide + 1 != rows || wide != 4 || missing != 3 || although != 1) print "rows: " rows ", in groups " covered ", mobius " wide
            if (index(told, ": " inside " of " counted " published cells") == 0) print inside " of " counted " lie inside, said: " told
            if (counted <= 40 || inside < 0.65 * counted || inside > 0.95 * counted) print inside " of " counted " lie inside"
            if (b[3] <= counted || b[1] < 0.65 * b[3] || b[1] > 0.95 * b[3]) print "with the A100: " both
            if (!(width + 0 > 0 && width + 0 <= 12)) print "median width " width
        }' "$source/tests/golden/prediction_gates.csv" "$1"
}
report=$work/out/prediction.md
held "$report" >"$work/broken"
[ ! -s "$work/broken" ] || fail "accuracy: $(cat "$work/broken")"
# It sees a group that is worse than its gate or much better, a cell that has gone, one that fits, an interval.
for error in 's/^\(| baselines | zero-infinity | llama3.1-8b | 8 | [0-9.]* | \)1/\19/' 's/^\(| sync-moe .* gpt-oss-20b | 8 | \)[0-9.]*\( | \)\([0-9.]*\)/\1\3\2\3/' \
    '/^| scaling-dense | roundpipe | qwen3-1.7b | 3 /d' 's/^\(| mobius | mobius | qwen3-32b | 8 | [0-9.]* | \)does not fit/\12551.63/' \
    's/^\(| mobius | mobius | qwen3-1.7b .* | \)[0-9.]* | inside/\112000 | inside/' 's/: [0-9]* of \([0-9]* published\)/: 49 of \1/'; do
    sed "$error" "$report" >"$work/wrong.md"
    [ -n "$(held "$work/wrong.md")" ] || fail "accuracy: nothing seen after $error"
done

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
