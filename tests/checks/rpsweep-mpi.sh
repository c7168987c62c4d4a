#!/usr/bin/env bash
# Release only: the MPI library itself leaks.
# rpsweep under MPI: four ranks give the rows of one process, and a sweep that fails, or of which a rank is stopped, ends
# the job, with all that it has started.
set -euo pipefail
rpsweep=$2/experiments/rpsweep
command -v mpirun >/dev/null || { echo "skipped: mpirun is missing (Debian package: openmpi-bin)"; exit 77; }
# Not through a pipe: grep -q ends first, and ldd's SIGPIPE would count as "no libmpi".
grep -q libmpi <<<"$(ldd "$rpsweep")" || { echo "skipped: rpsweep was built without MPI (libopenmpi-dev)"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Open MPI 4 and 5 as root, and with more ranks than processors; MPICH allows both.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe

# under_mpi ARGUMENT...: a job that hangs is a failure, not a wait.
under_mpi()
{
    timeout -k 5 60 mpirun -n 4 "$rpsweep" "$@" </dev/null >"$work/out" 2>&1
}

rows()
{
    sqlite3 "$1" "SELECT command, schedule, program_hash, name, value FROM runs
        JOIN metrics ON run_id = runs.id ORDER BY 1, 2, 4;
        SELECT command, failure FROM points ORDER BY 1;"
}

cat >"$work/e.yaml" <<'YAML'
name: ranks
options: {fidelity: stage, gpus: 8}
cross:
  schedule: [gpipe, interleaved-1f1b, roundpipe]
  model: [qwen3-1.7b, qwen3-235b]
  microbatches: {from: 9, to: 80, step: 1}  # not all schedules take all of them
YAML
"$rpsweep" "$work/e.yaml" --db "$work/one.db" >/dev/null 2>&1 || true
rows "$work/one.db" >"$work/one"
under_mpi "$work/e.yaml" --db "$work/mpi.db" || true
rows "$work/mpi.db" | cmp -s - "$work/one" || { echo "other rows:"; cat "$work/out"; exit 1; }

# A store that refuses a row while ranks still have points: an error, no hang; then --resume.
sqlite3 "$work/mpi.db" 'PRAGMA foreign_keys = ON; DELETE FROM points;
    CREATE UNIQUE INDEX refuse ON runs (min(id, 100))'
status=0
under_mpi "$work/e.yaml" --db "$work/mpi.db" --resume || status=$?
[ $status -ne 124 ] || { echo "the job hangs after a failure"; exit 1; }
grep -q 'refuse' "$work/out" || { echo "no error:"; cat "$work/out"; exit 1; }
sqlite3 "$work/mpi.db" 'DROP INDEX refuse'
under_mpi "$work/e.yaml" --db "$work/mpi.db" --resume || true
rows "$work/mpi.db" | cmp -s - "$work/one" || { echo "other rows after a failure:"; cat "$work/out"; exit 1; }

# Ranks of one job take one command line.
sed 's/^name: ranks/name: others/' "$work/e.yaml" >"$work/others.yaml"
status=0
timeout -k 5 60 mpirun -n 1 "$rpsweep" "$work/e.yaml" --db "$work/unlike.db" : -n 1 "$rpsweep" "$work/others.yaml" \
    --db "$work/unlike.db" </dev/null >"$work/out" 2>&1 || status=$?
[ $status -eq 2 ] && grep -q "rank 1 was started with '$work/others.yaml .*rank 0 with '$work/e.yaml " "$work/out" &&
    [ ! -e "$work/unlike.db" ] || { echo "unlike ranks: exit status $status"; cat "$work/out"; exit 1; }

# The process that runs a point crashes: the point is listed, and the others run.
cat >"$work/run.yaml" <<'YAML'
name: run
program: rpexec
options: {model: tiny, gpus: 2}
cross: {schedule: [gpipe, 1f1b, roundpipe], steps: [1, 2, 3]}
YAML
printf '#!/bin/sh\necho this is why >&2\nkill -SEGV $PPID\n' >"$work/rpexec"
chmod +x "$work/rpexec"
status=0
under_mpi "$work/run.yaml" --db "$work/crash.db" --rpexec "$work/rpexec" || status=$?
[ $status -eq 1 ] && [ "$(sqlite3 "$work/crash.db" \
    "SELECT count(*) FROM failures WHERE failure LIKE '%signal 11%'")" -eq 9 ] ||
    { echo "crashed points are not listed, status $status:"; cat "$work/out"; exit 1; }
status=0
under_mpi "$work/none.yaml" || status=$?
[ $status -eq 2 ] || { echo "a missing file: exit status $status"; exit 1; }

# attack SIGNAL VICTIM: points that do not end; then the signal goes to a rank, or to mpirun. Nothing is left within 10 s.
sed 's/steps: .*/steps: [1000000]}/' "$work/run.yaml" >"$work/endless.yaml"
attack()
{
    local signal=$1 victim=$2 started=$SECONDS
    rm -f "$work"/pid.* "$work/endless.db"
    printf '#!/bin/sh\necho $$ >>%s/pid.points\nexec sleep 1000\n' "$work" >"$work/rpexec"
    timeout -k 5 60 bash -c 'echo $$ >"$0.mpirun"; exec "$@"' "$work/pid" mpirun -n 3 bash -c \
        'echo $$ >"$0.${OMPI_COMM_WORLD_RANK:-$PMI_RANK}"; exec "$@"' "$work/pid" "$rpsweep" "$work/endless.yaml" --watchdog-s 1 \
        --db "$work/endless.db" --rpexec "$work/rpexec" </dev/null >"$work/out" 2>&1 &
    local job=$!
    until [ "$(wc -l <"$work/pid.points")" = 2 ] || [ $((SECONDS - started)) -gt 40 ]; do sleep 0.1; done 2>/dev/null
    kill -"$signal" "$(cat "$work/pid.$victim")"
    local struck=$SECONDS
    ! wait $job || { echo "a sweep whose $victim gets $signal ends with 0"; exit 1; }
    for process in $(cat "$work"/pid.[012] "$work/pid.points"); do
        while kill -0 "$process" 2>/dev/null && [ "$(ps -o stat= -p "$process")" != Z ]; do
            [ $((SECONDS - struck)) -le 10 ] || { echo "after $signal to $victim still running:"; ps -fp "$process"; exit 1; }
            sleep 0.1
        done
    done
}
attack STOP 1
grep -q 'rank 1 of 3 has been silent for 2 s: this sweep ends' "$work/out" || { echo "nobody says who is stopped:"; cat "$work/out"; exit 1; }
if [ -n "${RP_LONG:-}" ]; then
    attack STOP 0
    grep -q 'rank 0 of 3 has been silent for 2 s: this sweep ends' "$work/out" || { echo "nobody says who is stopped:"; cat "$work/out"; exit 1; }
    attack KILL 2
    attack KILL mpirun
fi
