"""Makes tests/golden/stored.csv: bytes of tensors that bitsandbytes and torchao make on a CPU.

Usage: make.py > tests/golden/stored.csv, with the packages torch, bitsandbytes and torchao of PyPI

A frozen matrix is made as the packages' users make it: Linear4bit of transformers' BitsAndBytesConfig, torchao's
quantize_ and MXTensor. `values` are the bytes of the parameter, `scales` of all other tensors that it refers to. The
states of Adam are those that the optimizers allocate for a parameter; tables of 256 floats, which bitsandbytes keeps
once for all parameters and torchao for each, are apart: `tables`.
"""

import csv
import importlib.metadata
import sys

import bitsandbytes as bnb
import torch
from bitsandbytes.functional import QuantState
from torchao.optim import AdamW8bit
from torchao.prototype.mx_formats.mx_tensor import MXTensor
from torchao.quantization import Float8WeightOnlyConfig, quantize_

SHAPES = [(11008, 4096), (1024, 3584), (512, 64), (96, 160), (257, 64), (33, 32), (5, 96), (64, 64)]
COUNTS = [1, 255, 4095, 4096, 4097, 5120, 65536, 100001, 1048576, 12582912]


def size(tensor):
    return tensor.numel() * tensor.element_size()


def held(state):
    """Tensors of a QuantState, those of its own state of scales too."""
    for value in vars(state).values():
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, QuantState):
            yield from held(value)


def nf4(rows, columns, double=True):
    layer = bnb.nn.Linear4bit(columns, rows, bias=False, compute_dtype=torch.bfloat16, compress_statistics=double,
                              quant_type="nf4")
    layer.load_state_dict({"weight": torch.randn(rows, columns, dtype=torch.bfloat16)})
    layer = layer.to("cpu")
    weight = layer.weight
    if weight.quant_state is None:  # a layer that is on the CPU already is not quantised by .to
        weight = weight._quantize(torch.device("cpu"))
    return size(weight.data), sum(map(size, held(weight.quant_state)))


def nf4_single(rows, columns):
    return nf4(rows, columns, False)


def inner(tensor, values):
    """Bytes of the tensors inside of a tensor subclass: those called `values`, and all others."""
    names, _ = tensor.__tensor_flatten__()
    parts = {name: size(getattr(tensor, name)) for name in names if getattr(tensor, name) is not None}
    return parts.pop(values), sum(parts.values())


def fp8(rows, columns):
    model = torch.nn.Sequential(torch.nn.Linear(columns, rows, bias=False, dtype=torch.bfloat16))
    quantize_(model, Float8WeightOnlyConfig())
    return inner(model[0].weight, "qdata")


def mxfp4(rows, columns):
    matrix = MXTensor.to_mx(torch.randn(rows, columns, dtype=torch.bfloat16), torch.float4_e2m1fn_x2, 32)
    return inner(matrix, "qdata")


def states_of_bitsandbytes(count):
    parameter = torch.nn.Parameter(torch.zeros(count, dtype=torch.bfloat16))
    parameter.grad = torch.zeros_like(parameter)
    optimizer = bnb.optim.AdamW8bit([parameter])
    optimizer.fill_qmap()
    optimizer.check_overrides()
    optimizer.init_state(optimizer.param_groups[0], parameter, 0, 0)
    state = optimizer.state[parameter]
    tensors = {name: value for name, value in state.items() if isinstance(value, torch.Tensor)}
    tables = sum(size(tensors.pop(name)) for name in list(tensors) if name.startswith("qmap"))
    return sum(map(size, tensors.values())), tables


def states_of_torchao(count):
    parameter = torch.nn.Parameter(torch.zeros(count, dtype=torch.bfloat16))
    optimizer = AdamW8bit([parameter])
    total = tables = 0
    for signed in (True, False):
        buffer = optimizer._new_buffer(parameter, signed)
        if hasattr(buffer, "__tensor_flatten__") and type(buffer) is not torch.Tensor:
            names, _ = buffer.__tensor_flatten__()
            tables += sum(size(getattr(buffer, name)) for name in names if name == "qmap")
            total += sum(size(getattr(buffer, name)) for name in names if name != "qmap")
        else:
            total += buffer.numel() * buffer.element_size()
    return total, tables


def main():
    writer = csv.writer(sys.stdout, lineterminator="\n")
    versions = {name: importlib.metadata.version(name) for name in ("bitsandbytes", "torchao")}
    writer.writerow("package version type rows columns values scales tables".split())
    for rows, columns in SHAPES:
        for package, kind, make in (("bitsandbytes", "nf4", nf4), ("bitsandbytes", "nf4-single", nf4_single),
                                    ("torchao", "fp8", fp8), ("torchao", "mxfp4", mxfp4)):
            writer.writerow([package, versions[package], kind, rows, columns, *make(rows, columns), 0])
    for count in COUNTS:
        for package, make in (("bitsandbytes", states_of_bitsandbytes), ("torchao", states_of_torchao)):
            states, tables = make(count)
            writer.writerow([package, versions[package], "8bit", count, 1, states, 0, tables])


if __name__ == "__main__":
    main()
