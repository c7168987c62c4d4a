"""Clang builds everything, tests included, with warnings as errors, and each fuzzer searches for ten seconds from its
committed corpus. With RP_LONG=1 only; needs clang with its sanitizers (apt packages clang, libclang-rt-dev).

Release only: it has a build of its own.
"""

import pytest

from conftest import BUILD, LONG, SOURCE, need, ran

FUZZERS = sorted(file.name.removesuffix(".tar.gz") for file in (SOURCE / "tests/fuzz/corpus").glob("*.tar.gz"))


@pytest.fixture(scope="module")
def built(shared):
    """The folder of a build by clang."""
    if not LONG:
        pytest.skip("RP_LONG is not 1")
    need("clang")
    probe = "clang -fsanitize=address,undefined -x c - -o probe"
    if ran(probe, input="int main(void) { return 0; }", status=None).status != 0:
        pytest.skip("no clang with sanitizers (apt packages clang, libclang-rt-14-dev)")
    options = ("-G Ninja -DCMAKE_EXPORT_COMPILE_COMMANDS=ON -DCMAKE_C_COMPILER=clang -DCMAKE_BUILD_TYPE=RelWithDebInfo"
               " -DRP_FUZZ=ON -DRP_SANITIZE=address,undefined -DRP_CUDA=OFF -DRP_WERROR=ON -DRP_TESTS=ON")
    ran("cmake -S", SOURCE, "-B", BUILD / "clang", *options.split())
    ran("cmake --build", BUILD / "clang", timeout=None)
    return BUILD / "clang"


@pytest.mark.parametrize("name", FUZZERS)
def test_fuzzer(built, run, name):
    run(built / f"tests/fuzz/fuzz_{name}", "-max_total_time=10", "-timeout=20", ".", built / "tests/data/corpus" / name)
