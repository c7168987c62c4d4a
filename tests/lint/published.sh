#!/usr/bin/env bash
# Published results (makespans, bubbles, throughputs, sequence lengths) are data for comparison. Code must not contain
# them: no source file may have a number with five or more significant digits from paper-figures/published/*.csv. Tests
# read the CSV files.
source "$(dirname "$0")/lib/lint.sh"

published=$lint_root/paper-figures/published
results=()
for name in pipeline_bubbles throughput_4090 scaling_4090 max_seqlen_4090 fsdp_mpt_a100 megatron_a100; do
    [ ! -f "$published/$name.csv" ] || results+=("$published/$name.csv")
done
if [ ${#results[@]} -eq 0 ]; then
    echo "$published holds no result table: nothing to compare with"
    exit 1
fi
# Files that compute: programs, scripts of all kinds, experiments, and tables that figures calculate with.
mapfile -t files < <(
    lint_files "c h cu cuh inc sh gp awk sql yaml" common sim exec tests plots experiments paper-figures bootstrap.sh
    lint_files "csv" plots experiments paper-figures | grep -v '^paper-figures/published/' || true
)
[ ${#files[@]} -gt 0 ] || exit 0
cd "$lint_root"

# Numbers are compared without leading zeros and without zeros at the end of a fraction: 1.50 is
# 1.5. The column `ops` is a count that follows from the sizes, no result.
awk '
    function plain(text) {
        if (text ~ /\./) {
            sub(/0+$/, "", text)
            sub(/\.$/, "", text)
        }
        sub(/^0+/, "", text)
        return text
    }
    function significant(text) {
        gsub(/\./, "", text)
        sub(/^0+/, "", text)
        return length(text)
    }
    FILENAME ~ /^\/.*\.csv$/ {
        count = split($0, cell, /[,;]/)
        if (FNR == 1) {
            split("", skip)
            for (i = 1; i <= count; i++) skip[i] = cell[i] == "ops"
            next
        }
        for (i = 1; i <= count; i++) {
            if (skip[i] || cell[i] !~ /^[0-9]+(\.[0-9]+)?$/) continue
            number = plain(cell[i])
            if (significant(number) >= 5) known[number] = FILENAME
        }
        next
    }
    {
        rest = $0
        while (match(rest, /[0-9]+(\.[0-9]+)?/)) {
            number = plain(substr(rest, RSTART, RLENGTH))
            rest = substr(rest, RSTART + RLENGTH)
            if (number in known) {
                from = known[number]
                sub(/^.*\//, "", from)
                print FILENAME ":" FNR ": " $0 "    (" number " stands in " from ")"
            }
        }
    }' "${results[@]}" "${files[@]}" | lint_report "published results are data, not code"
lint_end
