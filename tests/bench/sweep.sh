#!/usr/bin/env bash
# sweep.sh RPSWEEP RUNS [SHARDS]: time of experiments/sweep-100k.yaml on two cores, into a new store
# each time, as CSV; with SHARDS only every SHARDSth point. Fails unless every point is stored.
set -euo pipefail
rpsweep=$1
runs=$2
shards=${3:-1}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
TIMEFORMAT='%R %U %S'
echo 'run,points,jobs,wall_s,user_s,system_s,points_per_s,store_bytes'
for ((run = 1; run <= runs; run++)); do
    db=$work/$run.db
    { time "$rpsweep" sweep-100k --db "$db" --jobs 2 --shard "0/$shards" >"$work/out" 2>&1; } 2>"$work/time"
    read -r wall user system <"$work/time"
    points=$("$rpsweep" export runs --db "$db" | grep -c '^[0-9]')
    if [ "$points" -ne $((100000 / shards)) ]; then
        echo "$points points are stored:" >&2
        cat "$work/out" >&2
        exit 1
    fi
    echo "$run,$points,2,$wall,$user,$system,$(awk "BEGIN { printf \"%.0f\", $points / $wall }"),$(stat -c %s "$db")"
    rm -f "$db"*
done
