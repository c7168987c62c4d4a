# Makes the golden schedule CSVs with PyTorch's own classes and its own writer. make.py FOLDER SCHEDULES.py: the form
# asap-2.9 of the compute-only files in FOLDER, with the passes of an older version's file.
import csv
import importlib.util
import sys
import torch
import torch.distributed.pipelining.schedules as S
from torch.distributed.pipelining.stage import _PipelineStageBase

class Stage(_PipelineStageBase):
    def __init__(self, index, stages, ranks, rank):
        self.stage_index = index; self.num_stages = stages
        self.group_size = ranks; self.group_rank = rank; self.group = None
        self.device = torch.device("cpu");
        self.has_backward = True; self.submod = torch.nn.Identity()
        self.stage_index_to_group_rank = {}
    def _create_grad_recv_info(self, *a): return None
    def _prepare_forward_infra(self, n): pass
    def _prepare_backward_infra(self, n): pass

def make(cls, ranks, chunks, m, **kw):
    stages = [Stage(i * ranks, ranks * chunks, ranks, 0) for i in range(chunks)]
    return cls(stages, m, loss_fn=lambda a, b: a.sum(), **kw)

out = sys.argv[1]
if len(sys.argv) > 2:
    spec = importlib.util.spec_from_file_location("torch.distributed.pipelining.schedules_old", sys.argv[2])
    old = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(old)
    for name in ("interleaved-1f1b-p2v2m4", "interleaved-1f1b-p4v3m4", "zb1p-p4v1m8", "zbv-p4v2m8"):
        with open(f"{out}/{name}.compute.csv", newline="") as file:
            rows = {rank: [old._Action.from_str(a) for a in row] for rank, row in enumerate(csv.reader(file))}
        rank_of = {a.stage_index: rank for rank, row in rows.items() for a in row if a is not None}
        rows = {rank: old._add_unshard_reshard(row) for rank, row in rows.items()}
        rows = old._add_send_recv(rows, lambda stage: rank_of[stage], len(rank_of))
        with open(f"{out}/{name}.asap-2.9.csv", "w", newline="") as file:
            csv.writer(file).writerows(rows[rank] for rank in rows)
    sys.exit()
cases = [("loopedbfs", S.ScheduleLoopedBFS, 2, 2, 3), ("loopedbfs", S.ScheduleLoopedBFS, 4, 2, 8), ("interleaved-1f1b", S.ScheduleInterleaved1F1B, 2, 2, 4),
  ("interleaved-1f1b", S.ScheduleInterleaved1F1B, 4, 2, 8), ("interleaved-1f1b", S.ScheduleInterleaved1F1B, 4, 3, 4), ("zb1p", S.ScheduleInterleavedZeroBubble, 4, 1, 8),
  ("zb1p", S.ScheduleInterleavedZeroBubble, 4, 2, 8), ("zbv", S.ScheduleZBVZeroBubble, 4, 2, 8), ("dualpipev", S.ScheduleDualPipeV, 4, 2, 10), ("dualpipev", S.ScheduleDualPipeV, 2, 2, 4)]
# PyTorch reads these; its own schedules overlap computations of different stages alone.
texts = {"pairs": ["0F0,0F1,(0F2;0B0)OVERLAP_F_B,(0F3;0B1)OVERLAP_F_B,0B2,0B3",
                   "1F0,(1F1;1B0)OVERLAP_F_B,(1F2;1B1)OVERLAP_F_B,(1F3;1B2)OVERLAP_F_B,1B3"]}
cases.append(("pairs", S.ScheduleInterleavedZeroBubble, 2, 1, 4))
for name, cls, p, v, m in cases:
    base = f"{out}/{name}-p{p}v{v}m{m}"
    try:
        s = make(cls, p, v, m)
        if name in texts:
            with open(base + ".compute.csv", "w") as file:
                file.write("\n".join(texts[name]) + "\n")
            S.PipelineScheduleMulti._load_csv(s, base + ".compute.csv")
        S.PipelineScheduleMulti._dump_csv(s, base + ".compute.csv")
        s._prepare_schedule_with_comms(s.pipeline_order)
        s._dump_csv(base + ".asap.csv", format="compute_comms")
        rank_of = lambda x: s.stage_index_to_group_rank[x]
        s.pipeline_order_with_comms = S._defer_recv_ops(s.pipeline_order_with_comms, rank_of)
        s._dump_csv(base + ".deferred.csv", format="compute_comms")
        # The same passes without waits, as versions before had them.
        wait = S.WAIT_REDUCE_GRAD
        rows = {}
        for rank, actions in s.pipeline_order.items():
            rows[rank] = S._add_reduce_grad(S._add_unshard_reshard(actions), m)
            rows[rank] = [a for a in rows[rank] if a.computation_type != wait]
        s.pipeline_order_with_comms = S._add_send_recv(rows, rank_of, s._num_stages)
        s._dump_csv(base + ".asap-no-waits.csv", format="compute_comms")
        s.pipeline_order_with_comms = S._defer_recv_ops(s.pipeline_order_with_comms, rank_of)
        s._dump_csv(base + ".deferred-no-waits.csv", format="compute_comms")
        print("ok", base)
    except Exception as e:
        sys.exit(f"{base}: {e!r}")
print(torch.__version__)
