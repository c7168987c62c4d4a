#!/usr/bin/env bash
# checkpoints.sh SOURCE BUILD: checkpoints of rpexec, whole and of adapters, of each family and type, opened as they are
# by transformers and PEFT, with equal logits (tests/tools/checkpoints.py). Skipped where Python has not these packages:
# RP_PYTHON=FOLDER/bin/python after tests/tools/checkpoints_venv.sh FOLDER. A minute.
# Sanitized: --long
source "$(dirname "$0")/lib/check.sh"
build=$2
export RP_TRACES=$1/traces PYTHONDONTWRITEBYTECODE=1 HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1
python=${RP_PYTHON:-python3}
for package in torch transformers peft tokenizers; do
    if ! "$python" -c "import importlib.util, sys; sys.exit(importlib.util.find_spec('$package') is None)" 2>/dev/null; then
        echo "skipped: no $package for $python (RP_PYTHON, tests/tools/checkpoints_venv.sh)"
        exit 77
    fi
done
"$python" -W ignore "$1/tests/tools/checkpoints.py" "$build/exec/rpexec" "$build/tests/save_shards" "$work" 2>"$work/err" ||
    fail "$(tail -n 5 "$work/err")"
end
