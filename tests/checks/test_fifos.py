"""A FIFO that nobody has opened is refused at once, as an input and as an output of every program.

A FIFO that somebody reads from gets the whole output.
"""

import os
import subprocess
import time

import pytest

CONFIG = """{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 32, "num_hidden_layers": 2,
 "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 64, "vocab_size": 256,
 "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "rope_theta": 10000, "tie_word_embeddings": true}
"""
SIMULATED = "rpsim --schedule 1f1b --iterations 1"
TRAINED = "rpexec --seq-len 16 --steps 2"
COMMANDS = [
    *(f"rpsim --schedule 1f1b --{option} fifo" for option in ("model", "platform", "costs")),
    *(f"rpsim --{option} fifo" for option in ("flows", "program-in", "torch-csv-in")),
    "rpsim --torch-csv-in orders.csv --torch-sidecar fifo",
    *(f"{SIMULATED} --{name}-out fifo" for name in "trace html timeline memory program torch-csv".split()),
    f"{SIMULATED} --db fifo",
    "rpsim --schedule 1f1b --gantt-out fifo.svg",
    "rpsim --schedule 1f1b --gpus 1 --chakra-out fifo",
    *(f"{TRAINED} --{option} fifo" for option in ("data", "weights", "platform", "costs", "save")),
    f"{TRAINED} --data fifo.bin",
    f"{TRAINED} --weights weights",
    f"{TRAINED} --costs folder",
    "rpexec --program-in fifo",
    *(f"{TRAINED} --{name} fifo" for name in "loss-out program-out timeline-out trace-out html-out db".split()),
    "rpsweep fifo",
    "rpsweep e.yaml --db fifo",
    "rpdiff fifo fifo",
    "rpdiff folder folder",
    "rpplan fifo",
    "rpplan --model fifo",
    "rpimport --kineto fifo --microbatch-size 1 --seq-len 16",
    "rpimport --chakra fifo",
    "rppredict --cells fifo",
]


@pytest.fixture
def fifos(tmp_path, run):
    for folder in ("weights", "folder"):
        (tmp_path / folder).mkdir()
    names = "fifo fifo.svg fifo.0.et fifo.idx weights/model.safetensors"
    for name in (names + " folder/costs.yaml folder/timeline.csv folder/program.txt").split():
        os.mkfifo(tmp_path / name)
    (tmp_path / "weights/config.json").write_text(CONFIG)
    (tmp_path / "e.yaml").write_text("name: e\ncross: {schedule: [1f1b]}\n")
    (tmp_path / "fifo.bin").write_text("tokens, whose index fifo.idx would be\n")
    run(*SIMULATED.split(), "--gpus", 2, "--program-out", "program.txt", "--torch-csv-out", "orders.csv")
    return tmp_path


def test_refused(fifos, run):
    for command in COMMANDS:
        said = run(*command.split(), status=2, timeout=10).err
        assert any(word in said for word in ("fifo", "weights", "folder")), f"{command}: {said}"


def test_a_reader_gets_all(fifos, run):
    writes = [*SIMULATED.split()[1:], "--gpus", 2, "--program-out", "fifo"]
    with subprocess.Popen(["cat", "fifo"], cwd=fifos, stdout=subprocess.PIPE) as reader:
        while run("rpsim", *writes, status=None).status != 0:
            time.sleep(0.05)  # until cat has opened it
        assert reader.communicate()[0] == (fifos / "program.txt").read_bytes()
