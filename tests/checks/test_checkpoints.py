"""Checkpoints of rpexec, whole and of adapters, of each family and type, opened as they are by transformers and PEFT,
with equal logits (tests/tools/checkpoints.py). Skipped if Python has not these packages: RP_PYTHON=FOLDER/bin/python
after tests/tools/checkpoints_venv.sh FOLDER. A minute.
"""

from conftest import BUILD, PYTHON, SOURCE, need_python, program


def test_checkpoints(run):
    need_python("torch", "transformers", "peft", "tokenizers", advice="tests/tools/checkpoints_venv.sh")
    script = SOURCE / "tests/tools/checkpoints.py"
    run(PYTHON, "-W", "ignore", script, program("rpexec"), BUILD / "tests/save_shards", ".",
        env={"HF_HUB_OFFLINE": 1, "OMP_NUM_THREADS": 1})
