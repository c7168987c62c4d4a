#!/usr/bin/env bash
# rpexec that is ended by signals or kills, or started twice on one --save: training goes on to the same bytes, the loss
# file has every step once, no checkpoint is damaged. RP_LONG=1: 30 of each signal and 100 pairs.
# Sanitized: --long
set -euo pipefail
rpexec=$2/exec/rpexec
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
rounds=4
pairs=2
if [ "${RP_LONG:-0}" = 1 ]; then
    rounds=30
    pairs=100
fi
failures=0

failed()
{
    echo "$*"
    failures=$((failures + 1))
}

data=$1/LICENSE # a text that stays as it is
steps=40
train=(--gpus 2 --microbatches 2 --seq-len 16 --data "$data" --steps $steps --save-every 7 --optimizer async)
began=$(date +%s%N)
"$rpexec" "${train[@]}" --save "$work/whole" --loss-out "$work/whole.csv" >/dev/null
took_ms=$((($(date +%s%N) - began) / 1000000 + 1))

# A checkpoint's files are those of the run that nobody ended, and nothing else is left.
same()
{
    diff -r "$work/whole/step-$steps" "$1/step-$steps" || failed "$2: other files"
    if [ "$(find "$1" -mindepth 1 -maxdepth 1 | wc -l)" -ne 2 ]; then
        failed "$2: left behind: $(ls -A "$1" | tr '\n' ' ')"
    fi
}

# ended_by SIGNAL STATUS: a run ended at a random moment, half of them twice, and resumed.
ended_by()
{
    local signal=$1 want=$2 hits=0 round status time
    for ((round = 0; hits < rounds && round < 6 * rounds; round++)); do
        rm -rf "$work/parts" "$work/parts.csv"
        for ((time = 0; time <= round % 2; time++)); do
            status=0
            # A child of this shell: when it is waited for, it is gone. A job of its own, or it would ignore SIGINT.
            set -m
            "$rpexec" "${train[@]}" --save "$work/parts" --resume --loss-out "$work/parts.csv" >/dev/null 2>"$work/err" &
            set +m
            sleep "$(awk -v ms=$((RANDOM % took_ms + 1)) 'BEGIN { printf "%.3f", ms / 1000 }')"
            { # the shell's own line about a kill goes nowhere
                kill -s "$signal" $! || true
                wait $! || status=$?
            } 2>/dev/null
            if [ $status -eq "$want" ]; then
                hits=$((hits + 1))
                # Signals also hit a run that goes on elsewhere than it began, or has nothing left to do.
                if [ "$signal" != KILL ] && [ -s "$work/err" ] &&
                    ! grep -qE -- "--resume goes on from there|and no step is left" "$work/err"; then
                    failed "SIG$signal: $(cat "$work/err")"
                fi
            elif [ $status -ne 0 ]; then
                failed "SIG$signal: exit status $status, not $want: $(cat "$work/err")"
            fi
        done
        "$rpexec" "${train[@]}" --save "$work/parts" --resume --loss-out "$work/parts.csv" >/dev/null 2>"$work/err" ||
            failed "SIG$signal, resumed: $(cat "$work/err")"
        same "$work/parts" "SIG$signal"
        cut -d, -f1,2 "$work/parts.csv" | cmp - <(cut -d, -f1,2 "$work/whole.csv") ||
            failed "SIG$signal: other losses"
    done
    [ $hits -ge $rounds ] || failed "SIG$signal: only $hits of $rounds runs were still there to be ended"
}
ended_by INT 130
ended_by TERM 143
ended_by KILL 137

# Adapters on random weights: a checkpoint that a killed run leaves has its base, and opens.
adapters=(--gpus 1 --microbatches 2 --seq-len 16 --data "$data" --lora-rank 2)
opened=0
for ((round = 0; opened < rounds && round < 6 * rounds; round++)); do
    rm -rf "$work/lora"
    "$rpexec" "${adapters[@]}" --steps 100000 --save-every 1 --save "$work/lora" >/dev/null 2>&1 &
    # Every other run is killed when there is a checkpoint, the rest perhaps before there is a base.
    for ((tick = 0; round % 2 == 0 && tick < 500; tick++)); do
        ! compgen -G "$work/lora/step-*" >/dev/null || break
        sleep 0.01
    done
    sleep "0.0$((RANDOM % 10))"
    { kill -KILL $! || true; wait $! || true; } 2>/dev/null
    for step in "$work"/lora/step-*; do
        [ -d "$step" ] || continue
        opened=$((opened + 1))
        "$rpexec" "${adapters[@]:0:${#adapters[@]}-2}" --steps 1 --weights "$step" >/dev/null 2>"$work/err" ||
            failed "a killed run's adapters: $(cat "$work/err")"
    done
    "$rpexec" "${adapters[@]}" --steps 2 --save "$work/lora" --resume >/dev/null 2>"$work/err" ||
        failed "a killed run of adapters, resumed: $(cat "$work/err")"
    rm -f "$work"/lora/step-*/*
    if [ "$(find "$work/lora" -mindepth 1 -maxdepth 1 -not -name 'step-*' -printf '%f ')" != "base " ]; then
        failed "a killed run of adapters, left behind: $(ls -A "$work/lora" | tr '\n' ' ')"
    fi
done
[ $opened -ge $rounds ] || failed "only $opened checkpoints of killed runs of adapters"

# Without --save a signal ends a run at once; what the loss file has is whole lines.
status=0
timeout -s INT --preserve-status 1 "$rpexec" --gpus 1 --seq-len 16 --steps 100000 --loss-out "$work/l.csv" \
    >/dev/null 2>&1 || status=$?
if [ $status -ne 130 ] || ! awk -F, 'NR > 1 && $1 != NR - 1 { exit 1 } END { exit NR < 3 }' "$work/l.csv"; then
    failed "SIGINT without --save: exit status $status, losses:" "$(tail -n 3 "$work/l.csv")"
fi
# A file that holds something else is not replaced.
cp "$data" "$work/text"
status=0
"$rpexec" "${train[@]}" --steps 41 --save "$work/whole" --resume --loss-out "$work/text" >/dev/null 2>"$work/err" || status=$?
if [ $status -ne 2 ] || ! grep -q "text:1: no losses of an earlier run" "$work/err" || ! cmp "$data" "$work/text"; then
    failed "a text taken for losses: exit status $status, $(cat "$work/err")"
fi

# Pairs on one folder, the second up to 0.3 s later: links so slow that a run takes more than a second.
slow=("${train[@]}" --link-gb-per-s 0.02)
for ((pair = 0; pair < pairs; pair++)); do
    rm -rf "$work/shared"
    began=$(date +%s%N)
    statuses=
    "$rpexec" "${slow[@]}" --save "$work/shared" >/dev/null 2>"$work/err1" &
    one=$!
    sleep "0.$((RANDOM % 4))"
    "$rpexec" "${slow[@]}" --save "$work/shared" >/dev/null 2>"$work/err2" &
    for process in $one $!; do
        status=0
        wait "$process" || status=$?
        statuses+=" $status"
    done
    took_ms=$((($(date +%s%N) - began) / 1000000))
    if [ "$statuses" != " 0 2" ] && [ "$statuses" != " 2 0" ]; then
        failed "a pair: exit statuses$statuses: $(cat "$work/err1" "$work/err2")"
    elif ! grep -q "is in use by another rpexec" "$work/err1" "$work/err2"; then
        failed "a pair: refused for another reason: $(cat "$work/err1" "$work/err2")"
    elif [ $took_ms -lt 1300 ]; then
        failed "a pair took $took_ms ms, too short to overlap for a second"
    fi
    same "$work/shared" "a pair"
done
exit $((failures > 0))
