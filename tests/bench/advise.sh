#!/usr/bin/env bash
# advise.sh BINDIR [GRIDDIR [CASE…]]: rpadvise's best against the best of a full grid that rpsim runs point by point, as
# CSV; fails if a case misses its targets (99.5 % of the grid's best, 20 s, a command that replays). The grid: every
# schedule, both optimizer modes, 1, 2, 4 and 8 sequences per microbatch, N, 2N and 4N microbatches, both grains;
# defaults of rpsim for all else. Points beyond GPU or host memory do not count, refused points are skipped. GRIDDIR
# keeps a grid's store per case and commit, so that a second run only times rpadvise, and CASE.csv with its 50 best
# points and the best of every schedule. JOBS: processes of the grid (2). GRID_ONLY=1: no rpadvise. SCHEDULES: a list,
# the grid's (all). MOST_SECONDS: rpadvise's limit (20).
set -euo pipefail
export LC_ALL=C.UTF-8
TIMEFORMAT='%1R %1U %1S'
bin=$(cd "$1" && pwd)
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
if [ $# -gt 1 ]; then
    mkdir -p "$2"
    work=$(cd "$2" && pwd)
    shift 2
else
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    shift
fi
# name model platform GPUs
cases='qwen3-1.7b-rtx4090x8 qwen3-1.7b rtx4090x8 8
llama3.1-8b-rtx4090x8 llama3.1-8b rtx4090x8 8
gpt-oss-20b-rtx4090x8 gpt-oss-20b rtx4090x8 8
qwen3-32b-rtx4090x8 qwen3-32b rtx4090x8 8
qwen3-235b-rtx4090x8 qwen3-235b rtx4090x8 8
llama3.1-8b-rtx3090x8 llama3.1-8b rtx3090x8 8
llama3.1-8b-rtx5090x8 llama3.1-8b rtx5090x8 8
llama3.1-8b-l40sx4 llama3.1-8b l40sx8 4'
# A point's result depends on these: a grid is kept until any changes.
commit=$(git -C "$root" log -1 --format=%h -- common sim/engine sim/run sim/study traces 2>/dev/null || true)

# ask STORE QUERY: rows of a store, its values parted by |.
ask()
{
    sqlite3 -readonly "$1" "$2"
}

# grid NAME MODEL PLATFORM GPUS STORE: runs the points that the store lacks.
grid()
{
    local schedules
    schedules=${SCHEDULES:-$("$bin/rpsim" --list schedules --format csv | awk -F, 'NR > 1 { printf "%s%s", (NR > 2 ? ", " : ""), $1 }')}
    cat >"$work/$1.yaml" <<YAML
name: $1
question: Which of all these points is fastest?
options: {model: $2, platform: $3, gpus: $4, intervals: "off"}
cross:
  schedule: [$schedules]
  optimizer: [sync, async]
  microbatch-size: [1, 2, 4, 8]
  microbatches: [$4, $((2 * $4)), $((4 * $4))]
  grain: [stage, layer]
YAML
    nice -n 10 "$bin/experiments/rpsweep" "$work/$1.yaml" --db "$5" --jobs "${JOBS:-2}" --resume \
        >"$work/$1.log" 2>&1 </dev/null || true # refused points count as failures
}

# listing STORE: the 50 best of the points that fit, and the best of each schedule.
listing()
{
    sqlite3 -readonly -header -csv "$1" "
        WITH point AS (
            SELECT results.schedule, results.optimizer, results.microbatch_size, results.microbatches,
                   json_extract(config_json, '\$.grain') AS grain, tokens_per_s, peak_gpu_bytes, peak_host_bytes,
                   results.recompute, results.partition, round(1e3 * duration_s, 1) AS point_ms,
                   row_number() OVER (ORDER BY tokens_per_s DESC) AS rank,
                   row_number() OVER (PARTITION BY results.schedule ORDER BY tokens_per_s DESC) AS of_schedule
              FROM results JOIN runs ON runs.id = run_id WHERE fits IS NOT 0 AND tokens_per_s IS NOT NULL)
        SELECT rank, schedule, optimizer, microbatch_size, microbatches, grain, tokens_per_s, peak_gpu_bytes,
               peak_host_bytes, recompute, partition, point_ms
          FROM point WHERE rank <= 50 OR of_schedule = 1 ORDER BY rank"
}

# advised FILE KEY: of rpadvise's first row.
advised()
{
    sqlite3 :memory: "SELECT json_extract(readfile('$1'), '\$[0].$2')"
}

# replay COMMAND: tokens/s that an rpsim command line prints.
replay()
{
    # shellcheck disable=SC2086 # a command line
    (cd "$bin" && PATH=$bin:$PATH eval "$1 --format json") >"$work/replay.json" 2>"$work/replay.log" || return 1
    advised "$work/replay.json" tokens_per_s
}

# equal A B: the same number, however its digits were written.
equal()
{
    awk -v a="$1" -v b="$2" 'BEGIN { exit !(a - b <= 1e-9 * b && b - a <= 1e-9 * b) }'
}

in_time()
{
    awk -v s="$1" -v most="${MOST_SECONDS:-20}" 'BEGIN { exit !(s < most) }'
}

missed=0
miss()
{
    echo "advise.sh: $*" >&2
    missed=$((missed + 1))
}

header='case,model,platform,gpus,grid_points,grid_fit,grid_tokens_per_s,grid_schedule,grid_optimizer'
header+=',grid_microbatch_size,grid_microbatches,grid_grain,seconds,cpu_seconds,tokens_per_s,ratio,command'
echo "$header"
while read -r name model platform gpus; do
    if [ $# -gt 0 ] && [[ " $* " != *" $name "* ]]; then
        continue
    fi
    if ! "$bin/rpsim" --list platforms --format csv | cut -d, -f1 | grep -qx "$platform"; then
        miss "$name: there is no platform $platform"
        continue
    fi
    store=$work/$name-${commit:-unknown}.db
    grid "$name" "$model" "$platform" "$gpus" "$store"
    listing "$store" >"$work/$name.csv"
    points=$(ask "$store" 'SELECT count(*) FROM points')
    run=$(ask "$store" 'SELECT count(*) FROM results')
    if [ $((2 * run)) -lt "$points" ]; then
        miss "$name: only $run of $points points have run: $(ask "$store" 'SELECT failure FROM failures LIMIT 1')"
        rm -f "$store"*
        continue
    fi
    fit=$(ask "$store" 'SELECT count(*) FROM results WHERE fits IS NOT 0 AND tokens_per_s IS NOT NULL')
    IFS=, read -r _ schedule optimizer size count grain best _ < <(sed -n 2p "$work/$name.csv") || best=0
    # A single process of rpsim agrees with the sweep, or the store is of other code.
    again=$best
    [ "$best" = 0 ] || again=$(replay "rpsim --schedule $schedule --model $model --platform $platform --gpus $gpus \
--optimizer $optimizer --microbatch-size $size --microbatches $count --grain $grain --intervals off") || again=nothing
    equal "$again" "$best" || miss "$name: $store has $best tokens/s, rpsim says $again; remove the store"
    row="$name,$model,$platform,$gpus,$points,$fit,$best,$schedule,$optimizer,$size,$count,$grain"
    if [ "${GRID_ONLY:-0}" = 1 ]; then
        echo "$row,,,,,"
        continue
    fi
    status=0
    { time "$bin/rpadvise" --model "$model" --platform "$platform" --gpus "$gpus" --format json \
        >"$work/advice.json" 2>"$work/advice.log" </dev/null || status=$?; } 2>"$work/time"
    read -r seconds user system <"$work/time"
    row+=",$seconds,$(awk -v u="$user" -v s="$system" 'BEGIN { printf "%.1f", u + s }')"
    if [ $status -eq 1 ] && [ "$best" = 0 ]; then # nothing fits, as the grid says
        echo "$row,0,,"
        in_time "$seconds" || miss "$name: takes $seconds s"
        continue
    fi
    if [ $status -ne 0 ]; then
        miss "$name: rpadvise fails: $(tail -n 1 "$work/advice.log")"
        echo "$row,,,"
        continue
    fi
    advice=$(advised "$work/advice.json" tokens_per_s)
    command=$(advised "$work/advice.json" command)
    ratio=$(awk -v a="$advice" -v b="$best" 'BEGIN { if (b > 0) printf "%.4f", a / b; else print "inf" }')
    echo "$row,$advice,$ratio,\"${command//\"/\"\"}\""
    awk -v r="$ratio" 'BEGIN { exit !(r == "inf" || r >= 0.995) }' || miss "$name: $ratio of the grid's best"
    in_time "$seconds" || miss "$name: takes $seconds s"
    again=$(replay "$command") || miss "$name: $command fails: $(tail -n 1 "$work/replay.log")"
    [ "$again" = "$advice" ] || miss "$name: $command prints $again tokens/s instead of $advice"
done <<<"$cases"
[ "$missed" -eq 0 ]
