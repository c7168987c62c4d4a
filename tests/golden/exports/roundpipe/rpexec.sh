#!/bin/sh
# Open: --lr (0.001), --weights, --data and --steps, which are options behind the script's name.
# Trains with rpexec; RPEXEC names another one than that of PATH. Further options, such as --backend
# and --record, may follow, too.
case " $*" in
*" --weights"*) ;; # have the model in their folder
*) set -- --model qwen3-1.7b "$@" ;;
esac
exec "${RPEXEC:-rpexec}" --schedule roundpipe --platform rtx4090x8 \
    --gpus 8 --microbatches 10 --microbatch-size 12 --accumulate 4 --seq-len 2048 --dtype fp16 \
    --optimizer async --recompute early --grain stage \
    --partition '8,10,10|0,1,3,3,3,3,3,3,3,3,3' \
    "$@"
