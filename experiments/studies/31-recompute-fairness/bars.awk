# Boxes of the stacked bars, parts of one sign on each other, from the table of parts. One row per
# bar: panel, place, model, equal rule, then bottom and top of the three parts, the sum.

function place(value)
{
    if (value >= 0) {
        printf ",%.4f,%.4f", up, up + value
        up += value
    } else {
        printf ",%.4f,%.4f", down, down + value
        down += value
    }
}

BEGIN {
    FS = ","
    count = split("qwen3-1.7b llama3.1-8b gpt-oss-20b qwen3-32b qwen3-235b", models, " ")
    for (i = 1; i <= count; i++) {
        order[models[i]] = i
    }
    print "panel,place,model,equal,recompute_from,recompute_to,partition_from,partition_to,schedule_from,schedule_to,lead"
}
FNR > 1 && $1 == "stage" {
    panel = $4 == "paper" ? 1 : 2
    up = 0
    down = 0
    printf "%d,%.2f,%s,%s", panel, order[$3] + ($5 == "early" ? -0.2 : 0.2), $3, $5
    place($10)
    place($11)
    place($12)
    printf ",%.4f\n", $9
}
