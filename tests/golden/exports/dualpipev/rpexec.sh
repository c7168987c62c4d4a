#!/bin/sh
# Open: --lr (0.001), --weights, --data and --steps, which are options behind the script's name.
# Trains with rpexec; RPEXEC names another one than that of PATH. Further options, such as --backend
# and --record, may follow, too.
case " $*" in
*" --weights"*) ;; # have the model in their folder
*) set -- --model qwen3-1.7b "$@" ;;
esac
exec "${RPEXEC:-rpexec}" --schedule dualpipev --platform rtx4090x8 \
    --gpus 2 --microbatches 4 --microbatch-size 4 --accumulate 2 --seq-len 2048 --dtype fp16 \
    --optimizer sync --recompute none \
    --partition '8,8,8,4' \
    "$@"
