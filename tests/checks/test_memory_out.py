"""rpsim's --memory-out: a pickle of plain values whose events add up to the peaks that rpsim says, and which PyTorch's
own viewer reads. The latter is skipped if Python has no torch (RP_PYTHON).
"""

import csv
import io
import json
import pickle
from pathlib import Path

import pytest

from conftest import PYTHON, SOURCE, need_python

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


def activations(trace):
    """The peak of all but weights, gradients and states."""
    kept = [event for event in trace if event["frames"][0]["filename"] not in ("weight", "gradient", "optimizer")]
    return peaks(kept)


def test_as_pytorch(run):
    """The peak of a microbatch beside weights and gradients, against transformers' models (tests/golden/peaks.csv).
    Copies of weights under autocast and gradients on their way, which do not grow with tokens, are not modelled."""
    lines = (SOURCE / "tests/golden/peaks.csv").read_text().splitlines()
    errors = []
    for row in csv.DictReader(lines[1:]):
        config = {"model_type": row["family"], "num_hidden_layers": row["layers"], "num_attention_heads": row["heads"],
                  "num_key_value_heads": row["kv_heads"], "hidden_size": row["hidden"], "vocab_size": row["vocab"],
                  "intermediate_size": row["intermediate"], "head_dim": row["head_dim"], "rms_norm_eps": 1e-6,
                  "max_position_embeddings": 8192, "tie_word_embeddings": False}
        config |= {key: int(value) for key, value in config.items() if str(value).isdigit()}
        Path("config.json").write_text(json.dumps(config))
        line = "rpsim --schedule 1f1b --stack torch --model ./config.json --platform h200 --gpus 1 --dtype bf16 "
        line += f"--iterations 1 --microbatches 1 --microbatch-size {row['sequences']} --seq-len {row['tokens']} "
        line += "--intervals off "
        line += "--recompute " + ("none" if row["recompute"] == "none" else "wait --grain layer")
        line += f" --lora-rank {row['rank']}" if row["rank"] != "0" else ""
        line += " --set stack.adapter_saved_bytes=0" if row["adapters"] == "bf16" else ""
        run(line, "--memory-out", "m.pickle")
        [trace] = pickle.loads(Path("m.pickle").read_bytes())["device_traces"]
        errors.append(100 * (activations(trace) / int(row["bytes"]) - 1))
        assert abs(errors[-1]) < (3 if row["tokens"] != "2048" else 10), row
    assert len(errors) == 54 and sum(map(abs, errors)) / len(errors) < 0.7
