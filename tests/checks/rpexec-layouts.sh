#!/usr/bin/env bash
# rpexec with --data-parallel and --tensor-parallel: eight emulated GPUs, 2 x 2 x 2, learn what one learns, to 1e-5;
# a checkpoint of one layout goes on in others; rpsim writes the same program, and it runs from its file.
# Sanitized: --long
set -euo pipefail
export RPEXEC_BACKEND=host
rpexec=$2/exec/rpexec
rpsim=$2/rpsim
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
data=$1/LICENSE # a text that does not change: six steps of some texts are unstable
sizes=(--schedule 1f1b --seq-len 32 --data "$data" --lr 3e-3)

# losses FILE: those of a file of --loss-out
losses()
{
    tail -n +2 "$1" | cut -d, -f2
}

# same_curve NAME A B: as many steps, and losses within 1e-5 of each other
same_curve()
{
    paste -d' ' <(losses "$2") <(losses "$3") | awk -v name="$1" '
        NF != 2 { print name ": other numbers of steps"; bad = 1 }
        { d = $1 / $2 - 1; if (d < 0) d = -d; if (!(d <= 1e-5)) { print name ": step " NR ": " $1 " and " $2; bad = 1 } }
        END { exit bad || NR == 0 }' || exit 1
}

run()
{
    "$rpexec" "${sizes[@]}" "$@" >"$work/out" 2>&1 || { cat "$work/out"; exit 1; }
}

run --gpus 1 --microbatches 8 --steps 6 --loss-out "$work/one.csv"
run --gpus 8 --data-parallel 2 --tensor-parallel 2 --microbatches 4 --steps 3 --loss-out "$work/eight.csv" --save "$work/ck"
run --gpus 8 --data-parallel 4 --microbatches 2 --steps 5 --loss-out "$work/eight.csv" --save "$work/ck" --resume
run --gpus 4 --tensor-parallel 4 --microbatches 8 --steps 6 --loss-out "$work/eight.csv" --save "$work/ck" --resume
same_curve "2 x 2 x 2, then 4 x 1 x 2, then 1 x 4 x 1" "$work/one.csv" "$work/eight.csv"
run --gpus 4 --data-parallel 2 --tensor-parallel 2 --microbatches 4 --steps 2 --check

words=(--schedule 1f1b --model tiny --gpus 8 --data-parallel 2 --tensor-parallel 2 --microbatches 4 --microbatch-size 1
    --seq-len 32 --dtype fp32 --partition even)
"$rpsim" "${words[@]}" --platform rtx4090x8 --iterations 2 --program-out "$work/sim.txt" >/dev/null
"$rpexec" "${words[@]}" --steps 2 --program-out "$work/exec.txt" --loss-out "$work/two.csv" >/dev/null
cmp "$work/sim.txt" "$work/exec.txt" || { echo "rpsim and rpexec write other programs"; exit 1; }
"$rpexec" --program-in "$work/exec.txt" --seq-len 32 --loss-out "$work/in.csv" >/dev/null
cmp <(losses "$work/two.csv") <(losses "$work/in.csv") || { echo "the program of a file trains otherwise"; exit 1; }

# refused OPTION... MESSAGE: status 2, and the message says why
refused()
{
    local message=${*: -1} status=0
    "$rpexec" "${@:1:$#-1}" >"$work/out" 2>&1 || status=$?
    [ $status -eq 2 ] && grep -q -- "$message" "$work/out" || { echo "$*: status $status:"; cat "$work/out"; exit 1; }
}
refused --schedule roundpipe --data-parallel 2 'valid is mpirun -n 2'
refused --schedule fsdp --tensor-parallel 2 'already spreads one model over all GPUs'
refused --schedule 1f1b --gpus 4 --data-parallel 3 'do not divide 4 GPUs'
refused --schedule 1f1b --gpus 4 --data-parallel 2 --record "$work/r" '--record: of several GPUs'
