# The points beside the published makespans, and RoundPipe's lead in parts. Variables: points (CSV of
# points.sql), published (CSV), parts, costs (files to write). Used after tables.awk and study.awk.
#
# The lead over the best rival is 100 ln(rival's time / RoundPipe's time), so that parts add up. It is
# known for four cases: each of rule and partition as published or alike for all (both rules the same;
# everyone's partition the best of all that were tried). What a change takes away depends on whether
# it comes first or second: a part is the mean of both, `_first` and `_second` say them.

function take(line,    cell)
{
    split(line, cell, ",")
    at = cell[1] SUBSEP cell[2] SUBSEP cell[3]
    if (!(at in seen)) {
        seen[at] = 1
        cases[++case_count] = at
    }
    if (cell[9] == "no") {
        return
    }
    keep(at SUBSEP cell[4] SUBSEP cell[5] SUBSEP "free", cell[8])
    if (cell[7] == "tuned") {
        return # rounds are no part of the partition
    }
    keep(at SUBSEP cell[4] SUBSEP cell[5] SUBSEP "best", cell[8])
    if (cell[6] != "found") {
        keep(at SUBSEP cell[4] SUBSEP cell[5] SUBSEP "paper", cell[8])
    }
}

function keep(key, ms)
{
    if (!(key in best) || ms + 0 < best[key]) {
        best[key] = ms + 0
    }
}

# The fastest of the rivals that fit; sets who. 0: none fits.
function fastest(at, rivals, rule, kind,    name, count, i, key, found)
{
    count = split(rivals, name, " ")
    found = 0
    for (i = 1; i <= count; i++) {
        key = at SUBSEP name[i] SUBSEP rule SUBSEP kind
        if ((key in best) && (!found || best[key] < found)) {
            found = best[key]
            who = name[i]
        }
    }
    return found
}

function lead(at, rivals, rule, own, kind,    rival, mine)
{
    rival = fastest(at, rivals, rule, kind)
    mine = at SUBSEP "roundpipe" SUBSEP own SUBSEP kind
    if (!rival || !(mine in best)) {
        missing = 1
        return 0
    }
    return 100 * log(rival / best[mine])
}

function part(at, label, rivals, equal,    cell, published_case, partition_case, rule_case, both, free, first_rival)
{
    missing = 0
    published_case = lead(at, rivals, "wait", "early", "paper")
    first_rival = who
    partition_case = lead(at, rivals, "wait", "early", "best")
    rule_case = lead(at, rivals, equal, equal, "paper")
    both = lead(at, rivals, equal, equal, "best")
    split(at, cell, SUBSEP)
    printf "%s,%s,%s,%s,%s,", cell[1], cell[2], cell[3], label, equal > parts
    if (missing) {
        print ",,,,,,,,,,," > parts
        return
    }
    free = fastest(at, "roundpipe", equal, "best") / fastest(at, "roundpipe", equal, "free")
    fastest(at, rivals, equal, "best")
    printf "%s,%s,%.4f,%.4f,%.4f,%.4f,%.4f,%.4f,%.4f,%.4f,%.4f,%.4f\n", first_rival, who, \
        100 * (exp(published_case / 100) - 1), published_case, \
        (published_case - rule_case + partition_case - both) / 2, \
        (published_case - partition_case + rule_case - both) / 2, both, \
        published_case - rule_case, partition_case - both, \
        published_case - partition_case, rule_case - both, 100 * log(free) > parts
}

# What waiting for the gradient costs a schedule with its listed partition, and with its best one.
function cost(at, schedule,    cell, kind, key, i, kinds)
{
    split("paper best", kinds, " ")
    split(at, cell, SUBSEP)
    for (i = 1; i <= 2; i++) {
        key = at SUBSEP schedule
        if ((key SUBSEP "wait" SUBSEP kinds[i]) in best) {
            printf "%s,%s,%s,%s,%s,%.4f\n", cell[1], cell[2], cell[3], schedule, kinds[i], \
                100 * (best[key, "wait", kinds[i]] / best[key, "early", kinds[i]] - 1) > costs
        }
    }
}

BEGIN {
    read_study(published, paper, rows, columns)
    status = getline line < points
    if (status <= 0) {
        stop(points ": cannot be read")
    }
    sub(/,partition$/, ",published_ms,difference_ms,partition", line)
    print line
    while ((getline line < points) > 0) {
        take(line)
        split(line, c, ",") # the partition, the last cell, has commas of its own
        given = ""
        if (c[1] == "stage" && c[6] == "paper" && c[5] == (c[4] == "roundpipe" ? "early" : "wait") && \
            (c[4], c[3], "makespan_ms") in paper) {
            given = paper[c[4], c[3], "makespan_ms"]
        }
        printf "%s,%s,%s,%s,%s,%s,%s,%s,%s,%s,%s,%s\n", c[1], c[2], c[3], c[4], c[5], c[6], c[7], c[8], c[9], \
            given, given == "" ? "" : sprintf("%.6f", c[8] - given), \
            substr(line, match(line, /"[^"]*"$/))
    }
    print "fidelity,optimizer,model,rivals,equal,rival_published,rival_equal,lead_pct,lead,recompute,partition,schedule," \
        "recompute_first,recompute_second,partition_first,partition_second,rounds" > parts
    print "fidelity,optimizer,model,schedule,partition_of,waiting_costs_pct" > costs
    four = "gpipe 1f1b interleaved-1f1b looped-bfs"
    for (i = 1; i <= case_count; i++) {
        stage = cases[i] ~ /^stage/
        for (e = 1; e <= 2; e++) {
            equal = e == 1 ? "early" : "wait"
            part(cases[i], stage ? "paper" : "paper + mobius", stage ? four : four " mobius", equal)
            if (stage) {
                part(cases[i], "paper + zero bubble", four " zb-h1 zbv", equal)
            }
        }
        count = split(four " zb-h1 zbv mobius roundpipe", name, " ")
        for (k = 1; k <= count; k++) {
            cost(cases[i], name[k])
        }
    }
}
