#!/usr/bin/env bash
# Output for people at 80 and 100 columns, and where COLUMNS is not set: no line on stdout is wider, for every program,
# --help and --list, and the best run's tokens/s, memory and whether it fits stand in the first 80 columns (`within`).
# Every third command at 100 columns, with RP_LONG=1 each. Documented commands: checks.examples. Release only: all
# programs are tested elsewhere.
set -euo pipefail
source=$(cd "$1" && pwd)
build=$(cd "$2" && pwd)
source "$(dirname "${BASH_SOURCE[0]}")/lib/check.sh"
cd "$work"
unset COLUMNS RP_TRACES RP_PLOTS RPEXEC_BACKEND
PATH=$build:$build/exec:$build/experiments:$PATH
shown=0
asked=0

# narrow COMMAND...: at all widths.
narrow()
{
    local columns status
    asked=$((asked + 1))
    for columns in 80 100 ''; do
        [ "$columns" != 100 ] || [ "${RP_LONG:-0}" = 1 ] || [ $((asked % 3)) -eq 1 ] || continue
        status=0
        env ${columns:+COLUMNS=$columns} "$@" >out 2>err </dev/null || status=$?
        [ $status -eq 0 ] || fail "COLUMNS=$columns $*: status $status: $(tail -n 2 err)"
        [ -s out ] || fail "COLUMNS=$columns $* prints nothing"
        within out "$columns" "$*"
        shown=$((shown + 1))
    done
}

# answers COMMAND...: the row of the best run comes before all others.
answers()
{
    narrow "$@"
    awk '{ line = substr($0, 1, 80) }
        line ~ / schedule .* tokens\/s .*GPU GB .*fits/ { head = NR }
        head && NR == head + 1 { good = line ~ /^( *[0-9]+ )?\* [a-z0-9-]+ .*[0-9]+ .*[0-9]+\.[0-9] .*yes/ }
        END { exit !good }' out || fail "$*: the best run is not said in the first 80 columns: $(head -n 5 out)"
}

for program in rpsim rpadvise rpplan rpimport rpdiff rppredict rpexec rpsweep; do
    narrow $program --help
    narrow $program -h
    narrow $program -V
done
# Help has 80 columns where there is no terminal.
[ "$(rpsim --help | LC_ALL=C.UTF-8 wc -L)" -le 80 ] || fail "help without a terminal is wider than 80 columns"
for kind in schedules models platforms costs; do
    narrow rpsim --list $kind
    [ "$(rpsim --list $kind | grep -c '^[a-z0-9]')" -gt 5 ] || fail "rpsim --list $kind names too little"
done
for kind in schedules backends; do
    narrow rpexec --list $kind
done

small=(--gpus 4 --iterations 2 --intervals off)
two=(--schedule gpipe,1f1b,roundpipe "${small[@]}")
narrow rpsim "${two[@]}" --columns all
narrow rpsim "${two[@]}" --columns schedule,partition,tokens_per_s
narrow rpsim "${two[@]}" --explain
narrow rpsim --schedule 1f1b,zero2 --model llama3.1-8b "${small[@]}"
grep -qE '^  zero2 needs [0-9]+\.[0-9] of 25\.3 GB on GPU [0-9]+: [a-z]+ [0-9]+\.[0-9]' out || fail "need and limit: $(cat out)"
narrow rpsim --schedule gpipe,1f1b --fidelity stage --jitter 0.05 --replicas 3
narrow rpsim --schedule roundpipe --fidelity stage --partition tuned --tune-budget 20
narrow rpsim --schedule gpipe --gpus 2 --check
answers rpsim "${two[@]}"
answers rpsim --schedule 1f1b,roundpipe --gpus 4 --iterations 2 --intervals 2
answers rpsim --schedule gpipe,1f1b,roundpipe,megatron-pp,pipedream-2bw,roundpipe-overlap --optimizer async --gpus 2 --microbatches 4
narrow rpplan
head -n 3 "$source/docs/runs.csv" >own-runs.csv
fit=(rppredict --fit own-runs.csv --platform rtx4090x8 --fit-constants host_optimizer_gb_per_s)
narrow "${fit[@]}"
"${fit[@]}" --format md 2>/dev/null | grep '^| constant |' >/dev/null || fail "no Markdown"
narrow rpadvise --model tiny --platform rtx3090x8 --gpus 1 --seq-len 128 --budget 300
narrow rpsim --schedule 1f1b --gpus 2 --iterations 1 --timeline-out one.csv --chakra-out chakra
narrow rpdiff one.csv one.csv
narrow rpimport --chakra chakra
for options in --check "--record recorded" "--schedule 1f1b --costs recorded --predict"; do
    read -ra words <<<"$options"
    narrow rpexec --backend host --gpus 2 --steps 2 "${words[@]}"
done
printf '%s\n' 'name: a-rather-long-name-of-an-experiment-file' 'question: Which is fastest?' \
    'options: {gpus: 2, fidelity: stage}' 'cross: {schedule: [gpipe, 1f1b], microbatches: [4, 8]}' >experiment.yaml
narrow rpsweep experiment.yaml --db runs.db --resume
narrow rpsweep report runs.db
rpsim --schedule 1f1b --gpus 2 --iterations 1 --format md | grep '^| schedule | ' >/dev/null || fail "no table of Markdown"

# A full disk is an error of every program that prints tables.
for line in "rpsim --schedule gpipe --gpus 2 --fidelity stage" "rpsim --list models" "rpplan" "rpdiff one.csv one.csv" "rpexec --list schedules"; do
    read -ra words <<<"$line"
    status=0
    "${words[@]}" >/dev/full 2>err || status=$?
    [ $status -eq 1 ] || fail "$line on a full disk: status $status: $(cat err)"
done
echo "$shown outputs are as wide as they may be"
end
