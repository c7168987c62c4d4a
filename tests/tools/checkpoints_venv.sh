#!/usr/bin/env bash
# checkpoints_venv.sh FOLDER [PYTHON]: makes a virtual environment with the packages that open checkpoints of rpexec, for
# checks.checkpoints (RP_PYTHON=FOLDER/bin/python). About 8 GB with PyTorch's libraries; needs Python 3.10 or newer.
set -euo pipefail
folder=$1
python=${2:-python3}
"$python" -m venv "$folder"
"$folder/bin/pip" install torch==2.15.0 transformers==5.24.0 peft==0.21.2 tokenizers==0.23.3 safetensors==0.8.0 numpy
