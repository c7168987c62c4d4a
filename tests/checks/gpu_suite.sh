#!/usr/bin/env bash
# The device suite (tests/gpu) where there is no device, or is said to be none: every case of every step
# is skipped, none passed, and the archive is there all the same. Then with a stand-in for rpexec that
# takes the host backend and small sizes: tables, verdicts and what keep.sh keeps. The suite itself is
# run by hand, or by a session that has a GPU.
# Release only: scripts.
set -euo pipefail
source_root=$1
build=$2
rpsim=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
status=0
RP_SUITE_DEVICE=none bash "$source_root/tests/gpu/suite.sh" "$build" "$work/out" >"$work/said" || status=$?
if [ $status -ne 77 ]; then
    echo "exit status $status, not 77"
    cat "$work/said"
    exit 1
fi
awk -F, 'NR == 1 { next } { n[$1]++ } $3 != "skipped" { print; bad = 1 }
    END { for (s in n) steps++
          if (bad || steps != 12 || n["transports"] != 4 || n["schedules"] < 60 || n["validation"] != 27) {
              print "steps: " steps ", schedules: " n["schedules"] ", validation: " n["validation"]; exit 1 } }' \
    "$work/out/summary.csv"
tar -tzf "$work/out/suite.tar.gz" >"$work/said"
grep -q '^./summary.csv$' "$work/said"
status=0
RP_SUITE_DEVICE=none RP_SUITE_STEPS="facts nonsense" bash "$source_root/tests/gpu/suite.sh" "$build" "$work/other" \
    >"$work/said" 2>&1 || status=$?
[ $status -eq 2 ]
grep -q "no step 'nonsense'" "$work/said"
# What a machine without packages needs travels in one folder; it starts there with its own libraries.
# Of a build for all architectures it is larger than what may travel.
RP_PACK_MIB=1000 bash "$source_root/tests/gpu/pack.sh" "$build" "$work/pack" 2>"$work/said" || { cat "$work/said"; exit 1; }
if [ -x "$build/exec/rpexec" ] && ls "$work"/pack/lib/libopenblas* >/dev/null 2>&1; then
    LD_LIBRARY_PATH=$work/pack/lib RP_TRACES=$work/pack/traces "$work/pack/bin/rpexec" --gpus 2 --steps 1 \
        --model "$work/pack/gpu/small.yaml" --seq-len 8 --check >"$work/said"
    grep -q 'the same bits' "$work/said"
fi

# The stand-in. The second argument list is what the suite would say to a GPU.
mkdir -p "$work/mock/exec"
cat >"$work/mock/exec/rpexec" <<EOF
#!/usr/bin/env bash
if [ "\$1" = --list ] && [ "\$2" = backends ]; then
    printf 'cuda: a stand-in\n    device 0: the host\n'
    exit
fi
a=()
while [ \$# -gt 0 ]; do
    case \$1 in
    --backend | --microbatch-size | --dtype | --watchdog-s) shift ;;
    --virtual-gpus) a+=(--gpus "\$2") && shift ;;
    --model) a+=(--model tiny) && shift ;;
    --seq-len) a+=(--seq-len 16) && shift ;;
    --microbatches) a+=(--microbatches "\$2") && shift ;;
    --graphs) ;;
    *) a+=("\$1") ;;
    esac
    shift
done
exec "$build/exec/rpexec" "\${a[@]}"
EOF
chmod +x "$work/mock/exec/rpexec"
export RP_TRACES=$source_root/traces
status=0
RP_SUITE_STEPS="facts validation gemm benchmarks" RP_SUITE_SCHEDULES=1f1b \
    bash "$source_root/tests/gpu/suite.sh" "$work/mock" "$work/stand-in" >"$work/said" 2>&1 || status=$?
[ $status -le 1 ] || { cat "$work/said"; exit 1; } # times of the host: verdicts may be either
awk -F, 'NR == 1 { next } $3 != "passed" && !($2 ~ /^(all|forward|backward|offloaded-over-resident)$/ && $3 == "failed") {
        print; bad = 1 }
    { n[$1]++ }
    END { exit bad || n["validation"] != 7 || n["gemm"] != 3 || n["benchmarks"] != 14 }' "$work/stand-in/summary.csv" ||
    { cat "$work/said" "$work/stand-in/summary.csv"; exit 1; }
awk -F, 'NR > 1 { e = 100 * ($5 / $4 - 1) - $6; n += e < 0.01 && e > -0.01 } END { exit n != 4 }' \
    "$work/stand-in/validation.csv" || { cat "$work/stand-in/validation.csv"; exit 1; }
# What is kept is predicted again by the same number.
cp -r "$source_root/tests" "$work/kept" && mkdir -p "$work/traces/runs" && mv "$work/kept" "$work/tests"
sed -i 's/^tests.*/tiny 16/' "$work"/stand-in/logs/run-*.args
RPSIM=$rpsim RPDIFF=$build/rpdiff bash "$work/tests/gpu/keep.sh" "$work/stand-in/logs" 2000-01-01-host >"$work/gates"
join -t, <(sed 's|.*host/||' "$work/gates" | sort) \
    <(awk -F, 'NR > 1 { print $1 "-" $2 "-" $3 "," $6 }' "$work/stand-in/validation.csv" | sort) |
    awk -F, '{ e = $3 < 0 ? -$3 : $3; n += $2 > e && $2 < e + 0.1001 } END { exit n != 4 }' ||
    { cat "$work/gates" "$work/stand-in/validation.csv"; exit 1; }
