#!/usr/bin/env bash
# rpexec: it trains as plain loops do, goes on where it was stopped, and refuses what it cannot do.
set -euo pipefail
rpexec=$2/exec/rpexec
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

# holds FILE NEEDLE: FILE contains NEEDLE; without NEEDLE, FILE is empty.
holds()
{
    if [ -z "$2" ]; then
        [ ! -s "$1" ]
    else
        grep -qF -- "$2" "$1"
    fi
}

# expect STATUS STDOUT_NEEDLE STDERR_NEEDLE ARGUMENT...
expect()
{
    local want=$1 out=$2 err=$3 status=0
    shift 3
    "$rpexec" "$@" >"$work/out" 2>"$work/err" || status=$?
    if [ $status -ne "$want" ] || ! holds "$work/out" "$out" || ! holds "$work/err" "$err"; then
        echo "rpexec $*: exit status $status (expected $want), stdout and stderr:"
        cat "$work/out" "$work/err"
        failures=$((failures + 1))
    fi
}

data=$1/README.md
expect 0 "host: the processors of this machine" "" --list backends
expect 0 " cores" "" --list=backends
expect 0 "simulated only" "" --list schedules
expect 0 "--check" "" --help
expect 0 "rpexec " "" --version
expect 2 "" "valid values are backends|schedules" --list models
expect 2 "" "--list: the value is missing" --list
expect 2 "" "did you mean --steps" --stepz 3
expect 2 "" "'tiny': valid are options only" tiny
expect 2 "" "unknown schedule 'pipe'" --schedule pipe
expect 2 "" "valid values are host" --backend tpu
expect 2 "" "valid values are integers from 1 to 64" --gpus 65
expect 2 "" "valid values are integers from 1" --steps 0
expect 2 "" "valid values are numbers from 0" --lr fast
expect 2 "" "valid values are stage|layer" --grain block
expect 2 "" "valid only with --save DIR" --resume
expect 2 "" "valid is one of them" --model tiny --weights /nowhere
expect 2 "" "/nowhere/config.json" --weights /nowhere
expect 2 "" "valid are token files and texts" --data /nowhere/text
expect 2 "" "valid for tiny are 1 to 4096" --seq-len 5000
expect 2 "" "bytes beyond its end" --gpu-memory-mb 1 --microbatch-size 8
expect 2 "" "has biases or attention sinks, which the executor does not compute" --model gpt-oss-20b
expect 2 "" "stages" --schedule 1f1b --gpus 3 --partition 4,4
expect 0 "the same bits" "" --steps 3 --check
expect 0 "the same bits" "" --steps 2 --check --grain layer --gpus 2 --seq-len 32
expect 0 "the same bits" "" --steps 2 --check --accumulate 2 --gpus 2 --partition '2,2|4,2,2' --seq-len 16
expect 0 "the same bits" "" --steps 2 --check --schedule roundpipe-overlap --accumulate 2 --gpus 2 --round 2 --seq-len 16
expect 2 "" "divisors of --microbatches" --accumulate 2 --microbatches 5 --round 3
expect 2 "" "mobius has no rounds" --schedule mobius --round 2
expect 0 "the same bits" "" --steps 2 --check --optimizer async --data "$data" --gpus 3 --seq-len 32
expect 0 "the same bits" "" --steps 2 --check --model tiny-moe --gpus 4 --seq-len 32
expect 0 "the same bits" "" --steps 2 --check --model tiny-moe --lora-rank 4 --lora-alpha 8 --seq-len 32
expect 0 "check: gradients of the first step differ by" "" --steps 2 --check --lora-rank 2 --schedule zero2 --gpus 3 --seq-len 16
expect 2 "" "--lora-alpha: tiny has no adapters" --lora-alpha 8
expect 2 "" "valid values are integers from 1 to 65536" --lora-rank 0
expect 0 "check: gradients of the first step differ by" "" --steps 2 --check --schedule zero2 --gpus 4 --seq-len 16
expect 0 "check: gradients of the first step differ by" "" --steps 2 --check --schedule fsdp --gpus 4 --seq-len 16 --link-gb-per-s 8
expect 0 "check: gradients of the first step differ by" "" --steps 2 --check --schedule zero2 --gpus 4 --seq-len 16 --dtype fp16
expect 0 "check: gradients of the first step differ by" "" --steps 2 --check --schedule fsdp-offload --gpus 2 --seq-len 16 --dtype bf16
expect 0 "of a tensor's rms" "" --check --schedule zero-offload --gpus 1 --microbatches 2 --accumulate 2 --seq-len 8 --dtype bf16
expect 0 "the same bits" "" --steps 2 --check --schedule 1f1b --gpus 2 --seq-len 16 --peers --link-gb-per-s 8
expect 0 '"max_grad_rel_err": 0,' "" --steps 2 --check --schedule zbv --gpus 2 --format json --seq-len 16
expect 0 "the same bits" "" --steps 2 --check --dtype bf16 --gpus 3 --seq-len 16
expect 0 "the same bits" "" --steps 2 --check --dtype fp16 --gpus 2 --seq-len 16 --model tiny-moe --lora-rank 3
expect 0 '"dtype": "fp16"' "" --steps 2 --check --dtype fp16 --schedule 1f1b --gpus 2 --format json --seq-len 16
expect 0 "steps skipped because of an overflow" "" --steps 1 --dtype fp16 --gpus 2 --seq-len 16
status=0
"$rpexec" --help >/dev/full 2>"$work/err" || status=$?
if [ $status -ne 1 ] || ! grep -q 'standard output' "$work/err"; then
    echo "a full disk goes unnoticed: exit status $status"
    failures=$((failures + 1))
fi

# Killed at a random moment and resumed, again and again: training ends with the same weights.
train=(--gpus 2 --microbatches 2 --seq-len 16 --data "$data" --steps 40 --save-every 3 --optimizer async)
"$rpexec" "${train[@]}" --save "$work/whole" >/dev/null
for round in $(seq 1 20); do # 10 to 90 ms: some die before, some while they write a checkpoint
    timeout -s KILL "0.0$((RANDOM % 9 + 1))" "$rpexec" "${train[@]}" --save "$work/parts" --resume >/dev/null 2>&1 || true
done
"$rpexec" "${train[@]}" --save "$work/parts" --resume >/dev/null
for file in model training; do
    if ! cmp "$work/whole/step-40/$file.safetensors" "$work/parts/step-40/$file.safetensors"; then
        echo "resumed training differs in $file.safetensors"
        failures=$((failures + 1))
    fi
done
if [ "$(find "$work/parts" -mindepth 1 -maxdepth 1 | wc -l)" -ne 2 ]; then
    echo "left behind:"
    find "$work/parts"
    failures=$((failures + 1))
fi
# Adapters alone are saved, and go on with the same bits.
train=(--gpus 2 --microbatches 2 --seq-len 16 --data "$data" --model tiny-moe --lora-rank 3 --optimizer async)
"$rpexec" "${train[@]}" --steps 6 --save "$work/adapters" >/dev/null
"$rpexec" "${train[@]}" --steps 3 --save "$work/resumed" >/dev/null
"$rpexec" "${train[@]}" --steps 6 --save "$work/resumed" --resume >/dev/null
for file in adapter_model training; do
    if ! cmp "$work/adapters/step-6/$file.safetensors" "$work/resumed/step-6/$file.safetensors"; then
        echo "resumed training of adapters differs in $file.safetensors"
        failures=$((failures + 1))
    fi
done

# In 16 bits masters and the scale of the loss are resumed, too; another type is refused.
for dtype in bf16 fp16; do
    half=(--dtype $dtype --gpus 2 --microbatches 2 --seq-len 16 --data "$data" --optimizer async)
    "$rpexec" "${half[@]}" --steps 6 --save "$work/$dtype-whole" >/dev/null
    "$rpexec" "${half[@]}" --steps 3 --save "$work/$dtype-parts" >/dev/null
    "$rpexec" "${half[@]}" --steps 6 --save "$work/$dtype-parts" --resume >/dev/null
    for file in model training; do
        if ! cmp "$work/$dtype-whole/step-6/$file.safetensors" "$work/$dtype-parts/step-6/$file.safetensors"; then
            echo "training resumed in $dtype differs in $file.safetensors"
            failures=$((failures + 1))
        fi
    done
    expect 2 "" "made with --dtype $dtype; valid is the same type" --gpus 2 --seq-len 16 --save "$work/$dtype-parts" --resume
done

# A text is learned in bf16 as well.
"$rpexec" --dtype bf16 --gpus 2 --microbatches 4 --seq-len 32 --data "$data" --steps 30 --lr 3e-3 --loss-out "$work/loss.csv" >/dev/null
if ! awk -F, 'NR == 2 { first = $2 } { last = $2 } END { exit !(last < 0.75 * first) }' "$work/loss.csv"; then
    echo "the loss does not fall in bf16:"
    cat "$work/loss.csv"
    failures=$((failures + 1))
fi
# A checkpoint is a Hugging Face folder once its config.json lies beside it; here the file is read alone.
rm "$work/whole/step-40/training.safetensors"
expect 2 "" "training.safetensors" --gpus 2 --seq-len 16 --save "$work/whole" --resume --steps 50
[ $failures -eq 0 ]
