# Open: the optimizer with its learning rate, data and length of the training.
"""qwen3-1.7b with RoundPipe 0.1.1: options of the library; README.md has the rest."""
import torch
from roundpipe import GradScaler, ModelExecutePlan, RoundPipeRunConfig

GPUS = 8
CALLS_PER_STEP = 4  # of forward_backward, before each step
SEQUENCES_PER_STEP = 480
TOKENS_PER_SEQUENCE = 2048
PARAM_DTYPE = torch.float16

# Layer 0 is the embedding, the last one the final norm with the head.
EXECUTE_PLAN = ModelExecutePlan()
EXECUTE_PLAN.fwd_plan = [
    range(0, 9),
    range(9, 19),
    range(19, 29),
]
EXECUTE_PLAN.bwd_plan = [
    range(29, 30),
    range(28, 29),
    range(25, 28),
    range(22, 25),
    range(19, 22),
    range(16, 19),
    range(13, 16),
    range(10, 13),
    range(7, 10),
    range(4, 7),
    range(0, 4),
]

# RoundPipe(model, **MODEL), model.forward_backward(..., run_config=RUN_CONFIG),
# model.step(step_fn, **STEP)
MODEL = {"optim_dtype": torch.float32}
RUN_CONFIG = RoundPipeRunConfig(
    recompute_grain="stage",
    num_microbatch=10,
    execute_plan=EXECUTE_PLAN,
)
STEP = {"is_async": True}
# fp16: gradients below 6e-8 are lost without it
GRAD_SCALER = GradScaler()
