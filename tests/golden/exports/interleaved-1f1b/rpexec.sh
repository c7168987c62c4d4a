#!/bin/sh
# Open: --lr (0.001), --weights, --data and --steps, which are options behind the script's name.
# Trains with rpexec; RPEXEC names another one than that of PATH. Further options, such as --backend
# and --record, may follow, too.
case " $*" in
*" --weights"*) ;; # have the model in their folder
*) set -- --model llama3.1-8b "$@" ;;
esac
exec "${RPEXEC:-rpexec}" --schedule interleaved-1f1b --platform h100x8 \
    --gpus 4 --microbatches 16 --microbatch-size 2 --accumulate 1 --seq-len 2048 --dtype fp16 \
    --optimizer sync --recompute wait --grain stage \
    --partition '4,4,4,4,4,5,5,2' \
    "$@"
