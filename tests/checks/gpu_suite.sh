#!/usr/bin/env bash
# The device suite (tests/gpu) where there is no device, or is said to be none: every case of every step
# Release only: scripts.
# is skipped, none passed, and the archive is there all the same. The suite itself is run by hand, or
# by a session that has a GPU.
set -euo pipefail
source_root=$1
build=$2
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
          if (bad || steps != 9 || n["schedules"] < 60 || n["validation"] != 49) {
              print "steps: " steps ", schedules: " n["schedules"] ", validation: " n["validation"]; exit 1 } }' \
    "$work/out/summary.csv"
tar -tzf "$work/out/suite.tar.gz" >"$work/said"
grep -q '^./summary.csv$' "$work/said"
status=0
RP_SUITE_DEVICE=none RP_SUITE_STEPS="facts nonsense" bash "$source_root/tests/gpu/suite.sh" "$build" "$work/other" \
    >"$work/said" 2>&1 || status=$?
[ $status -eq 2 ] && grep -q "no step 'nonsense'" "$work/said"
# What a machine without packages needs travels in one folder; it starts there with its own libraries.
# Of a build for all architectures it is larger than what may travel.
RP_PACK_MIB=1000 bash "$source_root/tests/gpu/pack.sh" "$build" "$work/pack" 2>"$work/said" || { cat "$work/said"; exit 1; }
if [ -x "$build/exec/rpexec" ] && ls "$work"/pack/lib/libopenblas* >/dev/null 2>&1; then
    LD_LIBRARY_PATH=$work/pack/lib RP_TRACES=$work/pack/traces "$work/pack/bin/rpexec" --gpus 2 --steps 1 \
        --model "$work/pack/gpu/small.yaml" --seq-len 8 --check >"$work/said"
    grep -q 'the same bits' "$work/said"
fi
