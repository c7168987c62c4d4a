# How many microbatches per GPU reach 95, 98 and 99 % of the throughput's limit. Reads the table of
# curves.sql. Variables: exactly (an experiment file to write with the points around each threshold),
# or needed and curves (CSV files to write).
#
# The limit, in ms per microbatch: what one more microbatch adds to a synchronous iteration between 64
# and 128 per GPU; of PipeDream-2BW, which has none, its longest period over its microbatches. Between two
# points the time is taken as linear to find the threshold; then the points around that are run, until
# the last one below the threshold and the first one from which on all are above it are neighbours. Of
# the flushed schedules in asynchronous iterations there are a few points only, for the curves.

function add_series(key)
{
    if (!(key in points)) {
        series[++series_count] = key
        points[key] = 0
    }
}

function limit(key,    cell, sync, last)
{
    split(key, cell, ",")
    sync = cell[1] "," cell[2] ",sync," cell[4] "," cell[5]
    if ((sync, 128) in ms) {
        return (ms[sync, 128] - ms[sync, 64]) / (64 * cell[1])
    }
    last = at[key, points[key]]
    return ms[key, last] / (last * cell[1])
}

function share(key, k,    cell)
{
    split(key, cell, ",")
    return limit(key) * k * cell[1] / ms[key, k]
}

# The number of the last point below `wanted`, 0 if there is none.
function last_below(key, wanted,    i, found)
{
    found = 0
    for (i = 1; i <= points[key]; i++) {
        if (share(key, at[key, i]) < wanted - 1e-9) {
            found = i
        }
    }
    return found
}

# Whether a series has enough points for thresholds.
function searched(key)
{
    return key !~ /,async,/ || key ~ /,(roundpipe|pipedream-2bw)$/
}

function ceiling(x)
{
    return x == int(x) ? x : int(x) + 1
}

# The points next to where a straight line between the last point below `wanted` and the one after it
# reaches that; none where these are neighbours.
function candidates(key, wanted,    cell, i, low, high, slope, k, list, n)
{
    i = last_below(key, wanted)
    if (i == 0 || i == points[key]) {
        return ""
    }
    split(key, cell, ",")
    low = at[key, i]
    high = at[key, i + 1]
    slope = (ms[key, high] - ms[key, low]) / (high - low)
    k = ceiling(wanted * (ms[key, low] - slope * low) / (limit(key) * cell[1] - wanted * slope) - 1e-6)
    k = k <= low ? low + 1 : k >= high ? high - 1 : k
    list = ""
    for (n = k - 1; n <= k + 1; n++) {
        if (n > low && n < high) {
            list = list (list == "" ? "" : ", ") n * cell[1]
        }
    }
    return list
}

function write_exactly(    s, w, cell, list, part, line, any)
{
    any = 0
    print "name: microbatches-needed-exactly" > exactly
    print "question: Which number of microbatches reaches the threshold, and does the one before it not?" > exactly
    print "options: {fidelity: stage}" > exactly
    print "list:" > exactly
    for (s = 1; s <= series_count; s++) {
        list = ""
        for (w = 1; w <= 3 && searched(series[s]); w++) {
            part = candidates(series[s], wanted[w])
            list = list (list == "" || part == "" ? "" : ", ") part
        }
        if (list != "") {
            any = 1
            split(series[s], cell, ",")
            line = "  - {gpus: " cell[1] ", partition: " cell[2] ", model: " cell[4] ", schedule: " cell[5]
            print line (cell[3] == "async" ? ", optimizer: async, iterations: 16" : "") ", microbatches: [" list "]}" > exactly
        }
    }
    exit !any
}

# With equal stages and free hops a synchronous iteration of M microbatches on N GPUs takes M + N - 1
# stage times (GPipe, 1F1B), with S stages of 1 / S each (S M + N (N - 1)) / N of those.
function uniform(key, wanted,    cell)
{
    split(key, cell, ",")
    if (cell[3] != "sync") {
        return ""
    }
    return ceiling(wanted / (1 - wanted) * (cell[1] - 1) / stages[key] - 1e-6)
}

function write_needed(    s, w, i, key, closed, found)
{
    print "gpus,partition,optimizer,model,schedule,stages,limit_ms,share_pct,needed_per_gpu,more_than,uniform,from_uniform" > needed
    print "gpus,partition,optimizer,model,schedule,per_gpu,iteration_ms,share_pct" > curves
    for (s = 1; s <= series_count; s++) {
        key = series[s]
        for (i = 1; i <= points[key]; i++) {
            printf "%s,%d,%s,%.4f\n", key, at[key, i], ms[key, at[key, i]], 100 * share(key, at[key, i]) > curves
        }
        for (w = 1; w <= 3 && searched(key); w++) {
            i = last_below(key, wanted[w])
            closed = uniform(key, wanted[w])
            found = i < points[key] ? at[key, i + 1] : ""
            printf "%s,%d,%.6f,%d,%s,%s,%s,%s\n", key, stages[key], limit(key), 100 * wanted[w] + 0.5, found, \
                found == "" ? at[key, i] : "", closed, found == "" || closed == "" ? "" : found - closed > needed
        }
    }
}

BEGIN {
    FS = ","
    split("0.95 0.98 0.99", wanted, " ")
}
FNR > 1 {
    key = $1 "," $2 "," $3 "," $4 "," $5
    add_series(key)
    stages[key] = $6
    at[key, ++points[key]] = $7
    ms[key, $7] = $8
}
END {
    if (exactly != "") {
        write_exactly()
    } else {
        write_needed()
    }
}
