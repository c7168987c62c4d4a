# Sourced after figure.sh: the paper's pipeline study, run again. Sets published, its table.
published=$paper/published/pipeline_bubbles.csv

# study FILE [OPTION]...: rpsim's CSV table of every schedule and model of the published table; a later option replaces
# an earlier.
study()
{
    local file=$1 schedules models
    shift
    schedules=$(cut -d, -f1 "$published" | tail -n +2 | awk '!seen[$0]++' | paste -sd,)
    models=$(cut -d, -f2 "$published" | tail -n +2 | awk '!seen[$0]++' | paste -sd,)
    "$bin/rpsim" --schedule "$schedules" --model "$models" --fidelity stage --partition paper --gpus 8 \
        --microbatches 16 --format csv "$@" > "$file"
}
workspace
