#!/usr/bin/env python3
"""Writes the tables of measured products, traces/products/GPU.csv, from paper-figures/published/simumax_kernels.csv.

    products.py [--check]

With --check it compares the committed tables with what it would write. Products of a single matrix count; gradients of
weights are those summed up in fp32.
"""

import csv
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PUBLISHED = ROOT / "paper-figures/published/simumax_kernels.csv"
# Name of the card there: that of traces/gpus, and the limit of its power by the data sheet, W.
CARDS = {"b200": ("b200", 1000), "a100_80gb_pcie": ("a100-80-pcie", 300)}


def measured(card):
    """Rows of the card: layout, m, n, k, share."""
    lines = [line for line in PUBLISHED.read_text().splitlines() if not line.startswith("#")]
    for row in csv.DictReader(lines):
        if row["gpu"] != card or row["op"] != "matmul":
            continue
        shape = dict(part.split("=") for part in row["shape"].split(";"))
        if shape["layout"] == "NT" and shape["out_dtype"] != "fp32":
            continue
        assert shape["b"] == "1"
        yield shape["layout"], int(shape["m"]), int(shape["n"]), int(shape["k"]), row["efficiency"]


def table(card):
    source = next(line for line in PUBLISHED.read_text().splitlines() if line.startswith("# source: "))
    rows = sorted(measured(card), key=lambda row: (("TN", "NN", "NT").index(row[0]), *row[1:4]))
    assert len({row[:4] for row in rows}) == len(rows), "a shape is measured twice"
    head = [f"# Products measured on {card}, m x k by k x n in bf16: TN forward, NN gradient of inputs, NT gradient of",
            "# weights, summed up in fp32. share: of the dense peak. power_limit_w: the data sheet's.",
            source, "# Written by tests/tools/products.py from paper-figures/published/simumax_kernels.csv.",
            "layout,m,n,k,share,power_limit_w"]
    return "".join(line + "\n" for line in head + [",".join(map(str, (*row, CARDS[card][1]))) for row in rows])


def main():
    stale = []
    for card, (name, _) in CARDS.items():
        path = ROOT / f"traces/products/{name}.csv"
        if "--check" not in sys.argv[1:]:
            path.parent.mkdir(exist_ok=True)
            path.write_text(table(card))
        elif not path.exists() or path.read_text() != table(card):
            stale.append(f"{path}: not what tests/tools/products.py writes")
    sys.exit("\n".join(stale) or 0)


main()
