#!/bin/sh
# Open: --lr (0.001), --weights, --data and --steps, which are options behind the script's name.
# Trains with rpexec; RPEXEC names another one than that of PATH. Further options, such as --backend
# and --record, may follow, too.
case " $*" in
*" --weights"*) ;; # have the model in their folder
*) set -- --model qwen3-235b "$@" ;;
esac
exec "${RPEXEC:-rpexec}" --schedule megatron-tp --platform h100x8 \
    --gpus 8 --microbatches 32 --microbatch-size 1 --accumulate 1 --seq-len 2048 --dtype bf16 \
    --optimizer sync --recompute wait --grain layer \
    --partition '1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1' \
    "$@"
