"""rpsim's --memory-out: a pickle of plain values whose events add up to the peaks that rpsim says, and which PyTorch's
own viewer reads. The latter is skipped if Python has no torch (RP_PYTHON).
"""

import io
import json
import pickle
from pathlib import Path

import pytest

from conftest import PYTHON, need_python

RUNS = {
    "pipeline": "--schedule 1f1b --gpus 4 --microbatches 8 --platform h100x8 --recompute wait",
    "fsdp": "--schedule fsdp --gpus 2 --microbatches 4 --platform a100-80x8 --lora-rank 16",
    "offloaded": "--schedule zero-infinity --gpus 2 --microbatches 2 --platform h100x8",
}
COMMON = ("--model qwen3-1.7b --stack torch --dtype bf16 --intervals off --iterations 2 --format json "
          "--memory-out m.pickle")
READS = """
import pickle, sys
from torch.cuda import _memory_viz as viz
data = pickle.load(open("m.pickle", "rb"))
text = viz.trace(data)
assert text.count(" = ") == sum(e["action"] == "alloc" for t in data["device_traces"] for e in t), text[:500]
assert "allocated" in viz.segsum(data)
assert min(len(viz.trace_plot(data)), len(viz.segment_plot(data))) > 10000
"""


class Plain(pickle.Unpickler):
    """Refuses all but numbers, texts, lists and dictionaries."""

    def find_class(self, module, name):
        raise pickle.UnpicklingError(f"{module}.{name}")


def peaks(trace):
    """The most bytes that live at a time; addresses of live buffers do not overlap."""
    live, most, now = {}, 0, 0
    for event in trace:
        if event["action"] == "alloc":
            assert event["addr"] not in live
            live[event["addr"]] = event["size"]
            now += event["size"]
            most = max(most, now)
        elif event["action"] == "free_completed":
            now -= live.pop(event["addr"])
    assert not live and now == 0
    return most


@pytest.mark.parametrize("name", RUNS)
def test_peaks(run, name):
    [said] = json.loads(run("rpsim " + RUNS[name], *COMMON.split()).out)
    data = Plain(io.BytesIO(Path("m.pickle").read_bytes())).load()
    expected = [peak - said["fixed_gpu_bytes"] for peak in said["peak_gpu_bytes"]]
    assert [peaks(trace) for trace in data["device_traces"]] == expected
    for trace in data["device_traces"]:
        times = [event["time_us"] for event in trace]
        assert times == sorted(times) and all(event["frames"][0]["name"] for event in trace)
    ranges = sorted((s["device"], s["address"], s["total_size"]) for s in data["segments"])
    for one, other in zip(ranges, ranges[1:]):
        assert one[0] < other[0] or one[1] + one[2] <= other[1]


def test_pytorch_reads_it(run):
    need_python("torch")
    run("rpsim " + RUNS["pipeline"], *COMMON.split())
    run(PYTHON, "-c", READS)


def test_refused(run):
    run("rpsim --schedule gpipe,1f1b --memory-out m.pickle", status=2, err="one file cannot hold 2 runs")
    run("rpsim --schedule gpipe --fidelity stage --memory-out m.pickle", status=2, err="stage fidelity has no buffers")
    assert not Path("m.pickle").exists()
