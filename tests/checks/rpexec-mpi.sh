#!/usr/bin/env bash
# Release only: the MPI library itself leaks.
# rpexec under mpirun, a process per server: losses of two processes are those of one with the same sequences, for layouts
# and for RoundPipe, sync and async; bytes are those of the formula; a process that is killed or stopped, or mpirun killed,
# ends all; unlike processes are refused; process 0 alone writes.
set -euo pipefail
export RPEXEC_BACKEND=host
rpexec=$2/exec/rpexec
command -v mpirun >/dev/null || { echo "skipped: mpirun is missing (Debian package: openmpi-bin)"; exit 77; }
# Not through a pipe: grep -q ends first, and ldd's SIGPIPE would count as "no libmpi".
grep -q libmpi <<<"$(ldd "$rpexec")" || { echo "skipped: rpexec was built without MPI (libopenmpi-dev)"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# As root, and with more processes than processors; see rpsweep-mpi.sh.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
# A rate at which training is stable: at 3e-3 norms grow, and what rounding differs by grows with them.
words=(--seq-len 32 --data "$1/README.md" --lr 3e-4)

one()
{
    "$rpexec" "${words[@]}" --format json "$@" >"$work/one.json" 2>"$work/out" || { cat "$work/out"; exit 1; }
}

two()
{
    timeout -k 5 120 mpirun -n 2 "$rpexec" "${words[@]}" --format json "$@" </dev/null >"$work/two.json" 2>"$work/out" ||
        { echo "two processes, $*:"; cat "$work/out"; exit 1; }
}

# same NAME MOST: losses and norms of both runs differ by MOST at most
same()
{
    for key in loss grad_norm; do
        paste -d' ' <(jq ".${key}[]" "$work/one.json") <(jq ".${key}[]" "$work/two.json") |
            awk -v name="$1, $key" -v most="$2" '
                NF != 2 { print name ": other numbers of steps"; bad = 1 }
                { d = $1 / $2 - 1; if (d < 0) d = -d; if (!(d <= most)) { print name ": step " NR ": " $1 " and " $2; bad = 1 } }
                END { exit bad || NR == 0 }' || exit 1
    done
}

# Two copies of pipelines with tensor groups, and two copies in each process.
one --schedule 1f1b --gpus 1 --microbatches 8 --steps 4
two --schedule 1f1b --gpus 4 --data-parallel 2 --tensor-parallel 2 --microbatches 4 --steps 4
same "2 x 2 x 2 in two processes" 1e-5
[ "$(jq '[.gpus, .data_parallel, .tensor_parallel, .processes] | @csv' -r "$work/two.json")" = 8,2,2,2 ] ||
    { echo "another layout"; exit 1; }
two --schedule zbv --gpus 4 --data-parallel 4 --microbatches 2 --steps 4
same "4 x 1 x 2 in two processes" 1e-5

# RoundPipe: each process a pool of two GPUs. A ring of N sends 2 (N - 1) / N times what it sums; these are fp32
# gradients of all parameters, 4 bytes each, of each of 4 steps. Process 0 and 1 send as much.
parameters=$("$2/rpsim" --schedule gpipe --model tiny --platform rtx4090x8 --gpus 2 --format json --intervals off 2>/dev/null | jq '.[0].parameters')
for optimizer in sync async; do
    one --gpus 2 --microbatches 8 --steps 4 --optimizer "$optimizer" --clip-norm 0.3
    two --gpus 2 --microbatches 4 --steps 4 --optimizer "$optimizer" --clip-norm 0.3
    same "RoundPipe on two servers, $optimizer" 1e-6
    formula=$((4 * 2 * (2 * (2 - 1) * 4 * parameters / 2)))
    [ "$(jq .network_bytes "$work/two.json")" = "$formula" ] ||
        { echo "network: $(jq .network_bytes "$work/two.json") bytes, not $formula"; exit 1; }
done
if [ -n "${RP_LONG:-}" ]; then
    for more in "--dtype fp16" "--dtype bf16" "--grain layer" "--schedule roundpipe-overlap" "--schedule mobius" "--lora-rank 4"; do
        # shellcheck disable=SC2086
        one --gpus 2 --microbatches 8 --steps 4 $more
        # shellcheck disable=SC2086
        two --gpus 2 --microbatches 4 --steps 4 $more
        same "$more" "$(case $more in *16) echo 2e-2 ;; *) echo 1e-5 ;; esac)"
    done
fi

# A record is made by as many processes as will use it: they measure beside each other, and how fast they sum.
two --gpus 1 --microbatches 2 --steps 3 --record "$work/rec"
for key in network_gb_per_s network_hop_us; do
    grep -q "^$key: [0-9.e-]*  # measured" "$work/rec/platform.yaml" || { echo "no $key in the record:"; cat "$work/rec/platform.yaml"; exit 1; }
done

# Predictions. With one GPU nothing hides the network: a step takes the bytes over the rate longer, and never less than
# that, predicted and measured. What a step takes beside that is measured with RP_LONG alone.
ms=$(jq -n "1e-6 * 2 * (2 - 1) / 2 * 4 * $parameters") # at 1 GB/s
for rate in 0.002 0.008; do
    two --gpus 1 --microbatches 2 --steps 6 --costs "$work/rec" --predict --network-gb-per-s "$rate"
    jq ".predicted_iteration_ms" "$work/two.json" >"$work/predicted.$rate"
    jq ".iteration_ms | min" "$work/two.json" >"$work/measured.$rate"
    jq -e "[.iteration_ms[] >= 0.99 * $ms / $rate] | all" "$work/two.json" >/dev/null ||
        { echo "faster than $rate GB/s:"; jq -c .iteration_ms "$work/two.json"; exit 1; }
    if [ -n "${RP_LONG:-}" ] && [ "$rate" = 0.002 ]; then
        echo "predicted against measured: $(jq .prediction_error_pct "$work/two.json") %," \
            "others used $(jq .busy_pct "$work/two.json") % of the processors (judged below 5)"
        jq -e '.busy_pct >= 5 or (.prediction_error_pct | fabs <= 15)' "$work/two.json" >/dev/null || exit 1
    fi
done
# What is the same at both rates cancels, and of six steps the shortest is that in which others were least in the way: on a
# machine with ten programs per processor it was 16 % longer than this.
for what in predicted:0.01 measured:0.4; do
    times=$work/${what%:*}
    jq -ne "($(cat "$times.0.002") - $(cat "$times.0.008")) / ($ms * (1 / 0.002 - 1 / 0.008)) - 1 | fabs < ${what#*:}" \
        >/dev/null || { echo "${what%:*}: $(cat "$times".*) ms, bytes over rate are $ms over 0.002 and 0.008"; exit 1; }
done

# Predicted against measured at 1 and 10 Gbit/s, of a model whose GPUs take longer than the network: within 15 % of the
# median of the rounds in which others used less than 5 % of the processors.
predict_within()
{
    local small=(--model "$1/tests/gpu/small.yaml" --seq-len 256 --bytes --gpus 1 --microbatches 2 --steps 8)
    : >"$work/errors"
    for round in 1 2 3; do
        for rate in 0.125 1.25; do
            two "${small[@]}" --network-gb-per-s "$rate" --record "$work/small"
            two "${small[@]}" --costs "$work/small" --predict --network-gb-per-s "$rate"
            jq -r '[.predicted_iteration_ms, (.iteration_ms[1:] | sort | .[length / 2 | floor]), .prediction_error_pct,
                .busy_pct, .costs_busy_pct] | @tsv' "$work/two.json" | awk -v round="$round" -v rate="$rate" '{
                printf "round %d, %g GB/s: %.1f ms predicted, %.1f measured, %.1f %%; others used %.0f %% of the " \
                    "processors, %.0f %% during the record\n", round, rate, $1, $2, $3, $4, $5 }'
            jq -r --arg rate "$rate" 'select(.busy_pct < 5 and .costs_busy_pct == 0) |
                "\($rate) \(.prediction_error_pct)"' "$work/two.json" >>"$work/errors"
        done
    done
    for rate in 0.125 1.25; do
        awk -v rate="$rate" '$1 == rate { print $2 }' "$work/errors" | sort -g | awk -v rate="$rate" '{ error[NR] = $1 }
            END { if (NR == 0) { print "NOT JUDGED at " rate " GB/s: others used the processors in every round"; exit }
                  median = (error[int((NR + 1) / 2)] + error[int(NR / 2) + 1]) / 2
                  printf "%g GB/s: %.1f %% off, median of %d rounds (at most 15)\n", rate, median, NR
                  exit !(median >= -15 && median <= 15) }' || exit 1
    done
}
if [ -n "${RP_LONG:-}" ]; then
    predict_within "$1"
    "$rpexec" "${words[@]}" --gpus 1 --microbatches 2 --steps 3 --record "$work/alone" >/dev/null 2>"$work/out" || { cat "$work/out"; exit 1; }
    two --gpus 1 --microbatches 2 --steps 3 --costs "$work/alone" --predict --network-gb-per-s 1
    grep -q 'had this machine alone' "$work/out" || { echo "a record of one process is taken for two:"; cat "$work/out"; exit 1; }
fi

# A run of two processes is saved by one of them, and goes on in other layouts as if it had never stopped.
one --schedule 1f1b --gpus 1 --microbatches 8 --steps 6 --eval-data "$1/CHANGELOG.md" --loss-out "$work/one.csv"
two --schedule 1f1b --gpus 2 --microbatches 4 --steps 2 --save "$work/ck" --loss-out "$work/two.csv"
two --gpus 2 --microbatches 4 --steps 4 --save "$work/ck" --resume --loss-out "$work/two.csv"
two --schedule 1f1b --gpus 2 --data-parallel 2 --microbatches 4 --steps 6 --save "$work/ck" --resume \
    --eval-data "$1/CHANGELOG.md" --loss-out "$work/two.csv"
paste -d, "$work/one.csv" "$work/two.csv" | awk -F, 'NR > 1 { for (k = 2; k <= 6; k += 4) {
    d = $k == "" ? 0 : $k / $(k + 6) - 1; if (d < -1e-5 || d > 1e-5 || $k == "" != ($(k + 6) == "")) { print; bad = 1 } } }
    END { exit bad || NR != 7 }' || { echo "resumed runs learn something else"; exit 1; }

# attack NAME SIGNAL PID-FILE...: trains in $work/NAME until a checkpoint is there, then sends the signal to the process of
# that file, rank 0, 1 or mpirun. All others end within 10 s.
attack()
{
    local name=$1 signal=$2 victim=$3 started=$SECONDS status=0 rank
    rm -f "$work"/pid.*
    timeout -k 5 60 bash -c 'echo $$ >"$0.mpirun"; exec "$@"' "$work/pid" mpirun -n 2 bash -c \
        'echo $$ >"$0.${OMPI_COMM_WORLD_RANK:-$PMI_RANK}"; exec "$@"' "$work/pid" "$rpexec" "${words[@]}" --gpus 2 \
        --microbatches 4 --steps 100000 --watchdog-s 1 --save "$work/$name" --save-every 5 </dev/null >"$work/out" 2>&1 &
    local job=$!
    until [ -d "$work/$name/step-5" ] || [ $((SECONDS - started)) -gt 40 ]; do sleep 0.1; done
    kill -"$signal" "$(cat "$work/pid.$victim")"
    local struck=$SECONDS
    wait $job || status=$?
    for rank in 0 1; do
        while kill -0 "$(cat "$work/pid.$rank")" 2>/dev/null && [ "$(ps -o stat= -p "$(cat "$work/pid.$rank")")" != Z ]; do
            [ $((SECONDS - struck)) -le 10 ] || { echo "$name: process $rank still runs"; exit 1; }
            sleep 0.1
        done
    done
    [ $status -ne 0 ] && [ $status -ne 124 ] || { echo "$name: status $status"; cat "$work/out"; exit 1; }
    ! grep -E 'invariant|failed \(' "$work/out" || { echo "$name: an op of its own has failed, too"; exit 1; }
}

# What was saved stays, and a run goes on from it.
goes_on()
{
    local step
    step=$(find "$work/$1" -maxdepth 1 -name 'step-*' | sed 's/.*step-//' | sort -n | tail -1)
    two --gpus 2 --microbatches 4 --steps $((step + 1)) --save "$work/$1" --resume
}

attack killed KILL 1
grep -q 'process 1 of 2 is gone: this run ends' "$work/out" || { echo "nobody says that a process is gone:"; cat "$work/out"; exit 1; }
goes_on killed
attack launcher KILL mpirun
if [ -n "${RP_LONG:-}" ]; then
    for rank in 0 1; do
        attack "stopped$rank" STOP $rank
        grep -q "process $rank of 2 has been silent for 2 s and has not come to the end of step" "$work/out" ||
            { echo "nobody says who is stopped:"; cat "$work/out"; exit 1; }
        goes_on "stopped$rank"
    done
    status=0
    timeout -k 5 60 mpirun -n 2 bash -c '[ "${OMPI_COMM_WORLD_RANK:-$PMI_RANK}" = 0 ] || kill -STOP $$; exec "$@"' x "$rpexec" --watchdog-s 1 \
        </dev/null >"$work/out" 2>&1 || status=$?
    [ $status -ne 0 ] && [ $status -ne 124 ] && grep -q 'not all processes of this run have come within 2 s' "$work/out" ||
        { echo "a process that does not begin: status $status"; cat "$work/out"; exit 1; }
fi

# unlike MESSAGE PROGRAM OPTION...: a second process of another program, or with other options, is refused by all.
unlike()
{
    local message=$1 program=$2 status=0
    timeout -k 5 60 mpirun -n 1 "$rpexec" "${words[@]}" --steps 2 --save "$work/unlike" : \
        -n 1 "$program" "${words[@]}" --steps 2 --save "$work/unlike" "${@:3}" </dev/null >"$work/out" 2>&1 || status=$?
    [ $status -eq 2 ] && grep -q -- "$message" "$work/out" && ! grep -q 'this run ends' "$work/out" && [ ! -e "$work/unlike" ] ||
        { echo "${*:3}: status $status:"; cat "$work/out"; exit 1; }
}
unlike '--lr: process 0 of 2 has 0.0003, process 1 has 0.001;' "$rpexec" --lr 1e-3
commit=$("$rpexec" --version | sed -n 's/.*commit \([0-9a-f]\{40\}\).*/\1/p')
if [ -n "$commit" ]; then
    sed "s/$commit/$(rev <<<"$commit")/g" "$rpexec" >"$work/other"
    chmod +x "$work/other"
    unlike 'process 0 of 2 is rpexec .* process 1 is rpexec' "$work/other"
fi

# refused OPTION... MESSAGE: status 2, and the message says why
refused()
{
    local message=${*: -1} status=0
    timeout -k 5 60 mpirun -n 2 "$rpexec" "${@:1:$#-1}" </dev/null >"$work/out" 2>&1 || status=$?
    [ $status -eq 2 ] && grep -q -- "$message" "$work/out" || { echo "$*: status $status:"; cat "$work/out"; exit 1; }
}
refused --schedule fsdp 'GPUs of data-parallel systems are those of one process'
refused --schedule 1f1b --gpus 2 --microbatches 2 --record "$work/none" 'which is no cost of one'
refused --schedule 1f1b --gpus 6 --data-parallel 3 'valid are multiples of 2'
