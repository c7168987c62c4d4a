#!/usr/bin/env bash
# Programs that are started with standard streams closed: no message gets into a file, no file's content to a stream,
# and results that nobody gets are a failure, as on a full disk.
set -euo pipefail
bin=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

# closed CLOSED STATUS COMMAND...: runs it with the descriptors CLOSED ("02": 0 and 2) closed.
closed()
{
    local which=$1 want=$2 status=0
    shift 2
    (
        [[ $which != *0* ]] || exec 0<&-
        [[ $which != *1* ]] || exec 1>&-
        [[ $which != *2* ]] || exec 2>&-
        exec "$@"
    ) >"$work/out" 2>"$work/err" </dev/null || status=$?
    if [ $status -ne "$want" ]; then
        echo "$* with $which closed: exit status $status, not $want"
        failures=$((failures + 1))
    fi
}

# rpsim warns while it writes: Chakra's durations are whole microseconds.
sim=("$bin/rpsim" --schedule 1f1b --gpus 2 --microbatches 3 --iterations 1)
outputs() { printf '%s\n' --chakra-out "$work/$1" --trace-out "$work/$1.json" --program-out "$work/$1.txt"; }
mapfile -t expected < <(outputs expected)
mapfile -t got < <(outputs got)
"${sim[@]}" "${expected[@]}" >/dev/null 2>"$work/warned"
if ! grep -q warning "$work/warned"; then
    echo "rpsim does not warn any more: this check needs another command"
    failures=$((failures + 1))
fi
for which in 0 1 2 01 02 12 012; do
    status=0
    [[ $which != *1* ]] || status=1
    rm -f "$work"/got*
    closed $which $status "${sim[@]}" "${got[@]}"
    for file in .0.et .1.et .json .txt; do
        if ! cmp "$work/expected$file" "$work/got$file"; then
            echo "rpsim with $which closed writes another $file"
            failures=$((failures + 1))
        fi
    done
done
# gnuplot does not notice a full disk.
if command -v gnuplot >/dev/null; then
    for kind in svg png pdf; do
        ln -s /dev/full "$work/full.$kind"
        status=0
        "${sim[@]}" --gantt-out "$work/full.$kind" >/dev/null 2>"$work/err" || status=$?
        if [ $status -ne 1 ] || ! grep -q "full.$kind: cannot be written: No space left" "$work/err"; then
            echo "a $kind on a full disk: exit status $status: $(cat "$work/err")"
            failures=$((failures + 1))
        fi
    done
fi
# rpsweep's store, rpexec's checkpoint and losses.
cat >"$work/e.yaml" <<'TEXT'
name: closed
options:
  schedule: gpipe
  fidelity: stage
cross:
  gpus: [2, 4]
TEXT
closed 012 1 "$bin/experiments/rpsweep" "$work/e.yaml" --db "$work/e.db" --jobs 1
[ "$(sqlite3 "$work/e.db" 'PRAGMA integrity_check; SELECT count(*) FROM runs')" = $'ok\n2' ] || {
    echo "rpsweep with all closed: the store is $(sqlite3 "$work/e.db" 'PRAGMA integrity_check; SELECT count(*) FROM runs' 2>&1)"
    failures=$((failures + 1))
}
train=("$bin/exec/rpexec" --gpus 1 --seq-len 8 --steps 3)
"${train[@]}" --save "$work/expected" --loss-out "$work/expected.csv" >/dev/null
closed 012 1 "${train[@]}" --save "$work/saved" --loss-out "$work/l.csv"
for file in model training; do
    cmp "$work/expected/step-3/$file.safetensors" "$work/saved/step-3/$file.safetensors" || failures=$((failures + 1))
done
cut -d, -f1,2 "$work/l.csv" | cmp - <(cut -d, -f1,2 "$work/expected.csv") || failures=$((failures + 1))
closed 12 1 "$bin/rpplan" --model qwen3-1.7b --gpus 4
closed 12 1 "$bin/rppredict" --help
closed 12 1 "$bin/rpdiff" --help
closed 12 1 "$bin/rpimport" --help
exit $((failures > 0))
