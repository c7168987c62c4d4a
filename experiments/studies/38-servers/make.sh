#!/usr/bin/env bash
# make.sh BINDIR OUTDIR: runs of RoundPipe and of 3D parallelism on 1 to 128 servers, table and pictures.
source "$(dirname "${BASH_SOURCE[0]}")/../../../paper-figures/lib/figure.sh"
workspace
export RP_TRACES=$traces
columns=gpus,global_batch,fits,iteration_ms,tokens_per_s,tokens_per_s_p10,tokens_per_s_p90,bubble_pct,peak_host_bytes
sequences=128 # of a server and step

# run PLATFORM GB_PER_S SERVERS DRAWS OPTIONS...: the columns of a run, nothing if it is refused.
run()
{
    local platform=$1 rate=$2 servers=$3 draws=$4
    shift 4
    [ "$servers" = 1 ] || set -- "$@" --nodes "$servers" --set "platform.network_gb_per_s=$rate"
    "$bin/rpsim" --model llama3.1-8b --platform "$platform" --intervals "$draws" --format csv --columns $columns "$@" \
        2> "$work/err" | tail -n +2 || true
}

# layouts PLATFORM SERVERS: GPUs per layer, places of the pipeline and ZeRO stage of the candidates.
layouts()
{
    case $1 in
    rtx4090x8) printf '%s\n' '1 8 1' '1 8 2' '1 16 0' '1 16 1' '2 8 1' ;;
    *) printf '%s\n' '1 4 1' '1 8 1' '2 2 1' '2 4 1' '4 2 1' ;;
    esac
}

# best PLATFORM GB_PER_S SERVERS: the options of the fastest layout that fits.
best()
{
    local tensor places zero copies schedule row
    layouts "$1" | while read -r tensor places zero; do
        copies=$((8 * $3 / (tensor * places)))
        [ $((tensor * places * copies)) = $((8 * $3)) ] && [ $copies -gt 0 ] || continue
        for schedule in 1f1b interleaved-1f1b; do
            set -- "$1" "$2" "$3" --schedule $schedule --tensor-parallel "$tensor" --data-parallel $copies \
                --microbatches $((sequences * $3 / copies)) --microbatch-size 1 --iterations 2
            [ $copies = 1 ] || [ "$zero" = 0 ] || set -- "$@" --zero "$zero" --reduce-each step
            row=$(run "$1" "$2" "$3" off "${@:4}")
            [ "$(cut -d, -f3 <<< "$row")" = true ] && echo "$(cut -d, -f5 <<< "$row") ${*:4}"
            set -- "$1" "$2" "$3"
        done
    done | sort -gr | head -1 | cut -d' ' -f2-
}

echo "platform,network_gb_per_s,system,servers,$columns,alone_ms,options" > "$work/points.csv"
for where in 'rtx4090x8 3.125' 'rtx4090x8 12.5' 'h100x8 360'; do
    read -r platform rate <<< "$where"
    for servers in 1 2 4 8 32 128; do
        for system in async sync; do
            options=(--schedule roundpipe --microbatches 32 --microbatch-size 4 --optimizer $system)
            alone=$(run "$platform" "$rate" 1 off "${options[@]}" | cut -d, -f4)
            [ $servers = 1 ] || options+=(--data-parallel $servers)
            echo "$platform,$rate,roundpipe-$system,$servers,$(run "$platform" "$rate" $servers 32 "${options[@]}"),$alone,${options[*]}"
        done
        read -r -a options <<< "$(best "$platform" "$rate" $servers)"
        [ ${#options[@]} -gt 0 ] || continue
        alone=$(run "$platform" 100000 $servers off "${options[@]}" | cut -d, -f4)
        echo "$platform,$rate,3d,$servers,$(run "$platform" "$rate" $servers 8 "${options[@]}"),$alone,${options[*]}"
    done
done >> "$work/points.csv"
awk -F, -v prices="$paper/published/prices.csv" -f "$figure/table.awk" "$work/points.csv" > "$work/table.md"
mv "$work/table.md" "$out/$name.md"
mv "$work/points.csv" "$out/$name.csv"
draw
