# Rows of runs (seq_len, gpus, microbatches, schedule, seed, predicted ms, measured ms), sorted, to one
# row per configuration; then the means and the orders.
BEGIN {
    FS = OFS = ","
    print "kind", "seq_len", "gpus", "microbatches", "schedule", "runs", "predicted_ms", "measured_ms",
        "spread_pct", "error_pct", "tau", "pairs"
}
function median_of(list, n, i, j, t)
{
    for (i = 2; i <= n; i++) {
        for (j = i; j > 1 && list[j - 1] > list[j]; j--) {
            t = list[j]; list[j] = list[j - 1]; list[j - 1] = t
        }
    }
    return (list[int((n + 1) / 2)] + list[int((n + 2) / 2)]) / 2
}
function close_row(i, measured, spread, error)
{
    if (runs == 0) {
        return
    }
    measured = median_of(times, runs)
    spread = 100 * (times[runs] - times[1]) / measured
    error = 100 * (predicted / runs / measured - 1)
    print "configuration", key, runs, sprintf("%.3f", predicted / runs), sprintf("%.3f", measured),
        sprintf("%.2f", spread), sprintf("%.2f", error), "", ""
    n = ++members[group]
    p[group, n] = predicted / runs
    m[group, n] = measured
    s[group, n] = spread
    groups[group] = 1
    sum += error < 0 ? -error : error
    signed += error
    worst = (error < 0 ? -error : error) > worst ? (error < 0 ? -error : error) : worst
    rows++
}
{
    if ($1 OFS $2 OFS $3 OFS $4 != key) {
        close_row()
        runs = predicted = 0
        key = $1 OFS $2 OFS $3 OFS $4
        group = $1 OFS $2 OFS $3
    }
    times[++runs] = $7
    predicted += $6
}
# Kendall's tau; sets pairs.
function tau(g, i, j, apart, limit, agree, score)
{
    pairs = score = 0
    for (i = 1; i <= members[g]; i++) {
        for (j = 1; j < i; j++) {
            apart = m[g, i] - m[g, j]
            limit = (s[g, i] > s[g, j] ? s[g, i] : s[g, j]) / 100 * (m[g, i] > m[g, j] ? m[g, i] : m[g, j])
            if (apart > limit || apart < -limit) {
                agree = (p[g, i] - p[g, j]) * apart
                score += agree > 0 ? 1 : agree < 0 ? -1 : 0
                pairs++
            }
        }
    }
    return pairs > 0 ? score / pairs : 1
}
END {
    close_row()
    if (rows == 0) {
        print "validation.awk: no runs" > "/dev/stderr"
        exit 1
    }
    for (g in groups) {
        order[++count] = g
    }
    for (i = 2; i <= count; i++) {
        for (j = i; j > 1 && order[j - 1] > order[j]; j--) {
            t = order[j]; order[j] = order[j - 1]; order[j - 1] = t
        }
    }
    for (i = 1; i <= count; i++) {
        t = tau(order[i])
        print "order", order[i], "", members[order[i]], "", "", "", "", sprintf("%.3f", t), pairs
    }
    print "mean |error|", "", "", "", "", rows, "", "", "", sprintf("%.2f", sum / rows), "", ""
    print "mean error", "", "", "", "", rows, "", "", "", sprintf("%.2f", signed / rows), "", ""
    print "worst |error|", "", "", "", "", rows, "", "", "", sprintf("%.2f", worst), "", ""
}
