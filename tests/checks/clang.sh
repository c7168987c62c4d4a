#!/usr/bin/env bash
# Clang builds everything, tests included, with warnings as errors, and each fuzzer searches for ten seconds from its
# committed corpus. RP_LONG=1 alone, release only; needs clang with its sanitizers (apt packages clang, libclang-rt-dev).
set -euo pipefail
source_dir=$(cd "$1" && pwd)
build_dir=$(cd "$2" && pwd)
source "$(dirname "${BASH_SOURCE[0]}")/lib/check.sh"
if [ "${RP_LONG:-0}" != 1 ] || ! echo 'int main(void) { return 0; }' |
    clang -fsanitize=address,undefined -x c - -o "$work/probe" 2>/dev/null; then
    echo "skipped: RP_LONG is not 1, or no clang with sanitizers (apt packages clang, libclang-rt-14-dev)"
    exit 77
fi
export CMAKE_GENERATOR=Ninja CMAKE_EXPORT_COMPILE_COMMANDS=ON
build=$build_dir/clang
if ! cmake -S "$source_dir" -B "$build" -DCMAKE_C_COMPILER=clang -DCMAKE_BUILD_TYPE=RelWithDebInfo -DRP_FUZZ=ON \
    -DRP_SANITIZE=address,undefined -DRP_CUDA=OFF -DRP_WERROR=ON -DRP_TESTS=ON >"$work/log" 2>&1 ||
    ! cmake --build "$build" >>"$work/log" 2>&1; then
    grep -E 'error:|CMake Error' "$work/log" | head -n 20
    fail "clang does not build the tree"
    end
fi
for corpus in "$source_dir"/tests/fuzz/corpus/*/; do
    name=$(basename "$corpus")
    mkdir "$work/$name"
    "$build/tests/fuzz/fuzz_$name" -max_total_time=10 -timeout=20 -artifact_prefix="$work/$name/" "$work/$name" "$corpus" \
        >"$work/log" 2>&1 || { tail -n 20 "$work/log"; fail "fuzz_$name"; }
done
end
