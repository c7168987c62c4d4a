#!/usr/bin/env bash
# A record that others were busy beside is marked, and everything that reads it says so first; one of an idle machine is
# not. Runs alone (CMakeLists.txt); where others keep the machine busy all the same, the idle half is left out.
# Sanitized: --long
set -euo pipefail
source=$(cd "$1" && pwd)
build=$(cd "$2" && pwd)
rpsim=$(realpath "$3")
source "$(dirname "${BASH_SOURCE[0]}")/lib/check.sh"
cd "$work"
rpexec=$build/exec/rpexec
run=(--backend host --gpus 2 --steps 2 --seq-len 16 --microbatches 4)
loops=()
trap 'kill "${loops[@]}" 2>/dev/null || true; rm -rf "$work"' EXIT

# others COMMAND: percent of all processors that was used meanwhile, but by the command itself.
others()
{
    local begin end own TIMEFORMAT='%U %S'
    begin=$(grep '^cpu ' /proc/stat)
    own=$({ time "$@" >/dev/null 2>idle.err; } 2>&1)
    end=$(grep '^cpu ' /proc/stat)
    awk -v hz="$(getconf CLK_TCK)" 'NR == 1 { own = hz * ($1 + $2); next }
        { busy = $2 + $3 + $4 + $7 + $8 + $9; all = busy + $5 + $6 }
        NR == 2 { busy0 = busy; all0 = all }
        END { printf "%d\n", 100 * (busy - busy0 - own) / (all - all0) }' <<<"$own"$'\n'"$begin"$'\n'"$end"
}

# Others may come between; a record that they were beside says nothing here.
idle=no
for _ in 1 2 3 4 5; do
    [ "$(others sleep 1)" -lt 4 ] || continue
    rm -rf idle
    [ "$(others "$rpexec" "${run[@]}" --record idle)" -lt 4 ] || continue
    idle=yes
    break
done
if [ $idle = yes ]; then
    ! grep -q recorded_busy_pct idle/platform.yaml || fail "a record of an idle machine is marked: $(grep busy idle/platform.yaml)"
    ! grep -q 'beside others' idle/costs.yaml || fail "costs of an idle machine are marked"
    [ ! -s idle.err ] || fail "an idle machine gives warnings: $(cat idle.err)"
    "$rpexec" "${run[@]}" --costs idle --predict --format json >idle.json 2>idle.err
    grep -q '"costs_busy_pct": 0' idle.json || fail "an idle record predicts with $(grep costs_busy idle.json)"
    ! grep -q 'recorded while' idle.err || fail "an idle record warns: $(cat idle.err)"
fi

for _ in $(seq "$(nproc)"); do
    sh -c 'while :; do :; done' &
    loops+=($!)
done
"$rpexec" "${run[@]}" --record busy >/dev/null 2>busy.err
kill "${loops[@]}"
wait "${loops[@]}" 2>/dev/null || true
loops=()
grep -q '^rpexec: warning: --record: other processes used [0-9]* % of the processors meanwhile; the record is marked' busy.err ||
    fail "a busy machine gives no warning: $(cat busy.err)"
pct=$(sed -n 's/^recorded_busy_pct: //p' busy/platform.yaml)
awk -v pct="$pct" 'BEGIN { exit !(pct > 25 && pct < 100) }' || fail "a loop on each processor is $pct % of them"
grep -q '^source: measured by rpexec in fp32; .*; beside others, who used [0-9]* % of the processors$' busy/costs.yaml ||
    fail "costs are not marked: $(grep ^source busy/costs.yaml)"

"$rpexec" "${run[@]}" --costs busy --predict >out 2>err
head -n 1 err | grep -q '^rpexec: warning: busy/platform.yaml:[0-9]*: recorded while other processes used' ||
    fail "--predict does not say first that its record is marked: $(cat err)"
grep -B 1 '^predicted' out | grep -q '^no prediction to trust: its costs were recorded while other processes used' ||
    fail "--predict prints $(cat out)"
"$rpexec" "${run[@]}" --costs busy --predict --format json 2>err | grep -q '"costs_busy_pct": [1-9]' ||
    fail "JSON does not say it"
"$rpsim" --schedule roundpipe --model tiny --gpus 2 --costs busy/costs.yaml --platform busy/platform.yaml >out 2>err
grep -q '^rpsim: warning: busy/platform.yaml:[0-9]*: recorded while other processes used' err || fail "rpsim does not say it"
[ "$failures" -eq 0 ] || exit 1
echo "marked: others used $pct %; idle half: $idle"
