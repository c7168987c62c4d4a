#!/usr/bin/env bash
# Chakra traces that rpsim exports, read by Google's protobuf library: every field is known, the library would write the
# same bytes, and a longest path over the nodes is the makespan. Skipped where Python has no protobuf.
set -euo pipefail
source_dir=$1 rpsim=$3
tool=$source_dir/tests/golden/chakra/chakra.py
python=${RP_PYTHON:-python3}
if ! "$python" -c 'import google.protobuf' 2>/dev/null ||
    { ! "$python" -c 'import grpc_tools' 2>/dev/null && ! command -v protoc >/dev/null; }; then
    echo "skipped: no protobuf for $python (RP_PYTHON)"
    exit 77
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export RP_TRACES=$source_dir/traces PYTHONDONTWRITEBYTECODE=1
count=0
while read -r arguments; do
    rm -f "$work"/t.*
    # shellcheck disable=SC2086 # words
    "$rpsim" $arguments --format csv --chakra-out "$work/t" >"$work/out" 2>"$work/err"
    column=$(head -1 "$work/out" | tr ',' '\n' | grep -nx makespan_ms | cut -d: -f1)
    expected=$(sed -n 2p "$work/out" | sed 's/"[^"]*"//g' | cut -d, -f"$column")
    found=$("$python" "$tool" run "$work/t")
    "$python" -c 'import sys; from decimal import Decimal as D; sys.exit(D(sys.argv[1]) * 10 ** 9 != D(sys.argv[2]))' \
        "$expected" "$found" || { echo "chakra: $arguments: $found ps, and rpsim says $expected ms"; exit 1; }
    count=$((count + 1))
done <<'CASES'
--schedule dualpipev --gpus 4 --microbatches 8 --fidelity stage --recompute wait
--schedule zbv --gpus 4 --fidelity stage --recompute none
--schedule roundpipe --gpus 3 --microbatches 7 --fidelity stage
--schedule roundpipe --gpus 4 --iterations 1
--schedule 1f1b --gpus 4 --iterations 1
--schedule zero2 --gpus 2 --iterations 1
CASES
"$python" "$tool" print "$source_dir/tests/golden/chakra/1f1b" | cmp - "$source_dir/tests/golden/chakra/1f1b.txt"
"$python" "$tool" make "$work"
for file in "$work"/*.?.et; do
    case $file in */t.*) continue ;; esac
    cmp "$file" "$source_dir/tests/golden/chakra/$(basename "$file")"
done
echo "chakra: $count runs and the golden files agree with protobuf"
