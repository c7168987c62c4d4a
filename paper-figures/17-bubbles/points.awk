# Every published number of the pipeline study beside rpsim's, and the bars of the picture. Variables:
# published, ours, steady (CSV files; steady: asynchronous RoundPipe), bars (file to write).

function row(schedule, execution, model, quantity, given, own)
{
    printf "%s,%s,%s,%s,", schedule, execution, model, quantity
    if (given == "") {
        printf ",%.6f,\n", own
    } else {
        printf "%s,%.6f,%.6f\n", given, own, own - given
    }
}

function bar(model, name, fill, change, intra, drain, whole, bubble, given)
{
    printf "%s,%s,%.6f,%.6f,%.6f,%.6f,%.6f,%.6f,%s\n", model, name, fill, change, intra, drain, whole, bubble, \
        given > bars
}

# RoundPipe's steps one after the other without a barrier.
function overlapped(schedule, model,    at, taken, given, estimate, own, busy, period, gpus)
{
    at = schedule SUBSEP model
    given = value(paper, at, "bubble_pct") - value(paper, at, "fill_pct") - value(paper, at, "drain_pct")
    own = share(sim, at, "bubble_ms") - share(sim, at, "fill_ms") - share(sim, at, "drain_ms")
    row(schedule, "overlapped", model, "bubble_pct", sprintf("%.4f", given), own)
    bar(model, schedule " overlapped", 0, share(sim, at, "switch_ms"), share(sim, at, "intra_ms"), 0, 0, own, \
        sprintf("%.4f", given))
    gpus = value(sim, at, "gpus")
    taken = value(paper, at, "fill_ms") + value(paper, at, "drain_ms")
    estimate = value(paper, at, "makespan_ms") - taken / gpus
    taken = value(sim, at, "fill_ms") + value(sim, at, "drain_ms")
    row(schedule, "overlapped", model, "iteration_ms", sprintf("%.4f", estimate), \
        value(sim, at, "makespan_ms") - taken / gpus)

    period = value(async, at, "iteration_ms")
    busy = gpus * value(async, at, "makespan_ms") - value(async, at, "bubble_ms")
    own = 100 * (1 - busy / (gpus * period))
    row(schedule, "steady", model, "bubble_pct", "", own)
    row(schedule, "steady", model, "iteration_ms", "", period)
    bar(model, schedule " steady state", 0, 0, 0, 0, own, own, "")
}

BEGIN {
    count = read_study(published, paper, rows, columns)
    read_study(ours, sim, own_rows, own_columns)
    read_study(steady, async, async_rows, async_columns)
    print "schedule,execution,model,quantity,published,ours,difference"
    print "model,bar,fill_pct,switch_pct,intra_pct,drain_pct,steady_pct,bubble_pct,published_pct" > bars
    for (i = 1; i <= count; i++) {
        split(rows[i], name, SUBSEP)
        for (c = 1; c in columns; c++) {
            if (columns[c] ~ /_ms$/) {
                row(name[1], "synchronous", name[2], columns[c], paper[rows[i], columns[c]], \
                    value(sim, rows[i], columns[c]))
            } else if (columns[c] ~ /_pct$/) {
                what = columns[c]
                sub(/_pct$/, "_ms", what)
                row(name[1], "synchronous", name[2], columns[c], paper[rows[i], columns[c]], share(sim, rows[i], what))
            }
        }
    }
    by_model(rows, count, sorted)
    for (i = 1; i <= count; i++) {
        split(sorted[i], name, SUBSEP)
        bar(name[2], name[1], share(sim, sorted[i], "fill_ms"), share(sim, sorted[i], "switch_ms"), \
            share(sim, sorted[i], "intra_ms"), share(sim, sorted[i], "drain_ms"), 0, \
            share(sim, sorted[i], "bubble_ms"), paper[sorted[i], "bubble_pct"])
        split(sorted[i + 1], other, SUBSEP)
        if (other[2] != name[2]) {
            overlapped("roundpipe", name[2])
        }
    }
}
