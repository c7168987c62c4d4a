# How far an entry's table is from what is published, from its column difference_pct or, in the
# table's own unit, difference: "count|mean|worst|set|oom". Cells that a constant was set on
# (set_a_constant) are counted apart, and so are cells that are out of memory on one side only.
# awk -f text.awk -f compare.awk FILE
{ sub(/\r$/, "") }
FNR == 1 {
    width = cells($0)
    for (i = 1; i <= width; i++) {
        column[cell[i]] = i
    }
    at = "difference_pct" in column ? column["difference_pct"] : "difference" in column ? column["difference"] : 0
    unit = "difference_pct" in column ? " %" : ""
    next
}
{ cells($0) }
"published" in column && "ours" in column {
    published = cell[column["published"]]
    ours = cell[column["ours"]]
    if ((published == "OOM" && ours + 0 > 0) || (ours ~ /^(OOM|does not fit)$/ && published + 0 > 0)) {
        oom++
    }
}
at && cell[at] ~ /^[-+]?[0-9.]+(e[-+]?[0-9]+)?$/ {
    if ("set_a_constant" in column && cell[column["set_a_constant"]] == "yes") {
        set++
        next
    }
    count++
    error = cell[at] + 0
    sum += error
    size = error < 0 ? -error : error
    if (count == 1 || size > worst_size) {
        worst_size = size
        worst = error
    }
}
function signed(x)
{
    if (x == 0) {
        return "0"
    }
    return (unit == "" || (x < 0.005 && x > -0.005) ? sprintf("%+.2g", x) : sprintf("%+.2f", x)) unit
}
END {
    if (count) {
        printf "%d|%s|%s|%d|%d\n", count, signed(sum / count), signed(worst), set, oom
    } else {
        printf "0|||%d|%d\n", set, oom
    }
}
