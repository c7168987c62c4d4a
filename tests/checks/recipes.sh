#!/usr/bin/env bash
# Fifty steps with clipping, courses of the learning rate, weight decay of matrices and evaluation: loss, norm of the
# gradients, rate and loss on --eval-data of every step are those of PyTorch and transformers to 1e-6
# (tests/golden/recipes/make.py). Two runs of each recipe; RP_LONG=1: seven schedules on 1, 2 and 4 GPUs.
# Sanitized: --long
set -euo pipefail
rpexec=$2/exec/rpexec
golden=$1/tests/golden/recipes
model=$1/tests/golden/families/qwen2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
worst=0
runs=0

# The same as in make.py.
linear=(--lr 2e-3 --lr-schedule linear --warmup-steps 7 --weight-decay 0.1 --clip-norm 0.9)
cosine=(--lr 1e-3 --lr-schedule cosine --warmup-steps 5 --betas 0.9,0.95 --eps 1e-5 --clip-norm 0.5)
constant=(--lr 5e-4 --warmup-steps 10 --betas 0.9,0.99 --eps 1e-5 --weight-decay 0.5 --weight-decay-of all)

# compare FILE RECIPE NAME: the columns of both files by their names; an empty one must be empty in both.
compare()
{
    local said
    said=$(awk -F, -v name="$3" '
        function far(a, b) { return a == b ? 0 : b == 0 || a == "" || b == "" ? 1 : (a > b ? a - b : b - a) / (b < 0 ? -b : b) }
        FNR == 1 { split("", column); for (i = 1; i <= NF; i++) column[$i] = i }
        { for (i = 1; i <= 5; i++) { split("step loss grad_norm learning_rate eval_loss", key, " "); value[i] = $column[key[i]] } }
        NR == FNR { for (i = 1; i <= 5; i++) expected[FNR, i] = value[i]; lines = FNR; next }
        FNR > 1 { for (i = 1; i <= 5; i++) { d = far(value[i], expected[FNR, i]); if (d > worst) { worst = d; where = key[i] " of step " value[1] } } }
        END { printf "%s %g %s\n", FNR == lines && lines == 51 && worst <= 1e-6 ? "good" : "bad", worst, where }' "$golden/$2.csv" "$1")
    runs=$((runs + 1))
    worst=$(awk -v a="$worst" -v b="$(cut -d' ' -f2 <<<"$said")" 'BEGIN { print (a > b ? a : b) }')
    if [ "${said%% *}" != good ]; then
        echo "$3: ${said#* } from PyTorch"
        failures=$((failures + 1))
    fi
}

# train RECIPE GPUS SCHEDULE [OPTION...]: a step has all eight sequences.
train()
{
    local recipe=$1 gpus=$2 schedule=$3 options
    shift 3
    declare -n options=$recipe
    if ! "$rpexec" --backend host --weights "$model" --data "$golden/data.tokens" --eval-data "$golden/eval.tokens" \
        --seq-len 17 --microbatches 8 --steps 50 --eval-every 10 --gpus "$gpus" --schedule "$schedule" "${options[@]}" \
        --loss-out "$work/losses.csv" "$@" >/dev/null 2>"$work/messages"; then
        sed "s/^/$recipe $schedule $gpus: /" "$work/messages"
        failures=$((failures + 1))
        return
    fi
    compare "$work/losses.csv" "$recipe" "$recipe, $schedule on $gpus GPUs"
}

if [ "${RP_LONG:-0}" = 1 ]; then
    for recipe in linear cosine constant; do
        for gpus in 1 2 4; do
            for schedule in roundpipe 1f1b looped-bfs zbv zero2 fsdp zero-offload; do
                train $recipe $gpus $schedule
            done
        done
        train $recipe 2 megatron-tp
        train $recipe 2 roundpipe --accumulate 2 --microbatches 4
        train $recipe 2 1f1b --optimizer async
    done
else
    train linear 2 roundpipe
    train cosine 4 zbv
    train constant 2 fsdp
fi

# same FOLDER FILE WHAT: the checkpoints and the last two losses of the whole run.
same()
{
    diff -r "$work/whole" "$1" || failures=$((failures + 1))
    cmp <(tail -n 2 "$work/whole.csv" | cut -d, -f"$3") <(tail -n 2 "$2" | cut -d, -f"$3") || failures=$((failures + 1))
}

# A run that is resumed in the middle of its course goes on to the same bytes, and evaluating changes none.
training=(--backend host --gpus 2 --microbatches 2 --seq-len 16 --data "$1/LICENSE" "${cosine[@]}" --steps 12
    --save-every 5)
evaluating=(--eval-data "$1/CITATION.cff" --eval-every 3)
for kind in "--schedule roundpipe --optimizer async --dtype fp16" "--schedule 1f1b --weight-decay 0.1"; do
    rm -rf "$work/whole" "$work/parts" "$work/plain"
    # shellcheck disable=SC2086 # several options
    "$rpexec" "${training[@]}" "${evaluating[@]}" $kind --save "$work/whole" --loss-out "$work/whole.csv" >/dev/null
    cp -r "$work/whole" "$work/parts"
    rm -r "$work/parts/step-12"
    # shellcheck disable=SC2086
    "$rpexec" "${training[@]}" "${evaluating[@]}" $kind --save "$work/parts" --resume --loss-out "$work/parts.csv" \
        >/dev/null 2>"$work/messages"
    same "$work/parts" "$work/parts.csv" 1,2,4-
    # shellcheck disable=SC2086
    "$rpexec" "${training[@]}" $kind --save "$work/plain" --loss-out "$work/plain.csv" >/dev/null 2>>"$work/messages"
    same "$work/plain" "$work/plain.csv" 1,2,4,5
    if [ -s "$work/messages" ]; then
        cat "$work/messages"
        failures=$((failures + 1))
    fi
done

# What a killed process has left goes when the folder is locked again; what a living one writes stays.
true &
dead=$!
wait $dead
touch "$work/parts/.rp-$dead-0.tmp" "$work/parts/.rp-$$-0.tmp"
mkdir "$work/parts/.step-99"
"$rpexec" "${training[@]}" $kind --steps 13 --save "$work/parts" --resume >/dev/null 2>"$work/messages"
if [ -e "$work/parts/.rp-$dead-0.tmp" ] || [ -e "$work/parts/.step-99" ] || [ ! -e "$work/parts/.rp-$$-0.tmp" ]; then
    ls -A "$work/parts"
    echo "other files of dead processes are left"
    failures=$((failures + 1))
fi
if ! grep -q "^rpexec: warning: --resume: the checkpoint was trained with .* at step 12,.* goes on with .* at step 13," "$work/messages"; then
    cat "$work/messages"
    echo "another course of the learning rate is not noticed"
    failures=$((failures + 1))
fi

echo "$runs runs are $worst from PyTorch at most"
[ "$failures" -eq 0 ]
