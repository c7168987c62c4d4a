#!/usr/bin/env bash
# Everything that needs a GPU, in one call of less than nine minutes on one H200 with CUDA 13: facts,
# probes, kernels against the host's, all schedules against plain loops, predicted against measured
# times, benchmarks, compute-sanitizer.
# usage: suite.sh BUILDDIR OUTDIR    BUILDDIR: a build with -DRP_CUDA=ON, or what pack.sh has made of it
# Leaves in OUTDIR: summary.csv (step, case, status, seconds, detail), validation.csv, rates.csv,
# kernels.csv, benchmarks.csv and suite.tar.gz with all of it and every log: the archive to commit.
# status is passed, failed, refused (exit status 2: the program says why it does not do that) or
# skipped. Exit status 0: nothing failed; 1: something did; 77: there is no device.
# Environment: RP_SUITE_STEPS (names of steps, all), RP_SUITE_SECONDS (520), RP_SUITE_JOBS (8),
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
steps=${RP_SUITE_STEPS:-facts probe rates kernels schedules types validation benchmarks sanitizer}

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
# Where cuBLAS may be that the linker does not know: the toolkit's folders, PyTorch's.
for folder in /usr/local/cuda*/lib64 /usr/local/cuda*/targets/x86_64-linux/lib \
    /opt/*/.venv/lib/python3*/site-packages/nvidia/{cu13,cublas}/lib; do
    if ls "$folder"/libcublasLt.so.* >/dev/null 2>&1; then
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
    { date -u +%FT%TZ
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
    run_case kernels against-the-hosts 120 "$(program cuda_compare)"
    run_case kernels rates 60 "$(program cuda_bench)"
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
        for gpus in 1 4 8; do
            check schedules "$schedule" fp32 $gpus
        done
    done
    join
}

types() {
    local schedule dtype
    for schedule in roundpipe 1f1b zbv fsdp zero-infinity; do
        for dtype in bf16 fp16; do
            check types $schedule $dtype 4
        done
    done
    in_parallel types roundpipe-async 40 "$rpexec" --backend cuda --virtual-gpus 4 --optimizer async --dtype bf16 \
        --model "$here/small.yaml" --seq-len 64 --steps 3 --check --watchdog-s 20
    in_parallel types staged-1f1b 40 "$rpexec" --backend cuda --virtual-gpus 4 --schedule 1f1b --peers --staged \
        --model "$here/small.yaml" --seq-len 64 --steps 2 --check --watchdog-s 20
    in_parallel types experts 40 "$rpexec" --backend cuda --virtual-gpus 2 --model tiny-moe --dtype bf16 \
        --seq-len 64 --steps 2 --check --watchdog-s 20
    join
}

# One configuration: a run that records, and another that is predicted from it. One at a time, since
# they share the device.
validation() {
    local schedule gpus microbatches name common
    echo "schedule,gpus,microbatches,measured_ms,predicted_ms,error_pct" >"$out/validation.csv"
    for schedule in roundpipe 1f1b gpipe interleaved-1f1b zb-h1 looped-bfs; do
        for gpus in 4 8; do
            for microbatches in $((gpus + 1)) $((2 * gpus)); do
                [ $schedule != interleaved-1f1b ] || microbatches=$((microbatches / gpus * gpus))
                name=$schedule-$gpus-$microbatches
                [ ! -e "$rows/validation.predict-$name" ] || continue
                common=(--backend cuda --virtual-gpus "$gpus" --schedule "$schedule" --microbatches "$microbatches"
                    --model "$here/wide.yaml" --dtype bf16 --seq-len 1024 --steps 5 --watchdog-s 30)
                run_case validation "record-$name" 30 "$rpexec" "${common[@]}" --record "$logs/record-$name"
                run_case validation "predict-$name" 30 "$rpexec" "${common[@]}" --costs "$logs/record-$name" \
                    --predict --format json
                local log=$logs/validation.predict-$name.log error predicted
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

# Whole device: weights that stay and weights that come for each job, of the same model; then virtual
# GPUs. tokens_per_s of rpexec counts all steps, the first one, which loads modules, with them.
benchmarks() {
    local name log
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
    for name in 1 4 8; do
        benchmark roundpipe-virtual-$name --virtual-gpus $name --microbatches 16
        benchmark 1f1b-virtual-$name --virtual-gpus $name --schedule 1f1b --microbatches 16
    done
}

sanitizer() {
    local tool small
    tool=$(command -v compute-sanitizer || ls /usr/local/cuda*/bin/compute-sanitizer 2>/dev/null | head -n 1)
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
