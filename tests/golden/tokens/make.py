#!/usr/bin/env python3
"""Token files of NumPy, llm.c and Megatron, for unit.exec_data_tokens. Usage: make.py FOLDER,
then tests/tools/folded.py fold tests/golden/tokens.tar.gz FOLDER

NumPy's are numpy.save's, Megatron's are IndexedDatasetBuilder's of megatron-core. llm.c has no
package: its files are the 256 int32 and the tokens that its dev/data scripts document. Token i of
each file is (7 i i + 3 i) % 89, so that the test knows them; documents have DOCUMENTS tokens.
"""
import pathlib
import sys

import numpy
import torch
from megatron.core.datasets.indexed_dataset import IndexedDatasetBuilder

FOLDER = pathlib.Path(sys.argv[1])
COUNT = 60
DOCUMENTS = [7, 1, 12, 20, 4, 16]  # the third is added as two sequences
index = numpy.arange(COUNT)
tokens = (7 * index * index + 3 * index) % 89

for kind in ("uint8", "uint16", "uint32", "int32", "int64"):
    numpy.save(FOLDER / f"numpy-{kind}.npy", tokens.astype(kind))
for version in ((2, 0), (3, 0)):
    with (FOLDER / f"numpy-v{version[0]}.npy").open("wb") as stream:
        numpy.lib.format.write_array(stream, tokens.astype("<u2"), version=version)
numpy.save(FOLDER / "numpy-rows.npy", tokens.astype("<u2").reshape(12, 5))
numpy.save(FOLDER / "bad-big-endian.npy", tokens.astype(">i4"))
numpy.save(FOLDER / "bad-fortran.npy", numpy.asfortranarray(tokens.astype("<u2").reshape(12, 5)))
numpy.save(FOLDER / "bad-floats.npy", tokens.astype("<f4"))
numpy.save(FOLDER / "bad-cube.npy", tokens.astype("<u2").reshape(3, 4, 5))

for name, magic, version, kind in (("gpt2", 20240520, 1, "<u2"), ("llama3", 20240801, 7, "<u4")):
    header = numpy.zeros(256, dtype="<i4")
    header[:3] = magic, version, COUNT
    (FOLDER / f"llmc-{name}.bin").write_bytes(header.tobytes() + tokens.astype(kind).tobytes())

for kind in ("uint16", "int32"):
    builder = IndexedDatasetBuilder(str(FOLDER / f"megatron-{kind}.bin"), dtype=numpy.dtype(kind).type)
    at = 0
    for number, length in enumerate(DOCUMENTS):
        for part in (5, length - 5) if number == 2 else (length,):
            builder.add_item(torch.from_numpy(tokens[at:at + part].astype("int64")))
            at += part
        builder.end_document()
    builder.finalize(str(FOLDER / f"megatron-{kind}.idx"))
