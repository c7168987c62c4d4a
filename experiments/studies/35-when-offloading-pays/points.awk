# Rates, crossovers and the longest sequences. Variables: constants (file of key,value), points, cross,
# fits (files to write). After ../lib/table.awk: runs of the three experiments.

BEGIN {
    EQUAL = 0.95 # of the resident rate: as near as predictions are to measurements
    # Bytes of host memory traffic per parameter and step: weights 8, gradients 10, Adam 32
    # (sim/model.md section 2, term 4).
    HOST_BYTES = 50
    # Bytes per parameter that a step takes up the links: fp16 weights for forward and for backward.
    LINK_BYTES = 4
    while ((getline line < constants) > 0) {
        split(line, part, ",")
        constant[part[1]] = part[2]
    }
    print "platform,model,gpus,system,weights,microbatches,tokens_per_step,tokens_per_s,fits,peak_gb" > points
    print "platform,model,gpus,system,weights,max_seqlen" > fits
}

{
    platform = $f["platform"]
    sub(/ with .*/, "", platform)
    name = $f["schedule"]
    offloaded = name ~ /^(roundpipe|mobius|zero-infinity)$/
    if (name == "roundpipe" && $f["optimizer"] == "sync") {
        name = "roundpipe-sync"
    }
    if ($0 ~ /host_optimizer_gb_per_s/) {
        name = "roundpipe-fast-host"
    }
}

$f["max_seqlen"] != "" {
    sub(/-sync$/, "", name) # of no meaning for memory
    printf "%s,%s,%d,%s,%s,%d\n", platform, $f["model"], $f["gpus"], name, offloaded ? "host" : "resident", \
        $f["max_seqlen"] > fits
    next
}

{
    tokens = $f["microbatches"] * $f["microbatch_size"] * $f["seq_len"]
    rate = $f["tokens_per_s"]
    printf "%s,%s,%d,%s,%s,%d,%d,%.6f,%d,%.6f\n", platform, $f["model"], $f["gpus"], name, offloaded ? "host" : "resident", \
        $f["microbatches"], tokens, rate, $f["fits"], $f["peak_gb"] > points
    if ($0 ~ /host_optimizer_gb_per_s/) {
        next # of offload-link
    }
    at = platform SUBSEP $f["model"] SUBSEP $f["gpus"]
    if (!(at in seen)) {
        seen[at] = 1
        cells[++cell_count] = at
    }
    if (!((at, tokens) in seen)) {
        seen[at, tokens] = 1
        level[at, ++levels[at]] = tokens
    }
    if (!offloaded) {
        take("any")
        if ($f["fits"]) take("fitting")
    } else if ($f["fits"]) {
        take(name == "roundpipe" ? "async" : "sync")
    }
    if (name == "interleaved-1f1b" && $f["gpus"] == 1 && rate > single[platform, $f["model"]]) {
        single[platform, $f["model"]] = rate
    }
}

function take(kind)
{
    if (rate > fastest[at, tokens, kind]) {
        fastest[at, tokens, kind] = rate
        which[at, tokens, kind] = name
    }
}

function sort_levels(at,    i, k, t)
{
    for (i = 2; i <= levels[at]; i++) {
        t = level[at, i]
        for (k = i - 1; k >= 1 && level[at, k] > t; k--) level[at, k + 1] = level[at, k]
        level[at, k + 1] = t
    }
}

# The least tokens per step from which on `off` stays within 5 % of `home`: interpolated between two
# levels, straight in logarithms. Empty: not within the levels. crossing_below: already at the first.
function crossing(at, off, home,    i, ratio, before, t)
{
    crossing_below = 0
    crossing_with = last_ratio = ""
    t = ""
    for (i = levels[at]; i >= 1; i--) {
        if (fastest[at, level[at, i], home] == "" || fastest[at, level[at, i], off] == "") {
            continue
        }
        ratio = fastest[at, level[at, i], off] / fastest[at, level[at, i], home]
        if (last_ratio == "") last_ratio = ratio
        if (ratio < EQUAL) {
            if (t != "") {
                return exp(log(level[at, i]) + (log(t) - log(level[at, i])) * log(EQUAL / ratio) / log(before / ratio))
            }
            return ""
        }
        t = level[at, i]
        before = ratio
        crossing_with = which[at, t, home]
    }
    crossing_below = t != ""
    return t
}

function row(at, off,    part, home, host, link, t, below, any, slower, at_most)
{
    split(at, part, SUBSEP)
    host = HOST_BYTES * constant["parameters " part[2]] / constant["host " part[1]] * part[3] * single[part[1], part[2]]
    link = LINK_BYTES * constant["parameters " part[2]] / constant["link " part[1]] * single[part[1], part[2]]
    t = crossing(at, off, "any")
    below = crossing_below
    at_most = last_ratio
    home = crossing_with
    any = t == "" ? "" : sprintf("%.0f", t)
    slower = EQUAL * (host > link ? host : link)
    t = crossing(at, off, "fitting")
    printf "%s,%s,%d,%s,%s,%s,%s,%s,%s,%.0f,%.0f,%.0f,%.6f\n", part[1], part[2], part[3], off, \
        last_ratio == "" ? "no" : "yes", t == "" ? "" : sprintf("%s%.0f", crossing_below ? "<=" : "", t), any, below ? "yes" : "no", home, host, link, \
        slower, at_most > cross
}

END {
    print "platform,model,gpus,mode,resident_fits,crossover_tokens,crossover_if_memory_allowed,from_the_first,against,host_tokens,link_tokens,closed_form_tokens,ratio_at_most_tokens" > cross
    for (c = 1; c <= cell_count; c++) {
        split(cells[c], part, SUBSEP)
        if (part[2] == "qwen3-32b" && part[3] == 1) {
            continue # one run, for the rate of a single GPU
        }
        sort_levels(cells[c])
        row(cells[c], "async")
        if (part[2] != "qwen3-32b") {
            row(cells[c], "sync")
        }
    }
}
