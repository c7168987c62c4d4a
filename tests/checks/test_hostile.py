"""Damaged files for every reader and command lines that nobody would write (tests/tools/hostile.c).

A sample in everyday runs, half as large optimised as sanitized, 2,000 of each with RP_LONG=1; HOSTILE_SEED draws
others.
"""

import os
import shutil
import struct
from pathlib import Path

import pytest

from conftest import BUILD, DATA, LONG, SANITIZED, SOURCE, program, ran

COPIES = """
traces/models/qwen3-1.7b.yaml model.yaml
traces/models/tiny.yaml .
traces/platforms/rtx4090x8.yaml platform.yaml
traces/platforms/h100x64.yaml cluster.yaml
traces/costs/qwen3-1.7b@rtx4090.yaml costs.yaml
golden/decoders/llama/[cm]* weights
golden/decoders/qwen3-moe/[cm]* experts
golden/kineto/zb1p-p2v1m4.0.json kineto.json
golden/roundpipe/t* .
"""
CELLS = "framework,model,seq_len,global_batch,microbatches,calls,grain,sequence_slices"
TEXTS = {
    "flows.json": '{"name":"s","link_capacity_Bps":{"up":1e9,"down":2e9},"flows":[\n'
    ' {"id":1,"start_s":0,"bytes":1e6,"route":["up"]},\n {"id":2,"start_s":0.5,"bytes":3e6,"route":["up","down"]}]}\n',
    "instance.json": '{"mode":"train","fwd_time":[3,4,5],"bwd_time":[6,8,10],"fwd_bytes":[7,8,9],\n'
    ' "bwd_bytes":[7,8,9],"memory_limit":50,"min_stages":2,"threshold_num":11,"threshold_den":10}\n',
    "cells.csv": f"{CELLS}\nroundpipe,qwen3-1.7b,2048,16,8,1,layer,1\nmegatron-pp,qwen3-1.7b,2048,8,8,1,layer,1\n",
    "runs.csv": f"{CELLS},tokens_per_s,use\nroundpipe,qwen3-1.7b,2048,16,8,1,layer,1,30000,fit\n",
    "reference.csv": "schedule,model,gpus,source,tokens_per_s\ngpipe,tiny,2,x,100\n",
    "experiment.yaml": "name: hostile\nquestion: Does it end?\noptions:\n  fidelity: stage\n  microbatches: 4\n"
    "cross:\n  gpus: [1, 2]\n  schedule: [gpipe, 1f1b]\n",
}
SIMULATE = "rpsim --gpus 2 --microbatches 4 --schedule"
TRAIN = "rpexec --model tiny --microbatches 2 --steps 2 --seq-len 4"
RUNS = [
    f"{SIMULATE} 1f1b --fidelity stage --program-out program.txt --timeline-out timeline.csv --torch-csv-out torch.csv"
    " --torch-sidecar sidecar.json --db runs.db --db-ops",
    f"{SIMULATE} gpipe --fidelity stage --db runs.db --db-ops",
    f"{SIMULATE} roundpipe --program-out lowered.txt --chakra-out chakra/chakra",
    f"{TRAIN} --gpus 2 --save saved --record record --program-out executed.txt",
    f"{TRAIN} --gpus 1 --lora-rank 2 --save adapters",
]
LIMITS = "allocator_may_return_null=1:max_allocation_size_mb=8192:hard_rss_limit_mb=8192"
ENVIRONMENT = {  # an error that a sanitizer finds has a status of its own
    "ASAN_OPTIONS": f"exitcode=99:detect_leaks=0:{LIMITS}",
    "UBSAN_OPTIONS": "halt_on_error=1:exitcode=99:print_stacktrace=1",
    "OPENBLAS_NUM_THREADS": "1",
}


@pytest.fixture(scope="module")
def work(shared):
    """A folder with the programs (bin) and small files of every kind that they read (in)."""
    for name in ("bin", "in", "in/weights", "in/experts", "in/chakra", "in/published"):
        os.mkdir(name)
    for name in "rpsim rpexec rpadvise rpplan rpdiff rpimport rppredict rpsweep".split():
        Path("bin", name).symlink_to(program(name))
    os.chdir("in")
    for name in ("models", "platforms", "gpus", "costs", "partitions", "layers"):
        shutil.copytree(SOURCE / "traces" / name, f"traces/{name}")
    shutil.copytree(DATA / "golden/tokens", "tokens")
    for pattern, place in map(str.split, COPIES.strip().splitlines()):
        for file in (DATA if pattern.startswith("golden") else SOURCE).glob(pattern):
            shutil.copy(file, place)
    for name in ("throughput_4090", "scaling_4090", "max_seqlen_4090", "fsdp_mpt_a100"):  # all rows take too long
        rows = (SOURCE / f"paper-figures/published/{name}.csv").read_text().splitlines(True)
        Path(f"published/{name}.csv").write_text("".join(rows[:4]))
    for name, text in TEXTS.items():
        Path(name).write_text(text)
    Path("text").write_bytes((SOURCE / "ARCHITECTURE.md").read_bytes()[:4096])
    head = struct.pack("<8sIIQQQ", b"RPTOKENS", 2, 2, 256, 16, 2)  # 16 tokens, 2 documents
    Path("tokens/own.bin").write_bytes(head + struct.pack("<16H2Q", *range(1, 17), 0, 6))
    for line in RUNS:
        ran(line)
    return shared


@pytest.mark.parametrize("kind", ["files", "commands"])
def test_hostile(work, kind):
    count = 2000 if LONG else 49 if SANITIZED else 25
    words = [os.environ.get(f"HOSTILE_{name}", value) for name, value in (("SEED", 1), ("FIRST", 0), ("COUNT", count))]
    ran(BUILD / "tests/hostile", kind, work, *words, env=ENVIRONMENT, timeout=None)
