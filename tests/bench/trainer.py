"""trainer.py RPEXEC FOLDER REPETITIONS [CASE...]: see trainer.sh.

Whole training steps: forward, backward and AdamW in fp32, the same weights, the same sequences. Each program has a
single thread, and all are bound to the same processor. In each repetition all programs run in turn, so that other load
hits them equally; ratios are within a repetition. Cases stories* have the sizes of the models that llama2.c's README
publishes, with tied heads like these.

rpexec: --schedule 1f1b on a GPU of the host backend, resident weights, no recompute, a single microbatch. PyTorch:
transformers' own model with sdpa attention, no checkpointing, fused AdamW, as it is (eager) and by torch.compile
(compiled). MODES in the environment may leave out either. For experts it has the implementation named by EXPERTS:
eager, batched_mm or grouped_mm.

Columns: quantity, case, median, minimum and maximum over the repetitions, unit. A run's value is the median of its
steps by the clock, and the mean of its steps by processor time; the first steps warm up, and the last is not counted.
Status 1 if losses differ by more than 1e-4.
"""
import ctypes
import os
import pathlib
import statistics
import struct
import subprocess
import sys
import time

MORE = 1  # with another step the end of a run is not in the last step measured
TOLERANCE = 1e-4  # of a loss, absolute
LR = 1e-4
DENSE = dict(hidden_size=512, intermediate_size=1536, num_hidden_layers=8, num_attention_heads=8,
             num_key_value_heads=4, head_dim=64, max_position_embeddings=4096,
             tie_word_embeddings=False, bos_token_id=None, eos_token_id=None, pad_token_id=None)


def stories(hidden, intermediate, layers, heads, kv_heads, vocab, positions):
    return dict(hidden_size=hidden, intermediate_size=intermediate, num_hidden_layers=layers,
                num_attention_heads=heads, num_key_value_heads=kv_heads, vocab_size=vocab,
                max_position_embeddings=positions, rms_norm_eps=1e-5, tie_word_embeddings=True,
                bos_token_id=None, eos_token_id=None, pad_token_id=None)


CASES = {  # name: model_type, config, sequences, tokens of each, steps that warm up, steps measured
    "stories260K": ("llama", stories(64, 172, 5, 8, 4, 512, 512), 2, 256, 10, 60),
    "stories15M": ("llama", stories(288, 768, 6, 6, 6, 32000, 256), 2, 256, 2, 6),
    "stories42M": ("llama", stories(512, 1376, 8, 8, 8, 32000, 1024), 2, 256, 1, 3),
    "stories110M": ("llama", stories(768, 2048, 12, 12, 12, 32000, 1024), 2, 256, 1, 2),
    "qwen3": ("qwen3", dict(DENSE, vocab_size=16384), 2, 256, 1, 2),
    "llama": ("llama", dict(DENSE, vocab_size=8192), 1, 512, 1, 2),
    "qwen3-moe": ("qwen3_moe", dict(DENSE, vocab_size=8192, moe_intermediate_size=256, num_experts=16,
                                    num_experts_per_tok=4, norm_topk_prob=True), 2, 256, 1, 2),
    "tiny": ("qwen3", dict(DENSE, hidden_size=64, intermediate_size=96, num_hidden_layers=2,
                           vocab_size=512), 2, 32, 1, 2),  # that the script runs
}
MODES = os.environ.get("MODES", "eager compiled").split()
EXPERTS = os.environ.get("EXPERTS", "grouped_mm")


# ---- PyTorch, in a process of its own --------------------------------------------------------------

def train_torch(folder, mode, sequences, length, steps):
    import numpy
    import torch
    import transformers
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    config = transformers.AutoConfig.from_pretrained(folder)
    experts = {"experts_implementation": EXPERTS} if config.model_type.endswith("_moe") else {}
    net = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="sdpa", **experts)
    net.train()
    net.config.use_cache = False
    optimizer = torch.optim.AdamW(net.parameters(), lr=LR, weight_decay=0.0, fused=True)
    tokens = numpy.frombuffer((folder / "tokens").read_bytes()[32:], "<u2").astype("int64")
    tokens = torch.from_numpy(tokens)
    ids = tokens[:-1].view(sequences, length)
    labels = tokens[1:].view(sequences, length)
    forward = torch.compile(net) if mode == "compiled" else net
    for step in range(1, steps + 1):
        begin = time.perf_counter()
        loss = forward(input_ids=ids, labels=labels, shift_labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        value = loss.item()
        print(f"{step},{value:.8f},{1e3 * (time.perf_counter() - begin):.6f}", flush=True)


def make_case(folder, kind, sizes, sequences, length):
    """Weights, and as many tokens as a step takes, so that each step has all of them."""
    import numpy
    import torch
    import transformers
    transformers.logging.disable_progress_bar()
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(kind, **sizes)
    net = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    net.save_pretrained(folder)
    tokens = numpy.random.default_rng(0).integers(0, config.vocab_size, sequences * length + 1)
    header = b"RPTOKENS" + struct.pack("<IIIIQ", 1, 2, config.vocab_size, 0, len(tokens))
    (folder / "tokens").write_bytes(header + tokens.astype("<u2").tobytes())
    parameters = sum(p.numel() for p in net.parameters())
    print(f"{folder.name}: {parameters / 1e6:.1f} million parameters", file=sys.stderr)


# ---- runs ------------------------------------------------------------------------------------------

def cpu_s(pid):
    """Sum over all threads of a process, also ended threads."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run(words, processor, warm, steps):
    """Losses, seconds of a step by the clock and by the processor."""
    child = subprocess.Popen(list(map(str, words)), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                             text=True, preexec_fn=lambda: os.sched_setaffinity(0, {processor}))
    losses, clock, processor_s = [], [], []
    for line in child.stdout:
        values = line.split(",")
        if len(values) >= 3 and values[0].isdigit():
            losses.append(float(values[1]))
            clock.append(1e-3 * float(values[2]))
            processor_s.append(cpu_s(child.pid))
    error = child.stderr.read()
    if child.wait() != 0 or len(losses) != warm + steps + MORE:
        sys.exit(f"trainer.py: {words[0]}: {error[-2000:]}")
    spent = processor_s[warm + steps - 1] - processor_s[warm - 1]
    least = 1 / os.sysconf("SC_CLK_TCK")  # the system's unit
    return losses, statistics.median(clock[warm:warm + steps]), max(spent, least) / steps


def words_of_rpexec(rpexec, folder, sequences, length, steps):
    return [rpexec, "--backend", "host", "--gpus", 1, "--schedule", "1f1b", "--recompute", "none",
            "--microbatches", 1, "--microbatch-size", sequences, "--seq-len", length, "--weights",
            folder, "--data", folder / "tokens", "--steps", steps, "--lr", LR,
            "--loss-out", "-"]


def row(quantity, case, values, unit):
    print(f"{quantity},{case},{statistics.median(values):.4g},{min(values):.4g},{max(values):.4g},"
          f"{unit}", flush=True)


def compare_losses(case, losses):
    worst = max(abs(a - b) for other in losses[1:] for a, b in zip(losses[0], other))
    if not worst <= TOLERANCE:
        sys.exit(f"trainer.py: {case}: losses differ by {worst}")
    return worst


def bench(rpexec, folder, case, repetitions):
    kind, sizes, sequences, length, warm, steps = CASES[case]
    make_case(folder, kind, sizes, sequences, length)
    processor = max(os.sched_getaffinity(0))
    programs = {"rpexec": words_of_rpexec(rpexec, folder, sequences, length, warm + steps + MORE)}
    for mode in MODES:
        programs[mode] = [sys.executable, "-W", "ignore", __file__, "--torch", folder, mode,
                          sequences, length, warm + steps + MORE]
    times, worst = {name: ([], []) for name in programs}, []
    for _ in range(repetitions):
        losses = []
        for name, words in programs.items():
            values, *seconds = run(words, processor, warm, steps)
            losses.append(values)
            for k in range(2):
                times[name][k].append(seconds[k])
            print(f"{case} {name}: {seconds[0]:.3f} s, {seconds[1]:.3f} s of processor time",
                  file=sys.stderr, flush=True)
        worst.append(compare_losses(case, losses))
    tokens = sequences * length
    for k, unit in enumerate(("tokens/s", "tokens/s of processor time")):
        for name in programs:
            label = name if name == "rpexec" else f"pytorch_{name}"
            row(label, case, [tokens / s for s in times[name][k]], unit)
    for k, suffix in enumerate(("", "_by_processor_time")):
        for mode in MODES:
            ratios = [b / a for a, b in zip(times["rpexec"][k], times[mode][k])]
            row(f"rpexec_of_{mode}{suffix}", case, ratios, "1")
    row("loss_difference", case, worst, "1")


def describe():
    import torch
    import transformers
    blas = ctypes.CDLL("libopenblas.so.0")
    blas.openblas_get_corename.restype = ctypes.c_char_p
    print(f"OpenBLAS kernel {blas.openblas_get_corename().decode()} (rpexec on Zen 3: Haswell); "
          f"PyTorch {torch.__version__}, {torch.backends.cpu.get_cpu_capability()}, BLAS "
          f"{'MKL' if torch.backends.mkl.is_available() else 'other'}; transformers "
          f"{transformers.__version__}", file=sys.stderr)


def main():
    if sys.argv[1] == "--torch":
        train_torch(pathlib.Path(sys.argv[2]), sys.argv[3], *map(int, sys.argv[4:]))
        return
    rpexec, work, repetitions = sys.argv[1], pathlib.Path(sys.argv[2]), int(sys.argv[3])
    describe()
    print("quantity,case,median,minimum,maximum,unit", flush=True)
    for case in sys.argv[4:] or [name for name in CASES if name != "tiny"]:
        bench(rpexec, work / case, case, repetitions)


main()
