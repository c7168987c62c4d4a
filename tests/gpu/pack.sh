#!/usr/bin/env bash
# Collects the device suite's needs in a folder that runs on a machine without packages: programs, their shared
# libraries (all but C's, C++'s and CUDA's), traces, and the suite itself; and packs the folder as OUTDIR.tgz.
# usage: pack.sh BUILDDIR OUTDIR    BUILDDIR was configured with -DRP_CUDA=ON
# Neither may exist. An archive of more than 60 MiB is refused, as the way to a rented machine has a limit.
set -euo pipefail
if [ $# -ne 2 ] || [ -e "$2" ] || [ -e "$2.tgz" ]; then
    echo "usage: pack.sh BUILDDIR OUTDIR, a folder that does not exist yet, nor does OUTDIR.tgz" >&2
    exit 2
fi
source_root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=$1
out=$2
programs=(exec/rpexec exec/green_test exec/rates exec/cuda/tests/cuda_compare exec/cuda/tests/cuda_bench
    exec/cuda/tests/cuda_nccl rpsim)
mkdir -p "$out/bin" "$out/lib" "$out/gpu"
for program in "${programs[@]}"; do
    if [ -x "$build/$program" ]; then
        cp "$build/$program" "$out/bin/"
        strip "$out/bin/$(basename "$program")"
    else
        echo "pack.sh: $build/$program is not there; the suite skips what needs it" >&2
    fi
done
# The machine in use has the libraries of C and C++, and the driver, NCCL and cuBLAS, which is 500 MB.
ldd "$out"/bin/* | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u |
    grep -vE '/(libc|libm|libdl|librt|libpthread|libgcc_s|libstdc\+\+|ld-linux[^/]*)\.so|/lib(cuda|cublas|cublasLt)\.so' |
    while read -r library; do
        cp -L "$library" "$out/lib/"
    done
cp -r "$source_root/traces" "$out/traces"
rm -f "$out"/traces/runs/*/*.tar.gz
cp "$source_root"/tests/gpu/{*.yaml,suite.sh,steps.sh,figures.sh,pair.awk} "$source_root/experiments/expected.csv" "$out/gpu/"
timeout 10 git -C "$source_root" rev-parse HEAD >"$out/revision" 2>/dev/null || echo unknown >"$out/revision"
timeout -k 5 300 tar -C "$(dirname "$out")" -czf "$out.tgz" "$(basename "$out")"
kib=$((($(stat -c %s "$out.tgz") + 1023) / 1024))
echo "$out.tgz: $((kib / 1024)) MiB; $out: $(($(du -sk "$out" | cut -f1) / 1024)) MiB"
limit=${RP_PACK_MIB:-60} # of the archive that travels to the machine with the GPU
if [ "$kib" -gt $((limit * 1024)) ]; then
    echo "pack.sh: $out.tgz has more than $limit MiB; build for one architecture, or set RP_PACK_MIB" >&2
    exit 1
fi
