#!/bin/sh
# Open: --lr, data, tokenizer and length of the training, which are options behind the script's name.
# TORCHRUN is another command in place of torchrun, PRETRAIN another script of Megatron-LM.
export CUDA_DEVICE_MAX_CONNECTIONS=1 # before Blackwell
exec ${TORCHRUN:-torchrun --nproc-per-node 8} "${PRETRAIN:-pretrain_gpt.py}" \
    --num-layers 94 \
    --hidden-size 4096 \
    --ffn-hidden-size 1536 \
    --num-attention-heads 64 \
    --group-query-attention \
    --num-query-groups 4 \
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
    --untie-embeddings-and-output-weights \
    --num-experts 128 \
    --moe-ffn-hidden-size 1536 \
    --moe-router-topk 8 \
    --attention-dropout 0 \
    --hidden-dropout 0 \
    --seq-length 2048 \
    --micro-batch-size 8 \
    --global-batch-size 32 \
    --tensor-model-parallel-size 8 \
    --pipeline-model-parallel-size 1 \
    --recompute-granularity full \
    --recompute-method uniform \
    --recompute-num-layers 1 \
    --bf16 \
    "$@"
