#!/usr/bin/env bash
# Damaged files for every reader and command lines that nobody would write (tests/tools/hostile.c).
# A sample in everyday runs, half as large optimised as sanitized, 2,000 of each where RP_LONG is 1; HOSTILE_SEED draws
# others.
set -euo pipefail
source=$1
build=$2
rpsim=$3
rpexec=$build/exec/rpexec
work=$(mktemp -d)
failed=1
leave()
{
    [ $failed -eq 0 ] && rm -rf "$work"
    [ $failed -eq 0 ] || echo "the inputs are kept in $work"
}
trap leave EXIT
mkdir "$work/bin" "$work/in"
ln -s "$rpsim" "$rpexec" "$build"/rp{advise,plan,diff,import,predict} "$build/experiments/rpsweep" "$work/bin"
cd "$work/in"

# ---- what is read: small files of every kind
export RP_TRACES=$source/traces
mkdir traces weights experts
cp -r "$source"/traces/{models,platforms,costs,partitions,layers} traces
cp traces/models/qwen3-1.7b.yaml model.yaml
cp traces/models/tiny.yaml .
cp traces/platforms/rtx4090x8.yaml platform.yaml
cp traces/platforms/h100x64.yaml cluster.yaml
cp traces/costs/qwen3-1.7b@rtx4090.yaml costs.yaml
# A few rows of each: all of them take longer than a program may here.
mkdir published
for file in throughput_4090 scaling_4090 max_seqlen_4090 fsdp_mpt_a100; do
    head -n 4 "$source/paper-figures/published/$file.csv" >"published/$file.csv"
done
cp "$source"/tests/golden/decoders/llama/{config.json,model.safetensors} weights
cp "$source"/tests/golden/decoders/qwen3-moe/{config.json,model*} experts
cp "$source/tests/golden/kineto/zb1p-p2v1m4.0.json" kineto.json
cp "$source/tests/golden/roundpipe/"{timer.log,trace.json.gz} .
printf '%s\n' '{"name":"s","link_capacity_Bps":{"up":1e9,"down":2e9},"flows":[' \
    ' {"id":1,"start_s":0,"bytes":1e6,"route":["up"]},' \
    ' {"id":2,"start_s":0.5,"bytes":3e6,"route":["up","down"]}]}' >flows.json
printf '%s\n' '{"mode":"train","fwd_time":[3,4,5],"bwd_time":[6,8,10],"fwd_bytes":[7,8,9],' \
    ' "bwd_bytes":[7,8,9],"memory_limit":50,"min_stages":2,"threshold_num":11,"threshold_den":10}' >instance.json
printf '%s\n' framework,model,seq_len,global_batch,microbatches,calls,grain,sequence_slices \
    roundpipe,qwen3-1.7b,2048,16,8,1,layer,1 megatron-pp,qwen3-1.7b,2048,8,8,1,layer,1 >cells.csv
printf '%s\n' framework,model,seq_len,global_batch,microbatches,calls,grain,sequence_slices,tokens_per_s,use \
    roundpipe,qwen3-1.7b,2048,16,8,1,layer,1,30000,fit >runs.csv
printf '%s\n' schedule,model,gpus,source,tokens_per_s gpipe,tiny,2,x,100 >reference.csv
printf '%s\n' 'name: hostile' 'question: Does it end?' 'options:' '  fidelity: stage' '  microbatches: 4' \
    'cross:' '  gpus: [1, 2]' '  schedule: [gpipe, 1f1b]' >experiment.yaml
head -c 4096 "$source/ARCHITECTURE.md" >text
cp -r "$source/tests/golden/tokens" .
{
    printf 'RPTOKENS\2\0\0\0\2\0\0\0\0\1\0\0\0\0\0\0\20\0\0\0\0\0\0\0\2\0\0\0\0\0\0\0' # 16 tokens, 2 documents
    printf '\1\0\2\0\3\0\4\0\5\0\6\0\7\0\10\0\11\0\12\0\13\0\14\0\15\0\16\0\17\0\20\0'
    printf '\0\0\0\0\0\0\0\0\6\0\0\0\0\0\0\0'
} >tokens/own.bin
small=(--gpus 2 --microbatches 4)
"$rpsim" --schedule 1f1b --fidelity stage "${small[@]}" --program-out program.txt --timeline-out timeline.csv \
    --torch-csv-out torch.csv --torch-sidecar sidecar.json --db runs.db --db-ops >/dev/null
"$rpsim" --schedule gpipe --fidelity stage "${small[@]}" --db runs.db --db-ops >/dev/null
mkdir chakra
"$rpsim" --schedule roundpipe "${small[@]}" --program-out lowered.txt --chakra-out chakra/chakra >/dev/null 2>&1
"$rpexec" --model tiny --gpus 2 --microbatches 2 --steps 2 --seq-len 4 --save saved --record record \
    --program-out executed.txt >/dev/null
"$rpexec" --model tiny --gpus 1 --microbatches 2 --steps 2 --seq-len 4 --lora-rank 2 --save adapters >/dev/null

# ---- the runs; an error that a sanitizer finds has a status of its own
export ASAN_OPTIONS=exitcode=99:detect_leaks=0:allocator_may_return_null=1:max_allocation_size_mb=8192:hard_rss_limit_mb=8192
export UBSAN_OPTIONS=halt_on_error=1:exitcode=99:print_stacktrace=1
export RPEXEC_BACKEND=host OPENBLAS_NUM_THREADS=1
count=49
grep -q '^RP_SANITIZE:[A-Z]*=.' "$build/CMakeCache.txt" || count=25
wrong=
[ "${RP_LONG:-0}" = 1 ] && count=2000
for kind in files commands; do
    "$build/tests/hostile" $kind "$work" "${HOSTILE_SEED:-1}" "${HOSTILE_FIRST:-0}" "${HOSTILE_COUNT:-$count}" ||
        wrong+=" $kind"
done
[ -z "$wrong" ] && failed=0
exit $failed
