#!/usr/bin/env bash
# trainer.sh RPEXEC REPETITIONS [CASE...]: training steps of rpexec's host backend beside PyTorch's on the CPU, as CSV
# (trainer.py). Exit status 77: Python has not PyTorch and transformers; RP_PYTHON=FOLDER/bin/python after
# tests/tools/checkpoints_venv.sh FOLDER.
set -euo pipefail
here=$(dirname "${BASH_SOURCE[0]}")
python=${RP_PYTHON:-python3}
for package in torch transformers; do
    "$python" -c "import importlib.util, sys; sys.exit(importlib.util.find_spec('$package') is None)" 2>/dev/null ||
        { echo "skipped: no $package for $python (RP_PYTHON, tests/tools/checkpoints_venv.sh)" >&2; exit 77; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# OpenBLAS is to choose its kernel by the processor. Memory stays with PyTorch's process from step to step.
unset OPENBLAS_CORETYPE OPENBLAS_L2_SIZE
export PYTHONDONTWRITEBYTECODE=1 HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
export MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=17179869184 MALLOC_ARENA_MAX=1
export TORCHINDUCTOR_CACHE_DIR=$work/inductor
"$python" -W ignore "$here/trainer.py" "$1" "$work" "${@:2}"
