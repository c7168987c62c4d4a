#!/usr/bin/env bash
# Writes experiments/optimality.md: RoundPipe as published, RoundPipe tuned, our own schedule and
# lower bounds, for the five models of the paper; every number comes from the runs made here.
set -euo pipefail

if [ $# -lt 1 ] || [ $# -gt 2 ]; then
    echo "Usage: $0 BUILD_RPSIM [REPORT]   (REPORT: experiments/optimality.md; takes some minutes)" >&2
    exit 2
fi
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
rpsim=$1
report=${2:-$root/experiments/optimality.md}
if [ ! -x "$rpsim" ]; then
    echo "$0: $rpsim is no program; build it first" >&2
    exit 2
fi
export RP_TRACES=${RP_TRACES:-$root/traces}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

models=(qwen3-1.7b llama3.1-8b gpt-oss-20b qwen3-32b qwen3-235b)
seed=1
db=$work/runs.db

# run LABEL OPTIONS…: a row per model in table `runs`, with the label of its column.
run()
{
    local label=$1 model
    shift
    for model in "${models[@]}"; do
        "$rpsim" --model "$model" --gpus 8 --seed $seed "$@" --format csv >"$work/run.csv" 2>"$work/messages" || {
            cat "$work/messages" >&2
            exit 1
        }
        sqlite3 "$db" 'DROP TABLE IF EXISTS fresh' ".import --csv $work/run.csv fresh" \
            "ALTER TABLE fresh ADD COLUMN label TEXT" "UPDATE fresh SET label = '$label'" \
            "CREATE TABLE IF NOT EXISTS runs AS SELECT * FROM fresh WHERE 0" "INSERT INTO runs SELECT * FROM fresh"
    done
    echo "$label" >&2
}

query()
{
    sqlite3 -batch "$db" "$1"
}

# limits LABEL OPTIONS…: the load of a queue or link in each model's run, by --explain.
limits()
{
    local label=$1 model
    shift
    query "CREATE TABLE IF NOT EXISTS limits (label TEXT, model TEXT, transfers_ms REAL)"
    for model in "${models[@]}"; do
        "$rpsim" --model "$model" --gpus 8 "$@" --explain --format json >"$work/explained.json"
        query "INSERT INTO limits SELECT '$label', '$model', json_extract(value, '$.explain.bounds_ms.transfers')
               FROM json_each(readfile('$work/explained.json'))"
    done
}

stage=(--fidelity stage --microbatches 16)
roundpipe=(--schedule roundpipe)
own=(--schedule roundpipe-overlap)
one=(--microbatches 16)
two=(--microbatches 8 --accumulate 2)
for optimizer in sync async; do
    how=(--optimizer $optimizer)
    hardware=(--fidelity hardware --optimizer $optimizer --iterations 1)
    tuned=(--partition tuned --tune-budget 50000)
    tuned_hardware=(--partition tuned --tune-budget 2500)
    if [ $optimizer = async ]; then # steady states take as many times longer as they have iterations
        how+=(--iterations 32)
        hardware=(--fidelity hardware --optimizer $optimizer)
        tuned=(--partition tuned --tune-budget 3000)
        tuned_hardware=(--partition tuned --tune-budget 120)
    fi
    run "stage-$optimizer-published" "${stage[@]}" "${how[@]}" "${roundpipe[@]}" --partition paper
    run "stage-$optimizer-tuned" "${stage[@]}" "${how[@]}" "${roundpipe[@]}" "${tuned[@]}"
    run "stage-$optimizer-own" "${stage[@]}" "${how[@]}" "${own[@]}" --partition paper
    run "stage-$optimizer-own-tuned" "${stage[@]}" "${how[@]}" "${own[@]}" "${tuned[@]}"
    run "hardware-$optimizer-published" "${hardware[@]}" "${one[@]}" "${roundpipe[@]}" --partition paper
    run "hardware-$optimizer-two" "${hardware[@]}" "${two[@]}" "${roundpipe[@]}" --partition paper
    run "hardware-$optimizer-tuned" "${hardware[@]}" "${one[@]}" "${roundpipe[@]}" "${tuned_hardware[@]}"
    run "hardware-$optimizer-own" "${hardware[@]}" "${two[@]}" "${own[@]}" --partition paper
    run "hardware-$optimizer-own-tuned" "${hardware[@]}" "${two[@]}" "${own[@]}" "${tuned_hardware[@]}"
done
limits hardware-async-published "${hardware[@]}" "${one[@]}" "${roundpipe[@]}" --partition paper
for microbatches in 32 128; do
    run "many-$microbatches-published" --fidelity stage --microbatches $microbatches "${roundpipe[@]}" --partition paper
    run "many-$microbatches-own" --fidelity stage --microbatches $microbatches "${own[@]}" --partition paper
done

# Views for the SQL queries: the run of a label for a model, its time (an iteration if synchronous, otherwise the period
# of the steady state) and its work per GPU.
query "CREATE VIEW r AS SELECT *, CASE optimizer WHEN 'sync' THEN makespan_ms ELSE iteration_ms END + 0.0 AS ms,
           CASE fits WHEN 'false' THEN '†' ELSE '' END AS mark, makespan_ms - bubble_ms / gpus AS work_ms FROM runs;
       CREATE TABLE models (name TEXT, rank INTEGER);"
for i in "${!models[@]}"; do
    query "INSERT INTO models VALUES ('${models[$i]}', $i)"
done

# cell COLUMN LABEL: SQL of a value.
cell()
{
    printf "(SELECT %s FROM r WHERE r.model = m.name AND r.label = '%s')" "$1" "$2"
}

# rows PREFIX BOUND LABEL…: a Markdown row per model: the times, the bound, the gap of the first column to it, and the
# share of that gap that each other column closes (if there is a gap).
rows()
{
    local prefix=$1 bound=$2 first columns='' closed='' label
    shift 2
    first=$(cell ms "$prefix-$1")
    for label in "$@"; do
        columns+=" || printf('%.1f%s | ', $(cell ms "$prefix-$label"), $(cell mark "$prefix-$label"))"
    done
    shift
    for label in "$@"; do
        closed+=" || CASE WHEN $first > 1.0005 * $bound
                     THEN printf('%.0f | ', 100 * ($first - $(cell ms "$prefix-$label")) / ($first - $bound)) ELSE '- | ' END"
    done
    query "SELECT '| ' || m.name || ' | ' $columns || printf('%.1f | %.1f | ', $bound, 100 * ($first - $bound) / $first) $closed
           FROM models m ORDER BY m.rank" | sed 's/ $//'
}

# Rows of five labels without the columns that say how much of the gap each closes.
times_only()
{
    awk -F'|' '{ for (i = 1; i <= 9; i++) printf "%s|", $i; print "" }'
}

# lowest PREFIX: SQL of the lowest bound that any run of a table has: it holds for all of them.
lowest()
{
    printf "(SELECT min(lower_bound_same_ms + 0.0) FROM r WHERE r.model = m.name AND r.label LIKE '%s-%%')" "$1"
}

# Runs whose partition leaves out recompute, so that they have less to do than the bound assumes.
fused()
{
    query "SELECT '- ' || r.model || ', ' || r.schedule || ', ' || r.optimizer ||
                  printf(': %.1f ms of work per GPU instead of %.1f', r.work_ms, p.work_ms)
           FROM r JOIN r p ON p.model = r.model AND p.label = 'stage-' || r.optimizer || '-published'
           WHERE r.label LIKE 'stage-%-tuned' AND r.work_ms < 0.9999 * p.work_ms"
}

less_work=$(fused)
head='| model | published | tuned | own | own, tuned | bound | gap | closed: tuned | own | own, tuned |'
hardware_head='| model | one call | two calls | tuned | own | own, tuned | bound | gap |
|---|---|---|---|---|---|---|---|'
transfers="(SELECT max(l.transfers_ms, $(cell work_ms hardware-async-published)) FROM limits l WHERE l.model = m.name)"
{
    cat <<TEXT
# How far from optimal

Written by \`experiments/optimality.sh\` (target \`optimality\`). 8 × RTX 4090, 16 microbatches, recompute early (as
published for RoundPipe), times in ms. *Own* is \`roundpipe-overlap\`. *Tuned* is \`--partition tuned\`, seed $seed, with 50000
simulations at stage fidelity (steady states 3000) and 2500 at hardware fidelity (120); other columns have the published
partition. *Gap* is the distance of the first column to the bound, *closed* the part of it that a column closes, in
percent.

## One synchronous iteration, stage fidelity

Makespan. The bound holds for every schedule with the same semantics (\`lower_bound_same_ms\`, the lowest of the runs;
proof in \`sim/run/bounds/bounds.h\`). *Same work* is the bound of partitions that fuse no layers with the head's stage
(\`lower_bound_any_ms\`).

$head same work |
|---|---|---|---|---|---|---|---|---|---|---|
TEXT
    rows stage-sync "$(lowest stage-sync)" published tuned own own-tuned |
        paste -d' ' - <(query "SELECT printf('%.1f |', $(cell lower_bound_any_ms stage-sync-published)) FROM models m ORDER BY m.rank")
    cat <<TEXT

## Steady state of asynchronous iterations, stage fidelity

Period, over the second half of 32 iterations. The bound is the published run's work divided by the GPUs; a period may
lie below it by the ends of its window.

$head
|---|---|---|---|---|---|---|---|---|---|
TEXT
    rows stage-async "$(cell work_ms stage-async-published)" published tuned own own-tuned
    if [ -n "$less_work" ]; then
        cat <<TEXT

A search may fuse stages that no GPU could hold and that recompute nothing. These runs have less work than the bound
assumes:

$less_work
TEXT
    fi
    cat <<TEXT

## One synchronous step, hardware fidelity

Makespan. RoundPipe runs in one call of 16 microbatches or in two of 8, tuned in one, own in two. † does not fit into
the GPUs' memory.

$hardware_head
TEXT
    rows hardware-sync "$(lowest hardware-sync)" published two tuned own own-tuned | times_only
    cat <<TEXT

## Steady state of asynchronous steps, hardware fidelity

Period; calls as above. The bound is the work divided by the GPUs, or the time of the busiest queue or link in the
published run if that is more: then it is the host's optimizer, which every schedule waits for.

$hardware_head
TEXT
    rows hardware-async "$transfers" published two tuned own own-tuned | times_only
    cat <<TEXT

## Many microbatches, stage fidelity, synchronous

Makespan with the published partition. Fill and drain are paid once, so there is less to gain.

| model | RoundPipe 32 | own 32 | RoundPipe 128 | own 128 |
|---|---|---|---|---|
TEXT
    columns=
    for microbatches in 32 128; do
        for who in published own; do
            columns+=" || printf(' | %.1f', $(cell ms "many-$microbatches-$who"))"
        done
    done
    query "SELECT '| ' || m.name $columns || ' |' FROM models m ORDER BY m.rank"
} >"$work/report.md"
mv "$work/report.md" "$report"
