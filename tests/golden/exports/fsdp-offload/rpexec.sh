#!/bin/sh
# Open: --lr (0.001), --weights, --data and --steps, which are options behind the script's name.
# Trains with rpexec; RPEXEC names another one than that of PATH. Further options, such as --backend
# and --record, may follow, too.
exec "${RPEXEC:-rpexec}" --schedule fsdp-offload --model qwen3-1.7b --platform rtx4090x8 \
    --gpus 8 --microbatches 16 --microbatch-size 4 --accumulate 1 --seq-len 2048 --dtype fp16 \
    --optimizer sync --recompute wait --grain layer \
    --partition '1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1' --lora-rank 16 \
    "$@"
