"""rpexec --platform-out and --host-rates, --platform detect: a platform of this machine, and of machines that hwloc's
and NVIDIA's libraries say there are (tests/golden/hwloc, tests/tools/fake_nvidia.c). rpsim takes each file.

A plain run measures a machine with known GPUs and, with one processor, this machine without GPUs. With RP_LONG=1 all
cases are measured, and --host-rates.
"""

import ctypes.util
import os
import re
from pathlib import Path

import pytest

from conftest import BUILD, LONG, SOURCE, ran

LEAKS = {"ASAN_OPTIONS": "detect_leaks=0"}  # hwloc closes plugins that leave memory behind
FAKE = BUILD / "tests/fake_nvidia"
NO_GPU = "no GPU of NVIDIA answers"
DETECT = "rpsim --platform detect"
MEMORY_GIB = int(re.search("MemTotal: *([0-9]+)", Path("/proc/meminfo").read_text())[1]) / 1048576
pytestmark = pytest.mark.usefixtures("shared")


def fake(command, status=0, said="", **settings):
    """Runs a command with the fake driver, which RP_FAKE_NAME sets."""
    if not (FAKE / "libcuda.so.1").exists():
        pytest.skip("no fake driver in this build")
    environment = {
        **LEAKS, **{f"RP_FAKE_{name}": value for name, value in settings.items()},
        "LD_LIBRARY_PATH": f"{FAKE}:{os.environ.get('LD_LIBRARY_PATH', '')}".removesuffix(":"),
        "HWLOC_XMLFILE": SOURCE / "tests/golden/hwloc/two-switches.xml",
    }
    return ran(command, env=environment, status=status, said=said)


def takes(platform, gpus=4, model="qwen3-1.7b"):
    ran(f"rpsim --platform {platform} --gpus {gpus} --model {model} --schedule roundpipe,1f1b --format csv"
        " --intervals off")


def says(text, *patterns, never=None):
    """A whole line matches each pattern; none begins as never does."""
    lines = text.splitlines()
    for pattern in patterns:
        assert any(re.fullmatch(pattern, line) for line in lines), f"no line {pattern} in {text}"
    assert not never or not [line for line in lines if re.match(never, line)], text


def between(text, key, low, high):
    assert low <= float(re.search(f"(?m)^{key}: *([0-9.]+)", text)[1]) <= high, f"{key} in {text}"


def test_machine_without_gpus():
    if ctypes.util.find_library("nvidia-ml"):
        pytest.skip("NVIDIA's library is installed")
    prefix = [] if LONG else ["taskset", "-c", min(os.sched_getaffinity(0))]
    ran("rpexec --platform-out here.yaml", prefix=prefix, env=LEAKS)
    here = Path("here.yaml").read_text()
    says(here, r"# No GPU \(.*\): GPUs are threads of this host, as rpexec --backend host runs them\.",
         "name: here", "gpu: host")
    between(here, "host_memory_gib", 0.97 * MEMORY_GIB, 1.03 * MEMORY_GIB)
    between(here, "host_optimizer_gb_per_s", 0.5, 2000)
    takes("here.yaml", 2, "tiny")
    ran(f"{DETECT} --schedule 1f1b", env=LEAKS, status=2, said=NO_GPU + " (libnvidia-ml.so.1: ")
    ran(f"{DETECT} --platform-out none.yaml", env=LEAKS, status=2, said=NO_GPU)
    assert not os.path.exists("none.yaml")


@pytest.mark.skipif(not LONG, reason="with RP_LONG=1")
def test_host_rates():
    ran("rpexec --host-rates rates.txt", env=LEAKS)
    rates = Path("rates.txt").read_text()
    says(rates, *(f"host_{each}_gb_per_s: [0-9.]+" for each in ("optimizer", "adam", "refresh", "collect")))
    assert len(re.findall(r"(?m)^# +[0-9]+ +[0-9]+(?: +[0-9.]+){3}$", rates)) >= 3


@pytest.mark.parametrize("command, said", [
    ("rpexec --host-rates x --platform-out x", "valid is a file of its own"),
    # Rules that ask the backend find one.
    ("rpexec --host-rates x --transport nccl --backend host", "the host backend has no devices"),
    ("rpexec --host-rates x --transport nccl", "the host backend has no devices"),
    ("rpexec --platform-out /nowhere/x.yaml", "cannot be written"),
    ("rpsim --gpus 4 --platform-out x.yaml", "platform.gpus=4"),
])
def test_mistakes(command, said):
    ran(command, env={**LEAKS, "RPEXEC_BACKEND": "host"}, status=2, said=said)


def test_known_gpu():
    """Its rates are the shipped platform's; its link is read and measured."""
    for _ in range(5):  # other processes can only make copies slower
        fake("rpexec --platform-out known.yaml", LINK=8)
        known = Path("known.yaml").read_text()
        if min(map(float, re.findall("(?m)^(?:up|down)load_gb_per_s: *([0-9.]+)", known))) >= 6:
            break
    of_gpu = r"# 4 x NVIDIA GeForce RTX 4090\. The GPU is known: "
    says(known, of_gpu + r"values without a word are those of platform rtx4090x8\.",
         "gpu: rtx4090", r"fp16_tflops_fp16_acc: 330\.3", "gpus: 4  # read: NVML", "memory_gib: 24  # read: NVML",
         "memory_gb_per_s: 1008  # read: NVML, bus width and clock", "pcie_gen: 4  # read: NVML", "peer: none",
         "measured: .*link_effective_gb_per_s .*upload_gb_per_s.*", "moved: .*dispatch_us_per_module.*", never="set:")
    between(known, "upload_gb_per_s", 6, 8.1)
    between(known, "download_gb_per_s", 6, 8.1)
    if "\n# Built without hwloc" not in known:
        says(known, r"# hwloc: 2 sockets, 2 NUMA nodes, 4 cores, 4 processors, 256\.0 GiB of memory, 4 GPUs on PCI\.",
             "gpus_per_switch: 2  # read: hwloc, GPUs behind one root port", "sockets: 2  # read: hwloc")
    assert "The host's part of a step in GB/s, on pinned memory" in known
    takes("known.yaml")
    # rpsim reads the same and measures nothing. Its file and detect give the same results.
    fake(f"{DETECT} --platform-out read.yaml")
    by_rpsim = Path("read.yaml").read_text()
    says(by_rpsim, of_gpu + ".*", "name: read", r"link_efficiency: 0\.655  # assumed: no copies were measured",
         "moved: .*host_optimizer_gb_per_s.*dispatch_us_per_module.*", never="measured:|set:")
    between(by_rpsim, "host_memory_gib", 0.97 * MEMORY_GIB, 1.03 * MEMORY_GIB)
    by_both = [sorted(line for line in text.splitlines() if "# read: " in line) for text in (known, by_rpsim)]
    assert by_both[0] == by_both[1]
    results = [fake(f"rpsim --platform {platform} --schedule roundpipe,1f1b --format json").out
               for platform in ("detect", "read.yaml")]
    detected, from_file = (re.sub('"platform": *[^,]*,', "", result) for result in results)
    assert detected == from_file and "tokens_per_s" in detected


def test_slot():
    """GPUs by the product's name, their slot by NVML: PCIe 3 halves links and collectives of an L40S."""
    fake(f"{DETECT} --platform-out l40s.yaml", GPU="NVIDIA L40S", PCIE=3)
    says(Path("l40s.yaml").read_text(), "gpu: l40s", "peer: pcie", "peer_gb_per_s: 16  # .*",
         r"collective_gb_per_s: 10\.48  # moved: by the ratio of the links")
    takes("l40s.yaml")


def test_gpus_that_differ():
    """Memory and lanes are described GPU by GPU, so that a larger first GPU does not stand for the others."""
    fake(f"{DETECT} --platform-out mixed.yaml", LAST_GIB=12, LAST_LANES=4)
    mixed = Path("mixed.yaml").read_text()
    says(mixed, r"memory_gib: \[24, 24, 24, 12\]  # read: NVML", r"pcie_lanes: \[16, 16, 16, 4\]  # read: NVML",
         never="usable_memory_gb:|link_gb_per_s:")
    takes("mixed.yaml")


def test_cards_that_differ():
    """Known cards are listed, and the fastest gives the keys of GPUs; unknown ones are taken for the first."""
    fake(f"{DETECT} --platform-out cards.yaml", LAST_GPU="NVIDIA GeForce RTX 5090", LAST_GIB=31.5)
    says(Path("cards.yaml").read_text(), "gpu: rtx5090", 'gpu_list: "rtx4090 rtx4090 rtx4090 rtx5090"  # read: NVML',
         r"# 4 x NVIDIA GeForce RTX 5090 and others\. The GPU is known: .* of platform rtx5090x8\.",
         r"memory_gib: \[24, 24, 24, 31.5\]  # read: NVML", r"fp16_tflops_fp32_acc: 209\.5", never="usable_memory_gb:")
    takes("cards.yaml")
    fake(f"{DETECT} --platform-out cards.yaml", LAST_GPU="NVIDIA GeForce RTX 3090")  # as much memory as the others
    says(Path("cards.yaml").read_text(), "gpu: rtx4090", r"memory_gib: \[24, 24, 24, 24\]  # read: NVML")
    said = fake(f"{DETECT} --platform-out cards.yaml", LAST_GPU="NVIDIA Foo 9").err
    assert "GPU 3 is another than GPU 0: NVIDIA Foo 9, NVIDIA GeForce RTX 4090" in said
    assert "gpu_list" not in Path("cards.yaml").read_text()


@pytest.mark.parametrize("name, gpu, peer", [
    ("A100-SXM4-80GB", "a100-80", "300"),
    ("A100-PCIE-40GB", "a100-40-pcie", "300"),
    ("A100 80GB PCIe", "a100-80-pcie", "300"),
    ("H100 80GB HBM3", "h100", "450"),
    ("H100 PCIe", "h100-pcie", "300"),
    ("B200", "b200", "900"),
    ("RTX A6000", "a6000", r"56\.25"),
    ("GeForce RTX 3090", "rtx3090", r"56\.25"),
])
def test_names(name, gpu, peer):
    says(fake(f"{DETECT} --platform-out -", GPU="NVIDIA " + name, NVLINKS=12).out,
         f"gpu: {gpu}", f"peer_gb_per_s: {peer}")


def test_variant():
    """A laptop's or an export version of a known GPU is another GPU."""
    said = fake(f"{DETECT} --platform-out -", GPU="NVIDIA GeForce RTX 4090 D").out
    assert re.search("RTX 4090 D. The GPU is not known", said)


def test_unknown_gpu():
    """Peaks by generation, cores and clock; NVLink; PCIe beyond what rpsim knows."""
    fake(f"{'rpexec' if LONG else DETECT} --platform-out unknown.yaml", GPU="NVIDIA Foo 9", GIB=47.5, PCIE=6,
         NVLINKS=4, LINK=100)
    says(Path("unknown.yaml").read_text(),
         r"# 4 x NVIDIA Foo 9\. The GPU is not known: values without a word are those of platform rtx4090x8\.",
         "gpu: foo9", r"fp16_tflops_fp32_acc: 165\.2",  # 16384 cores x 2.52 GHz x 4 FLOP
         r"memory_gib: 47\.5  # read: NVML", "link_gb_per_s: 128  # read: NVML",
         "peer_gb_per_s: 100  # read: links that NVML has up, nominal", never=".*usable_memory_gb")
    takes("unknown.yaml")


def test_driver_that_does_not_run():
    """It is installed: as without a driver, but for a warning."""
    reason = "(NVML does not start: no driver runs)"
    fake(f"{DETECT} --schedule 1f1b", NO_DRIVER=1, status=2, said=f"{NO_GPU} {reason}")
    if LONG:
        said = fake("rpexec --platform-out idle.yaml", NO_DRIVER=1).err
        says(Path("idle.yaml").read_text(), rf"# No GPU {re.escape(reason)}: .*")
        assert "\n# Built without hwloc" in Path("idle.yaml").read_text() or \
            "warning: hwloc sees 4 GPUs of NVIDIA on PCI, but NVML does not start" in said
        takes("idle.yaml", 2, "tiny")
