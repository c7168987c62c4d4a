# The reader's tables, in Markdown, from the study's crossovers and longest sequences.
function tokens(text)
{
    return text == "" ? "" : (text ~ /^<=/ ? "≤ " : "") sprintf("%.0f", substr(text, text ~ /^<=/ ? 3 : 1) / 1000) "k"
}
FNR == 1 && FILENAME ~ /-crossover/ {
    print "Tokens per step from which on asynchronous RoundPipe is within 5 % of the fastest resident system:\n"
    print "| model | server | GPUs | against what fits | if memory allowed, against | closed form | ratio at 65536 tokens per GPU |"
    print "|---|---|---|---|---|---|---|"
    next
}
FNR == 1 {
    print "\nLongest sequence that fits, one per GPU (80 GB: the A800, as the H100):\n"
    print "| model | memory | GPUs | RoundPipe | ZeRO-Infinity | FSDP | interleaved 1F1B |"
    print "|---|---|---|---|---|---|---|"
    next
}
FILENAME ~ /-crossover/ {
    if ($4 == "async") {
        printf "| %s | %s | %d | %s | %s, %s | %s | %.2f |\n", $2, $1, $3, $5 == "no" ? "nothing fits" : $6 == "" ? "not reached" : tokens($6), \
            $7 == "" ? "not reached" : tokens($7), $9, tokens($12), $13
    }
    next
}
{
    at = $2 " | " ($1 == "a800x8" ? "80 GB" : "24 GB") " | " $3
    if (!(at in known)) {
        known[at] = 1
        row[++rows] = at
    }
    longest[at, $4] = $6 > 0 ? $6 : "does not fit"
}
END {
    for (r = 1; r <= rows; r++) {
        printf "| %s | %s | %s | %s | %s |\n", row[r], longest[row[r], "roundpipe"], longest[row[r], "zero-infinity"], \
            longest[row[r], "fsdp"], longest[row[r], "interleaved-1f1b"]
    }
}
