#!/usr/bin/env bash
# The paper's pipeline study (its Figures 17 and 3): five schedules, five models with measured layer
# times, 8 GPUs, 16 microbatches, published partitions. Pictures, trace, store and tables go to
# OUTDIR; the comparison table and the picture's name end the output.
set -euo pipefail

if [ $# -lt 1 ] || [ $# -gt 2 ]; then
    echo "Usage: $0 BUILD_RPSIM [OUTDIR]   (OUTDIR: build/release/out)" >&2
    exit 2
fi
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
rpsim=$1
out=${2:-$root/build/release/out}
if [ ! -x "$rpsim" ]; then
    echo "$0: $rpsim is no program; build it first (./bootstrap.sh run does)" >&2
    exit 2
fi
mkdir -p "$out"
out=$(cd "$out" && pwd)

models=qwen3-1.7b,llama3.1-8b,gpt-oss-20b,qwen3-32b,qwen3-235b
schedules=gpipe,1f1b,interleaved-1f1b,looped-bfs,roundpipe
size=(--gpus 8 --microbatches 16 --partition paper --fidelity stage)
store=$out/pipeline-study.db
# The store would keep the runs of the last time as well; this folder shows one study.
rm -f "$store" "$store-wal" "$store-shm"

say()
{
    printf -- '--- %s\n' "$*"
}

say "Gantt chart of qwen3-1.7b under $schedules"
for format in png svg; do
    "$rpsim" --schedule "$schedules" --model qwen3-1.7b "${size[@]}" --gantt-out "$out/pipeline-study.$format" >/dev/null
done
say "Chrome trace of roundpipe (open it at https://ui.perfetto.dev)"
"$rpsim" --schedule roundpipe --model qwen3-1.7b "${size[@]}" --trace-out "$out/roundpipe-trace.json" >/dev/null

say "The same comparison for programs: JSON and CSV"
for format in json csv; do
    "$rpsim" --schedule "$schedules" --recompute all --model "$models" "${size[@]}" --format $format >"$out/comparison.$format"
done

say "Asynchronous RoundPipe, 32 iterations: the true period beside the paper's estimate"
"$rpsim" --schedule roundpipe --optimizer async --iterations 32 --model "$models" "${size[@]}" --db "$store" |
    tee "$out/asynchronous.txt"

say "Comparison: every schedule with its recompute waiting for the gradient and allowed before it"
"$rpsim" --schedule "$schedules" --recompute all --model "$models" "${size[@]}" --db "$store" | tee "$out/comparison.txt"

cat <<TEXT

Gantt chart:   $out/pipeline-study.png (and .svg)
Chrome trace:  $out/roundpipe-trace.json
Tables:        $out/comparison.txt .json .csv, asynchronous.txt
Store:         $store
TEXT
