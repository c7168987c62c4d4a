# measured/NAME.csv (framework, the key, a value; may be empty), then cells with their answers
# (prediction.sh): a row per cell, ours beside what was measured. Needs key: the column (model or
# seq_len) that with the framework says which cell it is. Of cells that differ in grain only, the
# first that fits counts.
BEGIN {
    FS = ","
    print "model,system,platform,gpus,seq_len,kind,measured,ours,difference_pct,configuration"
}
function stop(text)
{
    print FILENAME ":" FNR ": " text > "/dev/stderr"
    failed = 1
    exit 1
}
FNR == 1 {
    split("", at)
    for (i = 1; i <= NF; i++) if (!($i in at)) at[$i] = i
    answers = "fits" in at
    if (!answers && ($1 != "framework" || $2 != key || NF != 3))
        stop("columns " $0 "; valid are framework, " key " and the value")
    # The answer's columns stand behind the cell's, some under the same names.
    for (i = NF; answers && !($i == "framework" && i > 1); i--) at["answer " $i] = i
    next
}
!answers {
    if ($3 !~ /^([0-9]+(\.[0-9]+)?|OOM|N\/A)$/ || (($1, $2) in value)) stop($0 "; valid is one number, OOM or N/A per cell")
    value[$1, $2] = $3
    given[++givens] = $1 SUBSEP $2
    next
}
{
    at_cell = $1 SUBSEP $(at[key])
    longest = $(at["seq_len"]) == "longest"
    fits = $(at["answer fits"]) == "yes"
    ours = !fits ? "OOM" : longest ? $(at["answer seq_len"]) / 1024 : $(at["answer tokens_per_s"])
    if ((at_cell in row) && (result[at_cell] != "OOM" || !fits)) next
    if (!(at_cell in row)) order[++rows] = at_cell
    result[at_cell] = ours
    platform = $(at["answer platform"])
    gpus = $(at["answer gpus"])
    row[at_cell] = $2 "," $1 "," platform "," gpus "," $(at["seq_len"]) ",predicted"
    about[at_cell] = "source" in at ? $(at["source"]) : $(at["global_batch"]) / $(at["sequence_slices"]) " sequences" \
        ($(at["sequence_slices"]) > 1 ? " of " $(at["sequence_slices"]) " slices each" : "") " in " \
        $(at["microbatches"]) * $(at["calls"]) " microbatches; grain " (fits ? $(at["grain"]) : "any")
}
END {
    if (failed) exit 1
    for (i = 1; i <= rows; i++) {
        k = order[i]
        m = k in value ? value[k] : ""
        error = m + 0 > 0 && result[k] + 0 > 0 ? sprintf("%.2f", 100 * (result[k] / m - 1)) : ""
        print row[k] "," m "," result[k] "," error "," about[k]
    }
    for (i = 1; i <= givens; i++) {
        if (given[i] in row) continue
        split(given[i], part, SUBSEP)
        print (key == "model" ? part[2] : "") "," part[1] "," platform "," gpus "," \
            (key == "seq_len" ? part[2] : "") ",measured," value[given[i]] ",,,no prediction"
    }
}
