"""The command lines of same_answers.py, made from the tables of the old build's programs.

Options, their arguments and choices come from --print-man, names from --list, bad inputs from tests/bad: a new option,
schedule or bad file gets its lines without a change here. VALUES has arguments that are no choice (`N`, `F`),
COMPANIONS the further options that an option needs.

Lines are texts, '' is an empty word. @IN@ is the folder of inputs: `bad` and `golden` of tests, `experiments`,
`published`, `runs`, FILES, and `made`, which the old build writes by MADE.
"""

import csv
import re

PROGRAMS = ("rpsim", "rpexec", "rpadvise", "rpplan", "rpdiff", "rpimport", "rppredict", "rpsweep")
INVALID = ["''", *"0 -1 1.5 1e3 x 99999999999999999999 nan 2,3 /nowhere/x".split()]
MODELS = ("tiny", "tiny-moe", "qwen3-1.7b", "llama3.1-8b-lora", "gpt-oss-20b", "mpt-1b")
PLATFORMS = ("rtx4090x8", "h100x8", "a100-80x8-hdr", "h100x64")
RECORDED = "@IN@/runs/2026-11-21-host-2"


def table_of(text):
    """{option, or program:option: the rest of its line}."""
    return dict(line.split(maxsplit=1) for line in text.strip().splitlines())


# Valid arguments, beside choices that the option names; pairs use the first.
VALUES = table_of("""
--accumulate 2 1 3
--assume llama
--betas 0.8,0.99
--bucket-mb 1 64
--budget 30 1
--cell platform=rtx4090x8,gpus=8
--cells @IN@/cells.csv
--chakra @IN@/golden/chakra/1f1b
--chakra-out o
--clip-norm 0.5
--columns tokens_per_s,fits
--costs qwen3-1.7b@rtx4090 @IN@/runs/2026-11-21-host-2/costs.yaml
--data @IN@/text.txt
--data-parallel 2 1 4
--db o.db
--eps 1e-6
--eval-data @IN@/text.txt
--eval-every 1
--expert-parallel 2
--expert-tensor-parallel 1 2
--export o
--fit @IN@/cells.csv
--fit-constants link_effective_gb_per_s
--flows @IN@/golden/contention.json
--gantt-iterations 1-2 2 9
--gantt-out o.svg
--global-batch 16 7
--gpu-memory-mb 64 1
--gpus 2 1 3 8
--host-rates o.rates
--html-out o.html
--instance @IN@/golden/partition.json
--intervals 2 5
--iterations 3 1
--jitter 0.1 0 0.5
--jobs 1
--keep 1
--kineto @IN@/golden/kineto/zb1p-p2v1m4.0.json,@IN@/golden/kineto/zb1p-p2v1m4.1.json
--link-gb-per-s 4
--lora-alpha 8
--lora-rank 4 1k
--loss-out o.loss.csv
--lr 0.01
--max-step-tokens 4096
--memory-limit 2GB 100000000
--microbatch-size 2 1
--microbatches 4 3 16
--model small tiny,small gpt:1024x16x24 @IN@/golden/hf/qwen3-0.6b.json @IN@/bad/data/good-model.yaml
--network-gb-per-s 4
--nodes 2 1
--out o.yaml -
--partition 4,4 3,3,2 2,2,2,2 2,2,2,2|2,2,2,2
--piece-mb 1 16
--platform h100x8 @IN@/bad/data/good-platform.yaml
--platform-out - o.yaml
--program-in @IN@/made/hardware.txt @IN@/made/stage.txt
--program-out o.txt
--record o.record
--replicas 3 10
--round 2 4
--rpexec /nowhere/rpexec
--runnable rpexec deepspeed megatron-lm
--save o
--save-every 1
--schedule zbv gpipe,fsdp megatron-tp interleaved-1f1b
--seed 7
--seq-len 32 4k 128
--set platform.link_gb_per_s*2 platform.memory_gb=4 costs.fwd_ms*2,costs.bwd_ms*2 platform.nothing=1
--shard 0/2 1/2
--slow-gpu 1*2 0*1.5 9*2
--stages 4 2
--steps 3 2
--tensor-parallel 2 4
--timeline-out o.csv
--timer @IN@/golden/roundpipe/timer.log
--tokens 1M 1B
--tolerance 1.5 1
--top 2 50
--torch-csv-in @IN@/made/torch.csv @IN@/golden/torch/zb1p-p4v1m8.compute.csv
--torch-csv-out o.torch.csv
--torch-sidecar o.json
--trace-out o.trace
--tune-budget 20
--usd-per-hour 3.2 0.5
--watts 2000
--usd-per-kwh 0.3
--virtual-gpus 2
--warmup-steps 2
--watchdog-s 30
--weight-decay 0.1
--weights @IN@/golden/decoders/llama
--worst 3
rpadvise:--model small qwen3-1.7b
rpexec:--costs @IN@/runs/2026-11-21-host-2
rpexec:--lora-rank 2
rpexec:--model tiny-moe @IN@/golden/decoders/llama small
rpexec:--program-in @IN@/made/exec.txt @IN@/made/hardware.txt
rpexec:--schedule 1f1b fsdp zbv megatron-tp
rpexec:--seq-len 16 32
rpplan:--model llama3.1-8b gpt:1024x16x24
rppredict:--intervals 2
""")
COMPANIONS = table_of("""
--accumulation --dtype fp16
--allow-multi-rank-stages --torch-csv-out o.torch.csv
--assume --model @IN@/bad/configs/unknown-family.json
--axes --data-parallel 2 --tensor-parallel 2 --schedule 1f1b
--bucket-mb --data-parallel 2 --schedule 1f1b
--bytes --data @IN@/text.txt --model small
--chakra-host-ops --chakra-out o
--db-ops --db o.db
--eval-every --eval-data @IN@/text.txt
--expert-parallel --data-parallel 2 --model tiny-moe
--expert-tensor-parallel --tensor-parallel 2 --model tiny-moe --schedule 1f1b
--fit-constants --fit @IN@/cells.csv
--gantt-iterations --gantt-out o.svg
--join-documents --data @IN@/text.txt
--keep --save o
--lora-alpha --lora-rank 2
--platform-out --set platform.memory_gb=12
--predict --costs @IN@/runs/2026-11-21-host-2
--recv-placement --torch-csv-out o.torch.csv --torch-csv-dialect lowered
--reduce-dtype --schedule fsdp --dtype bf16
--reduce-each --schedule fsdp
--replicas --jitter 0.1
--resume --save o
--retry-failed --resume
--round --schedule roundpipe
--round-start --schedule roundpipe
--save-every --save o
--sequence-parallel --tensor-parallel 2
--slow-gpu --jitter 0.1
--timings --format csv
--torch-csv-dialect --torch-csv-out o.torch.csv
--torch-sidecar --torch-csv-out o.torch.csv
--tune-budget --partition tuned
--usd-per-hour --tokens 1M
--watts --tokens 1M
--usd-per-kwh --tokens 1M --watts 2000
--warmup-steps --lr-schedule linear
--zero --data-parallel 2 --schedule 1f1b
""")
# The rest of a line that tries an option. Several jobs of rpsweep store in any order.
SETTINGS = {
    "rpsim": (
        "--model tiny --seq-len 64 --gpus 4 --iterations 2 --intervals off --format json",
        "--model qwen3-1.7b --gpus 4 --fidelity stage --format csv",
    ),
    "rpexec": (
        "--backend host --gpus 2 --model tiny --seq-len 8 --steps 1 --microbatches 2 --format json",
    ),
    "rpadvise": ("--model tiny --platform rtx4090x8 --gpus 2 --seq-len 64 --budget 12",),
    "rpimport": ("--microbatch-size 4 --seq-len 2048",),
    "rpdiff": (f"{RECORDED}/1f1b-2 {RECORDED}/fsdp-2",),
    "rpsweep": ("@IN@/sweep.yaml --db s.db --jobs 1",),
}
TURNS = {  # schedules, in turn in lines of options
    "rpsim": "roundpipe 1f1b fsdp zbv interleaved-1f1b megatron-tp zero-infinity".split(),
    "rpexec": "roundpipe 1f1b fsdp zbv interleaved-1f1b megatron-tp".split(),
}
SLOW = ("rpexec:--host-rates", "rpexec:--platform-out", "rppredict:--fit")  # tried once
EVERY = {"rpsim": 3, "rpexec": 9}  # a pair of so many, without --every-pair

FILES = {
    "text.txt": "Some text of which each byte is a token, and a little more of it. " * 8,
    "cells.csv": """\
framework,model,gpus,seq_len,global_batch,microbatches,calls,grain,sequence_slices,tokens_per_s,use
roundpipe-sync,qwen3-1.7b,2,2048,64,10,1,layer,1,16000,fit
roundpipe,qwen3-1.7b,4,2048,64,10,1,layer,1,32000,predict
""",
    "sweep.yaml": """\
name: small
question: Which is fastest?
options: {gpus: 4, fidelity: stage}
cross:
  model: [qwen3-1.7b, llama3.1-8b]
  microbatches: [6, 8]
list:
  - {schedule: roundpipe, round: [4, all]}
  - {schedule: [gpipe, interleaved-1f1b]}
""",
    "hardware.yaml": """\
name: hardware
options: {gpus: 2, model: tiny, seq-len: 32, iterations: 2}
cross:
  schedule: [fsdp, 1f1b, megatron-tp]
  'platform.link_gb_per_s*': [0.5, 2]
repeats: 2
seed: 3
exclude:
  - {schedule: fsdp, 'platform.link_gb_per_s*': 2}
""",
    "executed.yaml": """\
name: executed
program: rpexec
options: {gpus: 2, model: tiny, seq-len: 8, steps: 1, backend: host}
cross:
  schedule: [1f1b, roundpipe]
  dtype: [fp32, bf16]
""",
    "wrong.yaml": "name: wrong\noptions:\n  gpus: 4\n  schedule: pipe\n",
    "unknown.yaml": "name: wrong\noptions:\n  gpu: 4\n  schedule: gpipe\n",
}
MADE = (
    "rpsim --schedule 1f1b --model tiny --seq-len 16 --gpus 2 --microbatches 4 --microbatch-size 1 "
    "--iterations 2 --intervals off --dtype fp32 --program-out hardware.txt --chakra-out chakra",
    "rpsim --fidelity stage --schedule roundpipe --model qwen3-1.7b --gpus 4 "
    "--program-out stage.txt --timeline-out stage.csv --db ops.db --db-ops",
    "rpsim --schedule interleaved-1f1b --model tiny --seq-len 16 --gpus 2 --iterations 1 "
    "--intervals off --torch-csv-out torch.csv --torch-sidecar torch.json",
    "rpexec --backend host --schedule fsdp --gpus 2 --model tiny --seq-len 8 --steps 1 "
    "--program-out exec.txt",
    "rpsweep @IN@/sweep.yaml --db swept.db --jobs 1",
)
SWEEPS = (  # lines that follow each other in a folder
    (
        "rpsweep @IN@/sweep.yaml --db a.db --jobs 1",
        "rpsweep @IN@/sweep.yaml --db a.db",
        "rpsweep @IN@/sweep.yaml --db a.db --resume",
        "rpsweep export best --db a.db",
        "rpsweep report a.db --html-out a.html",
        "rpsweep reference @IN@/published/pipeline_bubbles.csv --db a.db",
        "rpsweep export error_per_cell --db a.db",
    ),
    (
        "rpsweep @IN@/sweep.yaml --db 0.db --shard 0/2 --jobs 1",
        "rpsweep @IN@/sweep.yaml --db 1.db --shard 1/2 --jobs 1",
        "rpsweep merge 0.db 1.db --db m.db",
        "rpsweep export summary --db m.db",
        "rpsweep @IN@/sweep.yaml --db m.db --resume --retry-failed --jobs 1",
    ),
    (
        "rpsweep @IN@/hardware.yaml --db h.db --jobs 1",
        "rpsweep export latest --db h.db",
        "rpsweep report h.db",
        "rpsweep @IN@/hardware.yaml --dry-run",
    ),
    (
        "rpsweep @IN@/executed.yaml --dry-run",
        "rpsweep @IN@/executed.yaml --db e.db --jobs 1",
        "rpsweep @IN@/executed.yaml --db e.db --resume",
    ),
    ("rpsweep @IN@/wrong.yaml --db w.db", "rpsweep @IN@/unknown.yaml --db w.db"),
    (
        "rpexec --backend host --model tiny --seq-len 8 --steps 3 --gpus 2 --save s --save-every 1",
        "rpexec --backend host --model tiny --seq-len 8 --steps 5 --gpus 2 --save s --resume",
        "rpexec --backend host --model tiny --seq-len 8 --steps 5 --gpus 2 --save s",
    ),
    (
        "rpsim --schedule roundpipe,1f1b --fidelity stage --db r.db --db-ops",
        "rpsim --schedule gpipe --model tiny --iterations 1 --intervals off --db r.db",
        "rpdiff r.db:1 r.db:2",
        "rpdiff r.db",
    ),
)


def words(text):
    return ["" if word == "''" else word for word in text.split()]


def pairs_of(text):
    """[option and its value, or word] of a line."""
    return re.findall(r"--\S+(?: (?!--)\S+)?|\S+", text)


def beside(more, chosen):
    """The options of `more` except those that are `chosen` already."""
    taken = {part.split()[0] for part in pairs_of(chosen)}
    return " ".join(part for part in pairs_of(more) if part.split()[0] not in taken)


def options(man):
    """[(name, argument or "")] of a man page."""
    rows = re.findall(r"^\.B (.*)$", man.replace("\\", ""), re.M)
    return [row.split(", ")[-1].partition(" ")[::2] for row in rows if "--" in row]


def values(program, name, argument):
    """Valid arguments of an option, the pairs' first; [""] for a flag."""
    if not argument:
        return [""]
    choices = re.findall(r"(?:^|(?<=\|))(?:[a-z][a-z0-9-]*|[0-9])(?=\||$)", argument)
    given = VALUES.get(f"{program}:{name}", VALUES.get(name, "" if choices else "1 2 o")).split()
    return list(dict.fromkeys((*given, *choices[1:], *choices[:1])))


def settings(program, number, which):
    """The rest of lines that try a program's options."""
    turns = [f"--schedule {name} " for name in TURNS.get(program, ())] or [""]
    own = SETTINGS.get(program, ("",))
    return turns[number % len(turns)] + own[which % len(own)]


def line(program, number, which, tried):
    for part in pairs_of(tried):
        needed = COMPANIONS.get(re.split("[ =]", part)[0], "")
        tried = f"{beside(needed, tried)} {tried}"
    return f"{program} {beside(settings(program, number, which), tried)} {tried}"


def of_options(program, table):
    """Each option with valid and invalid arguments."""
    for number, (name, argument) in enumerate(table):
        valid = values(program, name, argument)
        slow = f"{program}:{name}" in SLOW
        for which in range(len(SETTINGS.get(program, ("",)))):
            for value in valid[:1] if slow else valid:
                yield line(program, number, which, f"{name} {value}")
            if which > 0:
                continue
            tried = [name] if argument else [f"{name}=1", f"{name} 1", f"{name} {name}"]
            tried += [f"{name} {value}" for value in INVALID if argument]
            if argument and not slow:
                tried += [f"{name}={valid[0]}", f"{name[:-1]} {valid[0]}"]
                tried += [f"{name} {valid[0]} {name} {valid[-1]}"]
            for text in tried:
                yield line(program, number, which, text)


def of_pairs(program, table, every):
    """Pairs of options, many refused by rules: alone, and with the options that each needs."""
    rows = [
        f"{name} {values(program, name, argument)[0]}".strip()
        for name, argument in table
        if name not in ("--help", "--version") and f"{program}:{name}" not in SLOW
    ]
    pairs = [f"{first} {second}" for at, first in enumerate(rows) for second in rows[at + 1 :]]
    for number, pair in enumerate(pairs[::every]):
        which = 1 if number % 5 == 0 else 0
        yield f"{program} {beside(settings(program, number, which), pair)} {pair}"
        yield line(program, number, which, pair)


def of_schedules(names, costs):
    """Schedules x models x platforms at both fidelities, with other options in turn."""
    measured = sorted({name.split("@")[0] for name in costs})[:6]
    turns = {
        3: "--timeline-out o.csv",
        7: "--explain",
        8: "--optimizer async",
        13: "--columns all",
        16: "--trace-out o.trace",
        17: "--html-out o.html",
        18: "--db o.db --db-ops",
        19: "--torch-csv-out o.torch.csv --torch-sidecar o.json",
        23: "--chakra-out o",
    }
    hardware = {
        4: "--grain layer",
        6: "--data-parallel 2",
        9: "--accumulate 2",
        11: "--tensor-parallel 2",
    }
    cases = [("stage", m, p, s) for m in measured for p in PLATFORMS for s in names]
    cases += [("hardware", m, p, s) for m in MODELS for p in PLATFORMS for s in names]
    for number, (fidelity, model, platform, schedule) in enumerate(cases):
        text = (
            f"rpsim --schedule {schedule} --model {model} --platform {platform}"
            f" --fidelity {fidelity} --gpus {(4, 2, 8, 4, 3)[number % 5]}"
            f" --microbatches {(8, 16, 8, 6)[number % 4]} --program-out o.txt"
            f" --format {('json', 'csv', 'kv', 'table', 'md')[number % 5]}"
        )
        if number % 2 == 0:
            text += f" --recompute {('none', 'wait', 'early')[number % 3]}"
        if fidelity == "stage":
            text += f" --costs {model}@rtx4090"
        else:
            text += f" --iterations 2 --intervals {'off' if number % 10 else 3}"
            text += f" --microbatch-size 1 --seq-len {64 if 'tiny' in model else '1k'}"
            text += f" --dtype {('fp16', 'bf16', 'fp32')[number % 3]}"
        also = {**turns, **(hardware if fidelity == "hardware" else {})}
        yield text + "".join(f" {more}" for every, more in also.items() if number % every == 0)


def of_rpsim(names, costs, paper):
    for model in MODELS:
        for platform in PLATFORMS:
            text = f"rpsim --schedule all --model {model} --platform {platform} --gpus 4"
            text += " --seq-len 128"
            yield f"{text} --iterations 2 --intervals {'off' if platform == 'h100x8' else 2}"
            yield f"{text} --iterations 1 --intervals off --format json --explain"
    for name in costs:
        for form in ("table", "json", "kv"):
            model = name.split("@")[0]
            yield f"rpsim --fidelity stage --schedule all --model {model} --format {form}"
    for row in paper:
        text = "rpsim --config paper"
        text += "".join(f" --{name} {row[name]}" for name in ("schedule", "model", "optimizer"))
        yield f"{text} --intervals 2 --format json"
        yield f"{text} --intervals off --gpus 4 --iterations 2"
        yield f"{text} --intervals off --iterations 2 --max-seqlen --format csv"
    for name in names:
        yield f"rpsim --schedule {name}"
        yield f"rpsim --schedule {name} --fidelity stage --format kv"
        text = f"rpsim --schedule {name} --gpus 2 --intervals off --iterations 2"
        yield f"{text} --partition tuned --tune-budget 20"
    for what in ("schedules", "models", "platforms", "costs", "nothing"):
        for form in ("table", "csv", "json", "md", "kv"):
            yield f"rpsim --list {what} --format {form}"


def of_rpexec(names):
    for number, name in enumerate(names):
        text = f"rpexec --backend host --schedule {name} --seq-len 8"
        for gpus in (1, 2, 4):
            turn = number + gpus
            yield (
                f"{text} --gpus {gpus} --steps 2 --microbatches 4"
                f" --model {('tiny', 'tiny', 'tiny-moe')[turn % 3]}"
                f" --dtype {('fp32', 'bf16', 'fp16')[turn % 3]}"
                f" --format {('table', 'json')[turn % 2]}"
                " --program-out o.txt --loss-out o.loss.csv"
            )
        mode = ("sync", "async")[number % 2]
        yield f"{text} --gpus 2 --steps 1 --check --format json --optimizer {mode}"
    for what in ("backends", "schedules", "models"):
        yield f"rpexec --list {what}"


def of_rpadvise():
    extra = (
        "--optimizer sync",
        "--runnable megatron-lm --export o",
        "--global-batch 32",
        "--format json",
        "--runnable rpexec --export o --format json",
        "--tokens 1B --usd-per-hour 3",
        "--schedule roundpipe,1f1b --export o",
    )
    models = (*MODELS, "small", "qwen3-32b-lora")
    cases = [(model, platform) for model in models for platform in PLATFORMS]
    for number, (model, platform) in enumerate(cases):
        for more in (extra[number % 7], extra[(number + 3) % 7]):
            text = f"rpadvise --model {model} --platform {platform} --gpus 2 --seq-len 512"
            yield f"{text} --budget 30 {more}"
    for system in "roundpipe deepspeed megatron-lm torch-pipelining torch-fsdp rpexec".split():
        yield (
            "rpadvise --model qwen3-0.6b --platform h100x8 --gpus 4 --seq-len 512 --budget 60"
            f" --runnable {system} --export o"
        )


def of_others():
    for first in ("1f1b-2", "fsdp-2", "roundpipe-4"):
        for second in ("1f1b-4", "1f1b-2", "zb-h1-4", "roundpipe-4"):
            both = [f"{RECORDED}/{first}", f"{RECORDED}/{second}"]
            yield f"rpdiff {both[0]} {both[1]} --format json --html-out o.html"
            yield f"rpdiff {both[0]}/timeline.csv {both[1]}/timeline.csv --trace-out o.trace"
    for run in (1, 2):
        yield f"rpdiff @IN@/made/ops.db:{run} @IN@/made/stage.csv"
    yield "rpplan @IN@/golden/partition.json"
    for model in MODELS:
        for more in ("", "--format json", "--gpus 2 --tolerance 1.3"):
            for mode in ("fused", "train", "infer"):
                yield f"rpplan --model {model} --mode {mode} {more}"
    traces = [f"golden/chakra/{name}" for name in ("1f1b", "all_reduce", "memory", "pipe")]
    for prefix in (*traces, "made/chakra", "bad/chakra/cut"):
        for form in ("table", "json"):
            yield f"rpimport --chakra @IN@/{prefix} --format {form}"
    text = "rpimport --microbatch-size 4 --seq-len 2k --kineto"
    yield f"{text} @IN@/golden/roundpipe/trace.json.gz --out o.yaml"
    for rank in (0, 1):
        yield f"{text} @IN@/golden/kineto/dualpipev-p2v2m4.{rank}.json --partition 2,2,2,2"
    yield from ("rppredict @IN@/few", "rppredict @IN@/few --format md")
    yield "rppredict --cells @IN@/cells.csv --intervals 2 --platform h100x8"
    yield "rpsweep pipeline-study --dry-run"
    for view in "best wins latest summary failures error_per_cell points runs2".split():
        yield f"rpsweep export {view} --db @IN@/made/swept.db"
    for program in PROGRAMS:
        for more in "-h -V --print-man --print-bash --print-zsh x --x -x".split():
            yield f"{program} {more}"
        for more in ("", "-- --help", "--help --nothing", "--help --version"):
            yield f"{program} {more}"


def of_bad(bad):
    """Every file of tests/bad, given to every program that could read it."""

    def arguments(name):
        with open(bad / name, encoding="utf-8", newline="") as stream:
            for row in csv.DictReader(stream, delimiter="\t", quoting=csv.QUOTE_NONE):
                yield (row["arguments"] or "").replace("@BAD@", "@IN@/bad").replace("@DIR@", ".")

    yield from (f"rpsim {text}" for text in arguments("commands.tsv"))
    yield from (f"rpexec {text}" for text in arguments("rpexec.tsv"))
    yield from (f"rpexec --backend host {text}" for text in arguments("rpexec.tsv"))
    yield from (f"rpdiff {text}" for text in arguments("rpdiff.tsv"))
    for suffix in (".yaml", ".csv", ".txt", ".json", ".et", ".tsv"):
        for path in sorted(bad.rglob(f"*{suffix}")):
            file = f"@IN@/bad/{path.relative_to(bad)}"
            for text in {
                "data": (
                    "rpsim --schedule gpipe --intervals off --iterations 2 --platform",
                    "rpsim --schedule gpipe --intervals off --iterations 2 --model",
                    "rpsim --schedule gpipe --fidelity stage --costs",
                    "rpplan --platform",
                    "rpexec --backend host --steps 1 --seq-len 8 --model",
                    "rpadvise --model tiny --budget 2 --platform",
                    "rppredict --cells",
                    "rpsweep --db x.db",
                ),
                "programs": ("rpsim --model tiny --program-in", "rpexec --program-in"),
                "torch": ("rpsim --model tiny --intervals off --torch-csv-in",),
                "configs": (
                    "rpsim --schedule gpipe --iterations 2 --intervals off --model",
                    "rpexec --backend host --model",
                    "rpadvise --budget 2 --model",
                ),
            }.get(path.parent.name, ()):
                yield f"{text} {file}"


def of_golden(inputs):
    for path in sorted((inputs / "golden/hf").glob("*.json")):
        yield (
            "rpsim --schedule 1f1b --gpus 2 --iterations 2 --intervals off --seq-len 128"
            f" --format csv --model @IN@/golden/hf/{path.name}"
        )
    for path in sorted((inputs / "golden/torch").glob("*.csv")):
        file = f"@IN@/golden/torch/{path.name}"
        yield f"rpsim --model qwen3-1.7b --fidelity stage --torch-csv-in {file}"
        yield (
            "rpsim --model tiny --seq-len 64 --intervals off --iterations 2 --program-out o.txt"
            f" --torch-csv-in {file}"
        )
    for path in sorted((inputs / "experiments").glob("*.yaml")):
        if path.name != "sweep-100k.yaml":
            yield f"rpsweep @IN@/experiments/{path.name} --dry-run"


def of_library(names):
    """Calls of the library by a C and a Python program."""
    size = "--seq-len 64 --gpus 4 --iterations 2 --intervals off"
    for number, name in enumerate(names):
        for model in ("tiny", "tiny-moe", "qwen3-1.7b"):
            yield f"c --schedule {name} --model {model} {size}"
        yield f"c --schedule {name} --fidelity stage"
        yield f"python {('run', 'simulate')[number % 2]} --schedule {name} --model tiny {size}"
    for more in (
        "",
        "--help",
        "--gpus 0",
        "--schedule",
        "--schedule gpip",
        "--schedule all --gpus 6 --model tiny",
        "--schedule megatron-tp --gpus 3",
        "--schedule gpipe --format csv",
        "--schedule gpipe --trace-out -",
        "--schedule gpipe --gantt-out nowhere/a.svg",
        "--schedule gpipe --db o.db",
        "--list models",
    ):
        yield f"c {more}"
        yield f"python run {more}"
    for model in ("qwen3-1.7b", "llama3.1-8b", "qwen", "gpt-oss-20b"):
        yield f"c-throughput {model}"
    yield from ("python names", "python settings")


def all_lines(tables, names, costs, inputs, every_pair):
    """Cases: each a list of command lines, as words, that follow each other in a folder."""
    with open(inputs / "paper.csv", encoding="utf-8", newline="") as stream:
        paper = list(csv.DictReader(stream))
    texts = [*of_schedules(names, costs), *of_rpsim(names, costs, paper), *of_rpexec(names)]
    texts += [
        *of_rpadvise(),
        *of_others(),
        *of_bad(inputs / "bad"),
        *of_golden(inputs),
        *of_library(names),
    ]
    for program in PROGRAMS:
        every = 1 if every_pair else EVERY.get(program, 1)
        texts += [*of_options(program, tables[program]), *of_pairs(program, tables[program], every)]
    single = dict.fromkeys(tuple(words(text)) for text in texts)
    return [[list(case)] for case in single] + [[words(text) for text in sweep] for sweep in SWEEPS]
