#!/usr/bin/env bash
# rpsweep: killed and resumed it ends with the same rows; a crash, a full disk and bad files lose
# nothing.
# Sanitized: --long
set -euo pipefail
rpsweep=$2/experiments/rpsweep
source "$(dirname "${BASH_SOURCE[0]}")/lib/check.sh"

# Everything that has to be the same whoever ran it; times and numbers of rows are not.
rows()
{
    sqlite3 "$1" "SELECT command, schedule, model, partition, seed, program_hash, name, value
        FROM runs JOIN metrics ON run_id = runs.id ORDER BY 1, 2, 7;
        SELECT command, failure FROM points ORDER BY 1;"
}

cat >"$work/e.yaml" <<'YAML'
name: kill
options: {fidelity: stage, gpus: 8}
cross:
  schedule: [gpipe, 1f1b, interleaved-1f1b, looped-bfs, roundpipe]
  model: [qwen3-1.7b, llama3.1-8b, gpt-oss-20b, qwen3-32b, qwen3-235b]
  microbatches: {from: 9, to: 40, step: 1}  # not all schedules take all of them
YAML
expect 2 "/nowhere.yaml: cannot be read" "$rpsweep" /nowhere.yaml
expect 2 "expected one experiment, not 0" "$rpsweep" --jobs 2
expect 2 "integers from 1 to 1024" "$rpsweep" --jobs 0 "$work/e.yaml"
expect 2 "I/N with N from 1" "$rpsweep" --shard 2/2 "$work/e.yaml"
expect 2 "--retry-failed: valid with --resume" "$rpsweep" --retry-failed "$work/e.yaml"
expect 2 "did you mean --resume" "$rpsweep" --resumee "$work/e.yaml"
expect 2 "valid is --db F" "$rpsweep" export summary
expect 2 "not with export" "$rpsweep" reference "$1/paper-figures/published/scaling_4090.csv" \
    --db "$work/none.db" --dry-run
expect 2 "not with export" "$rpsweep" export summary --db "$work/none.db" --jobs 1
[ ! -e "$work/none.db" ] || fail "a refused command made a store"
expect 2 "No such file or directory" "$rpsweep" export summary --db "$work/none.db"
expect 0 "Usage: rpsweep" "$rpsweep" --help
expect 0 "rpsim --fidelity stage --gpus 8 --microbatches 9 --model qwen3-1.7b --schedule gpipe" "$rpsweep" \
    --dry-run "$work/e.yaml"
[ "$(wc -l <"$work/out")" -eq 800 ] || fail "--dry-run: $(wc -l <"$work/out") points, not 800"

# Bad options of a point: nothing runs, nothing is left.
printf 'name: bad\noptions:\n  gpus: 4\n  schedule: pipe\n' >"$work/bad.yaml"
expect 2 "bad.yaml:4: point 0: --schedule: unknown schedule 'pipe'" "$rpsweep" "$work/bad.yaml" --db "$work/bad.db"
printf 'name: bad\noptions:\n  schedule: gpipe\n  seq-length: 3\n' >"$work/unknown.yaml"
expect 2 "unknown.yaml:4: point 0: --seq-length=3: unknown or incomplete option" "$rpsweep" \
    "$work/unknown.yaml" --db "$work/bad.db"
[ ! -e "$work/bad.db" ] || fail "a store for a bad experiment"

# Points that fail are listed, the rest runs.
expect 1 "failed: --microbatches" "$rpsweep" "$work/e.yaml" --db "$work/whole.db"
rows "$work/whole.db" >"$work/whole"
[ "$(sqlite3 "$work/whole.db" 'SELECT count(*) FROM points')" -eq 800 ] || fail "points are missing"
[ "$(sqlite3 "$work/whole.db" 'SELECT count(*) FROM failures')" -gt 10 ] || fail "no failures are listed"
expect 2 "has 800 points of experiment kill already; valid are --resume" "$rpsweep" "$work/e.yaml" --db "$work/whole.db"
expect 0 "0 run" "$rpsweep" "$work/e.yaml" --db "$work/whole.db" --resume
expect 0 "75 of them failed (--retry-failed runs these again)" env COLUMNS=300 "$rpsweep" "$work/e.yaml" --db "$work/whole.db" --resume
expect 2 "EXPERIMENT: unknown experiment 'pipeline-stud', did you mean 'pipeline-study'?; valid values are gallery-scaling, " "$rpsweep" pipeline-stud
expect 2 "validation, or the path of a file NAME.yaml" "$rpsweep" foo
expect 1 "failed: --microbatches" "$rpsweep" "$work/e.yaml" --db "$work/whole.db" --resume --retry-failed
expect 0 "schedule,model" "$rpsweep" export best --db "$work/whole.db"
expect 2 "no table or view 'runs2'; valid are best" "$rpsweep" export runs2 --db "$work/whole.db"

# Shards and their union.
for shard in 0 1 2; do
    expect 1 "points" "$rpsweep" "$work/e.yaml" --db "$work/shard$shard.db" --shard $shard/3
done
expect 0 "points added to" "$rpsweep" merge "$work"/shard?.db --db "$work/merged.db"
expect 0 "shard2.db: 0 points added" "$rpsweep" merge "$work"/shard?.db --db "$work/merged.db"
rows "$work/merged.db" | cmp -s - "$work/whole" || fail "shards together have other rows"

# Killed at a random moment, again and again, and each time after it has committed something: a kill
# before that, or after the end, would say nothing.
sed 's/to: 40/to: 104/' "$work/e.yaml" >"$work/kill.yaml"
"$rpsweep" "$work/kill.yaml" --db "$work/long.db" >/dev/null 2>&1 || true
rows "$work/long.db" >"$work/long"
stored() { sqlite3 "$work/killed.db" 'SELECT count(*) FROM points' 2>/dev/null || echo 0; }
RANDOM=7
told=0
for ((attempt = 0; attempt < 20; attempt++)); do
    before=$(stored)
    "$rpsweep" "$work/kill.yaml" --db "$work/killed.db" --resume --jobs 1 >/dev/null 2>&1 &
    while [ "$(stored)" -eq "$before" ] && kill -0 $! 2>/dev/null; do sleep 0.01; done
    sleep 0.0$((RANDOM % 40 + 10))
    kill -KILL $! 2>/dev/null || true
    wait $! 2>/dev/null || true
    now=$(stored)
    if [ "$now" -gt "$before" ] && [ "$now" -lt 2400 ]; then
        told=$((told + 1))
    fi
done
[ $told -ge 5 ] || fail "only $told of 20 kills came between two commits"
"$rpsweep" "$work/kill.yaml" --db "$work/killed.db" --resume >/dev/null 2>&1 || true
rows "$work/killed.db" | cmp -s - "$work/long" || fail "killed 20 times it ends with other rows"

# The process that runs a point crashes: that point has failed, all others have run.
printf 'name: crash\noptions: {gpus: 8, schedule: roundpipe}\nlist:\n  - {jitter: 0.1, replicas: 100000}\n  - {microbatches: [8, 16, 24, 32]}\n' \
    >"$work/crash.yaml"
"$rpsweep" "$work/crash.yaml" --db "$work/crash.db" --jobs 1 >"$work/out" 2>&1 &
sweep=$!
for ((wait = 0; wait < 200; wait++)); do
    worker=$(cat /proc/$sweep/task/$sweep/children)
    [ -n "$worker" ] && break
    sleep 0.05
done
sleep 0.3
kill -KILL "$worker" # the sanitizers catch most others
status=0
wait $sweep || status=$?
grep -q "ended by signal 9 (Killed)" "$work/out" || { fail "no crash:"; cat "$work/out"; }
[ $status -eq 1 ] || fail "exit status $status after a crash"
[ "$(sqlite3 "$work/crash.db" 'SELECT count(*) FROM runs')" -eq 4 ] || fail "a crash took other points with it"

# A store that cannot grow: what was committed stays, and the sweep goes on later.
(
    ulimit -f 400
    "$rpsweep" "$work/e.yaml" --db "$work/full.db" --jobs 1 >"$work/out" 2>&1
) && fail "a full disk is no success"
grep -qE "full.db: cannot" "$work/out" || { fail "a full disk:"; cat "$work/out"; }
"$rpsweep" "$work/e.yaml" --db "$work/full.db" --resume >/dev/null 2>&1 || true
rows "$work/full.db" | cmp -s - "$work/whole" || fail "after a full disk it ends with other rows"
# A row that is refused in the middle of a point: nothing of that point stays, all before it does.
cp "$work/killed.db" "$work/refused.db"
sqlite3 "$work/refused.db" "PRAGMA foreign_keys = ON; DELETE FROM points;
    CREATE UNIQUE INDEX refuse ON metrics (min(run_id, 99)) WHERE name = 'busy_ps'"
expect 1 "index 'refuse'" "$rpsweep" "$work/e.yaml" --db "$work/refused.db" --resume
[ "$(sqlite3 "$work/refused.db" 'SELECT count(*) FROM runs')" -eq 99 ] || fail "rows before a refused one are lost"
sqlite3 "$work/refused.db" "DROP INDEX refuse"
"$rpsweep" "$work/e.yaml" --db "$work/refused.db" --resume >/dev/null 2>&1 || true
rows "$work/refused.db" | cmp -s - "$work/whole" || fail "after a refused row it ends with other rows"
printf 'no database' >"$work/text.db"
expect 2 "text.db" "$rpsweep" "$work/e.yaml" --db "$work/text.db"
[ "$(cat "$work/text.db")" = 'no database' ] || fail "a file that is no database was written"

# Executed points are processes.
printf 'name: run\nprogram: rpexec\noptions: {steps: 1, gpus: 2, seq-len: 16}\ncross: {schedule: [1f1b, roundpipe]}\n' \
    >"$work/run.yaml"
expect 0 "2 points: 2 run" "$rpsweep" "$work/run.yaml" --db "$work/run.db"
[ "$(sqlite3 "$work/run.db" "SELECT group_concat(program || schedule) FROM runs")" = "rpexec1f1b,rpexecroundpipe" ] ||
    fail "executed points are not stored"
# Options of executed points are looked at before any of them runs, whatever options rpsweep itself has got.
printf 'name: wrong\nprogram: rpexec\noptions: {backend: host, seq-len: 16, schedule: 1f1b}\ncross: {gpus: [2, 65]}\n' \
    >"$work/wrong.yaml"
expect 2 "$work/wrong.yaml:4: point 1: --gpus: '65'" "$rpsweep" "$work/wrong.yaml" --db "$work/wrong.db" --jobs 1 --resume --retry-failed
printf '#!/bin/sh\necho this is why >&2\nkill -ABRT $$\n' >"$work/rpexec"
chmod +x "$work/rpexec"
expect 1 "ended by signal 6" "$rpsweep" "$work/run.yaml" --db "$work/abort.db" --rpexec "$work/rpexec"

end
