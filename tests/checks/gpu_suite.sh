#!/usr/bin/env bash
# The device suite (tests/gpu) without a device: every case of every step is skipped, none passed, and the archive is
# there all the same. Then with a stand-in (lib/gpu_stand_in.sh): all five parts, on one device and on a server's eight,
# where of each step that rpexec does some cases (RP_LONG=1: most) are done by rpexec_emulated, which is rpexec with the
# CUDA backend on emulated devices; killed at random moments it loses no row, and goes on; a case that hangs, one that
# fails beside others, a device that is lost; tables and verdicts, unequal work, and what keep.sh keeps. The suite
# itself is run by hand, or by a session that has a GPU.
# Release only: scripts.
set -euo pipefail
source_root=$1
build=$2
rpsim=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export RP_TRACES=$source_root/traces LC_ALL=C
suite() { # ARGUMENTS...; RP_SUITE_COPY and so on are the caller's
    bash "$source_root/tests/gpu/suite.sh" "$@"
}
fail() { # MESSAGE FILE...
    echo "$1"
    shift
    [ $# -eq 0 ] || tail -n 40 "$@"
    exit 1
}
expect_status() { # STATUS COMMAND...: its output is in $work/said
    local expected=$1 status=0
    shift
    "$@" >"$work/said" 2>&1 || status=$?
    [ $status -eq "$expected" ] || fail "exit status $status, not $expected: $*" "$work/said"
}
last_rows() { # SUMMARY: the row of each case that counts
    awk -F, 'NR > 1 { last[$1 "," $2] = $0 } END { for (k in last) print last[k] }' "$1" | sort
}

# ---- no device ----
expect_status 77 env RP_SUITE_DEVICE=none bash "$source_root/tests/gpu/suite.sh" "$build" "$work/out"
awk -F, 'NR == 1 { next } { n[$1]++ } $3 != "skipped" { print; bad = 1 }
    END { for (s in n) steps++
          if (bad || steps != 13 || n["transports"] != 4 || n["schedules"] < 60 || n["validation"] != 27 || n["kernels"] != 22) {
              print "steps: " steps ", schedules: " n["schedules"] ", validation: " n["validation"]; exit 1 } }' \
    "$work/out/summary.csv"
tar -tzf "$work/out/suite.tar.gz" >"$work/said"
grep -q '^./summary.csv$' "$work/said"
expect_status 2 env RP_SUITE_DEVICE=none RP_SUITE_STEPS="facts nonsense" bash "$source_root/tests/gpu/suite.sh" "$build" "$work/other"
grep -q "no step 'nonsense'" "$work/said"
expect_status 2 suite --part 6 "$build" "$work/other"

# ---- what travels ----
# What a machine without packages needs is in one folder; it starts there with its own libraries. The archive is what has
# a limit: of a build for all architectures it is larger than what may travel.
RP_PACK_MIB=1000 bash "$source_root/tests/gpu/pack.sh" "$build" "$work/pack" >"$work/said" 2>&1 || fail pack.sh "$work/said"
if [ -x "$build/exec/rpexec" ] && ls "$work"/pack/lib/libopenblas* >/dev/null 2>&1; then
    LD_LIBRARY_PATH=$work/pack/lib RP_TRACES=$work/pack/traces "$work/pack/bin/rpexec" --gpus 2 --steps 1 \
        --model "$work/pack/gpu/small.yaml" --seq-len 8 --check >"$work/said"
    grep -q 'the same bits' "$work/said"
fi
tar -tzf "$work/pack.tgz" >"$work/said"
grep -qx 'pack/gpu/expected.csv' "$work/said"
kib=$(($(stat -c %s "$work/pack.tgz") / 1024))
if [ "${RP_LONG:-0}" = 1 ] && [ "$(du -sk "$work/pack" | cut -f1)" -gt $(((kib / 1024 + 1) * 1024)) ]; then
    RP_PACK_MIB=$((kib / 1024 + 1)) bash "$source_root/tests/gpu/pack.sh" "$build" "$work/again" >"$work/said" 2>&1 ||
        fail "pack.sh measures the folder, not the archive" "$work/said"
fi
rm -rf "$work"/pack* "$work"/again*

# ---- the stand-in ----
export MOCK=$work/mock
mkdir -p "$MOCK/exec" "$MOCK/bin"
for name in rpexec green_test rates cuda_compare cuda_bench cuda_nccl compute-sanitizer; do
    cp "$source_root/tests/checks/lib/gpu_stand_in.sh" "$MOCK/bin/$name"
    chmod +x "$MOCK/bin/$name"
done
export MOCK_RPEXEC=$build/exec/rpexec_emulated MOCK_TESTS=$build/exec/cuda/tests
export RPEXEC_CUBLASLT=$MOCK_TESTS/libemulated_cublas.so RPEXEC_CUDNN=$MOCK_TESTS/libemulated_cudnn_library.so \
    RPEXEC_NCCL=$MOCK_TESTS/libemulated_nccl_library.so
emulated() { # PATTERN LONG-PATTERN: what is done on emulated devices, where there is an emulator
    if [ ! -x "$MOCK_RPEXEC" ]; then
        echo "not there"
    elif [ "${RP_LONG:-0}" = 1 ]; then
        echo "$2"
    else
        echo "$1"
    fi
}
# 75 thousand parameters: their resident state, 16 bytes of each, is more than the 1 MiB of a benchmark's memory.
sed -E 's/^(hidden|vocab): .*/\1: 32/; s/^(layers|head_dim): .*/\1: 8/; s/^(intermediate): .*/\1: 64/; s/^(published_parameters): .*/\1: 75424/' \
    "$source_root/tests/gpu/small.yaml" >"$MOCK/model"
COLUMNS=10000 "$build/exec/rpexec" --list schedules >"$MOCK/schedules"
export PATH=$MOCK/bin:$PATH # compute-sanitizer
begin_again() {
    rm -rf "$MOCK/lost" "$MOCK/once"
    : >"$MOCK/finished"
}
well() { # SUMMARY: whole rows
    [ "$(head -n 1 "$1")" = step,case,status,seconds,detail ] && ! sed 1d "$1" |
        grep -vE '^[a-z]+,[a-z0-9-]+,(passed|failed|refused|skipped),[0-9]+,"[^"]*"$'
}

# All five parts. In the folder that gets copies is what has been found so far; it holds eight files at most.
types='roundpipe --dtype bf16|fsdp --dtype fp16|megatron-tp --dtype fp32'
some="^rpexec .*(--virtual-gpus 4 --schedule ($types) --model|--dtype bf16 --attention cudnn --steps|--peers --staged --steps"
some+="|--optimizer async --dtype|--virtual-gpus 2 --schedule roundpipe|--virtual-gpus 4 --schedule zbv --dtype bf16 --graphs"
some+="|--gpus 1 .*(--transport nccl|--graphs)|--virtual-gpus 4 .*--schedule 1f1b .*--costs|--record .*-(4|gemm)$"
some+="|--seq-len 2048 .*--gpus 1 )|^cuda_compare (refusals|cudnn) bf16|^cuda_nccl"
most='--check .*--virtual-gpus [24] |--virtual-gpus [24] .*(--check|--graphs|--costs)|--virtual-gpus 2|--gpus 1 |--record .*-4$|^cuda_compare .* bf16|^cuda_nccl'
mkdir "$work/copies"
status=0
MOCK_REAL=$(emulated "$some" "$most") RP_SUITE_COPY="$work/copies" RP_SUITE_JOBS=4 \
    suite "$MOCK" "$work/all" >"$work/said" 2>&1 || status=$?
[ $status -le 1 ] || fail "the five parts" "$work/said" # times of the emulator: verdicts may be either
well "$work/all/summary.csv" || fail "broken rows" "$work/all/summary.csv"
cmp "$work/all/summary.csv" "$work/copies/summary.csv"
[ "$(find "$work/copies" -type f | wc -l)" -le 8 ] && [ -s "$work/copies/suite.tar.gz" ]
last_rows "$work/all/summary.csv" | awk -F, '
    $3 != "passed" && !($2 ~ /^(all|forward|backward|offloaded-over-resident-.*)$/ && $3 == "failed") &&
        !($2 == "resident-capped-1" && $3 == "refused") && $2 != "several" { print; bad = 1 }
    /not compared/ { print; bad = 1 }
    { n[$1]++; passed += $3 == "passed" }
    END { for (s in n) steps++
          exit bad || steps != 13 || passed <= 200 || n["gemm"] != 3 || n["benchmarks"] != 23 }' ||
    fail "the five parts" "$work/said" "$work/all/summary.csv"
grep -q '^H200,link to the GPU alone in pieces of 64 MiB,GB/s,70,45,58,above$' "$work/all/compared.csv" &&
    grep -q '^H200,cuBLAS.*,700,650,800,as expected$' "$work/all/compared.csv" || fail "expected beside measured" "$work/all/compared.csv"
# What has passed does not run again, a table whose last row a kill has cost has it again, and a suite of another
# revision does not go on with these rows.
begin_again
for table in validation benchmarks; do
    mv "$work/all/$table.csv" "$work/$table" && sed '$d' "$work/$table" >"$work/all/$table.csv"
done
# As it began, the model with too little memory is refused; the verdicts are those of before.
MOCK_REAL=$(emulated gpu-memory-mb gpu-memory-mb) RP_SUITE_STEPS="types schedules graphs validation benchmarks" \
    suite "$MOCK" "$work/all" >"$work/said" 2>&1 || true
[ ! -s "$MOCK/finished" ] || fail "these ran again" "$MOCK/finished"
for table in validation benchmarks; do
    cmp "$work/$table" "$work/all/$table.csv" || fail "the rows of $table.csv" "$work/all/$table.csv"
done
echo other >"$MOCK/revision"
expect_status 2 suite "$MOCK" "$work/all"
rm "$MOCK/revision"

# A server's eight devices instead of virtual ones.
some='--list backends|--schedule (zero2 --dtype bf16 --transport nccl|1f1b --dtype fp32 --transport nccl|fsdp --dtype fp32 --transport staged'
some+='|1f1b --dtype bf16 --transport staged|zero-infinity --dtype bf16 --transport copy)|^cuda_nccl'
MOCK_REAL=$(emulated "$some" '--list backends|--transport|^cuda_nccl') \
    MOCK_DEVICES=8 EMULATED_DELAY_US=200 RP_SUITE_JOBS=4 RP_SUITE_STEPS="transports validation" RP_SUITE_SCHEDULES=1f1b \
    suite --gpus all "$MOCK" "$work/server" >"$work/said" 2>&1 || fail "the server" "$work/said"
! grep -q -e --virtual-gpus "$MOCK/finished" || fail "virtual GPUs on a server" "$MOCK/finished"
last_rows "$work/server/summary.csv" | awk -F, '{ n[$1]++ } $3 != "passed" { print; bad = 1 }
    END { exit bad || n["transports"] != 27 || n["validation"] != 7 }' || fail "the server" "$work/server/summary.csv"
grep -q '^transports,staged-zero-infinity-bf16-8,passed' "$work/server/summary.csv"
expect_status 2 env MOCK_DEVICES=2 bash "$source_root/tests/gpu/suite.sh" --gpus 3 "$MOCK" "$work/two"

# Killed at random moments: what stdout had said, and what had ended, stands in the summary, and the next call goes on.
begin_again
kills=3
[ "${RP_LONG:-0}" != 1 ] || kills=20
: >"$work/said"
for ((kill = 0; kill < kills; kill++)); do
    MOCK_SLEEP=0.01 RP_SUITE_STEPS="types validation" setsid bash "$source_root/tests/gpu/suite.sh" "$MOCK" \
        "$work/killed" >>"$work/said" 2>&1 &
    suite=$!
    sleep "0.$((RANDOM % 9))$((RANDOM % 10))"
    kill -9 -- -$suite 2>/dev/null || true
    wait $suite 2>/dev/null || true
    sleep 0.1 # two may have been running
    [ -e "$work/killed/summary.csv" ] || continue
    well "$work/killed/summary.csv" || fail "broken rows" "$work/killed/summary.csv"
    sed -n 's/^\([a-z]*\) \([a-z0-9-]*\): \([a-z]*\), \([0-9]*\) s.*/\1,\2,\3,\4,/p' "$work/said" | sort >"$work/heard"
    cut -d'"' -f1 "$work/killed/summary.csv" | sort | comm -23 "$work/heard" - >"$work/missing"
    [ ! -s "$work/missing" ] || fail "rows that stdout had" "$work/missing"
    awk -F, -v finished="$(wc -l <"$MOCK/finished")" -v kills=$((kill + 1)) '$3 == "passed" && $2 != "all" { n++ }
        END { exit n < finished - 2 * kills }' "$work/killed/summary.csv" || fail "rows of cases that had ended" "$work/killed/summary.csv"
done
RP_SUITE_STEPS="types validation" suite "$MOCK" "$work/killed" >>"$work/said" 2>&1 || fail "after the kills" "$work/said"
cases=$(last_rows "$work/killed/summary.csv" | grep -c -v ,all,)
[ "$(wc -l <"$MOCK/finished")" -le $((cases + 2 * kills)) ] || fail "cases ran again"
last_rows "$work/killed/summary.csv" | grep -v ,all, | cut -d, -f1-3 >"$work/a"
last_rows "$work/all/summary.csv" | grep -E '^(types|validation),' | grep -v ,all, | cut -d, -f1-3 | cmp - "$work/a"
[ "$(wc -l <"$work/killed/validation.csv")" -eq "$(wc -l <"$work/all/validation.csv")" ]
# A signal leaves the archive.
MOCK_SLEEP=5 RP_SUITE_STEPS=types bash "$source_root/tests/gpu/suite.sh" "$MOCK" "$work/ended" >"$work/said" 2>&1 &
suite=$!
for ((i = 0; i < 100; i++)); do
    [ ! -e "$work/ended/logs/types.roundpipe-bf16-4.log" ] || break
    sleep 0.05
done
kill -TERM $suite
status=0
wait $suite || status=$?
[ $status -eq 143 ] && [ -s "$work/ended/suite.tar.gz" ] && [ "$(wc -l <"$work/ended/summary.csv")" -eq 1 ] ||
    fail "ended by SIGTERM: exit status $status" "$work/said" "$work/ended/summary.csv"

# One case hangs: it ends at its deadline with all that it has started, once more alone, and the others run.
begin_again
echo "4321.$$" >"$MOCK/hang_s"
MOCK_HANG='zbv.*bf16' RP_SUITE_LIMIT=1 RP_SUITE_STEPS=types suite "$MOCK" "$work/hangs" >"$work/said" 2>&1 &&
    fail "a case that hangs has passed" "$work/said"
[ "$(grep -c '^types,zbv-bf16-4,failed,' "$work/hangs/summary.csv")" -eq 2 ] || fail "twice" "$work/hangs/summary.csv"
[ "$(grep -c '^types,.*,passed,' "$work/hangs/summary.csv")" -eq 16 ] || fail "the others" "$work/hangs/summary.csv"
! ps -eo args | grep -qx "sleep 4321.$$" || fail "a child of a case that hung is still there"
# One fails beside others and passes alone: both rows are kept, and the last one counts.
begin_again
MOCK_ONCE='zbv.*bf16' RP_SUITE_STEPS=types suite "$MOCK" "$work/once" >"$work/said" 2>&1 || fail "once more alone" "$work/said"
[ "$(grep -c '^types,zbv-bf16-4,' "$work/once/summary.csv")" -eq 2 ]
grep -q '^types,zbv-bf16-4,passed,.*alone: ' "$work/once/summary.csv"
# The device is lost: the rest is skipped, and runs when it is back.
begin_again
MOCK_LOSE='fsdp.*bf16' RP_SUITE_STEPS=types suite "$MOCK" "$work/lost" >"$work/said" 2>&1 && fail "a lost device" "$work/said"
passed=$(grep -c ',passed,' "$work/lost/summary.csv")
[ "$passed" -ge 1 ] && [ "$(grep -c ',skipped,0,"device lost' "$work/lost/summary.csv")" -ge 9 ] ||
    fail "a lost device" "$work/lost/summary.csv"
begin_again
RP_SUITE_STEPS=types suite "$MOCK" "$work/lost" >"$work/said" 2>&1 || fail "the device is back" "$work/said"
[ "$(wc -l <"$MOCK/finished")" -eq $((17 - passed)) ] || fail "those that had not passed" "$MOCK/finished"

# One percent of unequal work is the most that is compared.
for flop in 1.009 1.011; do
    printf 'case,tokens_per_s,median_ms,executed_tflop\na,1,100,%s\nb,1,99,1\n' $flop |
        awk -F, -v offloaded=a -v resident=b -f "$source_root/tests/gpu/pair.awk"
done >"$work/said"
[ "$(cut -d' ' -f1,2 "$work/said" | paste -sd,)" = "passed 99.9,failed not" ] || fail "one percent" "$work/said"

# ---- what the emulated devices have done ----
if [ ! -x "$MOCK_RPEXEC" ]; then
    echo "skipped: rpexec_emulated was not built (no C++ compiler): all else has passed"
    exit 77
fi
# It was the CUDA backend, on parts of a device and on eight of them.
for log in types.roundpipe-bf16-4:'on 4 GPUs (emulator, split into 4)' types.cudnn-bf16:'forward by cudnn 9' \
    types.staged-1f1b:'between GPUs: staged' transports.nccl-1-fp32:'nccl 2.28'; do
    grep -qF "${log#*:}" "$work/all/logs/${log%%:*}.log" || fail "not by the CUDA backend" "$work/all/logs/${log%%:*}.log"
done
grep -qF 'on 8 GPUs (emulator)' "$work/server/logs/transports.nccl-zero2-bf16-8.log" &&
    grep -q 'NCCL 2.28.9, 8 ranks: right' "$work/server/logs/transports.nccl-calls.log" || fail "eight devices" "$work"/server/logs/transports.nccl-*.log
awk -F, 'NR > 1 { e = 100 * ($5 / $4 - 1) - $6; n += e < 0.01 && e > -0.01 } END { exit n != 24 }' \
    "$work/all/validation.csv" || fail validation "$work/all/validation.csv"
# Devices that reach each other, and whose streams are late at random, train as those of the suite did.
for how in EMULATED_PEERS= "EMULATED_PEERS=1 EMULATED_DELAY_US=500"; do
    # shellcheck disable=SC2086
    env EMULATED_DEVICES=2 $how "$MOCK_RPEXEC" --backend cuda --gpus 2 --steps 2 --model "$MOCK/model" --schedule 1f1b --seq-len 4 >"$work/said"
    awk '/^step/ { print $4 } / between GPUs: / { print $NF >"/dev/stderr" }' "$work/said" 2>>"$work/by" >>"$work/losses"
done
[ "$(paste -sd, "$work/by")" = staged,copy ] && [ "$(wc -l <"$work/losses")" -eq 4 ] &&
    [ "$(sort -u "$work/losses" | wc -l)" -eq 2 ] || fail "late devices" "$work/said" "$work/by" "$work/losses"
# Both sides of a pair execute the same FLOP; where they do not, they are not compared.
for pair in "roundpipe-async-1 resident-1" "roundpipe-async-stages-1 resident-recomputed-1"; do
    read -r a b <<<"$pair"
    awk -F, -v a="$a" -v b="$b" '{ flop[$1] = $4 } END { exit !(flop[a] > 0 && flop[a] == flop[b]) }' \
        "$work/all/benchmarks.csv" || fail "unequal work: $pair" "$work/all/benchmarks.csv"
done
cp -r "$work/all" "$work/unequal"
sed -i '/^benchmarks,resident-1,/d' "$work/unequal/summary.csv"
RP_SUITE_STEPS=benchmarks MOCK_UNEQUAL=1 MOCK_REAL=' --gpus 1 ' suite "$MOCK" "$work/unequal" >"$work/said" 2>&1 &&
    fail "unequal work was compared" "$work/said"
grep -q '^benchmarks,offloaded-over-resident-fused,failed,0,"not compared: unequal work, ' "$work/unequal/summary.csv" ||
    fail "unequal work" "$work/unequal/summary.csv"
# What is kept is predicted again by the same number.
cp -r "$source_root/tests" "$work/kept" && mkdir -p "$work/traces/runs" && mv "$work/kept" "$work/tests"
cp "$MOCK/model" "$work/tests/gpu/wide.yaml"
sed -i 's|1024$|4|' "$work"/all/logs/run-*.args
RPSIM=$rpsim RPDIFF=$build/rpdiff bash "$work/tests/gpu/keep.sh" "$work/all/logs" 2000-01-01-emulator >"$work/gates"
join -t, <(sed 's|.*emulator/||' "$work/gates" | sort) \
    <(awk -F, 'NR > 1 { print $1 "-" $2 "-" $3 "," $6 }' "$work/all/validation.csv" | sort) |
    awk -F, '{ e = $3 < 0 ? -$3 : $3; n += $2 > e && $2 < e + 0.1001 } END { exit n < 2 }' ||
    fail "what is kept" "$work/gates" "$work/all/validation.csv"
