"""Output of the RoundPipe library (0.1.1, Apache-2.0) for tests, made without a GPU: its own timer.py runs on events
whose times are planned here, and ranges have the names that the format strings of its run.py make.

Usage: python3 make.py FOLDER_OF_THE_LIBRARY OUT
"""
import contextlib
import gzip
import importlib
import json
import pathlib
import re
import sys
import types

LAYERS = 6  # embedding, four blocks, head
MICROBATCHES = 2
FUSED = range(3, 6)  # joint forward and backward: their forward counts as a recompute, too
ALONE = [range(0, 1), range(1, 3)]


def forward_ms(layer, step):
    return (0.25, 2.0, 2.0, 2.5, 2.0, 6.0)[layer] * (10 if step == 0 else 1 + 0.01 * step)


def recompute_ms(layer, step):
    return forward_ms(layer, step) * (1 if layer in FUSED else 1.02)


def backward_ms(layers, step):
    return 2 * sum(recompute_ms(layer, step) for layer in layers)


class Event:
    at = 0.0  # of the clock that all events read

    def __init__(self, enable_timing=False):
        pass

    def record(self, stream):
        self.ms = Event.at

    def query(self):
        return True

    def elapsed_time(self, end):
        return end.ms - self.ms


def load_timer(folder):
    torch = types.ModuleType("torch")
    torch.cuda = types.SimpleNamespace(Event=Event, Stream=object)
    torch.nn = types.SimpleNamespace(Module=object)
    sys.modules["torch"] = torch
    typing_extensions = types.ModuleType("typing_extensions")
    typing = importlib.import_module("typing")
    typing_extensions.__dict__.update({name: getattr(typing, name) for name in typing.__all__})
    typing_extensions.__all__ = list(typing.__all__)
    sys.modules["typing_extensions"] = typing_extensions
    package = types.ModuleType("roundpipe")
    package.__path__ = [str(folder)]
    sys.modules["roundpipe"] = package
    utils = types.ModuleType("roundpipe.utils")
    utils.get_model_size = lambda layer: 1000000
    sys.modules["roundpipe.utils"] = utils
    return importlib.import_module("roundpipe.timer")


def make_log(timer, path):
    timer.ModelTimer.VERBOSE = True
    model = timer.ModelTimer([None] * LAYERS)

    def spend(context, ms):
        with context:
            Event.at += ms

    with open(path, "w") as log, contextlib.redirect_stderr(log):
        for step in range(4):
            print(f"step {step}: a line of the training loop", file=sys.stderr)
            run = timer.IterTimer(model)
            for _ in range(MICROBATCHES):
                for layer in range(LAYERS):
                    spend(run.time_fwd("fwd", layer, None), forward_ms(layer, step))
                for layer in range(LAYERS):
                    spend(run.time_fwd("re", layer, None), recompute_ms(layer, step))
                for layers in [FUSED] + ALONE:
                    spend(run.time_bwd(layers, None), backward_ms(layers, step))
            del run
            model.update_times()


def make_trace(source, path):
    text = source.read_text()
    found = re.findall(r'annotate\(\s*f"([^"]*)"', text)
    one = {action: next(f for f in found if f.endswith(action) and "layer_ids" not in f) for action in ("Fwd", "Re", "Bwd")}
    group = next(f for f in found if "layer_ids[-1]" in f)
    events = []

    def add(name, ms):
        for category, factor in (("user_annotation", 0.5), ("gpu_user_annotation", 1)):  # calls end before the work does
            events.append({"ph": "X", "cat": category, "name": name, "pid": 0, "tid": 7, "ts": 1000 * Event.at,
                           "dur": 1000 * factor * ms, "args": {"External id": len(events) // 2}})
        Event.at += ms

    def name(form, layers, batch):
        values = {"model": types.SimpleNamespace(name="Qwen"), "layer_id": layers[0], "layer_ids": layers, "batch_idx": batch}
        return eval("f" + repr(form), values)

    for batch in range(3):
        step = 1 + batch
        for layer in range(LAYERS):
            add(name(one["Fwd"], [layer], batch), forward_ms(layer, step))
        add(name(group, FUSED, batch), backward_ms(FUSED, step))
        for layers in ALONE[::-1]:
            for layer in layers:
                add(name(one["Re"], [layer], batch), recompute_ms(layer, step))
            form = group if len(layers) > 1 else one["Bwd"]
            add(name(form, layers, batch), backward_ms(layers, step))
    data = json.dumps({"schemaVersion": 1, "traceEvents": events}, indent=0).encode()
    with open(path, "wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", mtime=0, filename="") as packed:
        packed.write(data)


def main():
    folder, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    make_log(load_timer(folder), out / "timer.log")
    make_trace(folder / "run.py", out / "trace.json.gz")


main()
