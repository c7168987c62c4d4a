# rpsim's JSON to rows of the plot: panel, schedule, GPUs, microbatches, stages, bubble. Variables: panel;
# stages, 0: counted, and runs with empty stages other than the head's own are left out.
function text(key,    from)
{
    from = index($0, "\"" key "\":\"")
    return from == 0 ? "" : substr($0, from + length(key) + 4, index(substr($0, from + length(key) + 4), "\"") - 1)
}

function number(key,    from, rest)
{
    from = index($0, "\"" key "\":")
    rest = substr($0, from + length(key) + 3)
    return rest + 0
}

/"schedule":/ {
    count = stages
    if (count == 0) {
        plan = text("partition")
        if (plan ~ /,0/) {
            next
        }
        count = split(plan, part, /[,|]/)
    }
    if ((panel, text("schedule"), number("microbatches"), count) in seen) {
        next
    }
    seen[panel, text("schedule"), number("microbatches"), count]
    printf "%s,%s,%d,%d,%d,%.10f\n", panel, text("schedule"), number("gpus"), number("microbatches"), count, \
        number("bubble_pct")
}
