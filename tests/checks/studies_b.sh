#!/usr/bin/env bash
# Release only
# Studies 34 to 36. 36 whole; 34 and 35 with fewer points, so that it takes seconds. Their tables
# against closed forms, prices, and what has to hold by theory, each computed anew here.
set -euo pipefail
source=$1
build=$2
rpsim=$3
for tool in awk gnuplot sqlite3; do
    command -v "$tool" > /dev/null || { echo "skipped: $tool is missing"; exit 77; }
done
source "$(dirname "${BASH_SOURCE[0]}")/lib/check.sh"
studies=$source/experiments/studies

# empty WHAT COMMAND...: fails with what the command prints.
empty()
{
    local what=$1 printed
    shift
    printed=$("$@" 2>&1) || fail "$what: status $?"
    [ -z "$printed" ] || fail "$what: $printed"
}

# made NAME: the study's tables and pictures in $work/out, without warnings.
made()
{
    local name=$1 ext
    bash "$studies/$name/make.sh" "$build" "$work/out" > "$work/log" 2>&1 || fail "$name: make.sh: $(cat "$work/log")"
    ! grep -i warning "$work/log" || fail "$name: gnuplot warns"
    for ext in svg png pdf; do
        [ -s "$work/out/$name.$ext" ] || fail "$name.$ext was not drawn"
    done
}

# Fewer points: small models, and of the offloading systems' sweep only what the rules below need.
cp -r "$source/experiments" "$work/experiments"
export RP_EXPERIMENTS=$work/experiments
thin()
{
    sed -i "$2" "$work/experiments/$1.yaml"
    ! cmp -s "$source/experiments/$1.yaml" "$work/experiments/$1.yaml" || fail "$1.yaml: nothing left out"
}
thin usd-per-token 's/model: \[qwen3-1.7b, llama3.1-8b[^]]*\]/model: llama3.1-8b/; /schedule: fsdp, microbatches: 128/d
    s/global-batch: 128/global-batch: 64/; s/microbatches: \[64, 128\]/microbatches: 64/; s/microbatches: 128/microbatches: 64/
    s/model: qwen3-235b-lora/model: llama3.1-8b/'
thin offload-throughput '/model: qwen3-32b/d; s/model: \[qwen3-1.7b, llama3.1-8b\]/model: llama3.1-8b/
    s/gpus: \[1, 2, 4, 8\]/gpus: [1, 2]/; s/gpus: 8, schedule/gpus: 2, schedule/'
thin offload-fits '/zero-infinity/d; s/model: \[.*\]/model: llama3.1-8b/; /gpus: 8/d'

# A price, a purchase and electricity that the user fills in.
export RP_PRICES=$work/prices.csv RP_SERVERS=$work/servers.csv
{
    cat "$source/paper-figures/published/prices.csv"
    echo 'rtx3090x8,1.5,test'
} > "$RP_PRICES"
sed 's/^\(rtx3090x8,350,.*\),,$/\1,8000,0.25/' "$studies/34-usd-per-token/servers.csv" > "$RP_SERVERS"

made 36-robustness
made 34-usd-per-token
made 35-when-offloading-pays
[ "$(find "$work/out" -name '.*' | wc -l)" -eq 0 ] || fail "make.sh left temporary files"

# ---- 36: one slow GPU, noise -------------------------------------------------------------------

# Equal stages, no hops: GPipe takes (M f + P - 1)(F + B), wherever the slow GPU is.
cat > "$work/uniform.yaml" << 'EOF'
name: uniform
source: test
layers: 4
fwd_ms: 3
bwd_ms: 5
head_fwd_ms: 0
head_bwd_ms: 0
hop_ms: 0
microbatch_size: 1
seq_len: 128
EOF
for gpu in 0 1 3; do
    "$rpsim" --schedule gpipe,1f1b --costs "$work/uniform.yaml" --gpus 4 --microbatches 8 --fidelity stage --recompute none \
        --partition 1,1,1,1 --jitter 0 --replicas 1 --slow-gpu "$gpu*1.5" --format csv | sed 's/"[^"]*"/x/g'
done > "$work/uniform.csv"
# 1F1B is bound by its slow stage: its 8 pairs in a row, and a first and last pass over the others.
empty "equal stages" awk -F, '
    $1 == "schedule" { for (i = 1; i <= NF; i++) f[$i] = i; next }
    { rows++; t = $f["iteration_median_ms"] }
    $1 == "gpipe" && (t - 120 > 1e-6 || 120 - t > 1e-6) { print $1 " takes " t ", not (8 * 1.5 + 3) * 8" }
    $1 == "1f1b" && (t < 8 * 1.5 * 8 - 1e-6 || t > 120 + 1e-6) { print $1 " takes " t ", below its slow stage or above GPipe" }
    END { if (rows != 6) print rows " rows" }' "$work/uniform.csv"

# A longest path whose lengths grow linearly with f: 1 <= slowdown <= f, growing and convex in f.
check_slow()
{
    awk -F, '
        FNR == 1 || $1 != "slow-gpu" { next }
        {
            rows++
            if ($8 < 1 - 1e-6 || $9 > $4 + 1e-6 || $6 < $8 || $6 > $9) print $0 ": not within 1 and f"
            if ($10 - 8 / (7 + 1 / $4) > 1e-6 || 8 / (7 + 1 / $4) - $10 > 1e-6) print $0 ": evenly spread"
            key = $2 SUBSEP $3
            if (key != last) { x = y = 1; rise = 0 }
            slope = ($6 - y) / ($4 - x)
            if (slope < rise - 3e-5) print $0 ": not convex" # six digits over steps of 0.1
            rise = slope
            x = $4
            y = $6
            last = key
        }
        END { if (rows != 4 * 7 * 4) print rows " rows" }' <(sort -t, -k1,1 -k2,2 -k3,3 -k4,4n "$1")
}
empty "36: slow GPU" check_slow "$work/out/36-robustness.csv"

# One seed again, outside the store; the mean and tau of one cell by other formulas.
"$rpsim" --fidelity stage --gpus 8 --microbatches 16 --recompute early --replicas 1 --model llama3.1-8b --jitter 0.1 --seed 7 \
    --schedule roundpipe --format csv > "$work/one.csv"
check_cell()
{
    sqlite3 -readonly -csv "$work/out/paper.db" "SELECT schedule, seed, iteration_ps / 1e9, value / 1e9 FROM runs
        JOIN points ON points.id = point_id JOIN experiments ON experiments.id = experiment_id
        JOIN (SELECT run_id AS r, value FROM metrics WHERE name = 'iteration_median_ps') ON r = runs.id
        JOIN $1 ON i = runs.id
        WHERE experiments.name = 'robustness-jitter' AND model = 'llama3.1-8b' AND json_extract(config_json, '\$.jitter_cv') = 0.1" |
        awk -F, -v table="$work/out/36-robustness.csv" -v tau="$work/out/36-robustness-tau.csv" -v one="$work/one.csv" '
            function off(a, b) { return a - b > 2e-6 || b - a > 2e-6 }
            { base[$1] = $3; t[$1, $2] = $4; seeds[$2] = 1; if ($1 == "roundpipe") { n++; sum += $4 / $3; sq += ($4 / $3) ^ 2 } }
            END {
                for (s in seeds) for (a in base) for (b in base) {
                    # Every pair twice, and each only if it is told apart without noise.
                    if (base[a] <= base[b] * 1.005) continue
                    pairs++
                    agree += (t[a, s] > t[b, s] * 1.005) - (t[b, s] > t[a, s] * 1.005)
                }
                half = 2.0452296 * sqrt((sq - sum * sum / n) / (n - 1) / n)
                while ((getline line < table) > 0) {
                    split(line, c, ",")
                    if (c[1] == "jitter" && c[2] == "llama3.1-8b" && c[3] == "roundpipe" && c[4] == 0.1) {
                        found++
                        if (n != 30 || off(c[6], sum / n) || off(c[7], half)) print line ": not " n ", " sum / n ", " half
                    }
                }
                while ((getline line < tau) > 0) {
                    split(line, c, ",")
                    if (c[1] == "jitter" && c[2] == "llama3.1-8b" && c[3] == 0.1) {
                        found++
                        if (off(c[5], agree / pairs) || c[4] != pairs / 30) print line ": not " agree / pairs " of " pairs / 30
                    }
                }
                getline line < one
                split(line, head, ",")
                getline line < one
                gsub(/"[^"]*"/, "x", line)
                split(line, c, ",")
                for (i in head) if (head[i] == "iteration_median_ms") {
                    found++
                    if (off(c[i], t["roundpipe", 7])) print "seed 7 takes " c[i] ", the store has " t["roundpipe", 7]
                }
                if (found != 3) print found " of 3 found"
            }'
}
# Where the usual metrics are: in results from version 3 of the store on.
if [ "$(sqlite3 "$work/out/paper.db" "SELECT count(*) FROM sqlite_master WHERE name = 'results'")" -ne 0 ]; then
    empty "36: one cell" check_cell "(SELECT run_id AS i, iteration_ps FROM results)"
else
    empty "36: one cell" check_cell "(SELECT run_id AS i, value AS iteration_ps FROM metrics WHERE name = 'iteration_ps')"
fi

# ---- 34: prices --------------------------------------------------------------------------------

check_costs()
{
    awk -F, -v prices="$RP_PRICES" '
        function off(a, b) { return a - b > 1e-5 * b || b - a > 1e-5 * b }
        BEGIN {
            while ((getline entry < prices) > 0) { split(entry, c, ","); usd[c[1]] = c[2] }
            gib["rtx3090x8"] = gib["rtx4090x8"] = 24; gib["rtx5090x8"] = 32; gib["a800x8"] = 80
        }
        FNR == 1 { next }
        FILENAME !~ /-best/ {
            rows++
            if ($7 * $12 * 3600 - 1e9 > 2e3 * $7 || 1e9 - $7 * $12 * 3600 > 2e3 * $7) print $0 ": hours"
            if ($8 != ($9 <= gib[$1] * 1.073741824 - 0.45)) print $0 ": fits against its peak"
            if ($14 != "" && !$8) print $0 ": ranked, and does not fit"
            if ($8 && $7 > top[$1, $2]) top[$1, $2] = $7
            if (($13 == "") != (usd[$1] == "" || !$8)) print $0 ": a cost without a price or the reverse"
            if ($13 != "" && off($13 / usd[$1], $12)) print $0 ": not price x hours"
            next
        }
        {
            best++
            if (off($5, top[$2, $1])) print $0 ": not the fastest that fits"
            rate[$2] = $5
            text[$2] = $0
            worth[$2] = $15
            worth_4090[$2] = $16
        }
        END {
            for (p in rate) {
                if (p != "a800x8" && off(worth[p], 8.16 / rate["a800x8"] * rate[p])) print text[p] ": against the A800"
                if (p != "rtx4090x8" && off(worth_4090[p], 2.32 / rate["rtx4090x8"] * rate[p])) print text[p] ": against the 4090"
            }
            if (rate["rtx5090x8"] < rate["rtx4090x8"] || rate["rtx4090x8"] < rate["rtx3090x8"]) print "a newer card is slower"
            if (rows < 40 || best != 4) print rows " rows, " best " best"
        }' "$1" "${1%.csv}-best.csv"
}
empty "34: costs" check_costs "$work/out/34-usd-per-token.csv"

# The filled-in price: cost, and the hours until a bought server pays.
empty "34: a price filled in" awk -F, '
    $2 == "rtx3090x8" {
        found++
        if ($11 != 1.5 || $12 - 1.5 * $10 > 1e-5 || 1.5 * $10 - $12 > 1e-5) print $0 ": cost"
        hours = 8000 / (1.5 - 8 * 0.35 * 0.25)
        if ($18 - hours > 0.01 || hours - $18 > 0.01) print $0 ": pays after " hours
    }
    END { if (found != 1) print found " rows" }' "$work/out/34-usd-per-token-best.csv"

# ---- 35: the host's and the link's bound -------------------------------------------------------

check_offload()
{
    # llama3.1-8b: 32 layers of q, o, k, v, three matrices and two norms; a norm, embedding and head.
    awk -F, -v P="$((32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336 + 2 * 4096) + 4096 + 2 * 128256 * 4096))" '
        FNR == 1 { next }
        FILENAME ~ /-crossover/ {
            crossed++
            r = $10 * 95e9 / (50 * P * $3) # what the table took for the rate of one GPU
            if (r < single[$1] - 1 || r > single[$1] + 1) print $0 ": host_tokens"
            link = $1 == "h100x8" ? 2 * 0.655 * 32e9 : $1 == "a800x8" ? 0.655 * 32e9 : 20.97e9
            if ($11 - 4 * P * r / link > 2 || 4 * P * r / link - $11 > 2) print $0 ": link_tokens"
            if ($12 - 0.95 * $10 > 2 || 0.95 * $10 - $12 > 2) print $0 ": closed_form_tokens"
            if ($4 == "async" && $7 != "" && ($7 < 0.5 * $12 || $7 > 2 * $12)) print $0 ": far from the closed form"
            next
        }
        FILENAME ~ /-fits/ {
            lengths++
            longest[$1, $3, $4] = $6
            next
        }
        {
            rows++
            if ($4 == "interleaved-1f1b" && $3 == 1 && $8 > single[$1]) single[$1] = $8
            if ($5 == "host" && $4 != "roundpipe-fast-host" && $8 > 1.001 * $7 * 95e9 / (50 * P)) print $0 ": faster than the host allows"
            key = $1 SUBSEP $3 SUBSEP $4
            if ($5 == "host" && key == last && $8 < 0.999 * before) print $0 ": slower with more tokens"
            last = key
            before = $8
            if ($4 == "roundpipe") async[$0] = 1
            if ($4 == "roundpipe-fast-host" && $7 == 2048) {
                one_microbatch++
                link = $1 == "h100x8" ? 2 * 0.655 * 32e9 : $1 == "a800x8" ? 0.655 * 32e9 : 20.97e9
                if ($8 < 0.98 * 2048 * link / (4 * P) || $8 > 1.05 * 2048 * link / (4 * P)) print $0 ": not T B / 4 P"
            }
        }
        END {
            for (text in async) {
                split(text, c, ",")
                allowed = c[7] * 95e9 / (50 * P)
                if (allowed < 0.4 * c[3] * single[c[1]] && c[8] < 0.99 * allowed) print text ": slower than the host allows"
            }
            for (g = 1; g <= 2; g++) for (i = split("roundpipe interleaved-1f1b fsdp", s, " "); i; i--)
                if (longest["a800x8", g, s[i]] < longest["rtx4090x8", g, s[i]]) print s[i] ": shorter in more memory"
            if (longest["rtx4090x8", 1, "roundpipe"] <= 0 || longest["rtx4090x8", 1, "fsdp"] != 0) print "fits on one 4090"
            if (rows < 60 || crossed != 12 || one_microbatch != 3 || lengths < 10) print rows ", " crossed ", " one_microbatch ", " lengths " rows"
        }' "$1" "${1%.csv}-crossover.csv" "${1%.csv}-fits.csv"
}
empty "35: bounds" check_offload "$work/out/35-when-offloading-pays.csv"

[ "$failures" -eq 0 ]
