# The steps of suite.sh, which reads this file.
# shellcheck shell=bash disable=SC2034,SC2154 # set and read by suite.sh

# The values of rpexec's JSON in a case's log, by key: `of` in the awk program, where `name` is the case.
figures() { # STEP CASE AWK-PROGRAM
    [ ! -e "$logs/$1.$2.log" ] || awk -v name="$2" '
        /^ *"[a-z_]+": / { key = $1; gsub(/[":]/, "", key); sub(/^[^:]*: \[?/, ""); sub(/\]?,*$/, ""); of[key] = $0 }
        END { '"$3 }" "$logs/$1.$2.log"
}

verdict() { # STEP CASE "STATUS WHY"
    row "$1" "$2" "${3%% *}" 0 "${3#* }"
}

table() { # NAME: stdin becomes OUTDIR/NAME, at once
    cat >"$work/table" && cp "$work/table" "$out/.table" && mv "$out/.table" "$out/$1"
}

# Options that give rpexec N GPUs: parts of a single GPU, or N of the server's.
on_gpus() { # N
    if [ "$real" = 0 ]; then
        on=(--virtual-gpus "$1")
    else
        on=(--gpus "$1")
    fi
}
# Numbers of GPUs: for correctness, and for times.
counts() {
    if [ "$real" = 0 ]; then
        echo 1 4 8
    else
        printf '%s\n' 1 $((real / 2)) "$real" | awk '$1 > 0 && !seen[$1]++' | paste -sd ' '
    fi
}
several() {
    counts | tr ' ' '\n' | awk '$1 > 1' | paste -sd ' '
}

all_schedules() {
    COLUMNS=10000 bounded 30 "${rpexec:-false}" --list schedules 2>/dev/null | grep -v '(simulated only: ' | cut -d: -f1
}

# ---- facts ----------------------------------------------------------------------------------------------------------

fact() { # COMMAND...: with its name, if it exists
    command -v "$1" >/dev/null || return 0
    echo "---- $*"
    bounded 20 "$@"
}

step_facts() {
    { echo "date: $(date -u +%FT%TZ)"
        echo "device: $(bounded 20 nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | paste -sd ';')"
        echo "versions: rpexec $(bounded 20 "${rpexec:-false}" --version 2>/dev/null), driver $(bounded 20 nvidia-smi \
            --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -n 1), $(bounded 20 nvcc --version 2>/dev/null |
            sed -n 's/.*release/CUDA/p')"
        cat "$out/revision"
        fact uname -srm
        fact nproc
        fact lscpu
        fact numactl --hardware
        fact free -g
        fact nvidia-smi
        fact nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.sm,clocks.mem,power.limit,pcie.link.gen.max,pcie.link.width.max \
            --format=csv
        fact nvidia-smi topo -m
        fact nvcc --version
        echo "---- libraries: LD_LIBRARY_PATH=$LD_LIBRARY_PATH"
        [ -z "$rpexec" ] || fact ldd "$rpexec"
        tr ':' '\n' <<<"$LD_LIBRARY_PATH" | while read -r folder; do
            compgen -G "$folder/lib*.so*" | grep -E '/lib(cublas|cublasLt|nccl|cudnn)\.so'
        done
        ldconfig -p 2>/dev/null | grep -E 'lib(cuda|cublas|cublasLt|nccl|cudnn)\.so'
    } >"$logs/facts.log" 2>&1
    run_case facts backends 30 "$rpexec" --list backends
}

step_probe() {
    run_case probe green-8x16 60 "$(program green_test)" 8 16 4096 30 1024
}

step_rates() {
    run_case rates links-and-cublas 40 "$(program rates)"
    [ ! -e "$logs/rates.links-and-cublas.log" ] || table rates.csv <"$logs/rates.links-and-cublas.log"
}

# ---- kernels --------------------------------------------------------------------------------------------------------

# The host's operators take the time: all families beside each other, 16 bits first.
step_kernels() {
    local compare family dtype jobs=${RP_SUITE_JOBS:-7}
    compare=$(program cuda_compare)
    for dtype in bf16 fp32 fp16; do
        for family in attention products experts tokens values cudnn refusals; do
            in_parallel kernels "$family-$dtype" 150 "$compare" $family $dtype
        done
    done
    join
    run_case kernels rates 90 "$(program cuda_bench)"
    [ ! -e "$logs/kernels.rates.log" ] || table kernels.csv <"$logs/kernels.rates.log"
}

find_sanitizer() { # empty if there is none, or nothing to run with it
    [ -z "$(program cuda_compare)" ] || command -v compute-sanitizer || compgen -G '/usr/local/cuda*/bin/compute-sanitizer' ||
        compgen -G '/usr/local/cuda*/compute-sanitizer/compute-sanitizer' || compgen -G '/opt/*/compute-sanitizer'
}

# Our own kernels only: cuBLAS is large, and we cannot mend its kernels.
sanitize_kernels() { # STEP TOOL SECONDS
    local tool family compare
    tool=$(find_sanitizer | head -n 1)
    compare=$(program cuda_compare)
    for family in attention experts tokens values; do
        in_parallel "$1" "$2-$family" "$3" "$tool" --tool "$2" --error-exitcode 9 "$compare" $family bf16
    done
    join
}
step_memcheck() {
    sanitize_kernels memcheck memcheck 120
}
step_sanitizer() {
    local tool small
    tool=$(find_sanitizer | head -n 1)
    sanitize_kernels sanitizer racecheck 90
    small=(--backend cuda --model tiny --seq-len 16 --microbatches 4 --steps 1 --watchdog-s 3600)
    run_case sanitizer memcheck-roundpipe 70 "$tool" --error-exitcode 9 "$rpexec" "${small[@]}" --gpus 1
    on_gpus 2
    run_case sanitizer memcheck-1f1b-2 70 "$tool" --error-exitcode 9 "$rpexec" "${small[@]}" "${on[@]}" \
        --schedule 1f1b --dtype bf16
    run_case sanitizer racecheck-roundpipe 70 "$tool" --tool racecheck --error-exitcode 9 "$rpexec" "${small[@]}" --gpus 1
    run_case sanitizer initcheck-roundpipe 70 "$tool" --tool initcheck --error-exitcode 9 "$rpexec" "${small[@]}" --gpus 1
}

# ---- correctness ----------------------------------------------------------------------------------------------------

# Losses and gradients against plain loops on the host, as --check has its tolerances.
check() { # STEP SCHEDULE DTYPE GPUS
    on_gpus "$4"
    in_parallel "$1" "$2-$3-$4" 40 "$rpexec" --backend cuda "${on[@]}" --schedule "$2" --dtype "$3" \
        --model "$here/small.yaml" --seq-len 64 --microbatches $((2 * $4)) --steps 2 --check --watchdog-s 20
}

step_schedules() {
    local schedule gpus
    for gpus in $(counts); do
        for schedule in $(all_schedules); do # four heads of the model are cut, so at most as many GPUs
            if [ "$schedule" != megatron-tp ] || [ "$gpus" -le 4 ]; then
                check schedules "$schedule" fp32 "$gpus"
            fi
        done
    done
}

step_types() {
    local schedule dtype gpus=4 common
    [ "$real" = 0 ] || gpus=$((real < 4 ? real : 4))
    on_gpus $gpus
    common=(--backend cuda --model "$here/small.yaml" --seq-len 64 --check --watchdog-s 20)
    for dtype in bf16 fp16; do
        for schedule in roundpipe 1f1b zbv fsdp zero-infinity megatron-tp; do
            check types $schedule $dtype $gpus
        done
        in_parallel types cudnn-$dtype 40 "$rpexec" "${common[@]}" "${on[@]}" --dtype $dtype --attention cudnn \
            --steps 2 # refused if it is not installed
    done
    in_parallel types roundpipe-async 40 "$rpexec" "${common[@]}" "${on[@]}" --optimizer async --dtype bf16 --steps 3
    in_parallel types staged-1f1b 40 "$rpexec" "${common[@]}" "${on[@]}" --schedule 1f1b --peers --staged --steps 2
    on_gpus $((gpus < 2 ? gpus : 2))
    in_parallel types experts 40 "$rpexec" --backend cuda "${on[@]}" --model tiny-moe --dtype bf16 \
        --seq-len 64 --steps 2 --check --watchdog-s 20
}

# CUDA graphs: the same tolerances, losses equal to those without to the last bit, and graphs that ran.
step_graphs() {
    local schedule dtype name common gpus=4 two=2 with without log
    [ "$real" = 0 ] || gpus=$((real < 4 ? real : 4)) two=$((real < 2 ? real : 2))
    common=(--backend cuda --model "$here/small.yaml" --seq-len 64 --steps 6 --watchdog-s 20 --format json)
    on_gpus $gpus
    for dtype in bf16 fp32 fp16; do
        for schedule in roundpipe 1f1b zbv fsdp zero-infinity interleaved-1f1b; do
            in_parallel graphs "$schedule-$dtype" 40 "$rpexec" "${common[@]}" "${on[@]}" \
                --schedule $schedule --dtype $dtype --graphs --check
        done
    done
    in_parallel graphs roundpipe-device 40 "$rpexec" "${common[@]}" --gpus 1 --dtype bf16 --graphs --check
    in_parallel graphs roundpipe-async 40 "$rpexec" "${common[@]}" "${on[@]}" --optimizer async --graphs --check
    in_parallel graphs staged-1f1b 40 "$rpexec" "${common[@]}" "${on[@]}" --schedule 1f1b --peers --staged --graphs --check
    on_gpus $two
    in_parallel graphs roundpipe-cudnn 40 "$rpexec" "${common[@]}" "${on[@]}" --dtype bf16 --attention cudnn --graphs --check
    in_parallel graphs experts 40 "$rpexec" "${common[@]}" "${on[@]}" --model tiny-moe --dtype bf16 --graphs --check
    for name in roundpipe 1f1b; do
        in_parallel graphs "$name-with" 40 "$rpexec" "${common[@]}" "${on[@]}" --schedule $name --graphs
        in_parallel graphs "$name-without" 40 "$rpexec" "${common[@]}" "${on[@]}" --schedule $name
    done
    join
    for name in roundpipe 1f1b; do
        with=$(grep '^ *"loss":' "$logs/graphs.$name-with.log" 2>/dev/null)
        without=$(grep '^ *"loss":' "$logs/graphs.$name-without.log" 2>/dev/null)
        if [ -z "$with" ] || [ -z "$without" ]; then
            row graphs "$name-same-losses" skipped 0 "one of the two has not run"
        elif [ "$with" = "$without" ]; then
            row graphs "$name-same-losses" passed 0 "$with"
        else
            row graphs "$name-same-losses" failed 0 "$with and $without"
        fi
    done
    for name in "$work"/ended/graphs,*; do # a finished run that launched no graph has failed
        name=${name##*/graphs,}
        log=$logs/graphs.$name.log
        if grep -q '^ *"graph_launches": 0,*$' "$log" && grep -q '"graphs": 1' "$log"; then
            row graphs "$name" failed 0 "no graph was launched"
        fi
    done
}

# NCCL's calls on all devices; a communicator of one rank in a whole run; then, with several devices, each way to
# exchange on all of them.
step_transports() {
    local transport schedule dtype common peers all=$device_count
    run_case transports nccl-calls 60 "$(program cuda_nccl)"
    common=(--backend cuda --model "$here/small.yaml" --seq-len 64 --steps 2 --check --watchdog-s 20)
    for dtype in fp32 bf16; do
        run_case transports "nccl-1-$dtype" 40 "$rpexec" "${common[@]}" --gpus 1 --schedule fsdp --dtype $dtype \
            --transport nccl
    done
    [ "$real" = 0 ] || all=$real
    all=$((all < 8 ? all : 8))
    if [ "$device" = no ] || [ "$all" -lt 2 ]; then
        row transports several skipped 0 "fewer than 2 devices"
        return
    fi
    for transport in nccl copy staged; do
        for schedule in fsdp zero2 zero-infinity 1f1b; do
            peers=()
            [ $schedule != 1f1b ] || peers=(--peers) # boundary tensors go from GPU to GPU
            for dtype in fp32 bf16; do
                run_case transports "$transport-$schedule-$dtype-$all" 40 "$rpexec" "${common[@]}" --gpus $all \
                    --microbatches $((2 * all)) --schedule $schedule --dtype $dtype --transport $transport "${peers[@]}"
            done
        done
    done
}

# ---- times ----------------------------------------------------------------------------------------------------------

# For each number of GPUs a run that records, then others predicted from it; one at a time, since they share the device.
# logs has the files for tests/gpu/keep.sh.
step_validation() {
    local schedule gpus microbatches name common model=$here/wide.yaml length=1024
    validation_names=()
    ran=no
    table_validation
    for gpus in $(several); do
        on_gpus "$gpus"
        common=(--backend cuda "${on[@]}" --model "$model" --dtype bf16 --seq-len "$length"
            --microbatch-size 4 --steps 5 --watchdog-s 30)
        run_case validation "record-$gpus" 60 "$rpexec" "${common[@]}" --schedule roundpipe \
            --microbatches $((2 * gpus)) --record "$logs/record-$gpus"
        for schedule in ${RP_SUITE_SCHEDULES:-roundpipe 1f1b gpipe interleaved-1f1b zb-h1 looped-bfs}; do
            for microbatches in $((gpus + 1)) $((2 * gpus)); do
                [ "$schedule" != interleaved-1f1b ] || microbatches=$((microbatches / gpus * gpus))
                name=$schedule-$gpus-$microbatches
                [[ " ${validation_names[*]} " != *" $name "* ]] || continue
                validation_names+=("$name")
                mkdir -p "$logs/run-$name"
                echo "tests/gpu/wide.yaml $length" >"$logs/run-$name.args"
                run_case validation "$name" 40 "$rpexec" "${common[@]}" --schedule "$schedule" \
                    --microbatches "$microbatches" --costs "$logs/record-$gpus" --predict --format json \
                    --program-out "$logs/run-$name/program.txt" --timeline-out "$logs/run-$name/timeline.csv"
                table_validation
            done
        done
    done
    ran=yes # an earlier call may have been killed between its last case and the table
    table_validation
    # Issue 7's bounds: 5 % on the mean, 10 % at worst.
    verdict validation all "$(awk -F, 'NR > 1 { e = $6 < 0 ? -$6 : $6; sum += e; worst = e > worst ? e : worst; n++ }
        END { if (!n) print "skipped no configuration was predicted"
              else printf "%s %d configurations: mean %.2f %%, worst %.2f %%",
                  sum / n <= 5 && worst <= 10 ? "passed" : "failed", n, sum / n, worst }' "$out/validation.csv")"
}
table_validation() {
    local name
    [ "$ran" = yes ] || [ ! -e "$out/validation.csv" ] || return 0
    { echo "schedule,gpus,microbatches,measured_ms,predicted_ms,error_pct"
        for name in "${validation_names[@]}"; do
            figures validation "$name" 'if (of["prediction_error_pct"] !~ /^[-0-9]/) { exit }
                n = split(name, at, "-")
                p = of["predicted_iteration_ms"]
                e = of["prediction_error_pct"]
                printf "%s,%d,%d,%.4f,%s,%s\n", substr(name, 1, length(name) - length(at[n] at[n - 1]) - 2), at[n - 1],
                    at[n], p / (1 + e / 100), p, e'
        done
    } | table validation.csv
}

# Layers of matrix products: the share of their time that cuBLAS needs for the same products one by one, by the record's
# own table of operators. Issue 7's bound: 85 %.
step_gemm() {
    local log=$logs/record-gemm/operators.csv phase said
    run_case gemm record 120 "$rpexec" --backend cuda --gpus 1 --schedule gpipe --model "$here/gemm.yaml" --dtype bf16 \
        --seq-len 512 --microbatch-size 16 --microbatches 4 --steps 4 --watchdog-s 30 --record "$logs/record-gemm"
    [ ! -e "$log" ] || table operators.csv <"$log"
    for phase in forward backward; do
        said=$(awk -F, -v phase=$phase '$1 != "block" || $2 != phase { next }
            $3 ~ /^linear/ { products += $7; gflop += $5 * $8 }
            $3 == "measured" { measured = $7 }
            END { if (!measured) { print "skipped no record"; exit }
                  share = 100 * products / measured
                  printf "%s %.1f %% of a block is products at the rate of cuBLAS alone, %.0f TFLOP/s",
                      (share >= 85) ? "passed" : "failed", share, 1e3 * gflop / products }' "$log" 2>/dev/null)
        verdict gemm $phase "${said:-skipped no record}"
    done
}

benchmark() { # NAME ARGUMENTS...
    local name=$1
    shift
    benchmark_names+=("$name")
    run_case benchmarks "$name" 60 "$rpexec" --backend cuda --model "$here/wide.yaml" --dtype bf16 \
        --seq-len 2048 --steps 8 --watchdog-s 30 --format json "$@"
    table_benchmarks
}
# The median of all steps except the first, which loads modules.
table_benchmarks() {
    local name
    [ "$ran" = yes ] || [ ! -e "$out/benchmarks.csv" ] || return 0
    { echo "case,tokens_per_s,median_ms,executed_tflop,executed_tflop_per_s,wall_tokens_per_s,peak_gpu_mib"
        for name in "${benchmark_names[@]}"; do
            figures benchmarks "$name" 'if (of["tokens_per_s"] !~ /^[0-9]/) { exit }
                n = split(of["iteration_ms"], ms, /, */)
                for (i = 3; i <= n; i++) {
                    for (j = i; j > 2 && ms[j] + 0 < ms[j - 1] + 0; j--) {
                        other = ms[j]; ms[j] = ms[j - 1]; ms[j - 1] = other
                    }
                }
                for (i = split(of["peak_gpu_bytes"], peak, ","); i > 0; i--) { most = peak[i] + 0 > most ? peak[i] + 0 : most }
                printf "%s,%s,%s,%.9g,%.6g,%s,%.0f\n", name, of["tokens_per_s"], ms[1 + int(n / 2)],
                    1e-12 * of["executed_flop"], 1e-12 * of["executed_flop_per_s"], of["wall_tokens_per_s"], most / 1048576'
        done
    } | table benchmarks.csv
}

# Weights that come for each job against weights that stay, on a single device with the same FLOP on both sides: a fused
# stage, which computes nothing twice, against gpipe without recomputation; stages of four layers, forward and backward
# apart, against gpipe that computes all layers twice. Then with less memory than the resident state of the model (16
# bytes of 206 million parameters, 3137 MiB), which gpipe is refused. The optimizer runs beside the next step, as in
# RoundPipe; otherwise no computation would cover the host's Adam. Issue 7's bound: 95 %.
step_benchmarks() {
    local gpus pair gib offloaded resident size stages=(--partition '4,4,4,4|4,4,4,4') cap=(--gpu-memory-mb 2400)
    gib=$(sed -n '1s/.*, \([0-9]*\)[.0-9]* GiB.*/\1/p' <<<"$device_list")
    # Without recomputation a microbatch keeps 3.8 GB until its backward.
    size=(--microbatch-size 4 --microbatches $((${gib:-0} >= 80 ? 16 : ${gib:-0} >= 22 ? 4 : 2)))
    benchmark_names=()
    ran=no
    benchmark resident-1 --gpus 1 --schedule gpipe --recompute none "${size[@]}"
    benchmark roundpipe-async-1 --gpus 1 --schedule roundpipe --optimizer async "${size[@]}"
    benchmark resident-recomputed-1 --gpus 1 --schedule gpipe --recompute wait "${size[@]}"
    benchmark roundpipe-async-stages-1 --gpus 1 --schedule roundpipe --optimizer async "${stages[@]}" "${size[@]}"
    benchmark roundpipe-async-capped-1 --gpus 1 --schedule roundpipe --optimizer async "${stages[@]}" "${size[@]}" "${cap[@]}"
    benchmark resident-capped-1 --gpus 1 --schedule gpipe --recompute wait "${size[@]}" "${cap[@]}"
    ran=yes # as in the validation
    table_benchmarks
    for pair in "fused roundpipe-async-1 resident-1" "stages roundpipe-async-stages-1 resident-recomputed-1" \
        "capped roundpipe-async-capped-1 resident-recomputed-1"; do
        read -r pair offloaded resident <<<"$pair"
        verdict benchmarks "offloaded-over-resident-$pair" "$(awk -F, -v offloaded="$offloaded" -v resident="$resident" \
            -f "$here/pair.awk" "$out/benchmarks.csv")"
    done
    benchmark roundpipe-1 --gpus 1 --schedule roundpipe "${size[@]}"
    for gpus in $(counts); do
        on_gpus "$gpus"
        benchmark "roundpipe-async-of-$gpus" "${on[@]}" --optimizer async --microbatches 16
        benchmark "roundpipe-of-$gpus" "${on[@]}" --microbatches 16
        benchmark "1f1b-of-$gpus" "${on[@]}" --schedule 1f1b --microbatches 16
    done
    for gpus in $(counts | awk '{ print $1; if (NF > 1) print $NF }'); do # beside runs without it
        on_gpus "$gpus"
        benchmark "roundpipe-of-$gpus-graphs" "${on[@]}" --microbatches 16 --graphs
        benchmark "1f1b-of-$gpus-graphs" "${on[@]}" --schedule 1f1b --microbatches 16 --graphs
    done
    ran=yes
    table_benchmarks
}
