"""The device suite (tests/gpu) without a device, where it skips every case, and with a stand-in (lib/gpu_stand_in.sh).

Then rpexec_emulated, rpexec over the emulator, does some cases of each step that rpexec does (RP_LONG=1: most), on one
device and on a server's eight. The suite is killed at random moments, a case hangs or fails, the device is lost. The
suite itself is run by hand, or by a session that has a GPU.
"""

import contextlib
import csv
import os
import random
import re
import shutil
import signal
import subprocess
import tarfile
import time
from collections import Counter
from pathlib import Path

import pytest

from conftest import BUILD, LONG, SOURCE, program, ran

GPU = SOURCE / "tests/gpu"
EMULATED = BUILD / "exec/rpexec_emulated"
TESTS = BUILD / "exec/cuda/tests"
ROW = re.compile(r'([a-z]+),([a-z0-9-]+),(passed|failed|refused|skipped),([0-9]+),"([^"]*)"')
# Cases that rpexec_emulated does.
SOME = (
    "^rpexec .*(--virtual-gpus 4 --schedule roundpipe --dtype bf16 --model|--dtype bf16 --attention cudnn --steps"
    "|--peers --staged --steps|--gpus 1 .*(--transport nccl|--graphs)|--schedule 1f1b --microbatches 5 --costs"
    "|--record .*-4$|--seq-len 2048 .*--gpus 1 --schedule (gpipe|roundpipe --optimizer))"
    "|^cuda_compare refusals bf16|^cuda_nccl"
)
MOST = (
    "--check .*--virtual-gpus [24] |--virtual-gpus [24] .*(--check|--graphs|--costs)|--virtual-gpus 2|--gpus 1 "
    "|--record .*-4$|^cuda_compare .* bf16|^cuda_nccl"
)
SOME_OF_A_SERVER = "--list backends|--schedule (zero2 --dtype bf16 --transport nccl|1f1b .* bf16 --transport staged)|^cuda_nccl"
MOST_OF_A_SERVER = "--list backends|--transport|^cuda_nccl"
MODEL = (  # 75 thousand parameters: their resident state, 16 bytes of each, is more than a benchmark's 1 MiB
    ("hidden|vocab", "32"), ("layers|head_dim", "8"), ("intermediate", "64"), ("published_parameters", "75424"),
)


def suite(out, *options, build="mock", status=0, said="", **env):
    return ran("bash", GPU / "suite.sh", *options, build, out, status=status, said=said, env=env)


def emulated(some, most):
    """The pattern of cases that are done on emulated devices, if there is an emulator."""
    return (most if LONG else some) if EMULATED.exists() else "not there"


def rows(out):
    """Step, case, status, seconds and detail of each row, all of which are whole."""
    header, *lines = Path(out, "summary.csv").read_text().splitlines()
    assert header == "step,case,status,seconds,detail"
    matches = [ROW.fullmatch(line) for line in lines]
    assert all(matches), lines
    return [match.groups() for match in matches]


def last(out):
    """The row of each case that counts."""
    return {row[:2]: row for row in rows(out)}.values()


def statuses(out, *steps):
    return {(step, case): status for step, case, status, *_ in last(out) if step in steps and case != "all"}


def table(path):
    with open(path, encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def finished():
    """Commands that the stand-in, not the emulator, has ended."""
    return Path("mock/finished").read_text().splitlines()


@pytest.fixture(scope="module", autouse=True)
def mock(shared):
    for name in "rpexec green_test rates cuda_compare cuda_bench cuda_nccl compute-sanitizer".split():
        os.makedirs("mock/bin", exist_ok=True)
        shutil.copy(SOURCE / "tests/checks/lib/gpu_stand_in.sh", f"mock/bin/{name}")
        os.chmod(f"mock/bin/{name}", 0o755)
    os.mkdir("mock/exec")
    model = (GPU / "small.yaml").read_text()
    for keys, value in MODEL:
        model = re.sub(rf"(?m)^({keys}): .*", rf"\1: {value}", model)
    Path("mock/model").write_text(model)
    Path("mock/schedules").write_text(ran("rpexec --list schedules", env={"COLUMNS": 10000}).out)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "MOCK": shared / "mock", "MOCK_RPEXEC": EMULATED, "MOCK_TESTS": TESTS, "LC_ALL": "C",
            "RP_TRACES": SOURCE / "traces", "RPEXEC_CUBLASLT": TESTS / "libemulated_cublas.so",
            "RPEXEC_CUDNN": TESTS / "libemulated_cudnn_library.so",
            "RPEXEC_NCCL": TESTS / "libemulated_nccl_library.so",
        }.items():
            patch.setenv(name, str(value))
        patch.setenv("PATH", f"{shared}/mock/bin", prepend=os.pathsep)  # compute-sanitizer
        yield


@pytest.fixture(scope="module")
def everything(mock, shared):
    """All five parts, in the folder all. In the folder that gets copies is what has been found so far."""
    os.mkdir("copies")
    real = emulated(SOME, MOST)
    said = suite("all", status=None, MOCK_REAL=real, RP_SUITE_COPY=shared / "copies", RP_SUITE_JOBS=4)
    assert said.status <= 1, said  # times of the emulator: verdicts may be either


@pytest.fixture(autouse=True)
def begin_again(mock):
    Path("mock/lost").unlink(missing_ok=True)
    shutil.rmtree("mock/once", ignore_errors=True)
    Path("mock/finished").write_text("")


@pytest.fixture
def emulator():
    if not EMULATED.exists():
        pytest.skip("rpexec_emulated was not built (no C++ compiler)")


def test_no_device():
    suite("none", build=BUILD, status=77, RP_SUITE_DEVICE="none")
    assert {row[2] for row in rows("none")} == {"skipped"}
    cases = Counter(row[0] for row in rows("none"))
    assert len(cases) == 13 and cases["schedules"] >= 60
    assert (cases["transports"], cases["validation"], cases["kernels"]) == (4, 27, 22)
    with tarfile.open("none/suite.tar.gz") as archive:
        assert "./summary.csv" in archive.getnames()
    suite("other", build=BUILD, status=2, said="no step 'nonsense'", RP_SUITE_DEVICE="none",
          RP_SUITE_STEPS="facts nonsense")
    suite("other", "--part", 6, build=BUILD, status=2)


def test_pack():
    """One folder has all that a machine without packages needs, and its programs start with its own libraries.

    The archive has a limit: that of a build for all architectures is larger than what may travel.
    """
    ran("bash", GPU / "pack.sh", BUILD, "pack", env={"RP_PACK_MIB": 1000, "GZIP": None if LONG else "-1"})
    if (BUILD / "exec/rpexec").exists() and list(Path("pack/lib").glob("libopenblas*")):
        ran("pack/bin/rpexec --gpus 2 --steps 1 --model pack/gpu/small.yaml --seq-len 8 --check", out="the same bits",
            env={"LD_LIBRARY_PATH": "pack/lib", "RP_TRACES": "pack/traces"})
    with tarfile.open("pack.tgz") as archive:
        assert "pack/gpu/expected.csv" in archive.getnames()
    mib = os.path.getsize("pack.tgz") // 2**20 + 1
    if LONG and int(ran("du -sk pack").out.split()[0]) > mib * 1024:  # the archive is measured, not the folder
        ran("bash", GPU / "pack.sh", BUILD, "again", env={"RP_PACK_MIB": mib})


def test_five_parts(everything):
    assert Path("all/summary.csv").read_bytes() == Path("copies/summary.csv").read_bytes()
    assert len(os.listdir("copies")) <= 8 and os.path.getsize("copies/suite.tar.gz")
    recorded = "failed" if LONG and EMULATED.exists() else "skipped"  # everyday no emulator records gemm
    others = {"resident-capped-1": "refused", "several": "skipped", "all": "failed", "forward": recorded,
              "backward": recorded}
    for step, case, status, _, detail in last("all"):
        other = "failed" if case.startswith("offloaded-over-resident-") else others.get(case)
        assert status in ("passed", other), (step, case, status)
        assert "not compared" not in detail
    cases = Counter(row[0] for row in last("all"))
    assert len(cases) == 13 and cases["gemm"] == 3 and cases["benchmarks"] == 23
    assert sum(row[2] == "passed" for row in last("all")) > 200
    compared = Path("all/compared.csv").read_text()
    assert "\nH200,link to the GPU alone in pieces of 64 MiB,GB/s,70,45,58,above\n" in compared
    assert re.search("(?m)^H200,cuBLAS.*,700,650,800,as expected$", compared)


def test_next_call(everything):
    """What has passed does not run again, a table whose last row a kill has cost has it again, and a suite of another
    revision does not go on with these rows."""
    before = {}
    for name in ("validation", "benchmarks"):
        path = Path(f"all/{name}.csv")
        before[path] = path.read_text()
        path.write_text("".join(before[path].splitlines(True)[:-1]))
    # As it began, the model with too little memory is refused; the verdicts are those of before.
    said = suite("all", status=None, MOCK_REAL=emulated("gpu-memory-mb", "gpu-memory-mb"),
                 RP_SUITE_STEPS="types schedules graphs validation benchmarks")
    assert said.status <= 1 and not finished(), said
    for path, text in before.items():
        assert path.read_text() == text
    Path("mock/revision").write_text("other\n")
    suite("all", status=2)
    os.remove("mock/revision")


def test_server():
    """A server's eight devices instead of virtual ones."""
    suite("server", "--gpus", "all", MOCK_REAL=emulated(SOME_OF_A_SERVER, MOST_OF_A_SERVER),
          MOCK_DEVICES=8, EMULATED_DELAY_US=200, RP_SUITE_JOBS=4, RP_SUITE_STEPS="transports validation",
          RP_SUITE_SCHEDULES="1f1b")
    assert not any("--virtual-gpus" in command for command in finished())
    assert {row[2] for row in last("server")} == {"passed"}
    assert Counter(row[0] for row in last("server")) == {"transports": 27, "validation": 7}
    assert ("transports", "staged-zero-infinity-bf16-8", "passed") in [row[:3] for row in rows("server")]
    suite("two", "--gpus", 3, MOCK_DEVICES=2, status=2)
    if EMULATED.exists():
        assert "on 8 GPUs (emulator)" in Path("server/logs/transports.nccl-zero2-bf16-8.log").read_text()
        assert "NCCL 2.28.9, 8 ranks: right" in Path("server/logs/transports.nccl-calls.log").read_text()


def begun(out, said, **env):
    return subprocess.Popen(["bash", GPU / "suite.sh", "mock", out], env=os.environ | env, stdout=said,
                            stderr=subprocess.STDOUT, start_new_session=True)


def test_kills(everything):
    """Killed at random moments: what stdout had said, and what had ended, stands in the summary; the next call goes on.
    """
    steps, kills = "types validation", 20 if LONG else 3
    with open("killed.log", "a", encoding="utf-8") as said:
        for kill in range(1, kills + 1):
            process = begun("killed", said, RP_SUITE_STEPS=steps, MOCK_SLEEP="0.01")
            time.sleep(random.uniform(0, 0.9))
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            time.sleep(0.1)  # two may have been running
            if not os.path.exists("killed/summary.csv"):
                continue
            kept = rows("killed")
            heard = re.findall(r"(?m)^([a-z]*) ([a-z0-9-]*): ([a-z]*), ([0-9]*) s", Path("killed.log").read_text())
            assert set(heard) <= {row[:4] for row in kept}
            assert sum(row[2] == "passed" and row[1] != "all" for row in kept) >= len(finished()) - 2 * kill
    suite("killed", RP_SUITE_STEPS=steps)
    cases = statuses("killed", "types", "validation")
    assert len(finished()) <= len(cases) + 2 * kills, "cases ran again"
    assert cases == statuses("all", "types", "validation")
    assert len(table("killed/validation.csv")) == len(table("all/validation.csv")) > 0


def test_end_by_signal():
    with open("ended.log", "w", encoding="utf-8") as said:
        process = begun("ended", said, RP_SUITE_STEPS="types", MOCK_SLEEP="5")
        for _ in range(100):
            if os.path.exists("ended/logs/types.roundpipe-bf16-4.log"):
                break
            time.sleep(0.05)
        process.terminate()
        assert process.wait(60) == 143, Path("ended.log").read_text()
    assert os.path.getsize("ended/suite.tar.gz") and rows("ended") == []


def test_hang():
    """A case that hangs ends at its deadline with all that it has started, once more alone, and the others run."""
    child = f"sleep 4321.{os.getpid()}"
    Path("mock/hang_s").write_text(child.split()[1])
    suite("hangs", status=1, MOCK_HANG="zbv.*bf16", RP_SUITE_LIMIT=1, RP_SUITE_STEPS="types")
    assert [row[2] for row in rows("hangs") if row[1] == "zbv-bf16-4"] == ["failed"] * 2
    assert sum(row[2] == "passed" for row in rows("hangs")) == 16
    assert child not in ran("ps -eo args").out.splitlines()


def test_failure_beside_others():
    """A case that passes alone has both rows, and the last one counts."""
    suite("once", MOCK_ONCE="zbv.*bf16", RP_SUITE_STEPS="types")
    first, second = [row for row in rows("once") if row[1] == "zbv-bf16-4"]
    assert first[2] == "failed" and second[2] == "passed" and "alone: " in second[4]


def test_lost_device():
    """The rest is skipped, and runs when the device is back."""
    suite("lost", status=1, MOCK_LOSE="fsdp.*bf16", RP_SUITE_STEPS="types")
    passed = sum(row[2] == "passed" for row in rows("lost"))
    skipped = [row for row in rows("lost") if row[2:4] == ("skipped", "0") and row[4].startswith("device lost")]
    assert passed >= 1 and len(skipped) >= 9
    os.remove("mock/lost")
    Path("mock/finished").write_text("")
    suite("lost", RP_SUITE_STEPS="types")
    assert len(finished()) == 17 - passed


@pytest.mark.parametrize("flop, said", [(1.009, "passed 99.9"), (1.011, "failed not")])
def test_unequal_work_that_is_compared(flop, said):
    """One percent is the most."""
    rows = f"case,tokens_per_s,median_ms,executed_tflop\na,1,100,{flop}\nb,1,99,1\n"
    result = ran("awk -F, -v offloaded=a -v resident=b -f", GPU / "pair.awk", input=rows)
    assert result.out.startswith(said + " ")


def test_emulated_devices(everything, emulator):
    """It was the CUDA backend that ran."""
    for log, text in {
        "types.roundpipe-bf16-4": "on 4 GPUs (emulator, split into 4)", "types.cudnn-bf16": "forward by cudnn 9",
        "types.staged-1f1b": "between GPUs: staged", "transports.nccl-1-fp32": "nccl 2.28",
    }.items():
        assert text in Path(f"all/logs/{log}.log").read_text()
    errors = [100 * (float(row["predicted_ms"]) / float(row["measured_ms"]) - 1) - float(row["error_pct"])
              for row in table("all/validation.csv")]
    assert sum(abs(error) < 0.01 for error in errors) == 24


def test_late_devices(emulator):
    """Devices that reach each other, and whose streams are late at random, train as those of the suite did."""
    results = []
    for env in ({"EMULATED_PEERS": ""}, {"EMULATED_PEERS": 1, "EMULATED_DELAY_US": 500}):
        said = ran(f"{EMULATED} --backend cuda --gpus 2 --steps 2 --schedule 1f1b --seq-len 4 --model mock/model",
                   env=env | {"EMULATED_DEVICES": 2}).out
        losses = [line.split()[3] for line in said.splitlines() if line.startswith("step")]
        results.append((re.search(r"(?m) between GPUs: .*?(\S+)$", said)[1], losses))
    assert [by for by, _ in results] == ["staged", "copy"]
    assert results[0][1] == results[1][1] and len(set(results[0][1])) == 2


def test_unequal_work(everything, emulator):
    """Both sides of a pair execute the same FLOP; those of a pair that do not are not compared."""
    flop = {row["case"]: float(row["executed_tflop"]) for row in table("all/benchmarks.csv")}
    assert flop["roundpipe-async-1"] == flop["resident-1"] > 0
    assert flop["roundpipe-async-stages-1"] == flop["resident-recomputed-1"] > 0
    summary = Path(shutil.copytree("all", "unequal"), "summary.csv")
    summary.write_text(re.sub("(?m)^benchmarks,resident-1,.*\n", "", summary.read_text()))
    suite("unequal", status=1, RP_SUITE_STEPS="benchmarks", MOCK_UNEQUAL=1, MOCK_REAL=" --gpus 1 ")
    [pair] = [row for row in last("unequal") if row[1] == "offloaded-over-resident-fused"]
    assert pair[2:4] == ("failed", "0") and pair[4].startswith("not compared: unequal work, ")


def test_keep(everything, emulator):
    """Runs that are kept are predicted again by the same number."""
    for folder in ("gpu", "checks/lib", "tools"):
        shutil.copytree(SOURCE / "tests" / folder, f"kept/tests/{folder}")
    os.makedirs("kept/traces/runs")
    shutil.copy("mock/model", "kept/tests/gpu/wide.yaml")
    for path in Path("all/logs").glob("run-*.args"):
        path.write_text(path.read_text().replace("1024\n", "4\n"))
    gates = ran("bash kept/tests/gpu/keep.sh all/logs 2000-01-01-emulator",
                env={"RPSIM": program("rpsim"), "RPDIFF": program("rpdiff")}).out
    gates = dict(line.split("/")[1].split(",") for line in gates.splitlines())
    errors = {"-".join(list(row.values())[:3]): abs(float(row["error_pct"])) for row in table("all/validation.csv")}
    assert sum(errors[case] < float(gate) < errors[case] + 0.1001 for case, gate in gates.items()) >= (2 if LONG else 1)
