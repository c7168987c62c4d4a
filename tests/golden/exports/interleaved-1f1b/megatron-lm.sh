#!/bin/sh
# Open: --lr, data, tokenizer and length of the training, which are options behind the script's name.
# TORCHRUN is another command in place of torchrun, PRETRAIN another script of Megatron-LM.
exec ${TORCHRUN:-torchrun --nproc-per-node 4} "${PRETRAIN:-pretrain_gpt.py}" \
    --num-layers 32 \
    --hidden-size 4096 \
    --ffn-hidden-size 14336 \
    --num-attention-heads 32 \
    --group-query-attention \
    --num-query-groups 8 \
    --kv-channels 128 \
    --vocab-size 128256 \
    --max-position-embeddings 131072 \
    --position-embedding-type rope \
    --rotary-base 500000 \
    --use-rope-scaling \
    --normalization RMSNorm \
    --norm-epsilon 1e-05 \
    --swiglu \
    --disable-bias-linear \
    --untie-embeddings-and-output-weights \
    --attention-dropout 0 \
    --hidden-dropout 0 \
    --seq-length 2048 \
    --micro-batch-size 2 \
    --global-batch-size 32 \
    --tensor-model-parallel-size 1 \
    --pipeline-model-parallel-size 4 \
    --pipeline-model-parallel-layout 'Et*4|t*4|t*4|t*4|t*4|t*5|t*5|t*2L' \
    --microbatch-group-size-per-virtual-pipeline-stage 4 \
    --recompute-granularity full \
    --recompute-method uniform \
    --recompute-num-layers 5 \
    --fp16 \
    "$@"
