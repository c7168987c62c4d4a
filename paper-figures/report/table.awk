# A CSV file as a table: awk -v limit=ROWS -f text.awk -f table.awk FILE. Long fractions are rounded to six
# significant digits; cells may be quoted.
function shown(s)
{
    if (s ~ /^-?[0-9]+\.[0-9]+$/ && length(s) > 9) {
        s = sprintf("%.6g", s)
    }
    return escaped(s)
}
{ sub(/\r$/, "") }
FNR == 1 {
    n = cells($0)
    printf "<table class=\"data\"><thead><tr>"
    for (i = 1; i <= n; i++) {
        gsub(/_/, " ", cell[i])
        printf "<th>%s</th>", escaped(cell[i])
    }
    print "</tr></thead><tbody>"
    next
}
FNR - 1 > limit { next }
{
    n = cells($0)
    printf "<tr>"
    for (i = 1; i <= n; i++) {
        printf "<td%s>%s</td>", cell[i] ~ /^[-+]?[0-9.]+([eE][-+]?[0-9]+)?$/ ? " class=\"n\"" : "", shown(cell[i])
    }
    print "</tr>"
}
END { print "</tbody></table>" }
