# Sourced by checks after check.sh.
# run_programs PREFIX COMMAND...: runs every program of an installation, from a folder that has nothing of it. COMMAND
# runs a program there; files that the programs write lie in the folder that it runs them in.
run_programs()
{
    local at=$1
    shift
    prefix=("$@")
    expect 0 tokens/s "$at/bin/rpsim" --schedule roundpipe --model llama3.1-8b --platform h100x8 --intervals 4
    expect 0 '' "$at/bin/rpsim" --schedule 1f1b --gpus 2 --trace-out installed.json --program-out installed.program
    expect 0 qwen3-1.7b "$at/bin/rpadvise" --model qwen3-1.7b --platform rtx4090x8 --schedule 1f1b --gpus 4 \
        --seq-len 2048 --global-batch 8 --top 1
    expect 0 stage "$at/bin/rpplan" --model llama3.1-8b --gpus 4
    expect 0 "--schedule roundpipe" "$at/bin/rpsweep" pipeline-study --dry-run
    expect 0 tokens "$at/bin/rppredict" --cells "$at/share/doc/rpsim/docs/runs.csv"
    expect 0 '' "$at/bin/rpexec" --backend host --gpus 2 --steps 1 --check --timeline-out installed.csv
    expect 0 '' "$at/bin/rpdiff" installed.csv installed.csv
    expect 0 '' "$at/bin/rpsim" --program-in installed.program --chakra-out installed
    expect 0 '' "$at/bin/rpimport" --chakra installed
    prefix=()
}
