# Open: the optimizer with its learning rate, data and length of the training.
"""qwen3-1.7b-lora-16 with PyTorch's FSDP2: arguments of fully_shard; README.md has the rest."""
import torch
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy

GPUS = 8
MICROBATCHES_PER_GPU = 2  # of a step: gradients are accumulated over them
SEQUENCES_PER_MICROBATCH = 4
TOKENS_PER_SEQUENCE = 2048
# Blocks that are wrapped together, in order; the root has embedding, norm and head.
BLOCKS_PER_UNIT = [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]
# fully_shard(blocks of a unit, **FULLY_SHARD), then fully_shard(model, **ROOT)
FULLY_SHARD = {
    "reshard_after_forward": True,
    "mp_policy": MixedPrecisionPolicy(
        param_dtype=torch.float16, reduce_dtype=torch.float16
    ),
    "offload_policy": CPUOffloadPolicy(),
}
ROOT = {**FULLY_SHARD, "reshard_after_forward": False}
# False: model.set_requires_gradient_sync(False) until the last microbatch of a step
SYNC_EACH_MICROBATCH = False
# fp16: gradients below 6e-8 are lost without torch.amp.GradScaler(**GRAD_SCALER)
GRAD_SCALER = {"device": "cuda", "enabled": True}
