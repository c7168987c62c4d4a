#!/usr/bin/env bash
# The CUDA backend sees the machine's GPUs with name, compute capability and memory. Skipped (never
# passed) where the build has no CUDA or the machine no GPU; even there the backend must name the
# failing call.
set -euo pipefail
rpexec=$2/exec/rpexec
listing=$("$rpexec" --list backends | awk '/^[^ ]/ { keep = /^cuda:/ } keep')
if [ -z "$listing" ]; then
    echo "skipped: this build has no CUDA backend"
    exit 77
fi
echo "$listing"
if grep -qE '^    no device: cudaGetDeviceCount: .+ \(cuda[A-Za-z]+\)$' <<<"$listing"; then
    echo "skipped: no GPU here"
    exit 77
fi
grep -qE '^    device 0: .+, [1-9][0-9]* multiprocessors, [0-9.]+ GiB, compute capability [0-9]+\.[0-9]+$' <<<"$listing"
if command -v nvidia-smi >/dev/null; then
    [ "$(nvidia-smi -L | grep -c '^GPU ')" -eq "$(grep -c '^    device ' <<<"$listing")" ]
fi
