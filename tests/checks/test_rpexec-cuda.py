"""The CUDA backend sees the machine's GPUs with name, compute capability and memory, and trains on them.

Skipped if the build has no CUDA or the machine no GPU; even there the backend has to name the call that fails, and a
run on it ends with exit status 2.
"""

import re
import shutil

import pytest

from conftest import ran

RUN = "rpexec --backend cuda"


def refused(options, pattern):
    said = ran(f"{RUN} {options}", status=2, env={"COLUMNS": 1000}).said  # its lines are searched
    assert re.search(pattern, said), said


def test_cuda(shared):
    listing = ran("rpexec --list backends", env={"COLUMNS": 1000}).out
    section = re.search(r"(?m)^cuda:.*\n(?:(?: .*)?\n)*", listing)
    if not section:
        refused("", "'cuda' is not valid; valid values are host")
        pytest.skip("this build has no CUDA backend")
    refused("--bind", "--bind: GPUs of the cuda backend are no threads; valid only with --backend host")
    if re.search(r"(?m)^    no device: cudaGetDeviceCount: .+ \(cuda[A-Za-z]+\); "
                 "(no driver|the driver is for CUDA [0-9.]+), the runtime is CUDA [0-9.]+", section[0]):
        for options in ("", "--virtual-gpus 2"):
            refused(f"--steps 1 {options}",
                    r"no device: cudaGetDeviceCount: .*the runtime is CUDA [0-9.]*.*; valid here is host")
        pytest.skip("no GPU here")
    devices = re.findall(r"(?m)^    device .*", section[0])
    assert re.fullmatch(r"    device 0: .+, [1-9][0-9]* multiprocessors, [0-9.]+ GiB, "
                        r"compute capability [0-9]+\.[0-9]+", devices[0])
    if shutil.which("nvidia-smi"):
        assert len(re.findall("(?m)^GPU ", ran("nvidia-smi -L").out)) == len(devices)
    refused(f"--gpus {len(devices) + 1} --steps 1", f"valid are 1 to {len(devices)}, or --virtual-gpus")
    assert re.search('"pinned_bytes": [1-9]', ran(f"{RUN} --gpus 1 --steps 2 --check --format json").out)
    ran(f"{RUN} --virtual-gpus 2 --steps 2 --check")
    graphs = ran(f"{RUN} --virtual-gpus 2 --steps 6 --check --graphs --format json").out
    assert re.search('"graph_launches": [1-9]', graphs), graphs
    refused("--virtual-gpus 2 --transport nccl --steps 1", "virtual GPUs share a device")
    # A communicator of one rank, where NCCL is installed.
    done = ran(f"{RUN} --gpus 1 --schedule fsdp --transport nccl --steps 2 --check", status=None)
    assert done.status == 0 or done.status == 2 and \
        re.search("--transport nccl: .*valid here are auto, copy and staged", done.said), done
