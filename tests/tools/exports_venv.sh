#!/usr/bin/env bash
# exports_venv.sh FOLDER [PYTHON]: makes a virtual environment with the packages that read exports of rpadvise, for
# checks.exports (RP_PYTHON=FOLDER/bin/python). About 8 GB with PyTorch's libraries; needs Python 3.12 or newer.
set -euo pipefail
folder=$1
python=${2:-python3}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 12))' || {
    echo "exports_venv: $python is older than 3.12, which megatron-core wants" >&2
    exit 2
}
"$python" -m venv "$folder"
# DeepSpeed is a source package whose setup asks for torch; without DS_BUILD_OPS it compiles nothing.
"$folder/bin/pip" install torch==2.15.0 numpy setuptools wheel packaging ninja RoundPipe==0.1.1 megatron-core==0.19.2
DS_BUILD_OPS=0 "$folder/bin/pip" install --no-build-isolation deepspeed==0.19.8
