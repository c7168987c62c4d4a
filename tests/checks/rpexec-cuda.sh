#!/usr/bin/env bash
# The CUDA backend sees the machine's GPUs with name, compute capability and memory, and trains on
# them. Skipped (never passed) where the build has no CUDA or the machine no GPU; even there the
# backend must name the failing call, and a run on it ends with exit status 2.
set -euo pipefail
export COLUMNS=1000 # its lines are searched
rpexec=$2/exec/rpexec
listing=$("$rpexec" --list backends | awk '/^[^ ]/ { keep = /^cuda:/ } keep')
if [ -z "$listing" ]; then
    status=0
    said=$("$rpexec" --backend cuda 2>&1) || status=$?
    [ $status -eq 2 ]
    grep -q "'cuda' is not valid; valid values are host" <<<"$said"
    echo "skipped: this build has no CUDA backend"
    exit 77
fi
echo "$listing"
status=0
said=$("$rpexec" --backend cuda --bind 2>&1) || status=$?
[ $status -eq 2 ]
grep -q -e '--bind: GPUs of the cuda backend are no threads; valid only with --backend host' <<<"$said"
if grep -qE '^    no device: cudaGetDeviceCount: .+ \(cuda[A-Za-z]+\); (no driver|the driver is for CUDA [0-9.]+), the runtime is CUDA [0-9.]+' \
    <<<"$listing"; then
    for arguments in "" "--virtual-gpus 2"; do
        status=0
        # shellcheck disable=SC2086
        said=$("$rpexec" --backend cuda --steps 1 $arguments 2>&1) || status=$?
        [ $status -eq 2 ]
        grep -q 'no device: cudaGetDeviceCount: .*the runtime is CUDA [0-9.]*.*; valid here is host' <<<"$said"
    done
    echo "skipped: no GPU here"
    exit 77
fi
grep -qE '^    device 0: .+, [1-9][0-9]* multiprocessors, [0-9.]+ GiB, compute capability [0-9]+\.[0-9]+$' <<<"$listing"
if command -v nvidia-smi >/dev/null; then
    [ "$(nvidia-smi -L | grep -c '^GPU ')" -eq "$(grep -c '^    device ' <<<"$listing")" ]
fi
count=$(grep -c '^    device ' <<<"$listing")
status=0
said=$("$rpexec" --backend cuda --gpus $((count + 1)) --steps 1 2>&1) || status=$?
[ $status -eq 2 ]
grep -q "valid are 1 to $count, or --virtual-gpus" <<<"$said"
"$rpexec" --backend cuda --gpus 1 --steps 2 --check --format json | grep -q '"pinned_bytes": [1-9]'
"$rpexec" --backend cuda --virtual-gpus 2 --steps 2 --check
"$rpexec" --backend cuda --virtual-gpus 2 --steps 6 --check --graphs --format json | grep -q '"graph_launches": [1-9]'
status=0
said=$("$rpexec" --backend cuda --virtual-gpus 2 --transport nccl --steps 1 2>&1) || status=$?
[ $status -eq 2 ]
grep -q 'virtual GPUs share a device' <<<"$said"
# A communicator of one rank, where NCCL is installed.
status=0
said=$("$rpexec" --backend cuda --gpus 1 --schedule fsdp --transport nccl --steps 2 --check 2>&1) || status=$?
[ $status -eq 0 ] || { [ $status -eq 2 ] && grep -q -e '--transport nccl: .*valid here are auto, copy and staged' <<<"$said"; }
