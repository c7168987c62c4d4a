# How far an entry's table is from what is published, from its column difference_pct or, in the
# table's own unit, difference: "count|mean|worst|unit|set|oom". Cells that a constant was set on
# (set_a_constant) are counted apart, and so are cells that are out of memory on one side only.
BEGIN { FS = "," }
FNR == 1 {
    for (i = 1; i <= NF; i++) {
        column[$i] = i
    }
    at = "difference_pct" in column ? column["difference_pct"] : "difference" in column ? column["difference"] : 0
    unit = "difference_pct" in column ? " %" : ""
    next
}
"published" in column && "ours" in column {
    published = $column["published"]
    ours = $column["ours"]
    if ((published == "OOM" && ours + 0 > 0) || (ours == "OOM" && published + 0 > 0)) {
        oom++
    }
}
at && $at != "" && $at ~ /^[-+]?[0-9.]+(e[-+]?[0-9]+)?$/ {
    if ("set_a_constant" in column && $column["set_a_constant"] == "yes") {
        set++
        next
    }
    count++
    sum += $at
    size = $at < 0 ? -$at : $at + 0
    if (count == 1 || size > worst_size) {
        worst_size = size
        worst = $at
    }
}
function signed(x)
{
    return x == 0 ? "0" : unit != "" ? sprintf("%+.2f%s", x, unit) : sprintf("%+.2g", x)
}
END {
    if (count) {
        printf "%d|%s|%s|%d|%d\n", count, signed(sum / count), signed(worst), set, oom
    } else {
        printf "0|||%d|%d\n", set, oom
    }
}
