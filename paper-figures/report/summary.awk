# The first screen's sentences and verdicts, from what the entries have written to OUTDIR:
# awk -v what=sentences|verdicts -f text.awk -f summary.awk FILE...
# Sentences: the table of 17-bubbles, rppredict's report (prediction; its first count of intervals) and the
# text of claims. Verdicts: the rows of the first table of claims.
function number(s)
{
    return s ~ /^[-+]?[0-9.]+([eE][-+]?[0-9]+)?$/
}
# Cells of a Markdown row, trimmed, into part[1..n].
function columns(line,    n, i)
{
    gsub(/^\| *| *\|$/, "", line)
    n = split(line, part, / *\| */)
    return n
}
function class_of(text)
{
    sub(/^\*\*/, "", text)
    sub(/\*\*.*/, "", text)
    return text
}
# Good, in part, bad, or nothing to hold it against.
function colour(class)
{
    if (class ~ /^(confirmed|predicted within|predicted$)/) return "yes"
    if (class ~ /^in part/) return "part"
    if (class ~ /^not (confirmed|reproduced)/) return "no"
    return "open"
}
# A verdict without what stands behind its comma.
function short(class)
{
    sub(/,.*/, "", class)
    return class
}
function worse(a, b)
{
    b = b < 0 ? -b : b + 0
    return b > a ? b : a + 0
}
FNR == 1 { kind = FILENAME; gsub(/.*\/|\..*/, "", kind) }
{ sub(/\r$/, "") }
kind == "17-bubbles" && FNR == 1 {
    n = cells($0)
    for (i = 1; i <= n; i++) at[cell[i]] = i
    next
}
kind == "17-bubbles" {
    cells($0)
    if (!number(cell[at["published"]]) || !number(cell[at["ours"]])) next
    row = cell[at["model"]] " " cell[at["schedule"]]
    if (!(row in off)) rows++
    gap = cell[at["ours"]] - cell[at["published"]]
    off[row] = worse(off[row], gap)
    furthest = worse(furthest, gap)
    next
}
# The first: others, of other servers, follow.
kind == "prediction" && /^Intervals, / && !(3 in inside) {
    match($0, /: [0-9]+ of [0-9]+ /)
    split(substr($0, RSTART + 2, RLENGTH - 3), inside, " ")
    next
}
# Cells of the same count: what set nothing, and of the group async what the scaling groups have not.
kind == "prediction" && /^\|/ {
    n = columns($0)
    if (n == 11 && part[1] !~ /-set$/ && part[1] != "async" && number(part[7])) {
        predicted++
        sum += part[7] < 0 ? -part[7] : part[7]
    }
    next
}
kind == "claims" && /^\| / && !over {
    columns($0)
    if (part[1] == "claim") next
    claims++
    claim[claims] = part[1]
    published[claims] = class_of(part[2])
    ours[claims] = class_of(part[3])
    tally["published", colour(published[claims])]++
    tally["ours", colour(ours[claims])]++
    next
}
kind == "claims" && claims { over = 1 }
function count(n)
{
    return n ? n : "none"
}
function sentences(    row, equal)
{
    for (row in off) equal += off[row] < 0.001
    if (rows) {
        # The next ten thousandth above.
        furthest = int(furthest * 10000 + 0.999999) / 10000
        printf "<li><b>%d of %d</b> rows of the paper&#8217;s own simulation come out as published (<a href=\"#17-bubbles\">" \
            "Figure 17</a>), to within %.4f ms or points.</li>\n", equal, rows, furthest
    } else {
        print "<li>The paper&#8217;s own simulation (Figure 17) has not been repeated this time.</li>"
    }
    if (predicted && predicted == inside[3]) {
        printf "<li>Predicted throughput on RTX 4090 is <b>%.1f %%</b> off on the mean of the %d published cells that set no " \
            "constant; %d lie inside the 80 %% interval (<a href=\"#10-throughput\">Figures 10</a> and " \
            "<a href=\"#15-scaling\">15</a>).</li>\n", sum / predicted, predicted, inside[1]
    } else {
        print "<li>Throughput on RTX 4090 has not been predicted this time.</li>"
    }
    if (claims) {
        printf "<li>Of %d <a href=\"#claims\">headline claims</a> the published data confirm %s and %s in part, our " \
            "simulation %s and %s in part; <b>our own measurements on a GPU are of one H200</b>.</li>\n", claims, \
            count(tally["published", "yes"]), count(tally["published", "part"]), count(tally["ours", "yes"]), \
            count(tally["ours", "part"])
    } else {
        print "<li>The paper&#8217;s claims have not been judged this time; our own measurements on a GPU are of one H200.</li>"
    }
}
function verdicts(    i)
{
    if (!claims) return
    print "<table class=\"verdicts\"><thead><tr><th>claim of the paper</th><th>published data</th><th>our simulation</th></tr></thead><tbody>"
    for (i = 1; i <= claims; i++) {
        printf "<tr><td>%s</td><td class=\"v %s\">%s</td><td class=\"v %s\">%s</td></tr>\n", escaped(claim[i]), \
            colour(published[i]), escaped(short(published[i])), colour(ours[i]), escaped(short(ours[i]))
    }
    print "</tbody></table>"
}
END {
    if (what == "sentences") sentences()
    else verdicts()
}
