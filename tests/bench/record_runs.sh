#!/usr/bin/env bash
# record_runs.sh RPEXEC OUTDIR: runs of the host backend to keep (tests/gpu/keep.sh), with the costs of a run of its
# own. Wants an idle machine.
set -euo pipefail
rpexec=$1
out=$2
mkdir -p "$out"
length=128
common=(--backend host --model small --bind --seq-len $length)
{
    echo "date: $(date -u +%F)"
    echo "device: host backend, $(nproc) processors of $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)"
    echo "versions: $("$rpexec" --version), Linux $(uname -r), $(ldd "$rpexec" | sed -n 's/.*libopenblas[^ ]* => //p' |
        cut -d' ' -f1 | xargs -r readlink -f | xargs -r basename)"
    echo "commands: rpexec ${common[*]} --schedule roundpipe --gpus 1 --microbatches 4 --steps 6 --record record"
    echo "    rpexec ${common[*]} --schedule S --gpus N --microbatches 8 --steps 4 --costs record --predict \\
        --program-out run-S-N/program.txt --timeline-out run-S-N/timeline.csv"
} >"$out/facts.log"
"$rpexec" "${common[@]}" --schedule roundpipe --gpus 1 --microbatches 4 --steps 6 --record "$out/record" >/dev/null
for case in 1f1b-2 1f1b-4 zb-h1-4 roundpipe-2 roundpipe-4 fsdp-2; do
    mkdir -p "$out/run-$case"
    "$rpexec" "${common[@]}" --schedule "${case%-*}" --gpus "${case##*-}" --microbatches 8 --steps 4 \
        --costs "$out/record" --predict --program-out "$out/run-$case/program.txt" \
        --timeline-out "$out/run-$case/timeline.csv" | tail -n 1
    echo "small $length" >"$out/run-$case.args"
done
