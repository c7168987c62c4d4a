# RoundPipe's tokens/s over those of the best rival that counts, with figure 10's layouts and with the best of all. The
# ratio's interval has the ends that both runs' 80 % intervals allow. Writes the ratios as CSV, too, with the published.
BEGIN {
    print "| server | model | software | type | layouts | RoundPipe | best rival | ratio | 80 % | faster |"
    print "|---|---|---|---|---|---|---|---|---|---|"
    print "platform,model,software,dtype,layouts,roundpipe,rival,name,ratio,low,high,faster" > ratios
    while ((getline line < published) > 0) {
        split(line, cell, ",")
        if (cell[3] !~ /^[0-9]/ || cell[1] == "roundpipe-sync") continue
        if (cell[1] == "roundpipe") {
            theirs[cell[2]] = cell[3]
            order[++models] = cell[2]
        } else if (cell[3] > most[cell[2]] + 0) {
            most[cell[2]] = cell[3]
            who[cell[2]] = cell[1]
        }
    }
    for (i = 1; i <= models; i++) {
        model = order[i]
        if (model in most)
            print "rtx4090x8", model, "published", "fp16", "figure", theirs[model], most[model], who[model],
                sprintf("%.4f", theirs[model] / most[model]), "", "", "" > ratios
    }
}

# name_of: schedule, and the copies of the model.
function name_of(    copies)
{
    if ($6 == "roundpipe" || !match($0, /--data-parallel [0-9]+/)) return $6
    copies = substr($0, RSTART + 16, RLENGTH - 16)
    return copies == 8 ? "data-parallel" : $6 " x " copies
}

# Ratio of the best two runs with these layouts.
function ratio(layouts, a, b,    low, high, faster, cells)
{
    low = p10[a] / p90[b]
    high = p90[a] / p10[b]
    faster = low > 1 ? "RoundPipe" : high < 1 ? "rival" : "undecided"
    print cell_of, layouts, sprintf("%.0f", rate[a]), sprintf("%.0f", rate[b]), name[b],
        sprintf("%.4f", rate[a] / rate[b]), sprintf("%.4f", low), sprintf("%.4f", high), faster > ratios
    cells = cell_of
    gsub(",", " | ", cells)
    printf "| %s | %s | %.0f | %s, %.0f | %.2f | %.2f–%.2f | %s |\n", cells, layouts, rate[a], name[b], rate[b],
        rate[a] / rate[b], low, high, faster
}

function finish()
{
    if (cell_of == "") return
    ratio("figure", "roundpipe figure", "rival figure")
    if (free) ratio("free", "roundpipe free", "rival free")
}

FNR > 1 {
    key = $1 "," $2 "," $3 "," $4
    if (key != cell_of) {
        finish()
        cell_of = key
        split("", rate)
        free = 0
    }
    free += $5 == "free"
    for (i = 1; i <= 2; i++) {
        layouts = i == 1 ? "figure" : "free"
        side = ($6 == "roundpipe" ? "roundpipe " : "rival ") layouts
        if ($11 == "true" && (layouts == "free" || $5 == "figure") && $10 > rate[side] + 0) {
            rate[side] = $10
            name[side] = name_of()
            p10[side] = $12
            p90[side] = $13
        }
    }
}
END {
    finish()
}
