#!/usr/bin/env bash
# exports.sh SOURCE BUILD RPSIM: what rpadvise exports, read by the packages that it is for: Megatron-LM's and DeepSpeed's
# own parsers, PyTorch's pipelining, which loads and lowers the CSV, FSDP's signatures and RoundPipe's classes. The sizes
# that they find are those of rpsim's JSON. Skipped where Python has not these packages: RP_PYTHON=FOLDER/bin/python after
# tests/tools/exports_venv.sh FOLDER. Two minutes.
source "$(dirname "$0")/lib/check.sh"
source_root=$1
build=$2
rpsim=$3
export RP_TRACES=$source_root/traces PYTHONDONTWRITEBYTECODE=1
golden=$source_root/tests/golden/exports
python=${RP_PYTHON:-python3}
for package in torch deepspeed megatron.training roundpipe; do
    if ! "$python" -c "import importlib.util, sys; sys.exit(importlib.util.find_spec('$package') is None)" 2>/dev/null; then
        echo "skipped: no $package for $python (RP_PYTHON, tests/tools/exports_venv.sh)"
        exit 77
    fi
done

# Names of options are those of the versions that the list names.
"$python" "$golden/packages.py" options >"$work/options.csv" 2>"$work/err" || fail "$(tail -n 3 "$work/err")"
versions=$(tail -n +2 "$work/options.csv" | cut -d, -f1,2 | sort -u)
if [ "$versions" = "$(tail -n +2 "$golden/options.csv" | cut -d, -f1,2 | sort -u)" ]; then
    cmp "$work/options.csv" "$golden/options.csv" || fail "options.csv is not what the packages say"
else
    echo "exports: other versions than those of options.csv: $(tr '\n' ' ' <<<"$versions")"
fi

read_one() # NAME LINE
{
    # shellcheck disable=SC2086 # words
    "$build/tests/export_row" "$work/$1" $2 2>"$work/err" || { fail "$1: $(cat "$work/err")"; return; }
    # shellcheck disable=SC2086
    "$rpsim" $2 --intervals off --format json >"$work/$1.json" 2>/dev/null || fail "$1: rpsim $2"
    "$python" "$golden/packages.py" parse "$work/$1" "$work/$1.json" 2>"$work/err" || fail "$1: $(tail -n 3 "$work/err")"
}

while IFS=$'\t' read -r name line; do
    read_one "$name" "${line#rpsim }"
done < <(tail -n +2 "$golden/lines.tsv")
# Further: learned positions and LayerNorm, fp32 and an untied head, other stages of ZeRO, a V, reductions.
read_one positions "--schedule megatron-pp --model mpt-1b --platform a100-80x8 --recompute none"
read_one untied "--schedule 1f1b --model llama3.1-8b --platform h100x8 --dtype fp32 --partition 4,4,4,4,4,4,4,4"
read_one qkv "--schedule 1f1b --model $source_root/tests/golden/hf/qwen2.5-7b.json --platform h100x8 --gpus 4"
read_one experts "--schedule megatron-pp --model $source_root/tests/golden/hf/mixtral-8x7b.json --platform h100x8"
read_one zero2 "--schedule zero2 --recompute none"
read_one zero3 "--schedule zero3 --dtype bf16"
read_one offload "--schedule zero-offload --dtype bf16"
read_one zbv "--schedule zbv --gpus 4 --accumulate 2"
read_one fsdp "--schedule fsdp --reduce-dtype bf16 --reduce-each microbatch"
read_one sync "--schedule roundpipe --gpus 4 --grain layer"
for type in fp32 bf16; do
    read_one "fsdp-$type" "--schedule fsdp --dtype $type"
    read_one "roundpipe-$type" "--schedule roundpipe --gpus 4 --dtype $type"
done
read_one pipeline-bf16 "--schedule 1f1b --gpus 4 --partition 7,7,7,7 --dtype bf16"

# The packages notice damage: one that would pass everything would tell nothing.
refuse_one() # NAME FILE SED
{
    local folder=$work/damaged
    rm -rf "$folder"
    cp -r "$work/$1" "$folder"
    sed -i "$3" "$folder/$2"
    if cmp -s "$work/$1/$2" "$folder/$2"; then
        fail "$1: '$3' changes nothing in $2"
    elif "$python" "$golden/packages.py" parse "$folder" "$work/$1.json" >/dev/null 2>&1; then
        fail "$1: $2 passes after '$3'"
    fi
}
refuse_one zero-infinity deepspeed.json 's/"train_batch_size": 64/"train_batch_size": 65/'
refuse_one zero-infinity deepspeed.json 's/offload_param/offload_params/'
refuse_one zero-infinity deepspeed.json 's/"lr":"auto"/"lr":0.001/'
refuse_one zero-infinity deepspeed.json 's/"bf16"/"fp16"/'
refuse_one fsdp-offload torch_fsdp.py 's/param_dtype=torch.float16/param_dtype=torch.bfloat16/'
refuse_one roundpipe roundpipe_config.py 's/torch.float16/torch.bfloat16/'
refuse_one 1f1b megatron-lm.sh 's/--fp16/--bf16/'
refuse_one interleaved-1f1b megatron-lm.sh 's/t\*5|/t*4|/'
refuse_one megatron-tp megatron-lm.sh 's/--num-experts/--experts/'
refuse_one zbv torch-pipelining.csv 's/0F0,//'
refuse_one roundpipe roundpipe_config.py 's/range(0, 9)/range(0, 8)/'
refuse_one fsdp-offload torch_fsdp.py 's/"mp_policy"/"policy"/'
end
