#!/usr/bin/env bash
# A FIFO that nobody has opened is refused at once, as an input and as an output of every program; one
# that somebody reads from gets all.
set -euo pipefail
build=$2
rpexec=exec/rpexec
rpsweep=experiments/rpsweep
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
failures=0

refused()
{
    local program=$1 status=0
    shift
    timeout 10 "$build/$program" "$@" >out 2>err </dev/null || status=$?
    if [ $status -ne 2 ] || ! grep -qE 'fifo|weights|folder' err; then
        echo "$program $*: exit status $status, $(cat err)"
        failures=$((failures + 1))
    fi
}

mkfifo fifo fifo.svg fifo.0.et
mkdir weights folder
mkfifo weights/model.safetensors folder/costs.yaml folder/timeline.csv folder/program.txt
cat >weights/config.json <<'JSON'
{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 32, "num_hidden_layers": 2,
 "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 64, "vocab_size": 256,
 "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "rope_theta": 10000, "tie_word_embeddings": true}
JSON
"$build/rpsim" --schedule 1f1b --gpus 2 --program-out program.txt --torch-csv-out orders.csv --iterations 1 >out
printf 'name: e\ncross: {schedule: [1f1b]}\n' >e.yaml

for option in model platform costs; do
    refused rpsim --schedule 1f1b --$option fifo
done
for option in flows program-in torch-csv-in; do
    refused rpsim --$option fifo
done
refused rpsim --torch-csv-in orders.csv --torch-sidecar fifo
for option in trace-out html-out timeline-out program-out torch-csv-out db; do
    refused rpsim --schedule 1f1b --iterations 1 --$option fifo
done
refused rpsim --schedule 1f1b --gantt-out fifo.svg
refused rpsim --schedule 1f1b --gpus 1 --chakra-out fifo
for option in data weights platform costs save; do
    refused $rpexec --seq-len 16 --steps 2 --$option fifo
done
mkfifo fifo.idx
cp e.yaml fifo.bin # whose index it would be
refused $rpexec --seq-len 16 --steps 2 --data fifo.bin
refused $rpexec --seq-len 16 --steps 2 --weights weights
refused $rpexec --seq-len 16 --steps 2 --costs folder
refused $rpexec --program-in fifo
for option in loss-out program-out timeline-out trace-out html-out db; do
    refused $rpexec --seq-len 16 --steps 2 --$option fifo
done
refused $rpsweep fifo
refused $rpsweep e.yaml --db fifo
refused rpdiff fifo fifo
refused rpdiff folder folder
refused rpplan fifo
refused rpplan --model fifo
refused rpimport --kineto fifo --microbatch-size 1 --seq-len 16
refused rpimport --chakra fifo
refused rppredict --cells fifo

cat fifo >read &
until "$build/rpsim" --schedule 1f1b --gpus 2 --iterations 1 --program-out fifo >out 2>err; do
    sleep 0.05 # until cat has opened it
done
wait $!
cmp read program.txt || failures=$((failures + 1))
[ $failures -eq 0 ]
