"""rpexec trains like plain loops, goes on from where it was stopped, and refuses impossible runs."""

import csv
import json
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from conftest import BUILD, DATA, LONG, SOURCE, program, ran

SAME = "the same bits"
CLOSE = "check: gradients of the first step differ by"
COMMANDS = [  # exit status, a text of standard output or, if that is not 0, of standard error, options
    (0, "host: the processors of this machine", "--list backends"),
    (0, " cores", "--list=backends"),
    (0, "simulated only", "--list schedules"),
    (0, "--check", "--help"),
    (0, "rpexec ", "--version"),
    (2, "valid values are backends|schedules", "--list models"),
    (2, "--list: the value is missing", "--list"),
    (2, "did you mean --steps", "--stepz 3"),
    (2, "'tiny': valid are options only", "tiny"),
    (2, "unknown schedule 'pipe'", "--schedule pipe"),
    (2, "valid values are host", "--backend tpu"),
    (2, "valid values are integers from 1 to 64", "--gpus 65"),
    (2, "valid values are integers from 1", "--steps 0"),
    (2, "valid values are numbers from 0", "--lr fast"),
    (2, "valid values are stage|layer", "--grain block"),
    (2, "valid only with --save DIR", "--resume"),
    (2, "--save-every: valid only with --save DIR", "--save-every 3"),
    (2, "valid is one of them", "--model tiny --weights /nowhere"),
    (2, "/nowhere/config.json", "--weights /nowhere"),
    (2, "valid are token files and texts", "--data /nowhere/text"),
    (2, "--save: /nowhere/else: No such file or directory; valid are folders", "--steps 1 --save /nowhere/else"),
    (2, "--save: text: Not a directory; valid are folders", "--steps 1 --save text"),
    (2, "valid for tiny are 1 to 4096", "--seq-len 5000"),
    (2, "bytes beyond its end", "--gpu-memory-mb 1 --microbatch-size 8"),
    (2, "has learned positions, LayerNorm or a plain MLP, which the executor does not compute", "--model mpt-125m"),
    (2, "stages", "--schedule 1f1b --gpus 3 --partition 4,4"),
    (2, "divisors of --microbatches", "--accumulate 2 --microbatches 5 --round 3"),
    (2, "mobius has no rounds", "--schedule mobius --round 2"),
    (2, "--lora-alpha: tiny has no adapters", "--lora-alpha 8"),
    (2, "valid values are integers from 1 to 65536", "--lora-rank 0"),
    (0, SAME, "--steps 3 --check"),
    (0, SAME, "--steps 2 --check --grain layer --gpus 2 --seq-len 32"),
    (0, SAME, "--steps 2 --check --accumulate 2 --gpus 2 --partition 2,2|4,2,2 --seq-len 16"),
    (0, SAME, "--steps 2 --check --schedule roundpipe-overlap --accumulate 2 --gpus 2 --round 2 --seq-len 16"),
    (0, SAME, "--steps 2 --check --bind --gpus 3 --seq-len 16"),
    (0, SAME, "--steps 2 --check --optimizer async --data text --gpus 3 --seq-len 32"),
    (0, SAME, "--steps 2 --check --model tiny-moe --gpus 4 --seq-len 32"),
    (0, SAME, "--steps 2 --check --model tiny-moe --lora-rank 4 --lora-alpha 8 --seq-len 32"),
    (0, SAME, "--steps 2 --check --schedule 1f1b --gpus 2 --seq-len 16 --peers --link-gb-per-s 8"),
    (0, SAME, "--steps 2 --check --dtype bf16 --gpus 3 --seq-len 16"),
    (0, SAME, "--steps 2 --check --dtype fp16 --gpus 2 --seq-len 16 --model tiny-moe --lora-rank 3"),
    (0, CLOSE, "--steps 2 --check --lora-rank 2 --schedule zero2 --gpus 3 --seq-len 16"),
    (0, CLOSE, "--steps 2 --check --schedule zero2 --gpus 4 --seq-len 16"),
    (0, CLOSE, "--steps 2 --check --schedule fsdp --gpus 4 --seq-len 16 --link-gb-per-s 8"),
    (0, CLOSE, "--steps 2 --check --schedule zero2 --gpus 4 --seq-len 16 --dtype fp16"),
    (0, CLOSE, "--steps 2 --check --schedule fsdp-offload --gpus 2 --seq-len 16 --dtype bf16"),
    (0, "of a tensor's rms", "--check --schedule zero-offload --gpus 1 --microbatches 2 --accumulate 2 --seq-len 8"
     " --dtype bf16"),
    (1, "is the first to exceed (so late rounding alone may do it", "--check --schedule looped-bfs --gpus 2"
     " --microbatches 8 --seq-len 16 --steps 12 --lr 0.1 --data text"),
    (0, '"round": 2,', "--steps 1 --round 2 --gpus 2 --seq-len 16 --format json"),
    (0, '"pageable_bytes": 0,', "--steps 1 --gpus 1 --format json --seq-len 8"),
    (0, '"same_bits": null,', "--steps 1 --gpus 1 --format json --seq-len 8"),
    (0, '"dtype": "fp16"', "--steps 2 --check --dtype fp16 --schedule 1f1b --gpus 2 --format json --seq-len 16"),
    (0, "steps skipped because of an overflow", "--steps 1 --dtype fp16 --gpus 2 --seq-len 16"),
]
MODEL = ["--weights", "a #model"]
FAMILIES = sorted(folder for folder in (DATA / "golden/families").iterdir() if folder.is_dir())


@pytest.fixture(scope="module", autouse=True)
def work(shared):
    shutil.copy(SOURCE / "LICENSE", "text")  # data that stay as they are
    shutil.copytree(DATA / "golden/decoders/qwen3", "a #model")


def rpexec(options, *words, status=0, out="", err=""):
    """A stream without an expected text is empty, except for messages in containers and of tests side by side."""
    done = ran("rpexec " + options, *words, status=status, out=out, err=err)
    warnings = "processors are not kept awake|other processes used"
    assert out or not done.out, done
    assert err or all(re.search(warnings, line) for line in done.err.splitlines()), done
    return done


def refused(err, options, *words):
    rpexec(options, *words, status=2, err=err)


def rows(path):
    with open(path, encoding="utf-8") as file:
        return list(csv.reader(file))


def losses(path):
    return [float(row[1]) for row in rows(path)[1:]]


@pytest.mark.parametrize("status, said, options", COMMANDS)
def test_commands(status, said, options):
    rpexec(options, status=status, **{"err" if status else "out": said})


def test_check_in_json():
    """It leaves out nothing that the table has."""
    done = rpexec("--steps 2 --check --schedule zbv --gpus 2 --format json --seq-len 16", out='"max_grad_rel_err": 0,')
    for said in ('"same_bits": true,', '"max_grad_rms_err": 0,', '"max_loss_rel_err": 0,'):
        assert said in done.out


def test_full_disk():
    ran("sh", "-c", '"$0" --help >/dev/full', program("rpexec"), status=1, err="standard output")
    # Files that may not grow beyond 1 KiB: a disk that is full.
    save = 'ulimit -f 1 && exec "$0" --gpus 1 --seq-len 8 --steps 1 --save small'
    ran("sh", "-c", save, program("rpexec"), status=1, err="model.safetensors: cannot be written: File too large")
    assert list(Path("small").glob("step-*")) == []


def test_save_through_a_link_to_nothing():
    os.symlink("nowhere", "dangling")
    refused("--save: dangling: No such file or directory", "--gpus 1 --seq-len 8 --steps 1 --save dangling")


def test_builds():
    """Optimised and sanitized builds of a commit have the same losses to the last digit (products.c, environment.c)."""
    other = BUILD.parent / "asan+ubsan/exec/rpexec"
    if not other.exists() or ran(other, "--version").out != ran("rpexec --version").out:
        pytest.skip("no sanitized build of this commit")
    options = "--model tiny --gpus 2 --steps 3 --format json".split()
    here, there = (json.loads(ran(path, *options).out)["loss"] for path in (program("rpexec"), other))
    assert here == there and len(here) == 3


def test_length_of_programs():
    """The last program is no shorter than the others by more than a step: it is measured."""
    rpexec("--steps 9 --gpus 1 --seq-len 8 --program-out nine.txt", out="tokens/s")
    assert "iterations 4" in Path("nine.txt").read_text().splitlines()


@pytest.mark.parametrize("number", range(len(FAMILIES)), ids=lambda number: FAMILIES[number].name)
def test_families(number):
    """It equals plain loops with layers cut, over the host and with adapters: these two for every third family."""
    for options in ["--schedule megatron-tp"] + (LONG or number % 3 == 2) * [
            "--schedule roundpipe", "--schedule 1f1b --lora-rank 2"]:
        rpexec(f"{options} --steps 2 --seq-len 16 --gpus 2 --check --weights", FAMILIES[number], out="check: ")


# ---- records

BOUND = "--steps 2 --bind --gpus 1 --seq-len 16 "
WITHOUT_BIND = "the record is of a run with --bind, this one runs without"


@pytest.fixture(scope="module")
def bound(work):
    """A record of a bound run, in a folder that has a prediction of an earlier run."""
    Path("bound").mkdir()
    Path("bound/predicted.csv").touch()
    rpexec("--steps 2 --bind --schedule fsdp --gpus 2 --seq-len 16 --record bound --timeline-out bound.csv"
           " --program-out bound.txt", out="tokens/s")
    return Path("bound")


def test_record(bound):
    assert (bound / "timeline.csv").read_bytes() == Path("bound.csv").read_bytes() != b""
    assert (bound / "program.txt").read_bytes() == Path("bound.txt").read_bytes() != b""
    assert not (bound / "predicted.csv").exists()
    assert re.search("^bound_cores: [1-9]", (bound / "platform.yaml").read_text(), re.M)
    rpexec("--steps 2 --gpus 2 --seq-len 16 --costs bound --predict", out="predicted", err=WITHOUT_BIND)
    rpexec("--steps 2 --gpus 2 --seq-len 16 --costs bound --predict --schedule megatron-tp --microbatches 4",
           out="ms per iteration, measured", err=WITHOUT_BIND)
    # Times of another model or type are refused, even with the same sizes.
    for option, said in (
        ("--model small", "was measured with tiny on the backend host, this run has small on host"),
        ("--dtype bf16", "was measured in fp32, this run is in bf16"),
        ("--lora-rank 2", "was measured in fp32, this run is in fp32, LoRA of rank 2"),
    ):
        refused(said, f"{BOUND} --costs bound --predict {option}")


def test_record_in_the_folder_of_costs(bound):
    """It may take the place of the record that predicts its run; measuring it is not time of the run."""
    costs = bound / "costs.yaml"
    costs.write_text(re.sub(r"[0-9]+\.[0-9]+", "10000", costs.read_text()))  # 10 s for everything
    began = time.monotonic()
    done = rpexec(BOUND + "--microbatches 4 --costs bound --predict --record bound --format json", out="{")
    wall_s, found = time.monotonic() - began, json.loads(done.out)
    assert 0 < 2 * 4 * 16 / found["wall_tokens_per_s"] < wall_s / 2 and found["predicted_iteration_ms"] > 10000, done
    assert "10000" not in costs.read_text()


def test_record_of_a_checkpoint():
    """It has a name that rpexec and rpsim read."""
    rpexec("--steps 2 --gpus 1 --seq-len 16 --gpu-memory-mb 8 --record of-checkpoint", *MODEL, out="tokens/s")
    costs = Path("of-checkpoint/costs.yaml").read_text()
    assert "name: a__model@host" in costs.splitlines()
    rpexec("--steps 1 --gpus 1 --seq-len 16 --costs of-checkpoint", *MODEL, out="tokens/s")
    ran("rpsim --schedule gpipe --fidelity stage --gpus 1 --costs of-checkpoint/costs.yaml")
    # Measuring links takes no more than the memory of the run: 16 MiB in pieces of 4 MiB are more.
    assert 0 < max(int(row[3]) for row in rows("of-checkpoint/links.csv")[1:]) <= 1048576
    # No run has split the backwards: their input part is the sum of its operators, which are all except the weights'
    # and, between the two, the activation that the weights' need again.
    backward = [row for row in rows("of-checkpoint/operators.csv") if row[:2] == ["block", "backward"]]
    [whole] = [float(row[6]) for row in backward if row[2] == "sum"]
    weights = sum(float(row[6]) for row in backward if row[2] in ("linear_weight", "swiglu"))
    input_ms, ms = (float(re.search(rf"(?m)^{key}: \[?([0-9.e-]+)", costs)[1]) for key in ("bwd_input_ms", "bwd_ms"))
    assert 0 < weights < whole and abs(input_ms / ms - (1 - weights / whole)) < 1e-3


# ---- checkpoints

def resumed(name, options, *files):
    """A run that is stopped at step 3 and goes on to the folder NAME has the bytes of an uninterrupted run."""
    for more in (f"--steps 6 --save {name}-whole", f"--steps 3 --save {name}", f"--steps 6 --save {name} --resume"):
        rpexec(f"{options} {more}", out="tokens/s")
    for file in (*files, "training"):
        whole, parts = (Path(folder, f"step-6/{file}.safetensors").read_bytes() for folder in (name + "-whole", name))
        assert whole == parts, file


def test_checkpoints_open():
    """As they are: weights with their configuration, adapters with the folder that they are on."""
    one = "--gpus 1 --seq-len 16"
    rpexec(f"--steps 2 {one} --save whole", *MODEL, out="tokens/s")
    rpexec(f"--weights whole/step-2 --steps 1 {one} --check", out=SAME)
    rpexec(f"--weights whole/step-2 --steps 2 {one} --lora-rank 3 --save on-whole", out="tokens/s")
    rpexec("--weights on-whole/step-2 --steps 1 --gpus 2 --seq-len 16 --check", out=SAME)
    refused("have rank 3 and alpha 3; valid are these, and neither option", "--weights on-whole/step-2 --lora-rank 2")
    os.rename("whole/step-2", "whole/elsewhere")
    refused(f"adapter_config.json:3: base_model_name_or_path: {Path.cwd()}/whole/step-2/config.json: No such file",
            "--weights on-whole/step-2")
    rpexec(f"--steps 2 {one} --lora-rank 2 --dtype bf16 --save on-random", out="tokens/s")
    rpexec("--weights on-random/step-2 --steps 1 --gpus 2 --seq-len 16 --dtype bf16 --check", out="of a tensor's rms")
    config = Path(shutil.copytree("a #model", "gelu"), "config.json")
    config.write_text(config.read_text().replace('"hidden_act": "silu"', '"hidden_act": "gelu"'))
    refused("config.json:11: hidden_act: valid values are silu", "--weights gelu --steps 1")


def test_run_that_is_done():
    """It stays as it is and says so. It refuses outputs that it cannot give, and writes nothing."""
    train = "--gpus 2 --microbatches 2 --seq-len 16 --data text --steps 40 --save-every 3 --optimizer async --save a"
    rpexec(train, out="tokens/s")
    rpexec(f"{train} --resume", out="0 tokens/s", err="is of step 40, and no step is left")
    for option in ("--check", "--program-out none", "--timeline-out none", "--trace-out none", "--gantt-out none.svg",
                   "--db none"):
        said = f"{option.split()[0]}: the checkpoint is of step 40, and no step is left"
        refused(said, f"{train} --resume {option}")
    # Another run does not mix with it.
    refused("valid are --resume, which goes on from the newest", f"{train} --steps 3")
    assert not list(Path().glob("none*")) and "step-40" in os.listdir("a") and "step-3" not in os.listdir("a")
    # A checkpoint is a Hugging Face folder once its config.json lies beside it; here the file is read alone.
    os.remove("a/step-40/training.safetensors")
    refused("training.safetensors", "--gpus 2 --seq-len 16 --save a --resume --steps 50")


def test_signal():
    """It leaves no temporary files, which there are from before the first step on."""
    def files():
        return {path.name for path in Path("ended").rglob("*") if path.is_file()}

    Path("ended").mkdir()
    options = "--steps 100000 --gpus 1 --seq-len 8 --record ended/record --loss-out ended/l.csv --trace-out ended/t"
    with subprocess.Popen([program("rpexec"), *options.split()], stdout=subprocess.DEVNULL) as run:
        while run.poll() is None and not (os.path.isdir("ended/record") and files()):
            time.sleep(0.05)
        run.terminate()
    assert run.returncode == 143 and os.path.isdir("ended/record") and files() <= {"l.csv"}


def test_resumed_adapters():
    train = "--gpus 2 --microbatches 2 --seq-len 16 --model tiny-moe --lora-rank 3 --optimizer async"
    resumed("adapters", train + " --data text", "adapter_model")
    # Other data are refused, and the same tokens elsewhere are not.
    shutil.copy("text", "copy")
    again = f"{train} --data copy --steps 6 --save adapters --resume"
    rpexec(again, out="0 tokens/s", err="no step is left")
    Path("copy").write_text(Path("text").read_text() + "one more line\n")
    refused("valid are the same data", again)


def test_resumed_tensor_parallelism():
    """Ranks save the whole, from which others go on as well. Their program is simulated and runs as it is."""
    cut = "--seq-len 16 --microbatches 4 --data text"
    resumed("cut", f"{cut} --schedule megatron-tp --gpus 4 --save-every 3", "model")
    rpexec(f"{cut} --schedule 1f1b --gpus 2 --steps 8 --save cut --resume --check", out=CLOSE)
    rpexec(f"{cut} --schedule megatron-tp --gpus 2 --steps 10 --save cut --resume --check", out=CLOSE)
    rpexec(f"{cut} --schedule megatron-tp --gpus 2 --steps 4 --program-out cut.txt", out="MB between GPUs")
    rpexec("--program-in cut.txt --seq-len 16 --steps 4 --check", out=CLOSE)
    Path("wrong.txt").write_text(Path("cut.txt").read_text().replace("ALL_REDUCE", "ALL_GATHER"))
    refused("is not what megatron-tp gives for tiny", "--program-in wrong.txt --seq-len 16 --steps 4")


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_resumed_in_16_bits(dtype):
    """Masters and the scale of the loss are resumed, too; another type is refused."""
    options = "--gpus 2 --microbatches 2 --seq-len 16 --data text --optimizer async"
    resumed(dtype, f"--dtype {dtype} {options}", "model")
    refused(f"made with --dtype {dtype}; valid is the same type", f"--gpus 2 --seq-len 16 --save {dtype} --resume")


# ---- losses

def test_tied_table():
    """A single GPU has both copies of it and trains one of them; two GPUs have a copy each."""
    for gpus in (1, 2):
        rpexec(f"--schedule 1f1b --gpus {gpus} --microbatches 2 --seq-len 16 --steps 4 --lr 1e-2 --loss-out {gpus}.csv"
               " --model", SOURCE / "tests/gpu/small.yaml", out="tokens/s")
    assert losses("1.csv") == pytest.approx(losses("2.csv"), rel=0, abs=1e-5) and len(losses("1.csv")) == 4


def test_text_in_bf16():
    """It is learned. The mean of ten steps, since a step's loss depends on its 128 tokens and, by rounding, on the
    processor that OpenBLAS finds."""
    rpexec("--dtype bf16 --gpus 2 --microbatches 4 --seq-len 32 --data text --steps 30 --lr 2e-3 --loss-out loss.csv",
           out="tokens/s")
    found = losses("loss.csv")
    assert len(found) == 30 and sum(found[-10:]) / 10 < 0.75 * found[0]
