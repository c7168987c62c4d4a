#!/bin/sh
# Open: --lr, data, tokenizer and length of the training, which are options behind the script's name.
# TORCHRUN is another command in place of torchrun, PRETRAIN another script of Megatron-LM.
exec ${TORCHRUN:-torchrun --nproc-per-node 4} "${PRETRAIN:-pretrain_gpt.py}" \
    --num-layers 28 \
    --hidden-size 2048 \
    --ffn-hidden-size 6144 \
    --num-attention-heads 16 \
    --group-query-attention \
    --num-query-groups 8 \
    --kv-channels 128 \
    --vocab-size 151936 \
    --max-position-embeddings 40960 \
    --position-embedding-type rope \
    --rotary-base 1000000 \
    --normalization RMSNorm \
    --norm-epsilon 1e-06 \
    --qk-layernorm \
    --swiglu \
    --disable-bias-linear \
    --attention-dropout 0 \
    --hidden-dropout 0 \
    --seq-length 2048 \
    --micro-batch-size 4 \
    --global-batch-size 64 \
    --tensor-model-parallel-size 1 \
    --pipeline-model-parallel-size 4 \
    --recompute-granularity full \
    --recompute-method uniform \
    --recompute-num-layers 1 \
    --fp16 \
    "$@"
