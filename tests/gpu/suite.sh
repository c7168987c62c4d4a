#!/usr/bin/env bash
# Everything that needs a GPU, in one call of less than nine minutes on one H200 with CUDA 13: facts,
# probes, kernels against the host's, all schedules against plain loops, predicted against measured
# times, benchmarks, compute-sanitizer.
# usage: suite.sh BUILDDIR OUTDIR    BUILDDIR: a build with -DRP_CUDA=ON, or what pack.sh has made of it
# Leaves in OUTDIR: summary.csv (step, case, status, seconds, detail), validation.csv, rates.csv,
# kernels.csv, operators.csv, benchmarks.csv and suite.tar.gz with all of it and every log: the archive to commit.
# status is passed, failed, refused (exit status 2: the program says why it does not do that) or
# skipped. Exit status 0: nothing failed; 1: something did; 77: there is no device.
# Environment: RP_SUITE_STEPS (names of steps, all), RP_SUITE_SECONDS (520), RP_SUITE_JOBS (8),
# RP_SUITE_SCHEDULES (of the validation, six),
# RP_SUITE_DEVICE=none (as on a machine without one).
set -uo pipefail
if [ $# -ne 2 ] || [ ! -d "$1" ]; then
    echo "usage: suite.sh BUILDDIR OUTDIR" >&2
    exit 2
fi
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
build=$(cd "$1" && pwd)
mkdir -p "$2" || exit 2
out=$(cd "$2" && pwd)
logs=$out/logs
rows=$out/rows
mkdir -p "$logs" "$rows"
jobs=${RP_SUITE_JOBS:-8}
limit=${RP_SUITE_SECONDS:-520}
steps=${RP_SUITE_STEPS:-facts probe rates kernels schedules types graphs transports validation gemm benchmarks sanitizer}

program() { # NAME: its path in a build or in a pack
    local candidate
    for candidate in "$build/bin/$1" "$build/exec/$1" "$build/$1" "$build/exec/cuda/tests/$1"; do
        if [ -x "$candidate" ]; then
            echo "$candidate"
            return
        fi
    done
}
rpexec=$(program rpexec)
if [ -d "$build/lib" ]; then
    export LD_LIBRARY_PATH=$build/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    export RP_TRACES=$build/traces
else
    export RP_TRACES=${RP_TRACES:-$here/../../traces}
fi
# Where cuBLAS, NCCL and cuDNN may be that the linker does not know: the toolkit's folders, PyTorch's.
for folder in /usr/local/cuda*/lib64 /usr/local/cuda*/targets/x86_64-linux/lib \
    /opt/*/.venv/lib/python3*/site-packages/nvidia/{cu13,cublas,nccl,cudnn}/lib; do
    if compgen -G "$folder/libcublasLt.so.*" >/dev/null || compgen -G "$folder/libnccl.so.*" >/dev/null ||
        compgen -G "$folder/libcudnn.so.9" >/dev/null; then
        LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder
    fi
done
export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}
export CUDA_DEVICE_MAX_CONNECTIONS=32 OPENBLAS_NUM_THREADS=1

device=no
if [ "${RP_SUITE_DEVICE:-}" != none ] && [ -n "$rpexec" ] &&
    "$rpexec" --list backends 2>/dev/null | awk '/^[^ ]/ { keep = /^cuda:/ } keep' | grep -q '^    device 0: '; then
    device=yes
fi
left() { echo $((limit - SECONDS)); }

row() { # STEP CASE STATUS SECONDS DETAIL
    local detail=${5//\"/\'}
    printf '%s,%s,%s,%s,"%s"\n' "$1" "$2" "$3" "$4" "${detail//$'\n'/ }" >"$rows/$1.$2"
}

# One case: a command with a time limit, its log, and its row. What is not there is skipped.
run_case() { # STEP CASE SECONDS COMMAND...
    local step=$1 name=$2 most=$3 status begin=$SECONDS log=$logs/$1.$2.log
    shift 3
    if [ "$device" = no ]; then
        row "$step" "$name" skipped 0 "no device"
        return
    elif [ -z "$1" ]; then
        row "$step" "$name" skipped 0 "the program is not in this build"
        return
    elif [ "$(left)" -lt 5 ]; then
        row "$step" "$name" skipped 0 "out of time"
        return
    fi
    [ "$(left)" -gt "$most" ] || most=$(left)
    timeout -k 5 "$most" "$@" >"$log" 2>&1
    status=$?
    case $status in
    0) status=passed ;;
    2) status=refused ;;
    77) status=skipped ;;
    124 | 137) status="failed" && echo "suite: stopped after $most s" >>"$log" ;;
    *) status=failed ;;
    esac
    row "$step" "$name" "$status" $((SECONDS - begin)) "$(tail -n 1 "$log" | cut -c1-300)"
}

parallel=0
in_parallel() { # as run_case; `jobs` at a time
    run_case "$@" &
    parallel=$((parallel + 1))
    if [ $parallel -ge "$jobs" ]; then
        wait -n
        parallel=$((parallel - 1))
    fi
}
join() {
    wait
    parallel=0
}

all_schedules() {
    "${rpexec:-false}" --list schedules 2>/dev/null | grep -v '(simulated only: ' | cut -d: -f1
}

number() { # KEY FILE: a value of rpexec's JSON
    sed -n "s/^ *\"$1\": \([-0-9.e+]*\),*\$/\1/p" "$2"
}

facts() {
    { echo "date: $(date -u +%FT%TZ)"
        echo "device: $(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | paste -sd ';')"
        echo "versions: rpexec $("$rpexec" --version 2>/dev/null), driver $(nvidia-smi --query-gpu=driver_version \
            --format=csv,noheader 2>/dev/null | head -n 1), $(nvcc --version 2>/dev/null | sed -n 's/.*release/CUDA/p')"
        cat "$build/revision" 2>/dev/null || git -C "$here" rev-parse HEAD 2>/dev/null
        uname -a
        nproc
        nvidia-smi 2>/dev/null
        nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm,clocks.mem,power.limit \
            --format=csv 2>/dev/null
        nvcc --version 2>/dev/null
    } >"$logs/facts.log" 2>&1
    run_case facts backends 30 "$rpexec" --list backends
}

probe() {
    run_case probe green-8x16 60 "$(program green_test)" 8 16 4096 30 1024
}

rates() {
    run_case rates links-and-cublas 40 "$(program rates)"
    cp "$logs/rates.links-and-cublas.log" "$out/rates.csv" 2>/dev/null
}

kernels() {
    run_case kernels against-the-hosts 180 "$(program cuda_compare)"
    run_case kernels rates 90 "$(program cuda_bench)"
    cp "$logs/kernels.rates.log" "$out/kernels.csv" 2>/dev/null
}

# Losses and gradients against plain loops on the host, as --check has its tolerances.
check() { # STEP SCHEDULE DTYPE GPUS
    in_parallel "$1" "$2-$3-$4" 40 "$rpexec" --backend cuda --virtual-gpus "$4" --schedule "$2" --dtype "$3" \
        --model "$here/small.yaml" --seq-len 64 --microbatches $((2 * $4)) --steps 2 --check --watchdog-s 20
}

schedules() {
    local schedule gpus
    for schedule in $(all_schedules); do
        for gpus in 1 4 8; do # whose heads, four, are cut for as many GPUs at most
            [ "$schedule-$gpus" = megatron-tp-8 ] || check schedules "$schedule" fp32 $gpus
        done
    done
    join
}

types() {
    local schedule dtype
    for schedule in roundpipe 1f1b zbv fsdp zero-infinity megatron-tp; do
        for dtype in bf16 fp16; do
            check types $schedule $dtype 4
        done
    done
    in_parallel types roundpipe-async 40 "$rpexec" --backend cuda --virtual-gpus 4 --optimizer async --dtype bf16 \
        --model "$here/small.yaml" --seq-len 64 --steps 3 --check --watchdog-s 20
    in_parallel types staged-1f1b 40 "$rpexec" --backend cuda --virtual-gpus 4 --schedule 1f1b --peers --staged \
        --model "$here/small.yaml" --seq-len 64 --steps 2 --check --watchdog-s 20
    for dtype in bf16 fp16; do # refused where cuDNN is not installed
        in_parallel types cudnn-$dtype 40 "$rpexec" --backend cuda --virtual-gpus 4 --dtype $dtype --attention cudnn \
            --model "$here/small.yaml" --seq-len 64 --steps 2 --check --watchdog-s 20
    done
    in_parallel types experts 40 "$rpexec" --backend cuda --virtual-gpus 2 --model tiny-moe --dtype bf16 \
        --seq-len 64 --steps 2 --check --watchdog-s 20
    join
}

# CUDA graphs: the same tolerances, the same losses to the last bit as without, and graphs that were used.
graphs() {
    local schedule dtype name common
    common=(--backend cuda --model "$here/small.yaml" --seq-len 64 --steps 6 --watchdog-s 20 --format json)
    for schedule in roundpipe 1f1b zbv fsdp zero-infinity interleaved-1f1b; do
        for dtype in fp32 bf16 fp16; do
            in_parallel graphs "$schedule-$dtype" 40 "$rpexec" "${common[@]}" --virtual-gpus 4 \
                --schedule $schedule --dtype $dtype --graphs --check
        done
    done
    in_parallel graphs roundpipe-device 40 "$rpexec" "${common[@]}" --gpus 1 --dtype bf16 --graphs --check
    in_parallel graphs roundpipe-async 40 "$rpexec" "${common[@]}" --virtual-gpus 4 --optimizer async --graphs --check
    in_parallel graphs staged-1f1b 40 "$rpexec" "${common[@]}" --virtual-gpus 4 --schedule 1f1b --peers --staged \
        --graphs --check
    in_parallel graphs roundpipe-cudnn 40 "$rpexec" "${common[@]}" --virtual-gpus 2 --dtype bf16 --attention cudnn \
        --graphs --check
    in_parallel graphs experts 40 "$rpexec" "${common[@]}" --virtual-gpus 2 --model tiny-moe --dtype bf16 --graphs --check
    for name in roundpipe 1f1b; do
        in_parallel graphs "$name-with" 40 "$rpexec" "${common[@]}" --virtual-gpus 2 --schedule $name --graphs
        in_parallel graphs "$name-without" 40 "$rpexec" "${common[@]}" --virtual-gpus 2 --schedule $name
    done
    join
    for name in roundpipe 1f1b; do
        local with without
        with=$(grep '^ *"loss":' "$logs/graphs.$name-with.log" 2>/dev/null)
        without=$(grep '^ *"loss":' "$logs/graphs.$name-without.log" 2>/dev/null)
        if [ -z "$with$without" ]; then
            row graphs "$name-same-losses" skipped 0 "neither has run"
        elif [ "$with" = "$without" ]; then
            row graphs "$name-same-losses" passed 0 "$with"
        else
            row graphs "$name-same-losses" failed 0 "$with and $without"
        fi
    done
    for name in "$rows"/graphs.*; do # a run that came to its end without launching a graph has failed
        local log=$logs/${name##*/}.log launches
        launches=$(number graph_launches "$log" 2>/dev/null)
        if [ "$launches" = 0 ] && grep -q '"graphs": 1' "$log"; then
            row graphs "${name##*/graphs.}" failed 0 "no graph was launched"
        fi
    done
}

# NCCL's calls on all devices; a communicator of one rank in a whole run; then, where there are several
# devices, each way to exchange.
transports() {
    local devices transport schedule dtype common peers
    run_case transports nccl-calls 60 "$(program cuda_nccl)"
    common=(--backend cuda --model "$here/small.yaml" --seq-len 64 --steps 2 --check --watchdog-s 20)
    for dtype in fp32 bf16; do
        run_case transports "nccl-1-$dtype" 40 "$rpexec" "${common[@]}" --gpus 1 --schedule fsdp --dtype $dtype \
            --transport nccl
    done
    devices=$("${rpexec:-false}" --list backends 2>/dev/null |
        awk '/^[^ ]/ { keep = /^cuda:/ } keep && /^    device [0-9]+:/ { n++ } END { print n + 0 }')
    if [ "$device" = no ] || [ "$devices" -lt 2 ]; then
        row transports several skipped 0 "fewer than 2 devices"
        return
    fi
    [ "$devices" -le 8 ] || devices=8
    for transport in nccl copy staged; do
        for schedule in fsdp zero2 zero-infinity 1f1b; do
            peers=()
            [ $schedule != 1f1b ] || peers=(--peers) # boundary tensors go from GPU to GPU
            for dtype in fp32 bf16; do
                run_case transports "$transport-$schedule-$dtype-$devices" 40 "$rpexec" "${common[@]}" --gpus "$devices" \
                    --microbatches $((2 * devices)) --schedule $schedule --dtype $dtype --transport $transport \
                    "${peers[@]}"
            done
        done
    done
}

# For each number of virtual GPUs one run that records, and then others that are predicted from it. One at
# a time, since they share the device. What tests/gpu/keep.sh keeps is under logs.
validation() {
    local schedule gpus microbatches name common model=$here/wide.yaml length=1024
    echo "schedule,gpus,microbatches,measured_ms,predicted_ms,error_pct" >"$out/validation.csv"
    for gpus in 4 8; do
        common=(--backend cuda --virtual-gpus "$gpus" --model "$model" --dtype bf16 --seq-len $length
            --microbatch-size 4 --steps 5 --watchdog-s 30)
        run_case validation "record-$gpus" 60 "$rpexec" "${common[@]}" --schedule roundpipe \
            --microbatches $((2 * gpus)) --record "$logs/record-$gpus"
        for schedule in ${RP_SUITE_SCHEDULES:-roundpipe 1f1b gpipe interleaved-1f1b zb-h1 looped-bfs}; do
            for microbatches in $((gpus + 1)) $((2 * gpus)); do
                [ "$schedule" != interleaved-1f1b ] || microbatches=$((microbatches / gpus * gpus))
                name=$schedule-$gpus-$microbatches
                [ ! -e "$rows/validation.$name" ] || continue
                mkdir -p "$logs/run-$name"
                echo "tests/gpu/wide.yaml $length" >"$logs/run-$name.args"
                run_case validation "$name" 40 "$rpexec" "${common[@]}" --schedule "$schedule" \
                    --microbatches "$microbatches" --costs "$logs/record-$gpus" --predict --format json \
                    --program-out "$logs/run-$name/program.txt" --timeline-out "$logs/run-$name/timeline.csv"
                local log=$logs/validation.$name.log error predicted
                [ -e "$log" ] || continue
                error=$(number prediction_error_pct "$log")
                predicted=$(number predicted_iteration_ms "$log")
                [ -n "$error" ] || continue
                echo "$schedule,$gpus,$microbatches,$(awk -v p="$predicted" -v e="$error" \
                    'BEGIN { printf "%.4f", p / (1 + e / 100) }'),$predicted,$error" >>"$out/validation.csv"
            done
        done
    done
    # Issue 7's bounds: 5 % on the mean, 10 % at worst.
    local verdict
    verdict=$(awk -F, 'NR > 1 { e = $6 < 0 ? -$6 : $6; sum += e; worst = e > worst ? e : worst; n++ }
        END { if (!n) print "skipped no configuration was predicted"
              else printf "%s %d configurations: mean %.2f %%, worst %.2f %%",
                  sum / n <= 5 && worst <= 10 ? "passed" : "failed", n, sum / n, worst }' "$out/validation.csv")
    row validation all "${verdict%% *}" 0 "${verdict#* }"
}

# Layers whose time is matrix products: how much of it cuBLAS needs for the same products one by one, by the
# record's own table of operators. Issue 7's bound: 85 %.
gemm() {
    local log=$logs/record-gemm/operators.csv phase verdict
    run_case gemm record 120 "$rpexec" --backend cuda --gpus 1 --schedule gpipe --model "$here/gemm.yaml" --dtype bf16 \
        --seq-len 512 --microbatch-size 16 --microbatches 4 --steps 4 --watchdog-s 30 --record "$logs/record-gemm"
    [ ! -e "$log" ] || cp "$log" "$out/operators.csv"
    for phase in forward backward; do
        verdict=$(awk -F, -v phase=$phase '$1 != "block" || $2 != phase { next }
            $3 ~ /^linear/ { products += $7; gflop += $5 * $8 }
            $3 == "measured" { measured = $7 }
            END { if (!measured) { print "skipped no record"; exit }
                  share = 100 * products / measured
                  printf "%s %.1f %% of a block is products at the rate of cuBLAS alone, %.0f TFLOP/s",
                      (share >= 85) ? "passed" : "failed", share, 1e3 * gflop / products }' "$log" 2>/dev/null)
        [ -n "$verdict" ] || verdict="skipped no record"
        row gemm $phase "${verdict%% *}" 0 "${verdict#* }"
    done
}

# Whole device: weights that stay and weights that come for each job, of the same model; then virtual
# GPUs. tokens_per_s of rpexec counts all steps, the first one, which loads modules, with them.
benchmarks() {
    local name gpus log
    echo "case,tokens_per_s,median_ms" >"$out/benchmarks.csv"
    benchmark() { # NAME ARGUMENTS...
        name=$1
        shift
        run_case benchmarks "$name" 60 "$rpexec" --backend cuda --model "$here/wide.yaml" --dtype bf16 \
            --seq-len 2048 --steps 8 --watchdog-s 30 --format json "$@"
        log=$logs/benchmarks.$name.log
        [ ! -e "$log" ] || echo "$name,$(number tokens_per_s "$log"),$(sed -n 's/^ *"iteration_ms": \[\(.*\)\],*$/\1/p' \
            "$log" | tr ',' '\n' | tail -n +2 | sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }')" \
            >>"$out/benchmarks.csv"
    }
    benchmark resident-1 --gpus 1 --schedule gpipe --microbatches 16 --microbatch-size 4
    benchmark roundpipe-1 --gpus 1 --schedule roundpipe --microbatches 16 --microbatch-size 4
    benchmark roundpipe-async-1 --gpus 1 --schedule roundpipe --optimizer async --microbatches 16 --microbatch-size 4
    for gpus in 1 4 8; do
        benchmark roundpipe-virtual-$gpus --virtual-gpus $gpus --microbatches 16
        benchmark 1f1b-virtual-$gpus --virtual-gpus $gpus --schedule 1f1b --microbatches 16
    done
    # Issue 7's bound: 95 % of the speed with weights that stay. The optimizer runs beside the next step, as
    # RoundPipe has it; with one that does not, the host's Adam is not covered by any computation.
    local verdict
    verdict=$(awk -F, '{ ms[$1] = $3 }
        END { if (!(ms["resident-1"] > 0 && ms["roundpipe-async-1"] > 0)) { print "skipped one of the two has not run"; exit }
              share = 100 * ms["resident-1"] / ms["roundpipe-async-1"]
              printf "%s %.1f %%, synchronous %.1f %%", (share >= 95) ? "passed" : "failed", share,
                  100 * ms["resident-1"] / ms["roundpipe-1"] }' "$out/benchmarks.csv")
    row benchmarks offloaded-over-resident "${verdict%% *}" 0 "${verdict#* }"
    for gpus in 1 8; do # beside the same without
        benchmark roundpipe-virtual-$gpus-graphs --virtual-gpus $gpus --microbatches 16 --graphs
        benchmark 1f1b-virtual-$gpus-graphs --virtual-gpus $gpus --schedule 1f1b --microbatches 16 --graphs
    done
}

sanitizer() {
    local tool compare family small
    tool=$(command -v compute-sanitizer || ls /usr/local/cuda*/bin/compute-sanitizer \
        /usr/local/cuda*/compute-sanitizer/compute-sanitizer /opt/*/compute-sanitizer 2>/dev/null | head -n 1)
    compare=$(program cuda_compare)
    [ -n "$compare" ] || tool= # then nothing of this is there
    # First our kernels by themselves: cuBLAS is large, and its kernels are not ours to mend.
    for family in attention experts tokens values; do
        run_case sanitizer "memcheck-$family" 60 "$tool" --error-exitcode 9 "$compare" $family bf16
        run_case sanitizer "racecheck-$family" 60 "$tool" --tool racecheck --error-exitcode 9 "$compare" $family bf16
    done
    small=(--backend cuda --model tiny --seq-len 16 --microbatches 4 --steps 1 --watchdog-s 0)
    run_case sanitizer memcheck-roundpipe 70 "$tool" --error-exitcode 9 "$rpexec" "${small[@]}" --gpus 1
    run_case sanitizer memcheck-virtual 70 "$tool" --error-exitcode 9 "$rpexec" "${small[@]}" --virtual-gpus 2 \
        --schedule 1f1b --dtype bf16
    run_case sanitizer racecheck-roundpipe 70 "$tool" --tool racecheck --error-exitcode 9 "$rpexec" "${small[@]}" --gpus 1
    run_case sanitizer initcheck-roundpipe 70 "$tool" --tool initcheck --error-exitcode 9 "$rpexec" "${small[@]}" --gpus 1
}

for step in $steps; do
    begin=$SECONDS
    if [ "$(type -t "$step")" != function ]; then
        echo "suite.sh: no step '$step'" >&2
        exit 2
    fi
    "$step"
    echo "$step: $((SECONDS - begin)) s"
done
{ echo "step,case,status,seconds,detail"
    for step in $steps; do
        cat "$rows/$step".* 2>/dev/null
    done
} >"$out/summary.csv"
rm -r "$rows"
archive=$(mktemp)
tar -C "$out" -czf "$archive" --exclude=suite.tar.gz . && mv "$archive" "$out/suite.tar.gz"
awk -F, 'NR > 1 { n[$1 " " $3]++ } END { for (k in n) print k ": " n[k] }' "$out/summary.csv" | sort
[ "$device" = yes ] || exit 77
! grep -q '^[^,]*,[^,]*,failed,' "$out/summary.csv"
