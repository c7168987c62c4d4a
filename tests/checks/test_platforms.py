"""A user's platform file alters no other machine's answer."""

import shutil


def test_file_without_rates(tmp_path, source, run):
    shutil.copytree(source / "traces", tmp_path / "traces", ignore=shutil.ignore_patterns("runs"))
    words = "--schedule gpipe --model llama3.1-8b --platform h100x8 --format json --intervals off".split()
    env = {"RP_TRACES": tmp_path / "traces"}
    before = run("rpsim", *words, env=env).out
    text = run("rpsim", "--platform", "rtx4090x8", "--platform-out", "-").out
    rates = "\n".join(line for line in text.splitlines() if "gemm_efficiency" not in line)
    (tmp_path / "traces/platforms/a-server.yaml").write_text(rates.replace("name: this-machine", "name: a-server") + "\n")
    assert run("rpsim", *words, env=env).out == before
