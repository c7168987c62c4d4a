#!/usr/bin/env bash
# Everything that needs a GPU, in five parts of less than nine minutes each: on a GPU split into virtual GPUs, or with
# --gpus on the GPUs of a server. OUTDIR always has the results so far.
# usage: suite.sh [--part N]... [--gpus N|all] [--again] BUILDDIR OUTDIR
#   BUILDDIR: a build with -DRP_CUDA=ON, or pack.sh's folder of it
#   --part N: 1 kernels, 2 correctness, 3 pairs, 4 validation, 5 rest (all, in this order)
#   --gpus N|all: a server's first N GPUs instead of virtual GPUs
#   --again: run cases again that have passed in OUTDIR
# A second call with the same OUTDIR goes on: cases that have passed do not run again.
# Leaves in OUTDIR: summary.csv (step, case, status, seconds, detail; of several rows of a case the last counts), a
# row as soon as a case has ended; validation.csv, rates.csv, kernels.csv, operators.csv, benchmarks.csv, compared.csv
# (measured beside expected); suite.tar.gz with all of it and every log, made anew after each step: the archive to
# commit.
# status is passed, failed, refused (exit status 2: the program gives its reason) or skipped. Exit status 0: nothing
# failed; 1: something did; 77: there is no device; 129, 130, 143: ended by a signal.
# Environment: RP_SUITE_STEPS (names of steps, instead of parts), RP_SUITE_SECONDS (of a part: 520, with --gpus 1800),
# RP_SUITE_JOBS (cases at a time: 2), RP_SUITE_LIMIT (most seconds of a case, whatever its own limit),
# RP_SUITE_SCHEDULES (of the validation, six), RP_SUITE_COPY (a folder that gets copies of the tables and the archive),
# RP_SUITE_DEVICE=none (as on a machine without a device).
set -uo pipefail
export LC_ALL=C
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/gpu/steps.sh
. "$here/steps.sh"
# shellcheck source=tests/gpu/figures.sh
. "$here/figures.sh"

usage() {
    echo "usage: suite.sh [--part 1|2|3|4|5]... [--gpus N|all] [--again] BUILDDIR OUTDIR" >&2
    exit 2
}
declare -A part_steps=([1]="facts probe kernels memcheck" [2]="types schedules graphs" [3]="benchmarks"
    [4]="validation" [5]="rates gemm transports sanitizer")
parts=()
real=0 # GPUs of a server; 0: virtual
again=no
while [ $# -gt 2 ]; do
    case $1 in
    --part) [[ $2 =~ ^[1-5]$ ]] || usage
        parts+=("$2")
        shift ;;
    --gpus) [[ $2 =~ ^([1-9][0-9]?|all)$ ]] || usage
        real=$2
        shift ;;
    --again) again=yes ;;
    *) usage ;;
    esac
    shift
done
if [ $# -ne 2 ] || [ ! -d "$1" ]; then
    usage
fi
build=$(cd "$1" && pwd)
mkdir -p "$2/logs" || exit 2
out=$(cd "$2" && pwd)
logs=$out/logs
summary=$out/summary.csv
jobs=${RP_SUITE_JOBS:-2}
exec 9>"$out/.lock"
if ! flock -n 9; then
    echo "suite.sh: another suite writes into $out; valid are a folder of its own, and waiting for that one" >&2
    exit 2
fi
work=$(mktemp -d) # files that a crash may lose
mkdir "$work/running" "$work/ended" "$work/over" "$work/parallel"
: >"$work/failures"

bounded() { # SECONDS COMMAND...: nothing runs without a deadline
    timeout -k 2 "$@" 9>&-
}

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
# Folders with cuBLAS, NCCL and cuDNN that the linker may not know: the toolkit's and PyTorch's.
for folder in /usr/local/cuda*/lib64 /usr/local/cuda*/targets/x86_64-linux/lib \
    {/opt/*/.venv,"${VIRTUAL_ENV:-/none}","${CONDA_PREFIX:-/none}"}/lib/python3*/site-packages/nvidia/{cu13,cublas,nccl,cudnn}/lib; do
    if compgen -G "$folder/libcublasLt.so.*" >/dev/null || compgen -G "$folder/libnccl.so.*" >/dev/null ||
        compgen -G "$folder/libcudnn.so.9" >/dev/null; then
        LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder
    fi
done
export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}
export OPENBLAS_NUM_THREADS=1

# "N: NAME, ..." of the CUDA devices, a line each.
devices() {
    [ "${RP_SUITE_DEVICE:-}" != none ] && [ -n "$rpexec" ] &&
        bounded 30 "$rpexec" --list backends 2>/dev/null |
        awk '/^[^ ]/ { keep = /^cuda:/ } keep && sub(/^    device /, "")'
}
device_list=$(devices)
device=no
[ -z "$device_list" ] || device=yes
device_count=$(grep -c . <<<"$device_list")
if [ "$real" = all ]; then
    real=$device_count
elif [ "$device" = yes ] && [ "$real" -gt "$device_count" ]; then
    echo "suite.sh: --gpus $real: there are $device_count; valid are 1 to $device_count, and all" >&2
    exit 2
fi
limit=${RP_SUITE_SECONDS:-$([ "$real" = 0 ] && echo 520 || echo 1800)}
part_ends=$((SECONDS + limit))

# ---- rows -----------------------------------------------------------------------------------------------------------

publish() { # FILE...: into the folder that keeps copies
    local file
    [ -n "${RP_SUITE_COPY:-}" ] || return 0
    for file in "$@"; do
        [ ! -e "$file" ] || { cp "$file" "$RP_SUITE_COPY/.new" && mv "$RP_SUITE_COPY/.new" "$RP_SUITE_COPY/${file##*/}"; }
    done
}

# A single write, so that nobody ever sees half a row; then the same on stdout.
row() { # STEP CASE STATUS SECONDS DETAIL
    local detail=${5//[^[:print:]]/ }
    detail=${detail//\"/\'}
    printf '%s,%s,%s,%s,"%s"\n' "$1" "$2" "$3" "$4" "${detail:0:300}" >>"$summary"
    echo "$1 $2: $3, $4 s${detail:+: ${detail:0:120}}"
    [ -n "${RP_SUITE_COPY:-}" ] || return 0
    cp "$summary" "$RP_SUITE_COPY/.$BASHPID" && mv "$RP_SUITE_COPY/.$BASHPID" "$RP_SUITE_COPY/summary.csv"
}

ran=no # whether the last case did
declare -A before=() # status by "step,case", of an earlier call
begin_summary() {
    local step name status revision
    revision=$(cat "$build/revision" 2>/dev/null || bounded 10 git -C "$here" rev-parse HEAD 2>/dev/null || echo unknown)
    if [ -s "$out/revision" ] && [ "$(cat "$out/revision")" != "$revision" ]; then
        echo "suite.sh: $out is of revision $(cat "$out/revision"), this is $revision; valid is a folder of its own" >&2
        exit 2
    fi
    echo "$revision" >"$out/.revision" && mv "$out/.revision" "$out/revision" # whole, or as it was
    if [ ! -s "$summary" ]; then
        echo "step,case,status,seconds,detail" >"$summary"
        return
    fi
    if [ -n "$(tail -c 1 "$summary")" ]; then # a machine that went down may leave half a row
        sed '$d' "$summary" >"$work/whole" && cp "$work/whole" "$out/.summary" && mv "$out/.summary" "$summary"
    fi
    while IFS=, read -r step name status _; do
        before[$step,$name]=$status
    done <"$summary"
}

# ---- cases ----------------------------------------------------------------------------------------------------------

# A single failure is the case's own. A device is lost if it is no longer listed, or if after two failures in a row the
# last case that passed fails, too.
device_is_lost() {
    local last
    [ -n "$(devices)" ] || return 0
    [ "$(wc -l <"$work/failures")" -ge 2 ] && [ -s "$work/passed" ] || return 1
    mapfile -d '' -t last <"$work/passed"
    if bounded 60 "${last[@]}" >"$logs/device-lost.log" 2>&1; then
        : >"$work/failures"
        return 1
    fi
}

note() { # STEP CASE STATUS COMMAND...
    local step=$1 name=$2 status=$3
    shift 3
    if [ "$status" = passed ]; then
        : >"$work/failures"
        case " $* " in
        *-out\ * | *" --record "*) ;; # leaves files
        *) printf '%s\0' "$@" >"$work/.$BASHPID" && mv "$work/.$BASHPID" "$work/passed" ;;
        esac
    elif [ "$status" = failed ] && [ ! -e "$work/lost" ]; then
        echo "$name" >>"$work/failures"
        device_is_lost && echo "$step $name" >"$work/lost"
    fi
}

# Sets `why` a case does not run; nothing: it does.
find_obstacle() { # PROGRAM
    why=
    if [ "$device" = no ]; then
        why="no device"
    elif [ -z "$1" ]; then
        why="the program is not in this build"
    elif [ -e "$work/lost" ]; then
        why="device lost, seen after $(cat "$work/lost")"
    elif [ $((part_ends - SECONDS)) -lt 5 ]; then
        why="out of time"
    fi
}

# Runs a case: a command with a time limit, its log, and its row. Cases that passed before do not run again.
run_case() { # STEP CASE SECONDS COMMAND...
    local step=$1 name=$2 most=$3 status why pid begin=$SECONDS log=$logs/$1.$2.log connections=32
    shift 3
    ran=no
    [ "${before[$step,$name]:-}" != passed ] || [ $again = yes ] || return 0
    find_obstacle "$1"
    if [ -n "$why" ]; then
        row "$step" "$name" skipped 0 "$why"
        return
    fi
    [ $((part_ends - SECONDS)) -gt "$most" ] || most=$((part_ends - SECONDS))
    [ "${RP_SUITE_LIMIT:-$most}" -ge "$most" ] || most=$RP_SUITE_LIMIT
    case " $* " in *" --virtual-gpus "*) connections=8 ;; esac
    ran=yes
    [ ! -e "$log" ] || rm "$log" # not into the file of a process that a killed suite has left
    CUDA_DEVICE_MAX_CONNECTIONS=$connections timeout -k 2 "$most" "$@" >"$log" 2>&1 9>&- &
    pid=$!
    echo $pid >"$work/running/$step,$name"
    wait $pid
    status=$?
    case $status in
    0) status=passed ;;
    2) status=refused ;;
    77) status=skipped ;;
    124 | 137) status=failed
        kill -9 -- -$pid 2>/dev/null # whoever of its process group did not end
        echo "suite: killed, after $most s at the latest" >>"$log" ;;
    *) status=failed ;;
    esac
    : >"$work/running/$step,$name"
    echo $status >"$work/ended/$step,$name"
    row "$step" "$name" $status $((SECONDS - begin)) "${alone:+alone: }$(tail -n 1 "$log")"
    note "$step" "$name" $status "$@"
}

exec {nothing}<> <(:) # reads from it never end, which makes a pause
running=() # their "step,case"
declare -A pid_of=() ends=() # each case's latest end, whatever becomes of its shell
wait_for() { # N: until at most so many run
    local name still
    while [ ${#running[@]} -gt "$1" ]; do
        still=()
        for name in "${running[@]}"; do
            [ -e "$work/over/$name" ] || [ $SECONDS -gt "${ends[$name]}" ] || still+=("$name")
        done
        [ ${#still[@]} -lt ${#running[@]} ] || read -rt 0.02 -u "$nothing"
        running=("${still[@]}")
    done
}
beside=() # cases that ran so
in_parallel() { # as run_case; `jobs` at a time
    [ "${before[$1,$2]:-}" != passed ] || [ $again = yes ] || return 0
    wait_for $((jobs - 1))
    { run_case "$@"
        : >"$work/over/$1,$2"; } &
    pid_of[$1,$2]=$!
    running+=("$1,$2")
    ends[$1,$2]=$((SECONDS + $3 + 120)) # its own limit, and two looks at the device
    beside+=("$1,$2")
    printf '%s\0' "$@" >"$work/parallel/$1,$2"
}
# Cases that failed beside others run once more alone; after three that fail alone, too, no others do.
join() {
    local name arguments status alone=yes failures=0
    wait_for 0
    for name in "${beside[@]}"; do
        status=
        [ ! -e "$work/ended/$name" ] || read -r status <"$work/ended/$name"
        if [ "$status" = failed ] && [ "$jobs" -gt 1 ] && [ $failures -lt 3 ] && [ ! -e "$work/lost" ]; then
            mapfile -d '' -t arguments <"$work/parallel/$name"
            run_case "${arguments[@]}"
            read -r status <"$work/ended/$name"
            [ "$status" != failed ] || failures=$((failures + 1))
        fi
    done
    beside=()
}

# ---- the end --------------------------------------------------------------------------------------------------------

archive() {
    local status
    bounded 60 tar -C "$out" -czf "$out/.suite.tar.gz" --exclude=./suite.tar.gz --exclude='./.[a-z]*' . 2>/dev/null
    status=$?
    [ $status -le 1 ] && mv "$out/.suite.tar.gz" "$out/suite.tar.gz" # 1: a log grew meanwhile
    publish "$out"/*.csv "$out/suite.tar.gz"
}
ended_by() { # EXIT-STATUS: nothing of ours runs on
    local name pid
    trap '' TERM INT HUP
    for name in "${running[@]}"; do # first: they would say that their cases have failed
        kill -9 "${pid_of[$name]}" 2>/dev/null
    done
    while read -r pid; do
        kill -9 -- "-$pid" 2>/dev/null
    done < <(cat "$work"/running/* 2>/dev/null)
    archive
    exit "$1"
}
trap 'rm -rf "$work"' EXIT
trap 'ended_by 143' TERM
trap : PIPE # whoever listened has gone; the rows are in the summary
trap 'ended_by 130' INT
trap 'ended_by 129' HUP

run_steps() { # STEP...
    local step begin
    part_ends=$((SECONDS + limit))
    for step in "$@"; do
        begin=$SECONDS
        "step_$step"
        join
        compare_figures
        archive
        echo "== $step: $((SECONDS - begin)) s"
    done
}

for step in ${RP_SUITE_STEPS:-}; do
    if [ "$(type -t "step_$step")" != function ]; then
        echo "suite.sh: no step '$step'; valid are ${part_steps[*]}" >&2
        exit 2
    fi
done
begin_summary
if [ -n "${RP_SUITE_STEPS:-}" ]; then
    read -ra steps <<<"$RP_SUITE_STEPS"
    run_steps "${steps[@]}"
else
    [ ${#parts[@]} -gt 0 ] || parts=(1 2 3 4 5)
    for part in "${parts[@]}"; do
        read -ra steps <<<"${part_steps[$part]}"
        run_steps "${steps[@]}"
    done
fi
awk -F, 'NR > 1 { last[$1 "," $2] = $3 }
    END { for (k in last) { split(k, at, ","); n[at[1] " " last[k]]++ }
          for (k in n) print k ": " n[k] }' "$summary" | sort
[ "$device" = yes ] || exit 77
awk -F, 'NR > 1 { last[$1 "," $2] = $3 } END { for (k in last) if (last[k] == "failed") exit 1 }' "$summary"
