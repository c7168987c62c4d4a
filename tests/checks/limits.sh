#!/usr/bin/env bash
# Under a limited address space programs end and heed signals. Release only: sanitizers need more of
# it than any limit leaves. RP_LONG=1 tries more limits.
set -euo pipefail
rpexec=$2/exec/rpexec
rpsweep=$2/experiments/rpsweep
source "$(dirname "${BASH_SOURCE[0]}")/lib/check.sh"

limits=(60000 100000 250000 500000 800000 900000 2000000)
if [ "${RP_LONG:-0}" = 1 ]; then
    read -ra limits <<<"$(seq -s ' ' 60000 40000 1500000) 2000000"
fi

# It trains or says that memory is missing, both at once. Below the size of its libraries it is not even loaded, which
# no program can answer.
for limit in "${limits[@]}"; do
    status=0
    (ulimit -v "$limit" && exec timeout 10 "$rpexec" --gpus 4 --seq-len 16 --steps 2) >"$work/out" 2>"$work/err" || status=$?
    if [ $status -eq 127 ] && [ "$limit" -lt 100000 ] && grep -q 'error while loading shared libraries' "$work/err"; then
        continue
    fi
    if [ $status -ne 0 ] && { [ $status -ne 1 ] || ! grep -qE '^rpexec: out of memory|of host memory, and' "$work/err"; }; then
        fail "rpexec below ulimit -v $limit: exit status $status, $(cat "$work/err")"
    fi
done
[ $status -eq 0 ] || fail "ulimit -v $limit is not enough to train"
"$rpexec" --gpus 4 --seq-len 16 --steps 2 --loss-out "$work/free.csv" >"$work/out"
(ulimit -v 2000000 && exec "$rpexec" --gpus 4 --seq-len 16 --steps 2 --loss-out "$work/limited.csv") >"$work/out"
cmp <(cut -d, -f1,2 "$work/free.csv") <(cut -d, -f1,2 "$work/limited.csv") || fail "a limit changes losses"

# rpsweep is stopped, or has ended because nothing fits. With Open MPI's library, less than 62 MB end in what NVIDIA's
# runtime does before main begins, which no program can answer.
printf 'name: limits\ncross:\n  schedule: [1f1b, gpipe]\n  microbatches: [%s]\n' "$(seq -s , 8 8 1600)" >"$work/e.yaml"
for limit in 70000 100000 300000; do
    rm -f "$work/s.db"
    (ulimit -v $limit && exec timeout -s KILL 20 "$rpsweep" "$work/e.yaml" --db "$work/s.db") >"$work/out" 2>"$work/err" &
    sleep 0.3
    child=$(pgrep -P $! || true) # timeout's
    [ -z "$child" ] || kill -TERM "$child"
    status=0
    wait $! || status=$?
    [ $status -lt 128 ] || [ $status -eq 143 ] || fail "rpsweep below ulimit -v $limit: exit status $status, $(cat "$work/err")"
done
# rpsim refuses at once what does not fit, and runs what does.
for command in "rpsim --schedule roundpipe" "rpsim --schedule 1f1b --fidelity hardware"; do
    status=0
    (ulimit -v 500000 && exec timeout 20 "$2/"$command --microbatches 65536) >"$work/out" 2>"$work/err" || status=$?
    [ $status -eq 2 ] && grep -q 'GiB are available; valid are fewer --microbatches' "$work/err" ||
        fail "$command below a limit: exit status $status, $(cat "$work/err")"
done
(ulimit -v 500000 && exec "$2/rpsim" --schedule roundpipe --microbatches 64) >"$work/out" || fail "64 microbatches do not fit"
# An allocation that fails ends a program with a message, or does no harm.
command=("$2/rpadvise" --model qwen3-0.6b --platform rtx4090x8 --gpus 2 --schedule 1f1b --seq-len 512 --global-batch 8
    --budget 20)
preload=$2/tests/libfail_allocation.so
count=$(LD_PRELOAD=$preload FAIL_AT=0 "${command[@]}" 2>&1 >"$work/out" | sed -n 's/ allocations//p')
tries=25
[ "${RP_LONG:-0}" != 1 ] || tries=2000
[ "$count" -gt 10000 ] || fail "rpadvise: $count allocations"
for ((i = 0; i < tries; i++)); do
    at=$((1 + count * i / tries))
    for all in '' FAIL_ALL=1; do
        status=0
        env LD_PRELOAD="$preload" FAIL_AT=$at $all "${command[@]}" >"$work/out" 2>"$work/err" || status=$?
        if [ $status -gt 1 ] || { [ $status -eq 1 ] && ! grep -qi 'memory' "$work/err"; }; then
            fail "allocation $at of rpadvise $all: exit status $status, $(cat "$work/err")"
        fi
    done
done
[ $failures -eq 0 ]
