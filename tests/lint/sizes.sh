#!/usr/bin/env bash
# Functions: none longer than 120 lines, 90 % at most 60, median at most 20; files at most 600
# lines.
source "$(dirname "$0")/lib/lint.sh"
lint_need ctags universal-ctags
if ! ctags --version | grep 'Universal Ctags' >/dev/null; then
    echo "skipped: this ctags does not tell where functions end (apt package universal-ctags)"
    exit 77
fi

mapfile -t files < <(lint_files "c h cu cuh inc" common sim exec experiments tests)
[ ${#files[@]} -gt 0 ] || exit 0
cd "$lint_root"
wc -l "${files[@]}" | awk '$2 != "total" && $1 > 600 { print $2 ":" $1 ": " $1 " lines" }' |
    lint_report "files have at most 600 lines"

ctags --languages=C --map-C=+.cu --map-C=+.inc --kinds-C=f --fields=ne --excmd=number -f - "${files[@]}" |
    awk -F'\t' '/^!/ { next }
        {
            begin = end = 0
            for (i = 4; i <= NF; i++) {
                if ($i ~ /^line:/) begin = substr($i, 6)
                if ($i ~ /^end:/) end = substr($i, 5)
            }
            if (end >= begin && begin > 0) print end - begin + 1, $2 ":" begin ": " $1
        }' | sort -n >"$lint_work/functions"
awk '$1 > 120 { print substr($0, index($0, " ") + 1) ", " $1 " lines" }' "$lint_work/functions" |
    lint_report "functions have at most 120 lines"
awk '{ length_of[NR] = $1; long += $1 > 60 }
    END {
        if (NR == 0) exit
        median = length_of[int((NR + 1) / 2)]
        share = 100 * long / NR
        printf "%d functions: median %d, 90th percentile %d, longest %d lines; %.1f %% above 60\n", NR, median,
            length_of[int(NR * 0.9 + 0.999)], length_of[NR], share > "/dev/stderr"
        if (median > 20) print "all functions: median " median " lines, allowed 20"
        if (share > 10) printf "all functions: %.1f %% are longer than 60 lines, allowed 10 %%\n", share
    }' "$lint_work/functions" | lint_report "see architecture, habit 9"
lint_end
