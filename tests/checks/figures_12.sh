#!/usr/bin/env bash
# Release only
# Figures 12, 13, 14 and 16, which are predicted: rppredict --cells against rpsim, a program with
# another way to the same model; the tables with made-up answers and made-up measured values.
set -euo pipefail
source=$1
build=$2
rpsim=$3
for tool in awk gnuplot; do
    command -v "$tool" >/dev/null || { echo "skipped: $tool is missing"; exit 77; }
done
source "$(dirname "${BASH_SOURCE[0]}")/lib/check.sh"
figures=$source/paper-figures

# ---- rppredict --cells

cells="$work/cells.csv"
cat >"$cells" <<'CSV'
framework,model,seq_len,global_batch,microbatches,calls,grain,sequence_slices,why
roundpipe,llama3.1-8b,2048,,,,,,published
roundpipe,llama3.1-8b,4096,40,10,2,layer,1,given
megatron-pp,llama3.1-8b,2048,,,,,,published
megatron-pp,qwen3-1.7b,longest,,,,,,published
deepspeed-zero2,qwen3-32b,2048,16,8,1,layer,1,does not fit
CSV
"$build/rppredict" --cells "$cells" --platform a800x8 >"$work/answers.csv" || fail "rppredict: status $?"
# speed OPTION...: tokens per second of rpsim's only row, and its percentiles.
speed()
{
    "$rpsim" --platform a800x8 --model llama3.1-8b --iterations 16 --format json "$@" |
        sed -n 's/.*"tokens_per_s": *\([0-9.]*\),"tokens_per_s_p10":\([0-9.]*\),"tokens_per_s_p50":\([0-9.]*\),"tokens_per_s_p90":\([0-9.]*\).*/\1 \2 \3 \4/p' |
        awk '{ printf "%.2f,%.2f,%.2f,%.2f\n", $1, $2, $3, $4 }'
}
{
    echo "framework,model,platform,gpus,seq_len,fits,tokens_per_s,tokens_per_s_p10,tokens_per_s_p50,tokens_per_s_p90"
    echo "roundpipe,llama3.1-8b,a800x8,8,2048,yes,$(speed --schedule roundpipe --config paper --optimizer async)"
    echo "roundpipe,llama3.1-8b,a800x8,8,4096,yes,$(speed --schedule roundpipe --partition auto --optimizer async \
        --round all --seq-len 4096 --global-batch 40 --microbatches 10 --accumulate 2 --grain layer)"
    echo "megatron-pp,llama3.1-8b,a800x8,8,2048,yes,$(speed --schedule megatron-pp --config paper)"
    echo "megatron-pp,qwen3-1.7b,a800x8,8,41984,yes,,,,"
    echo "deepspeed-zero2,qwen3-32b,a800x8,8,2048,no,,,,"
} >"$work/expected.csv"
cmp -s "$work/answers.csv" "$work/expected.csv" ||
    fail "rppredict --cells: $(diff "$work/answers.csv" "$work/expected.csv")"

# bad TEXT ARGUMENT...: status 2 and the message.
bad()
{
    local text=$1 status=0
    shift
    "$build/rppredict" "$@" >"$work/stdout" 2>"$work/log" || status=$?
    [ $status -eq 2 ] || fail "rppredict $*: status $status"
    grep -qF -- "$text" "$work/log" || fail "rppredict $*: no '$text' in: $(cat "$work/log")"
    [ ! -s "$work/stdout" ] || fail "rppredict $*: printed something"
}
mkdir "$work/bad"
bad 'valid is one argument'
bad 'valid is one argument' "$figures/published" --cells "$cells"
bad 'only with --cells' "$figures/published" --platform a800x8
bad '--cell5: unknown or incomplete option' --cell5 x
bad 'no-such-platform' --cells "$cells" --platform no-such-platform
for change in 's/roundpipe,llama3.1-8b,2048/roundpoop,llama3.1-8b,2048/;cells.csv:2: framework: unknown schedule' 's/4096,40,10/4096,19,10/;cells.csv:3: a microbatch' \
    's/2,layer,1/2,tape,1/;cells.csv:3: column grain' 's/roundpipe,llama3.1-8b,4096,40/roundpipe,llama3.1-8b,4096,/;global_batch' \
    's/,longest/,long/;cells.csv:5' 's/deepspeed-zero2,qwen3-32b,2048,16,8,1,layer,1/deepspeed-zero2,qwen3-32b,2048,,,,,/;cells.csv:6: --config: the paper lists no run' \
    's/qwen3-32b/no-such-model/;cells.csv:6: ' \
    's/grain,sequence/grainy,sequence/;grain'; do
    sed "${change%%;*}" "$cells" >"$work/bad/cells.csv"
    bad "${change##*;}" --cells "$work/bad/cells.csv"
done

# ---- the figures, with made-up answers: a row's number times 100, OOM in every seventh row

mkdir "$work/bin" "$work/measured"
cat >"$work/bin/rppredict" <<'SH'
#!/bin/bash
[ "$1" = --cells ] || exec cat "$(dirname "$0")/report.md"
awk -F, -v platform="$4" '
    NR == 1 { print "framework,model,platform,gpus,seq_len,fits,tokens_per_s"; next }
    {
        fits = NR % 7 != 0
        long = $3 == "longest"
        printf "%s,%s,%s,8,%s,%s,%s\n", $1, $2, platform, long ? (fits ? NR * 1024 : 0) : $3, fits ? "yes" : "no", \
            fits && !long ? NR * 100 ".50" : ""
    }' "$2"
SH
chmod +x "$work/bin/rppredict"
# The report: a quarter more than published.
awk -F, 'FNR > 1 && $3 + 0 > 0 { printf "| x | %s | %s | 8 | %s | %.4f | +25.00 | 1 | 2 | 3 | outside |\n", $1, $2, $3, $3 * 1.25 }' \
    "$figures/published/throughput_4090.csv" >"$work/bin/report.md"
# A lower and a higher one, out of memory, and a cell that is not predicted.
cat >"$work/measured/12-a800-throughput.csv" <<'CSV'
framework,model,tokens_per_s
roundpipe,qwen3-1.7b,4000
mobius,qwen3-32b,1500
deepspeed-zero2,qwen3-1.7b,OOM
megatron-tp,qwen3-235b-lora,N/A
CSV
printf 'framework,max\n' >"$work/measured/13-a800-longest-sequences.csv"
printf 'framework,seq_len,tokens_per_s\nroundpipe,4096,1000\n' >"$work/measured/16-sequence-lengths.csv"

# make NAME FOLDER: runs it with measured values from FOLDER, or without.
make()
{
    RP_MEASURED=$2 bash "$figures/$1/make.sh" "$work/bin" "$work/out" >"$work/log" 2>&1
}
for name in 12-a800-throughput 13-a800-longest-sequences 14-usd-per-billion-tokens 16-sequence-lengths; do
    make $name "$figures/measured" || fail "$name: $(cat "$work/log")"
    ! grep -i warning "$work/log" || fail "$name: gnuplot warns"
    for ext in svg png pdf; do
        [ -s "$work/out/$name.$ext" ] || fail "$name.$ext was not drawn"
    done
    grep -q PREDICTED "$work/out/$name.svg" || fail "$name: the picture does not say that it is predicted"
    case $name in
    16*) groups=$(seq 9 16 | awk '{ print 2 ^ $1 }') ;;
    *) groups=$(awk -F, 'NR > 1 { print $2 }' "$figures/published/throughput_4090.csv" | sort -u) ;;
    esac
    for group in $groups; do
        grep -q ">$group<" "$work/out/$name.svg" || fail "$name: the picture does not name $group"
    done
    grep -q 'Kind: \*predicted\*' "$figures/$name/README.md" || fail "$name: the README does not say so"
    # What we ship as measured is nothing, so nothing is compared but published costs.
    awk -F, -v name=$name '
        NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; columns = NF; next }
        NF != columns { print name ": " $0 ": " NF " cells, not " columns }
        $at["kind"] !~ /predicted/ { print name ": " $0 ": kind" }
        name !~ /^14/ && ($at["measured"] != "" || $at["difference_pct"] != "") { print name ": " $0 ": measured?" }
        name ~ /^14/ && $1 == "a800x8" && $at["published"] != "" { print name ": " $0 ": published?" }
        ' "$work/out/$name.csv" >"$work/differences"
    [ ! -s "$work/differences" ] || fail "$(cat "$work/differences")"
done
[ "$(find "$work/out" -name '.*' | wc -l)" -eq 0 ] || fail "make.sh left temporary files"

# Every cell once, with its own answer: the row's number in the table of cells.
awk -F, '
    function want(name, value) { return value % 7 == 0 ? "OOM" : name ~ /^13/ ? value : value * 100 ".50" }
    FNR == 1 { file++; split(FILENAME, path, "/"); name = path[length(path)]; split("", seen); next }
    file % 2 { answer[file + 1, $2, $1] = want(file == 3 ? "13" : "12", FNR); next }
    {
        if (!((file, $1, $2) in answer) || $8 != answer[file, $1, $2] || seen[$1, $2]++) print name ": " $0
        rows[name]++
    }
    END { if (rows["12-a800-throughput.csv"] != 39 || rows["13-a800-longest-sequences.csv"] != 34) print "rows" }
    ' "$figures/lib/cells/throughput.csv" "$work/out/12-a800-throughput.csv" "$figures/lib/cells/lengths.csv" \
    "$work/out/13-a800-longest-sequences.csv" >"$work/differences"
[ ! -s "$work/differences" ] || fail "$(cat "$work/differences")"

# Figure 16: eight lengths of eight systems; of RoundPipe's two grains the first that fits.
awk -F, '
    NR == FNR {
        if (FNR == 1) next
        tokens = $3 * $4 / ($8 > 1 ? $8 : 1)
        if (tokens != 1048576 || $5 * $6 > $4) print $0 ": not 2^20 tokens, or an empty microbatch"
        k = $1 "," $3
        if (!(k in ours) || ours[k] == "OOM") ours[k] = FNR % 7 == 0 ? "OOM" : FNR * 100 ".50"
        next
    }
    FNR > 1 {
        if ($8 != ours[$2 "," $5]) print $0 ": not " ours[$2 "," $5]
        rows++
    }
    END { if (rows != 64) print rows " rows, not 8 systems of 8 lengths" }
    ' "$figures/16-sequence-lengths/cells.csv" "$work/out/16-sequence-lengths.csv" >"$work/differences"
[ ! -s "$work/differences" ] || fail "$(cat "$work/differences")"

# Figure 14 by another way: hours for a billion tokens times the price. 4090: published, and a
# quarter more throughput, so a fifth less cost.
check14()
{
    awk -F, '
        function far(a, b) { return a == "" || a - b > 1e-4 * b || b - a > 1e-4 * b }
        FILENAME ~ /prices/ { usd[$1] = $2; next }
        FNR == 1 { next }
        FILENAME ~ /published/ { given["rtx4090x8", $2, $1] = $3; next }
        FILENAME ~ /12-a800/ { given["a800x8", $1, $2] = $8; next }
        {
            rows[$1]++
            rate = given[$1, $2, $3]
            if (rate + 0 == 0) {
                # Not published: nothing to compare with, although the made-up answers may say that it fits.
                if ($5 + 0 > 0 || $7 != "" || ($1 == "a800x8" && $6 + 0 > 0)) print $0 ": a cost without a throughput"
                next
            }
            hours = 1e9 / rate / 3600
            if ($1 == "a800x8") {
                if (far($6, hours * usd[$1])) print $0 ": not " hours * usd[$1]
            } else if (far($5, hours * usd[$1]) || far($6, hours * usd[$1] * 0.8) || $7 != "-20.00") {
                print $0 ": not " hours * usd[$1]
            }
        }
        END { if (rows["rtx4090x8"] != 40 || rows["a800x8"] != 39) print "rows" }
        ' "$figures/published/prices.csv" "$figures/published/throughput_4090.csv" \
        "$work/out/12-a800-throughput.csv" "$1"
}
check14 "$work/out/14-usd-per-billion-tokens.csv" >"$work/differences"
[ ! -s "$work/differences" ] || fail "$(cat "$work/differences")"
sed '2s/,\([0-9]\)/,1\1/' "$work/out/14-usd-per-billion-tokens.csv" >"$work/wrong.csv"
[ -n "$(check14 "$work/wrong.csv")" ] || fail "the check of figure 14 sees nothing"

# Measured values appear beside the predictions; a file of other columns is refused.
for name in 12-a800-throughput 14-usd-per-billion-tokens 16-sequence-lengths; do
    make $name "$work/measured" || fail "$name with measured values: $(cat "$work/log")"
    ! grep -i warning "$work/log" || fail "$name with measured values: gnuplot warns"
    grep -q 'measured' "$work/out/$name.svg" || fail "$name: the picture has no key for measured bars"
done
# number CELL: its row in the table of cells.
number()
{
    awk -F, -v cell="$1" '$1 "," $2 == cell { print FNR }' "$figures/lib/cells/throughput.csv"
}
{
    n=$(number roundpipe,qwen3-1.7b)
    awk -v n="$n" 'BEGIN { printf "qwen3-1.7b,roundpipe,4000,%d.50,%.2f\n", n * 100, (n * 100 + 0.5) / 40 - 100 }'
    n=$(number mobius,qwen3-32b)
    awk -v n="$n" 'BEGIN { printf "qwen3-32b,mobius,1500,%d.50,%.2f\n", n * 100, (n * 100 + 0.5) / 15 - 100 }'
    echo "qwen3-1.7b,deepspeed-zero2,OOM,200.50,"
    echo "qwen3-235b-lora,megatron-tp,N/A,,"
} | LC_ALL=C sort >"$work/expected"
awk -F, 'NR > 1 && $7 != "" { print $1 "," $2 "," $7 "," $8 "," $9 }' "$work/out/12-a800-throughput.csv" | LC_ALL=C sort |
    cmp -s - "$work/expected" || fail "12: measured rows: $(grep -v ',predicted,,' "$work/out/12-a800-throughput.csv")"
[ "$(awk -F, '$7 != "" && NR > 1 { print $2 "," $5 "," $7 }' "$work/out/16-sequence-lengths.csv")" = roundpipe,4096,1000 ] ||
    fail "16: measured row"
[ "$(awk -F, '$1 == "a800x8" && $7 != ""' "$work/out/14-usd-per-billion-tokens.csv" | wc -l)" -eq 2 ] || fail "14: measured rows"
cp "$work/out/13-a800-longest-sequences.csv" "$work/kept"
! make 13-a800-longest-sequences "$work/measured" || fail "13: other columns are taken"
grep -q 'framework, model and the value' "$work/log" || fail "13: no message: $(cat "$work/log")"
cmp -s "$work/kept" "$work/out/13-a800-longest-sequences.csv" || fail "13: the table was overwritten"
end
