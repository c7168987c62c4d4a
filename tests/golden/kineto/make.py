# Makes the golden traces: a pipeline of linear layers on CPU processes, run by PyTorch's own
# schedules and recorded by its own profiler. Usage: python make.py FOLDER
import os
import sys

import torch
import torch.distributed as dist
import torch.distributed.pipelining.schedules as S
import torch.multiprocessing as mp
from torch.distributed.pipelining import PipelineStage
from torch.profiler import ProfilerActivity, profile

WIDTH = 256
ROWS = 64
# name, schedule, ranks, stages per rank, microbatches, stages in a V
CASES = [
    ("zb1p-p2v1m4", S.ScheduleInterleavedZeroBubble, 2, 1, 4, False),
    ("dualpipev-p2v2m4", S.ScheduleDualPipeV, 2, 2, 4, True),
]


def run(rank, ranks, chunks, microbatches, v_shaped, cls, path, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    torch.manual_seed(1)
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    count = ranks * chunks
    mine = [rank, count - 1 - rank] if v_shaped else list(range(rank, count, ranks))
    stages = [PipelineStage(torch.nn.Linear(WIDTH, WIDTH), s, count, torch.device("cpu"))
              for s in mine]
    schedule = cls(stages, microbatches, loss_fn=lambda out, target: (out - target).pow(2).mean())
    first = [torch.randn(microbatches * ROWS, WIDTH)] if 0 in mine else []
    last = {"target": torch.randn(microbatches * ROWS, WIDTH)} if count - 1 in mine else {}
    for _ in range(3):  # the first steps allocate
        schedule.step(*first, **last)
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        schedule.step(*first, **last)
    recorded.export_chrome_trace(f"{path}.{rank}.json")
    dist.destroy_process_group()


if __name__ == "__main__":
    for i, (name, cls, ranks, chunks, microbatches, v_shaped) in enumerate(CASES):
        mp.spawn(run, nprocs=ranks, args=(ranks, chunks, microbatches, v_shaped, cls,
                                          f"{sys.argv[1]}/{name}", 29611 + i))
    print(torch.__version__)
