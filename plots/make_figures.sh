#!/usr/bin/env bash
# make_figures.sh OUTDIR: draws every figure of plots/ from fresh runs, as SVG, PNG and PDF.
# RPSIM names the rpsim to run (default: rpsim in PATH). A figure is a file plots/NAME.gp; it gets
# the variables root (this folder), db (OUTDIR/store.db), out (OUTDIR/NAME) and ext (svg, png, pdf).
set -euo pipefail

if [ $# -ne 1 ]; then
    echo "usage: make_figures.sh OUTDIR" >&2
    exit 2
fi
plots=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
rpsim=${RPSIM:-rpsim}
for tool in "$rpsim" gnuplot sqlite3; do
    if ! command -v "$tool" > /dev/null; then
        echo "make_figures.sh: $tool is missing (Debian packages: gnuplot-nox, sqlite3)" >&2
        exit 1
    fi
done
mkdir -p "$1"
out=$(cd "$1" && pwd)
case $plots$out in
*"'"*)
    echo "make_figures.sh: gnuplot takes no folder with a single quote in its name" >&2
    exit 2
    ;;
esac

rm -f "$out/store.db" "$out/store.db-wal" "$out/store.db-shm"
for model in qwen3-1.7b llama3.1-8b gpt-oss-20b qwen3-32b qwen3-235b; do
    "$rpsim" --schedule gpipe,1f1b,interleaved-1f1b,looped-bfs,roundpipe --model "$model" \
        --partition paper --gpus 8 --microbatches 16 --fidelity stage --db "$out/store.db" --format csv \
        > "$out/$model.csv"
done

for script in "$plots"/*.gp; do
    name=$(basename "$script" .gp)
    case $name in
    style | gantt | loss) continue ;; # shared by figures; drawn by rpsim --gantt-out; of a CSV
    esac
    for ext in svg png pdf; do
        gnuplot -e "root='$plots'; db='$out/store.db'; out='$out/$name'; ext='$ext'" "$script"
        echo "$out/$name.$ext"
    done
done
