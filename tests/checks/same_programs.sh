#!/usr/bin/env bash
# same_programs.sh SOURCE BUILD RPSIM: rpsim and rpexec write the same program, byte for byte, when they are given the
# same words: all schedules, both grains, 1, 2, 5 and 8 GPUs, types, platforms, optimizers, calls. A plain run holds a
# sample; RP_LONG=1 all.
# Sanitized: --long
source "$(dirname "$0")/lib/check.sh"
source_root=$1
build=$2
rpsim=$3
export RP_TRACES=$source_root/traces
same=0
refused=0

# both WORD...: the programs of both, or both refuse.
both()
{
    local sim=0 exec=0
    rm -f "$work"/*.program
    "$rpsim" "$@" --intervals off --iterations 2 --program-out "$work/sim.program" >/dev/null 2>"$work/sim.log" || sim=$?
    "$build/exec/rpexec" "$@" --backend host --steps 2 --program-out "$work/exec.program" >/dev/null 2>"$work/exec.log" ||
        exec=$?
    if [ $sim -eq 2 ] && [ $exec -eq 2 ]; then
        refused=$((refused + 1))
    elif [ $sim -ne 0 ] || [ $exec -ne 0 ]; then
        fail "$*: rpsim gives $sim, rpexec $exec: $(cat "$work/sim.log" "$work/exec.log")"
    elif ! cmp -s "$work/sim.program" "$work/exec.program"; then
        fail "$*: programs differ: $(diff "$work/sim.program" "$work/exec.program" | head -n 6)"
    else
        same=$((same + 1))
    fi
}

# Programs have the same ops whatever the widths: a narrow model trains in a tenth of the time, but has no pieces of 1 MiB.
sed -E 's/^(hidden|intermediate): .*/\1: 64/; s/^head_dim: .*/head_dim: 8/; s/^published_parameters: .*/published_parameters: 214208/' \
    "$source_root/traces/models/small.yaml" >"$work/narrow.yaml"
types=(fp32 bf16 fp16)
platforms=(rtx4090x8 a800x8 h100x8)
case=0
while read -r schedule _; do
    for gpus in 1 2 5 8; do
        for grain in stage layer; do
            case=$((case + 1))
            [ "${RP_LONG:-0}" = 1 ] || [ $((case % 11)) -eq 0 ] || continue
            model=$work/narrow.yaml
            [ "${RP_LONG:-0}" != 1 ] && [ $((case % 16)) -ne 6 ] || model=small
            # Five GPUs need numbers of microbatches that five divide, and interleaved schedules those of GPUs.
            words=(--schedule "$schedule" --gpus "$gpus" --grain "$grain" --model "$model" --seq-len 16
                --microbatches $((2 * gpus)) --microbatch-size 1 --dtype "${types[case % 3]}"
                --platform "${platforms[case / 3 % 3]}")
            [ $((case % 4)) -ne 3 ] || words+=(--accumulate 2)
            # The executor keeps one version of the weights.
            [ $((case % 8)) -ne 5 ] || [[ $schedule = pipedream* ]] || words+=(--optimizer async)
            [ $((case % 16)) -ne 6 ] || words+=(--piece-mb 1)
            both "${words[@]}"
        done
    done
done < <("$rpsim" --list schedules --format csv | sed "1d; s/,/ /")

# Defaults are the same: grain, recompute, pieces, optimizer, partition.
for schedule in roundpipe 1f1b fsdp zbv; do
    both --schedule $schedule --gpus 2 --model tiny --seq-len 32 --microbatch-size 1 --dtype fp32 --platform rtx4090x8
done
for each in step microbatch; do
    both --schedule fsdp --gpus 4 --model tiny --seq-len 32 --microbatches 8 --microbatch-size 1 --dtype fp32 --reduce-each $each
    both --schedule zero2 --gpus 2 --model tiny --seq-len 32 --microbatch-size 1 --dtype fp32 --reduce-each $each
done
echo "$same programs are the same, $refused are refused by both"
[ $same -ge $((case / 16)) ] || fail "only $same programs could be compared"
[ $((same)) -gt $((2 * refused)) ] || fail "$refused of $((same + refused)) are refused"
end
