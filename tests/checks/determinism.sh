#!/usr/bin/env bash
# Builds the hash tool without optimisation and with all of it and compares with the committed hashes, which the
# release build (-O2) and the sanitized one (-O1) check every day in tests/sim/engine/determinism.c. Release only: it has
# builds of its own. --long only.
set -euo pipefail
source_dir=$1
[ "${RP_LONG:-0}" = 1 ] || { echo "skipped: builds the tree twice more, with --long"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for flags in "-O3 -march=native" -O0; do
    cmake -S "$source_dir" -B "$work/build" -G Ninja -DCMAKE_BUILD_TYPE=None "-DCMAKE_C_FLAGS=$flags" -DRP_CUDA=OFF \
        -DRP_TESTS=ON >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
    cmake --build "$work/build" --target hash_runs >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
    "$work/build/tests/hash_runs" >"$work/hashes.csv"
    if ! cmp "$work/hashes.csv" "$source_dir/tests/golden/hashes.csv"; then
        echo "determinism: $flags gives other programs or timelines than tests/golden/hashes.csv"
        exit 1
    fi
    echo "determinism: $flags agrees"
done
