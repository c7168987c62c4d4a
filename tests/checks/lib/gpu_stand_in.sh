#!/usr/bin/env bash
# Stands for the programs that the device suite runs (tests/checks/gpu_suite.sh): says what rpexec says, at once, or with
# MOCK_REAL=PATTERN lets the host backend run what matches. By MOCK, a folder:
#   MOCK_RPEXEC        the program; $MOCK/schedules what it lists; $MOCK/model a model of 16 layers, for pairs; others take tiny
#   $MOCK/finished     gets a line for each command that has ended well
#   MOCK_DEVICES       devices (1); $MOCK/lost: none any more
#   MOCK_HANG=PATTERN  these ignore SIGTERM, and so does a child of theirs
#   MOCK_LOSE=PATTERN  these lose the device
#   MOCK_ONCE=PATTERN  these fail the first time
#   MOCK_UNEQUAL=1     runs that shall compute nothing twice do
#   MOCK_SLEEP         seconds that a command takes
matches() {
    [ -n "$1" ] && [[ "$line" =~ $1 ]]
}
line="${0##*/} $*"
case $line in
"rpexec --list backends")
    printf 'cuda: a stand-in\n'
    [ -e "$MOCK/lost" ] || seq 0 $((${MOCK_DEVICES:-1} - 1)) | sed 's/.*/    device &: NVIDIA H200 (the host), 1 multiprocessors, 139.8 GiB/'
    exit ;;
"rpexec --list schedules") exec cat "$MOCK/schedules" ;;
"rpexec --version") exec echo 0 ;;
esac
if [ -e "$MOCK/lost" ]; then
    echo "cudaMalloc: unknown error"
    exit 1
elif matches "${MOCK_LOSE:-}"; then
    : >"$MOCK/lost"
    exit 1
elif matches "${MOCK_ONCE:-}" && mkdir "$MOCK/once" 2>/dev/null; then
    echo "no channel is left"
    exit 1
elif matches "${MOCK_HANG:-}"; then
    trap '' TERM
    sleep "$(cat "$MOCK/hang_s")" &
    wait
    exit 1
elif [[ $line == rpexec* ]] && matches "${MOCK_REAL:-}"; then
    a=()
    while [ $# -gt 0 ]; do
        case $1 in
        --backend | --microbatch-size | --dtype | --watchdog-s) shift ;;
        --virtual-gpus) a+=(--gpus "$2") && shift ;;
        --model) [[ $line == *"--seq-len 2048"* ]] && a+=(--model "$MOCK/model")
            shift ;;
        --microbatches) [[ $line == *"--seq-len 2048"* ]] && a+=(--microbatches 2) || a+=(--microbatches "$2")
            shift ;;
        --seq-len) a+=(--seq-len 16) && shift ;;
        --steps) a+=(--steps 3) && shift ;;
        --gpu-memory-mb) [[ $line == *gpipe* ]] && a+=(--gpu-memory-mb 1)
            shift ;;
        --recompute) [ -n "${MOCK_UNEQUAL:-}" ] || a+=(--recompute "$2")
            shift ;;
        --graphs) ;;
        *) a+=("$1") ;;
        esac
        shift
    done
    "$MOCK_RPEXEC" --backend host "${a[@]}"
    exit
fi
[ -z "${MOCK_SLEEP:-}" ] || sleep "$MOCK_SLEEP"
case $line in
*"--format json"*) printf '  "%s": %s,\n' loss '[1,2]' iteration_ms '[9,2,3]' tokens_per_s 100 wall_tokens_per_s 90 \
    executed_flop 2e12 executed_flop_per_s 1e15 peak_gpu_bytes '[1048576]' graphs 1 graph_launches 3 \
    predicted_iteration_ms 2 prediction_error_pct 0.5 ;;
rates*) printf 'what,size,value,unit\nup alone,67108864,70.00,GB/s\ncublas bf16,8192,700.0,TFLOP/s\n' ;;
*) echo "the same bits" ;;
esac
echo "$line" >>"$MOCK/finished"
