"""Builds the hash tool without optimisation and with all of it and compares with the committed hashes. The release
build (-O2) and the sanitized build (-O1) check these every day in tests/sim/engine/determinism.c. With RP_LONG=1 only.

Release only: it has builds of its own.
"""

import pytest

from conftest import LONG, SOURCE


@pytest.mark.parametrize("flags", ["-O3 -march=native", "-O0"])
def test_determinism(run, flags):
    if not LONG:
        pytest.skip("builds the tree twice more, with --long")
    options = "-G Ninja -DCMAKE_BUILD_TYPE=None -DRP_CUDA=OFF -DRP_TESTS=ON".split()
    run("cmake -B build -S", SOURCE, *options, f"-DCMAKE_C_FLAGS={flags}")
    run("cmake --build build --target hash_runs", timeout=None)
    assert run("./build/tests/hash_runs").out == (SOURCE / "tests/golden/hashes.csv").read_text()
