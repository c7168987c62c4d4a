#!/usr/bin/env bash
# make.sh BINDIR OUTDIR: RoundPipe and its rivals, each in software of its own or all in one, tables and pictures.
source "$(dirname "${BASH_SOURCE[0]}")/../../../paper-figures/lib/figure.sh"
workspace
export RP_TRACES=$traces
columns=fits,global_batch,iteration_ms,tokens_per_s
draws=16
published=$paper/published/throughput_4090.csv

# systems MODEL LAYOUTS: their options. figure: the paper's runs. free: all have RoundPipe's batch, and divide it.
systems()
{
    local sequences=512 least=4 schedule size calls copies
    [ "$1" = qwen3-1.7b ] || sequences=256 least=2
    if [ "$2" = figure ]; then
        printf -- '--schedule %s --config paper\n' roundpipe mobius zero-infinity zero2 fsdp megatron-pp megatron-tp
        return
    fi
    for size in 4 8 16; do
        for calls in 1 2 4; do
            echo "--schedule roundpipe --partition auto --optimizer async --accumulate $calls" \
                "--microbatches $((sequences / calls / size)) --microbatch-size $size"
        done
    done
    for schedule in fsdp zero2; do
        for size in 2 4 8; do
            echo "--schedule $schedule --microbatches $((sequences / size)) --microbatch-size $size"
        done
    done
    for copies in 2 4 8; do
        for size in $((least / 2)) $least $((2 * least)); do
            echo "--schedule 1f1b --data-parallel $copies --zero 1 --reduce-each step" \
                "--microbatches $((sequences / copies / size)) --microbatch-size $size"
        done
    done
    echo "--schedule interleaved-1f1b --microbatches $((sequences / least)) --microbatch-size $least"
    echo "--schedule interleaved-1f1b --data-parallel 2 --zero 1 --reduce-each step" \
        "--microbatches $((sequences / 2 / least)) --microbatch-size $least"
}

# stack SOFTWARE SCHEDULE: what runs a schedule.
stack()
{
    case $1,$2 in
    table,*) ;;
    one,*) echo --stack rpexec ;;
    *,roundpipe) echo --stack roundpipe ;;
    *,mobius | *,fsdp) echo --stack torch ;;
    *,zero*) echo --stack deepspeed ;;
    *) echo --stack megatron ;;
    esac
}

# run INTERVALS COLUMNS OPTIONS...: the columns of a run, nothing if it is refused.
run()
{
    "$bin/rpsim" --gpus 8 --format csv --intervals "$1" --columns "$2" "${@:3}" 2> "$work/err" |
        tail -n +2 || true
}

# cell PLATFORM MODEL SOFTWARE DTYPE LAYOUTS...: a row for each run; those of a ratio have intervals.
cell()
{
    local type="--dtype $4" layouts words options row at
    [ "$4" = bf16 ] || type+=" --accumulation fp16" # as the paper's
    for layouts in "${@:5}"; do
        systems "$2" "$layouts" | while read -ra words; do
            options="--model $2 --platform $1 $type $(stack "$3" "${words[1]}") ${words[*]}"
            [ "${words[1]}" = roundpipe ] || options+=" --iterations 3" # each is like the last
            read -ra options <<< "$options"
            row=$(run off $columns "${options[@]}")
            [ -z "$row" ] || echo "$1,$2,$3,$4,$layouts,${words[1]},$row,${options[*]}"
        done
    done | awk -F, -v OFS=, -v published="$published" -f "$figure/counts.awk" > "$work/cell.csv"
    while IFS= read -r row; do
        at=,
        if [[ $row == *,ratio,* ]]; then
            read -ra options <<< "${row##*,}"
            at=$(run $draws tokens_per_s_p10,tokens_per_s_p90 "${options[@]}")
        fi
        echo "${row%,*,*},$at,${row##*,}"
    done < "$work/cell.csv"
}

echo "platform,model,software,dtype,layouts,schedule,$columns,counts,p10,p90,options" > "$work/runs.csv"
for platform in rtx4090x8 h100x8 b200x8; do
    for model in qwen3-1.7b llama3.1-8b; do
        if [ $platform = rtx4090x8 ]; then # measured layer times are there
            cell $platform $model table fp16 figure
            cell $platform $model table bf16 figure
            cell $platform $model own fp16 figure
        fi
        cell $platform $model own bf16 figure free
        cell $platform $model one bf16 figure free
    done
done >> "$work/runs.csv"
awk -F, -v OFS=, -v published="$published" -v ratios="$work/ratios.csv" -f "$figure/table.awk" \
    "$work/runs.csv" > "$work/table.md"
mv "$work/table.md" "$out/$name.md"
mv "$work/ratios.csv" "$out/$name-ratios.csv"
mv "$work/runs.csv" "$out/$name.csv"
claims=$paper/published/claims.csv
draw "ratios=$out/$name-ratios.csv" "least=$(awk -F, '$2 == "at_least" { print $3 }' "$claims")" \
    "most=$(awk -F, '$1 == "speedup" && $2 == "at_most" { print $3 }' "$claims")"
