#!/usr/bin/env bash
# make.sh BINDIR OUTDIR: data and picture of this plot, from the live bytes in traces of BINDIR/rpsim.
source "$(dirname "${BASH_SOURCE[0]}")/../../../paper-figures/lib/figure.sh"
source "$plots/gallery/lib/runs.sh"
platform=rtx4090x8
kinds=weight,gradient,optimizer,activation,tape,temporary,logits
echo "schedule,place,time_ms,$kinds,fixed,total_bytes" > "$work/points.csv"
echo "schedule,place,peak_bytes" > "$work/peaks.csv"
for schedule in 1f1b fsdp-offload mobius roundpipe; do
    # A program that is read has the memory of its buffers, also RoundPipe's.
    "$bin/rpsim" --schedule $schedule --model qwen3-1.7b --platform $platform --gpus 4 --iterations 1 --format json \
        --program-out "$work/program.txt" > "$work/run.json"
    "$bin/rpsim" --program-in "$work/program.txt" --model qwen3-1.7b --platform $platform --format json \
        --trace-out "$work/trace.json" > "$work/run.json"
    case $schedule in
    fsdp-offload) software=communicator_gb ;;
    roundpipe) software=process_gb ;;
    *) software= ;;
    esac
    awk -v schedule=$schedule -v software=$software -v kinds=$kinds -v peaks="$work/peaks.csv" -v platform="$traces/platforms/$platform.yaml" \
        -f "$paper/lib/tables.awk" -f "$figure/curves.awk" "$work/run.json" "$work/trace.json" >> "$work/points.csv"
done
mv "$work/peaks.csv" "$out/$name-peaks.csv"
mv "$work/points.csv" "$out/$name.csv"
awk -f "$figure/bins.awk" "$out/$name.csv" "$out/$name.csv" > "$work/curves.csv"
draw curves="$work/curves.csv" usable="$(awk '$1 == "memory_gib:" { gib += $2 }
    $1 == "reserved_gib:" { gib -= $2 }
    END { print gib * 1.073741824 }' "$traces/gpus/${platform%x*}.yaml")"
