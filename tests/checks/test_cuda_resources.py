"""Registers, shared memory, stack and spills of every CUDA kernel, as ptxas said when the build compiled it
(exec/cuda/resources.sh). Nothing spills on any architecture, and no kernel takes more than
tests/golden/cuda_resources.csv says. These figures hold for the compiler that the table names; kernels of other
releases must not spill. Packs of values are stored 16 bytes at a time: eight stores of 2 bytes take eight times as
many accesses to the L2 cache. Release only: other builds would compile the same.
"""

import re

import pytest

from conftest import BUILD, SOURCE, need, ran

KERNELS = SOURCE / "exec/cuda/kernels"
VALUES = {"experts_bias_input", "norm_weight_parts", "row_statistics", "squares"}  # load packs, store single values
OBJECTS = BUILD / "exec/cuda/CMakeFiles/rp_cuda.dir/kernels"
TABLE = SOURCE / "tests/golden/cuda_resources.csv"
HEAD = "kernel,architecture,registers,shared,stack,spilled"
KERNEL = re.compile(
    r"Compiling entry function '(?:void )?([^'(]*)[^']*' for '(\w+)'.*?(\d+) bytes stack frame, (\d+) bytes spill stores,"
    r" (\d+) bytes spill loads.*?: Used (\d+) registers([^\n]*)", re.S)


def resources(said):
    """Each kernel on each architecture: its registers, and bytes of shared memory, stack and spilled."""
    found = {}
    for name, at, stack, stored, loaded, registers, rest in KERNEL.findall(ran("c++filt", input=said).out):
        shared = re.search("([0-9]+) bytes smem", rest)
        found[name.replace(", ", " "), at] = [int(registers), int(shared[1]) if shared else 0, int(stack),
                                              int(stored) + int(loaded)]
    assert len(found) == said.count("Compiling entry function") > 0
    return found


def worse(found, known, same):
    """What is worse than the table; only spills unless the compiler is the same."""
    for (kernel, at), figures in found.items():
        if figures[3] > 0:
            yield f"{kernel} spills {figures[3]} bytes on {at}"
        if same and (kernel, at) in known:
            for unit, takes, limit in zip(("registers", "bytes of shared memory", "bytes of stack"), figures,
                                          known[kernel, at]):
                if takes > limit:
                    yield f"{kernel} takes {takes} {unit} on {at}, not {limit}"
        elif same and at in {at for _, at in known}:
            yield f"{kernel} on {at} is not in the table"
    for kernel, at in known.keys() - found.keys():
        if same and at in {at for _, at in found}:
            yield f"{kernel} on {at} is gone"


@pytest.fixture(scope="module")
def said():
    objects = sorted(OBJECTS.glob("*.cu.o"))
    if not objects:
        pytest.skip("this build has no CUDA kernels")
    need("c++filt")
    return "".join(path.with_name(path.name + ".resources").read_text() for path in objects)


def of_compiler(name):
    [path] = (BUILD / "CMakeFiles").glob("*/CMakeCUDACompiler.cmake")
    return re.search(rf'(?m)^set\(CMAKE_CUDA_COMPILER{name} "(.*)"\)$', path.read_text())[1]


def narrow_stores(ptx):
    """Kernels with packs (their last argument: packs are whole) without a store of 16 bytes, and the number with it.

    PTX tells: the compiler splits a store before ptxas sees it, and ptxas splits none.
    """
    parts = ran("c++filt", input=ptx).out.split(".entry ")[1:]
    packs = [part for part in parts if re.match(r".*, bool\)\(", part)]
    packs = [part for part in packs if re.match(r"(?:void )?(\w+)", part)[1] not in VALUES]
    narrow = [part.split("(")[0] for part in packs if not re.search(r"\bst\.global\.v4\.[a-z]32\b", part)]
    return narrow, len(packs) - len(narrow)


@pytest.fixture(scope="module")
def release():
    return of_compiler("_VERSION")


@pytest.fixture(scope="module")
def same(release):
    return f" ptxas {release} " in TABLE.read_text().splitlines()[0]


@pytest.fixture(scope="module")
def known():
    title, head, *rows = TABLE.read_text().splitlines()
    assert title.startswith("# ") and head == HEAD and rows
    return {tuple(row.split(",")[:2]): [int(figure) for figure in row.split(",")[2:]] for row in rows}


def test_kernels(said, release, same, known):
    found = resources(said)
    lines = sorted(",".join(map(str, (*key, *figures))) for key, figures in found.items())
    title = f"# Resources of the CUDA kernels as ptxas {release} reports them, in bytes but for registers"
    (BUILD / "cuda_resources.csv").write_text("\n".join([f"{title} (checks.cuda_resources)", HEAD, *lines, ""]))
    bad = "\n".join(worse(found, known, same))
    assert not bad, f"{bad}\nif that is meant: cp {BUILD}/cuda_resources.csv {TABLE}"


@pytest.mark.parametrize("kind, text, other", [
    ("spills", "0 bytes spill stores", "4 bytes spill stores"),
    ("takes", "Used [0-9]+ registers", "Used 256 registers"),
    ("not in the table", "(entry function '_Z)[0-9]+[a-z_]+", r"\g<1>3new"),
    ("gone", "Compiling entry function.*?(?=Compiling entry)", ""),
])
def test_worse_kernels_are_noticed(said, same, known, kind, text, other):
    if not same and kind != "spills":
        pytest.skip("nvcc is of another release than the table: only spills are looked for")
    worse_said, changes = re.subn(text, other, said, count=1, flags=re.S)
    assert changes == 1 and any(kind in line for line in worse(resources(worse_said), known, same))


@pytest.mark.parametrize("family", "experts norm tokens values".split())
def test_packs_are_stored_at_once(said, tmp_path, family):
    ran(of_compiler(""), "-std=c++17", "-O3", "-arch=compute_80", "-ptx", "-I", SOURCE, "-I", SOURCE / "exec/cuda/gpu",
        KERNELS / f"{family}.cu", "-o", "kernels.ptx", cwd=tmp_path)
    ptx = (tmp_path / "kernels.ptx").read_text()
    narrow, wide = narrow_stores(ptx)
    assert not narrow and wide > 0
    split, _ = narrow_stores(re.sub(r"st\.global\.v4\.([a-z]32)", r"st.global.\1", ptx))
    assert len(split) == wide
