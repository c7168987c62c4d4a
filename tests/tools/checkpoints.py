#!/usr/bin/env python3
"""Checkpoints of rpexec, opened as they are by transformers and PEFT: equal logits.

For each family rpexec trains a small random model of transformers' for some steps, whole and with adapters, in fp32 and
bf16. AutoModelForCausalLM.from_pretrained, PeftModel.from_pretrained for LoRA, and rpexec --weights open each
checkpoint. A step of rpexec with --lr 0 on a single sequence gives the sum of its tokens' log-probabilities. These sums
are compared for many random sequences of one token, which name every token of the vocabulary, and for longer sequences,
sorted, since rpexec shuffles them. The same is done with adapters that PEFT has made on some linear layers, and with
folders as other programs leave them: with rotary buffers, only the head of a tied table, a single file beside an index.
Models that rpexec makes from sizes follow, shards, and gpt-oss with experts' weights in blocks of MXFP4. Needs PyTorch,
transformers 5, PEFT and tokenizers.
Usage: checkpoints.py RPEXEC SAVE_SHARDS FOLDER [FAMILY...]   (only these, without the later parts)
"""
import csv
import json
import pathlib
import struct
import subprocess
import sys

import torch
import transformers
from huggingface_hub.serialization._base import split_state_dict_into_shards_factory
from peft import AutoPeftModelForCausalLM, LoraConfig, PeftModel, get_peft_model
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer, Mxfp4Config, PreTrainedTokenizerFast

RPEXEC, SAVE_SHARDS, WORK = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
TOLERANCE = 1e-4  # of a log-probability
VOCAB = 97
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()

COMMON = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
              vocab_size=VOCAB, max_position_embeddings=128, bos_token_id=None, eos_token_id=None,
              pad_token_id=None)
DENSE = dict(intermediate_size=48, **COMMON)
FAMILIES = {  # name: model_type, and differences from COMMON
    "llama": ("llama", dict(DENSE, head_dim=16, rope_parameters={
        "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0, "original_max_position_embeddings": 8192})),
    "mistral": ("mistral", dict(DENSE, sliding_window=5)),
    "mixtral": ("mixtral", dict(DENSE, num_local_experts=4, num_experts_per_tok=2,
                                sliding_window=None)),
    "phi3": ("phi3", dict(DENSE, sliding_window=5, rope_parameters={
        "rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5})),
    "phi3-long": ("phi3", dict(  # 16 tokens are more than 12
        DENSE, original_max_position_embeddings=12, rope_parameters={
            "rope_type": "longrope", "rope_theta": 100.0, "partial_rotary_factor": 0.75,
            "short_factor": [1.0, 1.5, 2.0], "long_factor": [1.25, 3.0, 7.5]})),
    "gemma2": ("gemma2", dict(DENSE, head_dim=16, sliding_window=5, query_pre_attn_scalar=7,
                              attn_logit_softcapping=2.0, final_logit_softcapping=5.0)),
    "gemma3": ("gemma3_text", dict(
        DENSE, head_dim=16, sliding_window=5, query_pre_attn_scalar=7,
        layer_types=["sliding_attention", "full_attention"], rope_parameters={
            "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
            "full_attention": {"rope_type": "linear", "rope_theta": 1000.0, "factor": 4.0}})),
    "qwen2": ("qwen2", dict(DENSE, tie_word_embeddings=True)),
    "qwen3": ("qwen3", dict(DENSE, head_dim=16, tie_word_embeddings=True)),
    "qwen3-moe": ("qwen3_moe", dict(COMMON, head_dim=16, moe_intermediate_size=16, num_experts=5,
                                    num_experts_per_tok=2, norm_topk_prob=True)),
    "gpt-oss": ("gpt_oss", dict(DENSE, intermediate_size=32, head_dim=16, num_local_experts=4,
                                num_experts_per_tok=2, sliding_window=5)),
}
failures = 0


def fail(text):
    global failures
    failures += 1
    print("checkpoints:", text)


def rpexec(*words):
    done = subprocess.run([RPEXEC, "--backend", "host", "--gpus", "1", *map(str, words)],
                          capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"rpexec {' '.join(map(str, words))}: {done.stderr}")


def train(model, save, *words):
    rpexec(*model, "--steps", 4, "--seq-len", 16, "--lr", 0.02, "--save", save, *words)
    return save / "step-4"


# ---- losses of sequences --------------------------------------------------------------------------

def sequences(count, length):
    torch.manual_seed(100 + length)
    return torch.randint(0, VOCAB, (count * length + 1,))


def losses_of_rpexec(folder, count, length, words):
    tokens = sequences(count, length)
    data, losses = WORK / "tokens.bin", WORK / "losses.csv"
    data.write_bytes(b"RPTOKENS" + struct.pack("<IIIIQ", 1, 2, VOCAB, 0, len(tokens)) +
                     struct.pack(f"<{len(tokens)}H", *tokens.tolist()))
    rpexec("--weights", folder, "--data", data, "--seq-len", length, "--microbatches", 1, "--steps", count,
           "--lr", 0, "--loss-out", losses, *words)
    with losses.open() as stream:
        return torch.tensor([float(row["loss"]) * length for row in csv.DictReader(stream)])


def losses_of_torch(net, count, length):
    tokens = sequences(count, length)
    with torch.no_grad():
        logits = net(input_ids=tokens[:-1].reshape(count, length)).logits
    each = torch.nn.functional.cross_entropy(logits.reshape(-1, VOCAB), tokens[1:], reduction="none")
    return each.reshape(count, length).sum(1)


def compare(name, folder, net, words=()):
    """Sorted: a loss in the wrong place is further from its neighbours than the tolerance."""
    net.eval()
    worst = 0.0
    for count, length in ((600, 1), (200, 7), (60, 30)):
        ours = losses_of_rpexec(folder, count, length, words).sort().values
        theirs = losses_of_torch(net, count, length).sort().values
        if theirs.std() < 100 * TOLERANCE:
            fail(f"{name}: all sequences have one loss: nothing is compared")
        worst = max(worst, ((ours - theirs).abs() / length).max().item())
    print(f"{name}: log-probabilities differ by {worst:.2g}")
    if not worst <= TOLERANCE:
        fail(f"{name}: {worst} is more than {TOLERANCE}")
    return net


# ---- opening ----------------------------------------------------------------------------------------

def open_model(name, folder, dtype):
    net, info = AutoModelForCausalLM.from_pretrained(folder, dtype="auto", output_loading_info=True)
    if any(info.values()):
        fail(f"{name}: from_pretrained: {info}")
    if net.dtype != dtype:
        fail(f"{name}: opened in {net.dtype}")
    net = net.float()
    for module in net.modules():  # Gemma's factor was rounded to the type in which it was opened
        if hasattr(module, "scalar_embed_scale"):
            module.embed_scale = torch.tensor(module.scalar_embed_scale)
    return net


def check_full(name, model, dtype):
    folder = train(model, WORK / f"{name}-{dtype}", "--dtype", dtype)
    compare(f"{name} {dtype}", folder, open_model(name, folder, DTYPES[dtype]))
    return folder


def check_lora(name, base, dtype):
    folder = train(["--weights", base], WORK / f"{name}-{dtype}-lora", "--dtype", dtype, "--lora-rank", 3,
                   "--lora-alpha", 4.5)
    plain = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    before = losses_of_torch(plain.eval(), 50, 7)
    net = compare(f"{name} {dtype} LoRA", folder, PeftModel.from_pretrained(plain, folder))
    moved = (losses_of_torch(net, 50, 7) - before).abs().max().item()
    if moved < 100 * TOLERANCE:
        fail(f"{name}: adapters change losses by {moved}: nothing is compared")
    # By the folder alone, as named by the base; transformers' own loader takes the same way.
    for kind in (AutoPeftModelForCausalLM, AutoModelForCausalLM):
        alone = kind.from_pretrained(folder, dtype=torch.float32).eval()
        apart = (losses_of_torch(alone, 50, 7) - losses_of_torch(net, 50, 7)).abs().max().item()
        if apart > TOLERANCE:
            fail(f"{name}: {kind.__name__} differs by {apart}")


def check_of_peft(base):
    """PEFT makes and saves adapters; rpexec opens them, and names keys that it does not compute."""
    torch.manual_seed(9)
    plain = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    modules = [f"{one}_proj" for one in ("q", "k", "v", "o", "gate", "up", "down")]
    net = get_peft_model(plain, LoraConfig(r=4, lora_alpha=6, target_modules=modules, task_type="CAUSAL_LM"))
    with torch.no_grad():
        for key, parameter in net.named_parameters():
            if "lora_B" in key:
                parameter.add_(0.1 * torch.randn_like(parameter))
    folder = WORK / "of-peft"
    net.save_pretrained(folder)
    compare("adapters of PEFT", folder, net)
    config = json.loads((folder / "adapter_config.json").read_text())
    for key, value in (("use_rslora", True), ("use_dora", True), ("lora_dropout", 0.1)):
        (folder / "adapter_config.json").write_text(json.dumps({**config, key: value}))
        try:
            losses_of_rpexec(folder, 1, 1, ())
            fail(f"adapters with {key} {value} are read")
        except RuntimeError as error:
            if f"{key}: valid values are" not in str(error):
                fail(f"adapters with {key}: {error}")


def check_subsets(base, sets):
    """PEFT's adapters on some modules: opened, trained, and saved in PEFT's form."""
    for number, modules in enumerate(sets):
        torch.manual_seed(9)
        plain = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
        net = get_peft_model(plain, LoraConfig(r=4, lora_alpha=6, target_modules=modules, task_type="CAUSAL_LM"))
        with torch.no_grad():
            for key, parameter in net.named_parameters():
                if "lora_B" in key:
                    parameter.add_(0.1 * torch.randn_like(parameter))
        folder = WORK / f"subset-{base.name}-{number}"
        net.save_pretrained(folder)
        name = f"{base.name} with adapters on {modules}"
        compare(name, folder, net)
        saved = train(["--weights", folder], WORK / f"subset-{base.name}-{number}-saved")
        plain = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
        compare(f"{name}, saved", saved, PeftModel.from_pretrained(plain, saved))
        wanted = {key.split(".lora_")[0].rsplit(".", 1)[1] for key in load_file(folder / "adapter_model.safetensors")}
        if set(json.loads((saved / "adapter_config.json").read_text())["target_modules"]) != wanted:
            fail(f"{name}: other target_modules are saved")


def check_variants(base):
    """rpexec reads everything in a folder that transformers reads."""
    tensors = load_file(base / "model.safetensors")
    config = (base / "config.json").read_text()
    tied = json.loads(config).get("tie_word_embeddings", "lm_head.weight" not in tensors)
    others = {key: value + 0.05 * torch.randn_like(value) for key, value in tensors.items()}
    buffers = {f"model.layers.{layer}.self_attn.rotary_emb.inv_freq": torch.ones(8) for layer in range(2)}
    head = {("lm_head.weight" if key == "model.embed_tokens.weight" else key): value
            for key, value in tensors.items() if key != "lm_head.weight"}
    for name, files in (("buffers", {"model": {**tensors, **buffers}}), ("head", {"model": head} if tied else {}),
                        ("index", {"model": tensors, "model-00001-of-00001": others})):
        folder = WORK / f"{base.name}-{name}"
        folder.mkdir()
        (folder / "config.json").write_text(config)
        for file, content in files.items():
            save_file(content, folder / f"{file}.safetensors", metadata={"format": "pt"})
        if name == "index":
            (folder / "model.safetensors.index.json").write_text(json.dumps(
                {"metadata": {}, "weight_map": {key: "model-00001-of-00001.safetensors" for key in others}}))
        if files:
            compare(f"{base.name} with {name}", folder,
                    AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32))


def check_packed(base):
    """gpt-oss with random blocks: opened, trained and saved unpacked, and as the base of adapters."""
    folder = WORK / "packed-model"
    folder.mkdir()
    config = json.loads((base / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}
    (folder / "config.json").write_text(json.dumps(config))
    tensors = load_file(base / "model.safetensors")
    torch.manual_seed(3)
    for name in [key for key in tensors if key.endswith(("experts.gate_up_proj", "experts.down_proj"))]:
        experts, columns, rows = tensors.pop(name).shape
        tensors[f"{name}_blocks"] = torch.randint(0, 256, (experts, rows, columns // 32, 16)).byte()
        tensors[f"{name}_scales"] = torch.randint(121, 126, (experts, rows, columns // 32)).byte()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})

    def open_packed():
        net = AutoModelForCausalLM.from_pretrained(
            folder, quantization_config=Mxfp4Config(dequantize=True), dtype=torch.float32)
        return net.float()

    compare("packed gpt-oss", folder, open_packed())
    saved = check_full("packed", ["--weights", folder], "fp32")
    if "quantization_config" in json.loads((saved / "config.json").read_text()):
        fail("saved weights are said to be packed")
    adapters = train(["--weights", folder], WORK / "packed-lora", "--lora-rank", 3)
    compare("packed gpt-oss LoRA", adapters, PeftModel.from_pretrained(open_packed(), adapters))


def make(name):
    kind, sizes = FAMILIES[name]
    torch.manual_seed(5)
    config = transformers.AutoConfig.for_model(kind, **sizes)
    net = AutoModelForCausalLM.from_config(config).to(torch.float32)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    folder = WORK / f"{name}-model"
    net.save_pretrained(folder)
    return folder


def check_tokenizer(base, folder):
    words = PreTrainedTokenizerFast.from_pretrained(folder)
    text = "b a c"
    if (words(text)["input_ids"] != [1, 0, 2] or
            AutoTokenizer.from_pretrained(folder)(text)["input_ids"] != [1, 0, 2]):
        fail("the tokenizer is another one")
    for file in base.iterdir():
        carried = folder / file.name
        if file.suffix != ".safetensors" and file.name != "config.json" and (
                not carried.exists() or carried.read_bytes() != file.read_bytes()):
            fail(f"{file.name} was not carried along")


def check_shards(folder, limit):
    """A checkpoint written with a small limit, opened, and cut as huggingface_hub would."""
    shards = WORK / "shards"
    shards.mkdir()
    subprocess.run([SAVE_SHARDS, folder, shards, str(limit)], check=True)
    (shards / "config.json").write_bytes((folder / "config.json").read_bytes())
    index = json.loads((shards / "model.safetensors.index.json").read_text())
    sizes = {}
    with safe_open(folder / "model.safetensors", "pt") as whole:
        for key in whole.offset_keys():
            tensor = whole.get_tensor(key)
            sizes[key] = tensor.numel() * tensor.element_size()
    expected = split_state_dict_into_shards_factory(
        sizes, get_storage_size=lambda size: size, filename_pattern="model{suffix}.safetensors",
        max_shard_size=limit)
    if (index["weight_map"] != expected.tensor_to_filename or
            index["metadata"]["total_size"] != expected.metadata["total_size"] or
            set(expected.filename_to_tensors) != {path.name for path in shards.glob("*.safetensors")}):
        fail(f"shards of {limit} bytes: {index}")
    count = len(expected.filename_to_tensors)
    compare(f"{folder.parent.name} in {count} shards", shards, open_model("shards", shards, torch.bfloat16))


def finish():
    print(f"checkpoints: {failures} failures")
    sys.exit(failures != 0)


def main():
    for name in sys.argv[4:] or FAMILIES:
        base = make(name)
        if name == "llama":
            words = PreTrainedTokenizerFast(
                tokenizer_object=Tokenizer(models.WordLevel({"a": 0, "b": 1, "c": 2}, unk_token="a")))
            words.backend_tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
            words.save_pretrained(base)
            (base / "chat_template.jinja").write_text("{{ messages }}")
        for dtype in DTYPES:
            folder = check_full(name, ["--weights", base], dtype)
            check_lora(name, base, dtype)
        if name == "llama":
            check_tokenizer(base, folder)
            check_tokenizer(base, WORK / f"{name}-bf16-lora" / "step-4")
        check_variants(base)
        if name == "gpt-oss":
            check_packed(base)
    if sys.argv[4:]:
        finish()
    check_of_peft(WORK / "qwen3-model")
    check_subsets(WORK / "qwen3-model", (["q_proj", "v_proj"], r".*self_attn\.(q|k|v|o)_proj", ["down_proj"],
                                         ["o_proj", "gate_proj"], "all-linear"))
    for name in ("mixtral", "qwen3-moe", "gpt-oss"):
        check_subsets(WORK / f"{name}-model", (["q_proj", "v_proj"],))
    check_subsets(WORK / "phi3-model", (["qkv_proj"], ["gate_up_proj", "down_proj"]))
    global VOCAB
    VOCAB = 256
    DTYPES["fp16"] = torch.float16
    for name in ("tiny", "tiny-moe"):
        for dtype in DTYPES:
            check_full(name, ["--model", name], dtype)
            save = WORK / f"{name}-{dtype}-lora"
            adapters = train(["--model", name], save, "--dtype", dtype, "--lora-rank", 3)
            base = open_model(name, save / "base", DTYPES[dtype])
            compare(f"{name} {dtype} LoRA", adapters, PeftModel.from_pretrained(base, adapters))
    check_shards(WORK / "tiny-moe-bf16" / "step-4", 100000)
    finish()


main()
