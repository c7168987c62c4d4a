"""Reads exports of rpadvise with the packages that they are for.

packages.py options > options.csv    names of the options of these packages
packages.py parse FOLDER ROW.json    the files of FOLDER by the packages' own parsers; the sizes that they find are
                                     those of ROW.json, which rpsim has printed for the command of FOLDER/README.md

Needs torch, deepspeed, megatron-core and RoundPipe (tests/tools/exports_venv.sh). No GPU is needed: RoundPipe's library
asks for the memory of GPUs on import, and is given a made-up GPU.
"""
import argparse
import contextlib
import csv
import dataclasses
import importlib
import importlib.metadata
import inspect
import io
import json
import os
import subprocess
import sys
import types
import warnings

warnings.simplefilter("ignore")
folder = row = None
found = []


def check(what, got, expected):
    if got != expected:
        sys.exit(f"{folder}: {what}: the package reads {got!r}, rpsim says {expected!r}")
    found.append(what)


@contextlib.contextmanager
def silence():
    """Some packages print their arguments, deepspeed to a handle that it keeps."""
    saved = os.dup(1)
    null = os.open(os.devnull, os.O_WRONLY)
    sys.stdout.flush()
    os.dup2(null, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(saved, 1)


def layers_of(text):
    return [[int(count) for count in part.split(",")] for part in text.split("|")]


def first_comment(path):
    """Settings that a file leaves open."""
    line = next(line for line in open(path) if not line.startswith("#!"))
    return line.removeprefix("# Open: ").split(", which")[0].rstrip(".\n")


# ---- Megatron-LM ------------------------------------------------------------------------------------------------------


def megatron_parser():
    from megatron.training.arguments import add_megatron_arguments

    return add_megatron_arguments(argparse.ArgumentParser(allow_abbrev=False))


def parse_megatron(path):
    from megatron.training import arguments

    os.environ["WORLD_SIZE"], os.environ["RANK"] = str(row["gpus"]), "0"
    os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"  # as the script has it
    # Transformer Engine's fusions are missing without its package; the first comment leaves the rate open.
    started = subprocess.run(["sh", path, "--lr", "1e-5", "--no-rope-fusion"], env=os.environ | {"TORCHRUN": "echo"},
                             check=True, capture_output=True, text=True).stdout.split()
    check("megatron script", started[0], "pretrain_gpt.py")
    sys.argv = started
    arguments.get_device_arch_version = lambda: 9  # of the GPU, asked for with tensor parallelism
    with silence():
        args = arguments.parse_args()
        arguments.validate_args(args)
        arguments.core_transformer_config_from_args(args)
    check("megatron open", (first_comment(path), args.lr), ("--lr, data, tokenizer and length of the training", 1e-5))
    check("megatron seq_len", args.seq_length, row["seq_len"])
    check("megatron dtype", args.params_dtype, dtype())
    check("megatron gpus", args.world_size, row["gpus"])
    check("megatron global_batch", args.global_batch_size, row["global_batch"])
    units = row["microbatches"] // args.tensor_model_parallel_size
    check("megatron microbatches", args.global_batch_size // args.micro_batch_size // args.data_parallel_size, units)
    layers = layers_of(row["partition"])[0]
    check("megatron num_layers", args.num_layers, sum(layers))
    if args.pipeline_model_parallel_size > 1:
        check("megatron pipeline", args.pipeline_model_parallel_size, row["gpus"])
        check("megatron stages", args.pipeline_model_parallel_size * (args.virtual_pipeline_model_parallel_size or 1), len(layers))
        check("megatron partition", megatron_layers(args), layers)
    else:
        check("megatron tensor", args.tensor_model_parallel_size, row["gpus"])
    check("megatron recompute", args.recompute_granularity, None if row["recompute"] == "none" else "full")
    if row["recompute"] != "none":
        check("megatron grain", args.recompute_num_layers, 1 if row["grain"] == "layer" else max(layers))


def megatron_layers(args):
    """Blocks of each stage, in the model's order."""
    from megatron.core.transformer.enums import LayerType

    pipeline = args.pipeline_model_parallel_size
    chunks = args.virtual_pipeline_model_parallel_size or 1
    layout = args.pipeline_model_parallel_layout
    if layout is None:
        return [args.num_layers // pipeline // chunks] * (pipeline * chunks)
    if isinstance(layout, str):
        from megatron.core.transformer.pipeline_parallel_layer_layout import PipelineParallelLayerLayout

        layout = PipelineParallelLayerLayout(layout, pipeline)
    layout.validate_layer_layout(args.num_layers, None)
    return [layout.layout[rank][chunk].count(LayerType.decoder) for chunk in range(chunks) for rank in range(pipeline)]


# ---- DeepSpeed --------------------------------------------------------------------------------------------------------


def deepspeed_config():
    with silence():
        module = importlib.import_module("deepspeed.runtime.config")
    module.logger.disabled = True
    return module


def parse_deepspeed(path):
    import torch

    module = deepspeed_config()
    replicas = 1 if "pipeline" in json.load(open(path)) else row["gpus"]
    group = types.SimpleNamespace(get_data_parallel_world_size=lambda: replicas)
    module.dist = types.SimpleNamespace(get_rank=lambda: 0)
    with silence():
        config = module.DeepSpeedConfig(path, group)
    check("deepspeed global_batch", config.train_batch_size, row["global_batch"])
    check("deepspeed microbatch_size", config.train_micro_batch_size_per_gpu, row["microbatch_size"])
    check("deepspeed microbatches", config.gradient_accumulation_steps * replicas, row["microbatches"])
    check("deepspeed dtype", [config.float16_config.enabled, config.bfloat16_config.enabled],
          [row["dtype"] == "fp16", row["dtype"] == "bf16"])
    unknown = set(config.zero_config.model_extra or {})
    check("deepspeed unknown keys", unknown, set())
    check("deepspeed open", list(json.load(open(path)))[0], "_open")
    check("deepspeed optimizer", (config.optimizer_name, config.optimizer_params), ("adamw", {"lr": "auto"}))
    refused = []
    for fail in (lambda lr: torch.optim.AdamW([torch.zeros(1, requires_grad=True)], lr=lr), float):
        try:
            fail(config.optimizer_params["lr"])
        except (TypeError, ValueError):
            refused.append(True)
    check("deepspeed trains with no rate of its own", refused, [True, True])
    zero = {"zero2": (2, None, None), "zero3": (3, None, None), "zero-offload": (2, "cpu", None), "zero-infinity": (3, "cpu", "cpu")}
    device = lambda offload: None if offload is None else str(getattr(offload.device, "value", offload.device))
    check("deepspeed zero", (int(config.zero_config.stage), device(config.zero_config.offload_optimizer),
          device(config.zero_config.offload_param)), zero.get(row["schedule"], (0, None, None)))
    if replicas == 1:
        check("deepspeed stages", config.pipeline["stages"], len(layers_of(row["partition"])[0]))
        pipeline = importlib.import_module("deepspeed.runtime.pipe.module").PipelineModule
        inspect.signature(pipeline.__init__).bind(None, [], num_stages=config.pipeline["stages"], activation_checkpoint_interval=1,
                                                  partition_method=config.pipeline["partition"])
        # Its rule for partition_method "type:": each block counts 1; embedding, norm and head count 0.
        layers = layers_of(row["partition"])[0]
        utils = importlib.import_module("deepspeed.runtime.utils")
        bounds = utils.partition_balanced(weights=[0] + [1] * sum(layers) + [0, 0], num_parts=len(layers))
        blocks = lambda begin, end: sum(1 <= layer <= sum(layers) for layer in range(begin, end))
        check("deepspeed partition", [blocks(*pair) for pair in zip(bounds, bounds[1:])], layers)


# ---- PyTorch ----------------------------------------------------------------------------------------------------------


def dtype():
    import torch

    return {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}[row["dtype"]]


def parse_pipelining(path):
    import torch
    import torch.distributed.pipelining.schedules as schedules
    from torch.distributed.pipelining.stage import _PipelineStageBase

    side = json.load(open(path.replace(".csv", ".json")))
    rank_of = {stage: rank for rank, stages in enumerate(side["ranks"]) for stage in stages}

    class Stage(_PipelineStageBase):
        def __init__(self, index):
            self.stage_index, self.num_stages, self.group_size, self.group_rank = index, len(rank_of), row["gpus"], 0
            self.group, self.device, self.has_backward, self.submod = None, torch.device("cpu"), True, torch.nn.Identity()
            self.stage_index_to_group_rank = rank_of

        _create_grad_recv_info = _prepare_forward_infra = _prepare_backward_infra = lambda *_: None

    runtime = schedules._PipelineScheduleRuntime([Stage(i) for i in side["ranks"][0]], row["microbatches"],
                                                 loss_fn=lambda output, target: output.sum())
    runtime.stage_index_to_group_rank = rank_of
    runtime._load_csv(path)  # lowers it, too
    check("torch ranks", len(runtime.pipeline_order), row["gpus"])
    actions = [action for rank in runtime.pipeline_order.values() for action in rank if action is not None]
    forwards = sum(str(part).count("F") for action in actions for part in (action.sub_actions or [action])
                   if part.computation_type == schedules.FORWARD)
    check("torch forwards", forwards, row["microbatches"] * len(rank_of))
    check("torch lowered", all(rank in runtime.pipeline_order_with_comms for rank in range(row["gpus"])), True)
    check("torch partition", [end - begin for begin, end in side["forward_layers"]], layers_of(row["partition"])[0])


def load(path):
    scope = {}
    exec(compile(open(path).read(), path, "exec"), scope)
    return scope


def parse_fsdp(path):
    import torch
    from torch.distributed.fsdp import CPUOffloadPolicy, fully_shard

    module = load(path)
    check("fsdp open", "learning rate" in first_comment(path), True)
    scaler = module.get("GRAD_SCALER")
    check("fsdp scaler", scaler is not None, row["dtype"] == "fp16")
    if scaler is not None:
        torch.amp.GradScaler(**scaler)
    inspect.signature(fully_shard).bind(torch.nn.Identity(), **module["FULLY_SHARD"])
    inspect.signature(fully_shard).bind(torch.nn.Identity(), **module["ROOT"])
    check("fsdp dtype", module["FULLY_SHARD"]["mp_policy"].param_dtype, dtype())
    check("fsdp offload", isinstance(module["FULLY_SHARD"]["offload_policy"], CPUOffloadPolicy),
          row["schedule"] == "fsdp-offload")
    check("fsdp partition", module["BLOCKS_PER_UNIT"], layers_of(row["partition"])[0])
    check("fsdp microbatches", module["MICROBATCHES_PER_GPU"] * module["GPUS"], row["microbatches"])
    check("fsdp microbatch_size", module["SEQUENCES_PER_MICROBATCH"], row["microbatch_size"])


# ---- RoundPipe --------------------------------------------------------------------------------------------------------


def roundpipe():
    """The package's own modules, without its __init__, which wants GPUs."""
    place = importlib.util.find_spec("roundpipe").submodule_search_locations
    package = sys.modules["roundpipe"] = types.ModuleType("roundpipe")
    package.__path__ = list(place)
    device = importlib.import_module("roundpipe.device")
    device.get_min_gpu_memory = lambda: 24.0
    from roundpipe.grad_scaler import GradScaler
    from roundpipe.run_config import RoundPipeRunConfig
    from roundpipe.scheduler import ModelExecutePlan

    package.RoundPipeRunConfig, package.ModelExecutePlan, package.GradScaler = RoundPipeRunConfig, ModelExecutePlan, GradScaler
    return importlib.import_module("roundpipe.roundpipe").RoundPipe


def parse_roundpipe(path):
    model = roundpipe()
    module = load(path)
    check("roundpipe open", "learning rate" in first_comment(path), True)
    check("roundpipe scaler", "GRAD_SCALER" in module, row["dtype"] == "fp16")
    forward, backward = layers_of(row["partition"])
    blocks = sum(backward)
    plan = module["RUN_CONFIG"].execute_plan
    plan.check_valid(blocks + 2, "fused")
    clip = lambda ranges: [sum(1 <= layer <= blocks for layer in r) for r in ranges]
    check("roundpipe forward", clip(plan.fwd_plan), forward)
    check("roundpipe backward", clip(plan.bwd_plan), backward)
    check("roundpipe num_microbatch", module["RUN_CONFIG"].num_microbatch, row["microbatches"])
    check("roundpipe grain", module["RUN_CONFIG"].recompute_grain, row["grain"])
    check("roundpipe async", module["STEP"]["is_async"], row["optimizer"] == "async")
    check("roundpipe global_batch", module["SEQUENCES_PER_STEP"], row["global_batch"])
    check("roundpipe dtype", module["PARAM_DTYPE"], dtype())
    inspect.signature(model.__init__).bind(None, None, **module["MODEL"])
    inspect.signature(model.step).bind(None, print, **module["STEP"])


# ---- options ----------------------------------------------------------------------------------------------------------


def parameters(function):
    return [name for name, p in inspect.signature(function).parameters.items()
            if name != "self" and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]


def write_options():
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    config = deepspeed_config()
    zero = importlib.import_module("deepspeed.runtime.zero.config")
    offload = importlib.import_module("deepspeed.runtime.zero.offload_config")
    names = lambda model: [field.alias or name for name, field in model.model_fields.items()]
    constants = importlib.import_module("deepspeed.runtime.constants")
    top = ["TRAIN_BATCH_SIZE", "TRAIN_MICRO_BATCH_SIZE_PER_GPU", "GRADIENT_ACCUMULATION_STEPS", "OPTIMIZER"]
    precision = importlib.import_module("deepspeed.runtime.precision_config")
    activation = importlib.import_module("deepspeed.runtime.activation_checkpointing.config")
    model = roundpipe()
    lists = [
        ("megatron-core", "argument", [o for a in megatron_parser()._actions for o in a.option_strings if o.startswith("--")]),
        ("deepspeed", "key", [getattr(constants, name) for name in top] +
         [zero.ZERO_OPTIMIZATION, precision.FP16, precision.BFLOAT16, activation.ACT_CHKPT, "pipeline"]),
        ("deepspeed", "optimizer", [constants.TYPE, constants.OPTIMIZER_PARAMS]),
        ("deepspeed", "params", parameters(importlib.import_module("deepspeed.ops.adam").FusedAdam.__init__)),
        ("deepspeed", "zero_optimization", names(zero.DeepSpeedZeroConfig)),
        ("deepspeed", "offload_optimizer", names(offload.DeepSpeedZeroOffloadOptimizerConfig)),
        ("deepspeed", "offload_param", names(offload.DeepSpeedZeroOffloadParamConfig)),
        ("deepspeed", "fp16", names(precision.DeepSpeedFP16Config)),
        ("deepspeed", "bf16", names(precision.DeepSpeedBF16Config)),
        ("deepspeed", "activation_checkpointing", [getattr(activation, name) for name in dir(activation)
         if name.startswith("ACT_CHKPT_") and not name.endswith("DEFAULT")]),
        ("deepspeed", "pipeline", list(config.get_pipeline_config({}))),
        ("torch", "fully_shard", parameters(fully_shard)),
        ("torch", "MixedPrecisionPolicy", [field.name for field in dataclasses.fields(MixedPrecisionPolicy)]),
        ("RoundPipe", "RoundPipe", parameters(model.__init__)),
        ("RoundPipe", "step", parameters(model.step)),
        ("RoundPipe", "RoundPipeRunConfig", parameters(sys.modules["roundpipe"].RoundPipeRunConfig.__init__)),
        ("RoundPipe", "ModelExecutePlan", list(vars(sys.modules["roundpipe"].ModelExecutePlan()))),
    ]
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["package", "version", "of", "option"])
    for package, of, options in lists:
        for option in sorted(set(options)):
            writer.writerow([package, importlib.metadata.version(package), of, option])


PARSERS = {
    "roundpipe_config.py": parse_roundpipe,
    "deepspeed.json": parse_deepspeed,
    "megatron-lm.sh": parse_megatron,
    "torch-pipelining.csv": parse_pipelining,
    "torch_fsdp.py": parse_fsdp,
}

if sys.argv[1] == "options":
    write_options()
else:
    folder, row = sys.argv[2], json.load(open(sys.argv[3]))[0]
    files = [name for name in PARSERS if os.path.exists(f"{folder}/{name}")]
    for name in files:
        PARSERS[name](f"{folder}/{name}")
    print(f"{os.path.basename(folder)}: {len(found)} values of {', '.join(files)}")
