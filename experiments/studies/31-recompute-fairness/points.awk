# Two experiment files from partitions.csv and the paper's list: the found partitions under both
# recompute rules at stage fidelity, and the study at hardware fidelity. Variables: found, paper (CSV),
# stage, hardware (files to write).

function head(file, name, question, fidelity)
{
    print "name: " name > file
    print "question: " question > file
    print "options: {fidelity: " fidelity ", gpus: 8, microbatches: 16}" > file
    print "cross:" > file
    print "  recompute: [wait, early]" > file
}

function entry(file, schedule, model, partition, more)
{
    printf "  - {schedule: %s, model: %s, partition: \"%s\"%s}\n", schedule, model, partition, more > file
}

# The 235B model at hardware fidelity as the paper trained it, with LoRA: its weights in full would
# spend the step in the host's optimizer.
function trained(model)
{
    return model == "qwen3-235b" ? "qwen3-235b-lora" : model
}

BEGIN {
    FS = ";"
    head(stage, "recompute-fairness-found", "As recompute-fairness, with the partitions that a search has found", "stage")
    head(hardware, "recompute-fairness-hardware", "As recompute-fairness, with links, memory and host", "hardware")
    print "  optimizer: [sync, async]" > hardware
    print "list:" > stage
    print "list:" > hardware
    getline < paper
    while ((getline < paper) > 0) {
        entry(hardware, $1, trained($2), $3, "")
        if ($1 == "looped-bfs") {
            entry(hardware, "mobius", trained($2), $3, "")
            entry(hardware, "[zb-h1, zbv]", trained($2), "even", "")
        }
    }
    getline < found
    while ((getline < found) > 0) {
        entry(stage, $1, $2, $6, $4 == "" ? "" : ", round: " $4 ", round-start: " $5)
        if ($1 ~ /^zb/ || $3 == "tuned") {
            continue # zero bubble does not fit; at hardware fidelity a call is one round
        }
        entry(hardware, $1, trained($2), $6, "")
        if ($1 == "looped-bfs") {
            entry(hardware, "mobius", trained($2), $6, "")
        }
    }
}
