# Ranks on every topology, and RoundPipe's lead. Reads the table of points.sql twice: first all times.
# Variables: leads (file to write). Ties: within a thousandth of the faster one's time; a tie shares
# the better rank. What does not fit has no rank, only `rank_without_memory`. The rivals of RoundPipe
# exclude roundpipe-overlap, which is RoundPipe with overlapping rounds.

function near(a, b)
{
    return a - b <= 0.001 * (a < b ? a : b) && b - a <= 0.001 * (a < b ? a : b)
}

# 1 + how many are faster by more than a tie.
function rank(at, schedule, fitting,    k, better)
{
    better = 1
    for (k = 1; k <= schedules; k++) {
        if (name[k] != schedule && (!fitting || fit[at, name[k]]) && ms[at, name[k]] < ms[at, schedule] && \
            !near(ms[at, name[k]], ms[at, schedule])) {
            better++
        }
    }
    return better
}

# The fastest rival; sets who. 0: there is none.
function rival(at, fitting,    k, found)
{
    found = 0
    who = ""
    for (k = 1; k <= schedules; k++) {
        if (name[k] !~ /^roundpipe/ && (!fitting || fit[at, name[k]]) && (!found || ms[at, name[k]] < found)) {
            found = ms[at, name[k]]
            who = name[k]
        }
    }
    return found
}

function sign(a, b)
{
    return near(a, b) ? 0 : a < b ? -1 : 1
}

# Kendall's tau-b of two orders of all schedules, memory ignored.
function tau(here, there,    i, k, x, y, sum, left, right)
{
    for (i = 1; i < schedules; i++) {
        for (k = i + 1; k <= schedules; k++) {
            x = sign(ms[here, name[i]], ms[here, name[k]])
            y = sign(ms[there, name[i]], ms[there, name[k]])
            sum += x * y
            left += x * x
            right += y * y
        }
    }
    return sum / sqrt(left * right)
}

function percent(theirs, mine)
{
    return theirs ? sprintf("%.4f", 100 * (theirs / mine - 1)) : ""
}

function lead(model, at,    mine, fitting, fitting_name, any)
{
    mine = ms[at, "roundpipe"]
    fitting = fit[at, "roundpipe"] ? rival(at, 1) : 0
    fitting_name = who
    any = rival(at, 0)
    printf "%s,%s,%s,%s,%s,%s,%.4f,%.4f,%.4f\n", at, fitting ? fitting_name : "", percent(fitting, mine), who, \
        percent(any, mine), fit[at, "roundpipe-overlap"] ? "yes" : "no", 100 * (mine / ms[at, "roundpipe-overlap"] - 1), \
        100 * (mine / ms[model ",4,1", "roundpipe"] - 1), tau(at, model ",4,1") > leads
}

BEGIN {
    FS = ","
    print "model,pcie_gen,gpus_per_uplink,rival_that_fits,lead_pct,rival_without_memory,lead_without_memory_pct," \
        "overlap_fits,overlap_gains_pct,slower_than_gen4_alone_pct,tau_to_gen4_alone" > leads
}
FNR == 1 {
    pass++
    if (pass == 2) {
        print $0 ",rank,rank_without_memory,behind_best_pct"
    }
    next
}
pass == 1 {
    ms[$1 "," $2 "," $3, $4] = $5
    fit[$1 "," $2 "," $3, $4] = $7 == "yes"
    if (!($4 in known)) {
        known[$4] = 1
        name[++schedules] = $4
    }
    next
}
{
    at = $1 "," $2 "," $3
    if (at != last) {
        lead($1, at)
        best = $5
        last = at
    }
    printf "%s,%s,%d,%.4f\n", $0, $7 == "yes" ? rank(at, $4, 1) : "", rank(at, $4, 0), 100 * ($5 / best - 1)
}
