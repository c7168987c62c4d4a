# Rows of a cell, with two columns before the last: counts, and whether a ratio needs the run. A run counts if it fits,
# or if the paper ran it on its server although it does not fit by our count of memory.
BEGIN {
    while ((getline line < published) > 0) {
        split(line, cell, ",")
        sub(/^deepspeed-/, "", cell[1])
        sub(/-zero3$/, "", cell[1])
        measured[cell[1], cell[2]] = cell[3] ~ /^[0-9]/
    }
}
{
    row[NR] = $0
    counts[NR] = $7 == "true" || $1 == "rtx4090x8" && $5 == "figure" && measured[$6, $2]
    rate[NR] = $10
    ours[NR] = $6 == "roundpipe"
    free[NR] = $5 == "free"
}
END {
    for (side = 0; side < 4; side++) { # RoundPipe or rivals, as in figure 10 or freely
        best = 0
        for (i = 1; i <= NR; i++)
            if (counts[i] && ours[i] == side % 2 && free[i] <= (side > 1) && rate[i] > rate[best] + 0) best = i
        if (best) ratio[best] = 1
    }
    for (i = 1; i <= NR; i++) {
        options = row[i]
        sub(/.*,/, "", options)
        sub(/,[^,]*$/, "", row[i])
        print row[i], counts[i] ? "true" : "false", i in ratio ? "ratio" : "", options
    }
}
