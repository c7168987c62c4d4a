#!/usr/bin/env bash
# docs/results.md: the tables of stage fidelity against fresh runs, those of tuned partitions and of prediction errors
# against the reports in experiments. Release only: each run is tested elsewhere.
set -euo pipefail
source=$1
rpsim=$3
page=$source/docs/results.md
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
schedules=gpipe,1f1b,interleaved-1f1b,looped-bfs,roundpipe
models=(qwen3-1.7b llama3.1-8b gpt-oss-20b qwen3-32b qwen3-235b)

# holds LINE: it stands in the page, but for marks of emphasis.
tr -d '*' <"$page" >"$work/page"
holds()
{
    if ! grep -qxF -- "$1" "$work/page"; then
        echo "docs/results.md does not say: $1"
        failures=$((failures + 1))
    fi
}

# of FORMAT COLUMN...: columns of the CSV on stdin, by name, one row after the other.
of()
{
    awk -F, -v format="$1" -v names="${*:2}" '
        # A quoted cell may have commas.
        function cells(text,  n, inside, i, c) {
            n = 1
            split("", cell)
            for (i = 1; i <= length(text); i++) {
                c = substr(text, i, 1)
                if (c == "\"") inside = !inside
                else if (c == "," && !inside) n++
                else cell[n] = cell[n] c
            }
            return n
        }
        NR == 1 { count = split(names, name, " "); n = cells($0); for (i = 1; i <= n; i++) at[cell[i]] = i; next }
        {
            cells($0)
            if (count == 1) printf format, cell[at[name[1]]]
            else printf format, cell[at[name[1]]], cell[at[name[2]]]
        }'
}

for model in "${models[@]}"; do
    for recompute in wait early; do
        "$rpsim" --schedule $schedules --model "$model" --fidelity stage --recompute $recompute --format csv >"$work/$recompute"
        holds "| $model | $recompute |$(of ' %.1f (%.1f) |' makespan_ms bubble_pct <"$work/$recompute")"
    done
    "$rpsim" --schedule roundpipe --model "$model" --fidelity stage --optimizer async --iterations 32 --format csv >"$work/async"
    holds "| $model | $(of '%.1f | %.1f' makespan_ms iteration_ms <"$work/async") | $(of '%.1f' iteration_paper_ms <"$work/async") | $(
        of '%s %s' iteration_ms iteration_paper_ms <"$work/async" | awk '{ printf "%+.2f %%", 100 * ($2 / $1 - 1) }') |"
    holds "| $model | $(
        for recompute in wait early; do of '%s\n' makespan_ms <"$work/$recompute"; done | awk '
            { time[NR] = $1 }
            function best(first,  i, least) {
                for (i = first; i < first + 4; i++) if (!least || time[i] < least) least = time[i]
                return least
            }
            END { printf "%.3f | %.3f | %.3f", best(1) / time[10], best(6) / time[10], best(1) / time[5] }') |"
    # The first table of the report; without its columns for our own schedule with the published partition.
    holds "$(awk -F' *[|] *' -v model="$model" '$2 == model && !done {
        done = 1
        printf "| %s | %s | %s | %s | %s | %s %% | %s %% |", $2, $3, $4, $6, $7, $9, $11 }' "$source/experiments/optimality.md")"
done

# Errors of groups: cells and error as the log has them, with a digit less.
awk -F' *[|] *' -v log_file="$source/experiments/prediction.md" '
    /^## Groups/ { inside = FILENAME == log_file }
    /^## Predicted against published/ { inside = FILENAME != log_file }
    /^## Predicted against measured/ { inside = 0 }
    !inside || $3 !~ /^[0-9]+$/ { next }
    FILENAME == log_file { known[++count] = $3 " " $4; next }
    {
        groups++
        found = 0
        for (i = 1; i <= count; i++) {
            split(known[i], cell, " ")
            off = cell[2] - $4
            if (cell[1] == $3 && off < 0.051 && off > -0.051) found = 1
        }
        if (!found) print "not in experiments/prediction.md: " $0
    }
    END { if (groups != 10) print groups " groups" }' "$source/experiments/prediction.md" "$page" >"$work/wrong"
if [ -s "$work/wrong" ]; then
    cat "$work/wrong"
    failures=$((failures + 1))
fi

# The README has the least and the largest of them, Mobius apart.
range=$(awk -F' *[|] *' '/^## Predicted against published/ { inside = 1 }
    inside && $3 ~ /^[0-9]+$/ && $2 !~ /Mobius/ { if (!low || $4 + 0 < low) low = $4 + 0; if ($4 + 0 > high) high = $4 + 0 }
    END { print low " to " high " %" }' "$page")
grep -qF "$range" "$source/README.md" || { echo "README.md does not say: $range"; failures=$((failures + 1)); }

[ "$failures" -eq 0 ] || exit 1
echo "the tables of docs/results.md are those of fresh runs and of the reports"
