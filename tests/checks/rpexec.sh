#!/usr/bin/env bash
# rpexec: it trains as plain loops do, goes on where it was stopped, and refuses what it cannot do.
# Sanitized: --long
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
    # --bind in a container with a limit; tests run side by side
    sed -i "/processors are not kept awake/d; /other processes used/d" "$work/err"
    if [ $status -ne "$want" ] || ! holds "$work/out" "$out" || ! holds "$work/err" "$err"; then
        echo "rpexec $*: exit status $status (expected $want), stdout and stderr:"
        cat "$work/out" "$work/err"
        failures=$((failures + 1))
    fi
}

# Optimised and sanitized builds of one commit have the same losses, to the last digit (products.c, environment.c).
losses() { "$1" --model tiny --gpus 2 --steps 3 --format json | grep '"loss":'; }
sanitized=$2/../asan+ubsan/exec/rpexec
if [ -x "$sanitized" ] && [ "$("$sanitized" --version)" = "$("$rpexec" --version)" ]; then
    losses "$rpexec" >"$work/here"
    losses "$sanitized" >"$work/there"
    diff "$work/here" "$work/there" || { echo "builds train differently"; failures=$((failures + 1)); }
fi

data=$1/LICENSE # a text that stays as it is
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
expect 2 "" "--save-every: valid only with --save DIR" --save-every 3
expect 2 "" "valid is one of them" --model tiny --weights /nowhere
expect 2 "" "/nowhere/config.json" --weights /nowhere
expect 2 "" "valid are token files and texts" --data /nowhere/text
expect 2 "" "valid for tiny are 1 to 4096" --seq-len 5000
expect 2 "" "bytes beyond its end" --gpu-memory-mb 1 --microbatch-size 8
expect 2 "" "has learned positions, LayerNorm or a plain MLP, which the executor does not compute" --model mpt-125m
expect 2 "" "stages" --schedule 1f1b --gpus 3 --partition 4,4
expect 0 "the same bits" "" --steps 3 --check
expect 0 "the same bits" "" --steps 2 --check --grain layer --gpus 2 --seq-len 32
expect 0 "the same bits" "" --steps 2 --check --accumulate 2 --gpus 2 --partition '2,2|4,2,2' --seq-len 16
expect 0 "the same bits" "" --steps 2 --check --schedule roundpipe-overlap --accumulate 2 --gpus 2 --round 2 --seq-len 16
expect 0 "the same bits" "" --steps 2 --check --bind --gpus 3 --seq-len 16
expect 0 "tokens/s" "" --steps 2 --bind --gpus 1 --seq-len 16 --record "$work/bound" \
    --timeline-out "$work/bound.csv" --program-out "$work/bound.txt"
if ! cmp "$work/bound.csv" "$work/bound/timeline.csv" || ! cmp "$work/bound.txt" "$work/bound/program.txt"; then
    echo "--timeline-out and --program-out are not those of the record"
    failures=$((failures + 1))
fi
# The last program is no shorter than the others by more than a step: it is what is measured.
expect 0 "tokens/s" "" --steps 9 --gpus 1 --seq-len 8 --program-out "$work/nine.txt"
if ! grep -qx 'iterations 4' "$work/nine.txt"; then
    echo "9 steps end with a program of: $(grep -x 'iterations .*' "$work/nine.txt")"
    failures=$((failures + 1))
fi
touch "$work/bound/predicted.csv"
expect 0 "tokens/s" "" --steps 2 --bind --gpus 1 --seq-len 16 --record "$work/bound"
if [ -e "$work/bound/predicted.csv" ]; then
    echo "a record without a prediction keeps an older one"
    failures=$((failures + 1))
fi
if ! grep -q '^bound_cores: [1-9]' "$work/bound/platform.yaml"; then
    echo "--record of a bound run does not say so"
    failures=$((failures + 1))
fi
expect 0 "predicted" "the record is of a run with --bind, this one runs without" --steps 2 --gpus 2 --seq-len 16 \
    --costs "$work/bound" --predict
# Times of another model or type are refused, whatever has the same sizes.
of_others=(--steps 2 --bind --gpus 1 --seq-len 16 --costs "$work/bound" --predict)
expect 2 "" "was measured with tiny on the backend host, this run has small on host" "${of_others[@]}" --model small
expect 2 "" "was measured in fp32, this run is in bf16" "${of_others[@]}" --dtype bf16
expect 2 "" "was measured in fp32, this run is in fp32, LoRA of rank 2" "${of_others[@]}" --lora-rank 2
# A record of a checkpoint has a name that rpexec and rpsim read.
cp -r "$1/tests/golden/decoders/qwen3" "$work/a #model"
expect 0 "tokens/s" "" --weights "$work/a #model" --steps 2 --gpus 1 --seq-len 16 --record "$work/of-checkpoint"
expect 0 "tokens/s" "" --weights "$work/a #model" --steps 1 --gpus 1 --seq-len 16 --costs "$work/of-checkpoint"
if ! grep -qx 'name: a__model@host' "$work/of-checkpoint/costs.yaml" ||
    ! "$2/rpsim" --schedule gpipe --fidelity stage --gpus 1 --costs "$work/of-checkpoint/costs.yaml" >"$work/out" 2>&1; then
    echo "the record of a checkpoint cannot be read:"
    cat "$work/out" "$work/of-checkpoint/costs.yaml"
    failures=$((failures + 1))
fi
# A checkpoint opens as it is: weights with their configuration, adapters with the folder that they are on.
expect 0 "tokens/s" "" --weights "$work/a #model" --steps 2 --gpus 1 --seq-len 16 --save "$work/whole"
expect 0 "the same bits" "" --weights "$work/whole/step-2" --steps 1 --gpus 1 --seq-len 16 --check
expect 0 "tokens/s" "" --weights "$work/whole/step-2" --steps 2 --gpus 1 --seq-len 16 --lora-rank 3 --save "$work/on-whole"
expect 0 "the same bits" "" --weights "$work/on-whole/step-2" --steps 1 --gpus 2 --seq-len 16 --check
expect 2 "" "have rank 3 and alpha 3; valid are these, and neither option" --weights "$work/on-whole/step-2" --lora-rank 2
mv "$work/whole/step-2" "$work/whole/elsewhere"
expect 0 "tokens/s" "" --steps 2 --gpus 1 --seq-len 16 --lora-rank 2 --dtype bf16 --save "$work/on-random"
expect 0 "of a tensor's rms" "" --weights "$work/on-random/step-2" --steps 1 --gpus 2 --seq-len 16 --dtype bf16 --check
expect 2 "" "adapter_config.json:3: base_model_name_or_path: $work/whole/step-2/config.json: No such file" \
    --weights "$work/on-whole/step-2"
sed -i 's/"hidden_act": "silu"/"hidden_act": "gelu"/' "$work/a #model/config.json"
expect 2 "" "config.json:11: hidden_act: valid values are silu" --weights "$work/a #model" --steps 1
# Every family equals plain loops, under a schedule that cuts layers, one that goes over the host, and with adapters; the
# last two for all families with RP_LONG=1, else for every third.
number=0
for family in "$1"/tests/golden/families/*/; do
    number=$((number + 1))
    for options in "--schedule megatron-tp" "--schedule roundpipe" "--schedule 1f1b --lora-rank 2"; do
        [[ ${RP_LONG:-0} = 1 || $options = *megatron* || $((number % 3)) -eq 0 ]] || continue
        expect 0 "check: " "" --weights "$family" --steps 2 --seq-len 16 --gpus 2 --check $options
    done
done
# The input part of backwards that no run has split is what its operators take: all but the weights' and, between the
# two, the activation that they need again.
if ! awk -F, 'FNR == NR && $1 == "block" && $2 == "backward" {
        if ($3 == "sum") all = $7
        if ($3 == "linear_weight" || $3 == "swiglu") weights += $7
    }
    FNR != NR && /^bwd_/ { split($1, first, "["); ms[substr($1, 1, index($1, ":") - 1)] = first[2] }
    END { share = ms["bwd_input_ms"] / ms["bwd_ms"] - (1 - weights / all)
          exit !(all > 0 && weights > 0 && share * share < 1e-6) }' "$work/of-checkpoint/operators.csv" "$work/of-checkpoint/costs.yaml"; then
    echo "the input part of backwards is not what operators say:"
    cat "$work/of-checkpoint/operators.csv" "$work/of-checkpoint/costs.yaml"
    failures=$((failures + 1))
fi
# A record may take the place of the one that predicts its run, and its measuring is not time of the run.
sed -i -E 's/[0-9]+\.[0-9]+/10000/g' "$work/bound/costs.yaml" # 10 s for everything
begin=${EPOCHREALTIME/./}
expect 0 '"predicted_iteration_ms"' "" --steps 2 --bind --gpus 1 --seq-len 16 --microbatches 4 --costs "$work/bound" \
    --predict --record "$work/bound" --format json
if ! awk -v wall_us=$((${EPOCHREALTIME/./} - begin)) '{ gsub(/,/, "") }
    $1 == "\"wall_tokens_per_s\":" { run_us = 1e6 * 2 * 4 * 16 / $2 }
    $1 == "\"predicted_iteration_ms\":" { predicted_ms = $2 }
    END { exit !(run_us > 0 && run_us < wall_us / 2 && predicted_ms > 10000) }' "$work/out" ||
    grep -q 10000 "$work/bound/costs.yaml"; then
    echo "--record in the folder of --costs:"
    cat "$work/out" "$work/bound/costs.yaml"
    failures=$((failures + 1))
fi
expect 2 "" "divisors of --microbatches" --accumulate 2 --microbatches 5 --round 3
expect 0 '"round": 2,' "" --steps 1 --round 2 --gpus 2 --seq-len 16 --format json
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
if ! grep -q '"same_bits": true,' "$work/out" || ! grep -q '"max_grad_rms_err": 0,' "$work/out" || ! grep -q '"max_loss_rel_err": 0,' "$work/out"; then
    echo "--check --format json leaves out what the table has:"
    cat "$work/out"
    failures=$((failures + 1))
fi
expect 1 "" "is the first to exceed (so late rounding alone may do it" --check --schedule looped-bfs --gpus 2 \
    --microbatches 8 --seq-len 32 --steps 40 --lr 0.1 --data "$data"
expect 0 '"pageable_bytes": 0,' "" --steps 1 --gpus 1 --format json --seq-len 8
expect 0 '"same_bits": null,' "" --steps 1 --gpus 1 --format json --seq-len 8
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

train=(--gpus 2 --microbatches 2 --seq-len 16 --data "$data" --steps 40 --save-every 3 --optimizer async)
"$rpexec" "${train[@]}" --save "$work/parts" >/dev/null
# A run that is done stays as it is and says so; what it cannot give is refused, and nothing is written. Another run
# does not mix with it.
expect 0 "0 tokens/s" "is of step 40, and no step is left" "${train[@]}" --save "$work/parts" --resume
for option in --check --program-out --timeline-out --trace-out --gantt-out --db; do
    value=()
    [ $option = --check ] || value=("$work/none.svg")
    expect 2 "" "$option: the checkpoint is of step 40, and no step is left" "${train[@]}" --save "$work/parts" --resume $option "${value[@]}"
done
expect 2 "" "valid are --resume, which goes on from the newest" "${train[@]}" --save "$work/parts" --steps 3
if [ -e "$work/none.svg" ] || [ ! -d "$work/parts/step-40" ] || [ -d "$work/parts/step-3" ]; then
    echo "refused, and yet written:"
    find "$work"
    failures=$((failures + 1))
fi
expect 2 "" "--save: /nowhere/else: No such file or directory; valid are folders" --steps 1 --save /nowhere/else
expect 2 "" "--save: $data: Not a directory; valid are folders" --steps 1 --save "$data"
# A signal leaves no temporary files, which there are from before the first step on.
mkdir "$work/ended"
status=0
"$rpexec" --steps 100000 --gpus 1 --seq-len 8 --record "$work/ended/record" --loss-out "$work/ended/l.csv" \
    --trace-out "$work/ended/t.json" >"$work/out" 2>&1 &
while kill -0 $! 2>/dev/null && { [ ! -d "$work/ended/record" ] || [ -z "$(find "$work/ended" -type f)" ]; }; do
    sleep 0.05
done
kill -TERM $!
wait $! || status=$?
if [ $status -ne 143 ] || [ ! -d "$work/ended/record" ] || [ -n "$(find "$work/ended" -type f ! -name l.csv)" ]; then
    echo "ended by a signal (exit status $status), it leaves:"
    find "$work/ended"
    failures=$((failures + 1))
fi
# The memory that a run may take is also that of measuring links: 16 MiB in pieces of 4 MiB are more.
"$rpexec" --steps 2 --gpus 1 --seq-len 16 --gpu-memory-mb 8 --record "$work/little" >/dev/null
if [ "$(cut -d, -f4 "$work/little/links.csv" | sort -n | tail -n 1)" -gt 1048576 ]; then
    echo "--record takes more than --gpu-memory-mb:"
    cat "$work/little/links.csv"
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

# Other data are refused, and the same tokens elsewhere are not.
resumed=("${train[@]/$data/"$work/copy"}" --steps 6 --save "$work/resumed" --resume)
cp "$data" "$work/copy"
expect 0 "0 tokens/s" "no step is left" "${resumed[@]}"
echo one more line >>"$work/copy"
expect 2 "" "valid are the same data" "${resumed[@]}"

# Ranks of tensor parallelism save the whole: they go on with the same bits, and others go on as well. Their program is
# simulated and runs as it is.
cut=(--seq-len 16 --microbatches 4 --data "$data")
"$rpexec" "${cut[@]}" --schedule megatron-tp --gpus 4 --steps 6 --save "$work/cut" --save-every 3 >/dev/null
"$rpexec" "${cut[@]}" --schedule megatron-tp --gpus 4 --steps 3 --save "$work/cut-parts" >/dev/null
"$rpexec" "${cut[@]}" --schedule megatron-tp --gpus 4 --steps 6 --save "$work/cut-parts" --resume >/dev/null
for file in model training; do
    if ! cmp "$work/cut/step-6/$file.safetensors" "$work/cut-parts/step-6/$file.safetensors"; then
        echo "resumed tensor-parallel training differs in $file.safetensors"
        failures=$((failures + 1))
    fi
done
expect 0 "check: gradients of the first step differ by" "" "${cut[@]}" --schedule 1f1b --gpus 2 --steps 8 --save "$work/cut" --resume --check
expect 0 "check: gradients of the first step differ by" "" "${cut[@]}" --schedule megatron-tp --gpus 2 --steps 10 --save "$work/cut" --resume --check
expect 0 "MB between GPUs" "" "${cut[@]}" --schedule megatron-tp --gpus 2 --steps 4 --program-out "$work/cut.txt"
expect 0 "check: gradients of the first step differ by" "" --program-in "$work/cut.txt" --seq-len 16 --steps 4 --check
sed 's/ALL_REDUCE/ALL_GATHER/' "$work/cut.txt" >"$work/cut-wrong.txt"
expect 2 "" "is not what megatron-tp gives for tiny" --program-in "$work/cut-wrong.txt" --seq-len 16 --steps 4
"$rpexec" "${cut[@]}" --schedule fsdp --gpus 2 --steps 2 --record "$work/cut-record" >/dev/null
expect 0 "ms per iteration, measured" "" --seq-len 16 --microbatches 4 --schedule megatron-tp --gpus 2 --steps 2 --costs "$work/cut-record" --predict

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

# One GPU has both copies of a tied table and trains one of them; two have one each.
for gpus in 1 2; do
    "$rpexec" --model "$1/tests/gpu/small.yaml" --schedule 1f1b --gpus $gpus --microbatches 2 --seq-len 16 --steps 4 --lr 1e-2 \
        --loss-out "$work/tied$gpus.csv" >"$work/out"
done
if ! paste -d, "$work/tied1.csv" "$work/tied2.csv" | awk -F, 'NR > 1 { rows++; d = $2 - $(NF / 2 + 2); if (d > 1e-5 || d < -1e-5) bad = 1 }
    END { exit bad || rows != 4 }'; then
    echo "a tied table on one GPU trains unlike one on two:"
    cat "$work/tied1.csv" "$work/tied2.csv"
    failures=$((failures + 1))
fi

# A text is learned in bf16 as well. The mean of ten steps, since the loss of one step depends on its 128 tokens and, by
# rounding, on the processor that OpenBLAS finds.
"$rpexec" --dtype bf16 --gpus 2 --microbatches 4 --seq-len 32 --data "$data" --steps 30 --lr 2e-3 --loss-out "$work/loss.csv" >/dev/null
if ! awk -F, 'NR == 2 { first = $2 } NR > 21 { last += $2 / 10 } END { exit !(NR == 31 && last < 0.75 * first) }' "$work/loss.csv"; then
    echo "the loss does not fall in bf16:"
    cat "$work/loss.csv"
    failures=$((failures + 1))
fi
# A checkpoint is a Hugging Face folder once its config.json lies beside it; here the file is read alone.
rm "$work/parts/step-40/training.safetensors"
expect 2 "" "training.safetensors" --gpus 2 --seq-len 16 --save "$work/parts" --resume --steps 50
[ $failures -eq 0 ]
