# The bars of a figure's CSV for bars.gp, one row per slot: place, group, system, left, right (0
# where there is no bar), mark left, mark right, label, class. Needs group (column of the group's
# name), given (column of the left bars) and filter (COLUMN=VALUE or empty). The label is the error,
# or our number where there is none; with values=1 both.
BEGIN { FS = ","; split(filter, want, "=") }
function short(x)
{
    return x >= 99950 ? sprintf("%.0fk", x / 1000) : x >= 9995 ? sprintf("%.1fk", x / 1000) : \
        x >= 1000 ? sprintf("%.2fk", x / 1000) : sprintf("%.3g", x)
}
FNR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
filter != "" && $(at[want[1]]) != want[2] { next }
{
    name = $(at[group])
    if (!(name in seen)) {
        seen[name] = ++groups
        names[groups] = name
    }
    g = seen[name]
    line[g, ++count[g]] = $0
}
END {
    place = 0
    print "place,group,system,left,right,mark_left,mark_right,label,class"
    for (g = 1; g <= groups; g++) {
        for (i = 1; i <= count[g]; i++) {
            split(line[g, i], f, ",")
            left = f[at[given]]
            right = f[at["ours"]]
            system_ = f[at["system"]]
            error = f[at["difference_pct"]]
            text = error != "" ? sprintf(error == 0 ? "%d %%" : "%+.1f %%", error) : right + 0 > 0 ? short(right) : ""
            if (error != "" && values) text = short(right) " (" text ")"
            sub(/-/, "−", text)
            if ("set_a_constant" in at && f[at["set_a_constant"]] == "yes") text = text " *"
            class = system_ == "roundpipe" ? 1 : system_ == "roundpipe-sync" ? 2 : 0
            printf "%d,%s,%s,%s,%s,%s,%s,%s,%d\n", place++, names[g], system_, left + 0, right + 0, \
                left == "OOM" || left == "N/A" ? left : "", right ~ /^(OOM|does not fit)$/ ? "OOM" : "", text, class
        }
        place++
    }
}
