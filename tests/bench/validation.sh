#!/usr/bin/env bash
# validation.sh BINDIR EXPERIMENT [OUTDIR]: predicted against measured iteration times on the host backend, as CSV. The
# points of EXPERIMENT (experiments/validation.yaml) run in rounds, each point once in each, every op really computed. A
# block is the points of a round with the same length and number of GPUs. Before it a separate run on a single GPU
# records the costs that predict it, as a machine's speed drifts by minutes, if only for its neighbours. The CSV is
# rpdiff's of the store. OUTDIR keeps records and stores; points of a stopped measurement that it has are not measured
# again. Takes minutes and wants an idle machine.
set -euo pipefail
export LC_ALL=C.UTF-8
bin=$(cd "$1" && pwd)
experiment=$(cd "$(dirname "$2")" && pwd)/$(basename "$2")
if [ $# -gt 2 ]; then
    mkdir -p "$3"
    cd "$3"
else
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    cd "$work"
fi
rpsweep=$bin/experiments/rpsweep
rpexec=$bin/exec/rpexec
rpdiff=$bin/rpdiff
[ -x "$rpsweep" ] || rpsweep=$bin/rpsweep rpexec=$bin/rpexec

# Busy processor time, and the time that others took of it, since the machine started.
processor_time()
{
    awk '/^cpu / { print $2 + $3 + $4 + $7 + $8, $9 }' /proc/stat
}

# An experiment per block: round-R-COSTS-GPUS.yaml with its points, and the record's options in a line of comment.
"$rpsweep" "$experiment" --dry-run | awk '{
    point = ""
    for (i = 2; i <= NF; i++) if ($i ~ /^--/) {
        option = substr($i, 3)
        value[option] = (i < NF && $(i + 1) !~ /^--/) ? $(i + 1) : "true"
        if (option != "seed") point = point (point == "" ? "" : ", ") option ": " value[option]
    }
    block = "round-" value["seed"] "-" value["costs"] "-" value["gpus"]
    if (!seen[block]++) {
        printf "# %s %s %s\nname: %s\nprogram: rpexec\nseed: %s\nlist:\n", value["costs"], value["model"],
            value["seq-len"], block, value["seed"] >(block ".yaml")
        print value["seed"], value["costs"], value["gpus"], block
    }
    print "  - {" point "}" >(block ".yaml")
}' | sort -k 1,1n -k 2,2 -k 3,3n | cut -d' ' -f4 >blocks

while read -r block; do
    [ ! -e "$block.db" ] || continue
    read -r _ costs model length <"$block.yaml"
    read -r begun begun_stolen < <(processor_time)
    rm -rf "$block.part.db"* "$block.record"
    "$rpexec" --backend host --bind --model "$model" --schedule roundpipe --gpus 1 --microbatches 4 --seq-len "$length" \
        --steps 6 --record "$block.record" </dev/null >/dev/null
    ln -sfn "$block.record" "$costs" # the name that the store has
    "$rpsweep" "$block.yaml" --db "$block.part.db" --jobs 1 --rpexec "$rpexec" </dev/null >/dev/null
    mv "$block.part.db" "$block.db"
    read -r busy stolen < <(processor_time)
    echo "$block: $(date -u +%T), $(awk -v b=$((busy - begun)) -v s=$((stolen - begun_stolen)) \
        'BEGIN { printf "%.2f", 100 * s / (b + s) }') % of the processors' time went to others" >&2
done <blocks
rm -f validation.db
"$rpsweep" merge round-*.db --db validation.db >&2
"$rpdiff" validation.db --format csv
