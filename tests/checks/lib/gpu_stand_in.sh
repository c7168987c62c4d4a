#!/usr/bin/env bash
# Stands for the programs that the device suite runs (tests/checks/test_gpu_suite.py): says what rpexec says, at once, or with
# MOCK_REAL=PATTERN lets the programs over the emulator do what matches, with a small model. By MOCK, a folder:
#   MOCK_REAL=PATTERN  these are done by MOCK_RPEXEC, with $MOCK/model, or by MOCK_TESTS/emulated_*
#   $MOCK/schedules    what rpexec lists
#   $MOCK/finished     gets a line for each other command that has ended well
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
export EMULATED_DEVICES=${MOCK_DEVICES:-1}
if [[ $line == "rpexec --list "* ]] && matches "${MOCK_REAL:-}"; then
    exec "$MOCK_RPEXEC" "$@"
fi
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
elif [[ $line == cuda_* ]] && matches "${MOCK_REAL:-}"; then
    exec "$MOCK_TESTS/emulated_${0##*/cuda_}" "$@"
elif [[ $line == rpexec* ]] && matches "${MOCK_REAL:-}"; then
    a=()
    while [ $# -gt 0 ]; do
        case $1 in
        --microbatch-size) shift ;;
        --microbatches) [[ $line == *"--seq-len 2048"* ]] && a+=(--microbatches 2) || a+=(--microbatches "$2")
            shift ;;
        --partition) a+=(--partition "${2//4/2}") && shift ;; # of half as many layers
        --model) [[ $2 == tiny* ]] && a+=(--model "$2") || a+=(--model "$MOCK/model")
            shift ;;
        --seq-len) a+=(--seq-len 4) && shift ;;
        --steps) a+=(--steps $((($2 + 1) / 2))) && shift ;;
        --gpu-memory-mb) a+=(--gpu-memory-mb 1) && shift ;;
        --recompute) [ -n "${MOCK_UNEQUAL:-}" ] || a+=(--recompute "$2")
            shift ;;
        *) a+=("$1") ;;
        esac
        shift
    done
    exec "$MOCK_RPEXEC" "${a[@]}"
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
