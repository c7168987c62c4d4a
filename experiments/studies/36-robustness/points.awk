# The three tables of the study, from the runs with jitter and with a slow GPU. Variables: points,
# tau, without (files to write). After ../lib/table.awk.

BEGIN {
    SEEDS = 30
    T29 = 2.0452296 # 97.5 % quantile of Student's t with SEEDS - 1 degrees of freedom
    TIE = 0.005     # times that differ by less are equal
}

function note(list, value)
{
    if (!((list, value) in seen)) {
        seen[list, value] = 1
        names[list, ++counts[list]] = value
    }
}

# 1: a takes longer than b, -1: less long, 0: equal.
function above(a, b)
{
    return a > b * (1 + TIE) ? 1 : b > a * (1 + TIE) ? -1 : 0
}

$f["gpus"] == 7 {
    seven[$f["model"], $f["schedule"]] = $f["iteration_ms"]
    next
}

{
    note("model", $f["model"])
    note("schedule", $f["schedule"])
    base[$f["model"], $f["schedule"]] = $f["iteration_ms"]
    what = $f["slow_factor"] == "" ? "jitter" : "slow-gpu"
    x = what == "jitter" ? $f["jitter_cv"] : $f["slow_factor"]
    sample = what == "jitter" ? $f["seed"] : $f["slow_gpu"]
    if (what == "jitter" || x > 1) {
        note(what, x)
        note(what " samples", sample)
        time[what, x, $f["model"], $f["schedule"], sample] = $f["replica_ms"]
    }
}

# Mean, least and greatest of value[1..n], and half the width of the mean's 95 % interval.
function summarise(n,    i, sum, squares)
{
    sum = squares = 0
    low = high = value[1]
    for (i = 1; i <= n; i++) {
        sum += value[i]
        low = value[i] < low ? value[i] : low
        high = value[i] > high ? value[i] : high
    }
    mean = sum / n
    for (i = 1; i <= n; i++) {
        squares += (value[i] - mean) ^ 2
    }
    half = T29 * sqrt(squares / (n - 1) / n)
}

function time_of(what, x, model, s, sample)
{
    return what == "" ? base[model, names["schedule", s]] : time[what, x, model, names["schedule", s], sample]
}

# Kendall's tau between the order without noise and that of a sample, over the pairs that the run
# without noise tells apart (pairs); a pair that the sample makes equal counts nothing.
function kendall(what, x, model, sample,    a, b, was, sum)
{
    pairs = sum = 0
    for (a = 1; a <= counts["schedule"]; a++) {
        for (b = 1; b < a; b++) {
            was = above(time_of("", 0, model, a), time_of("", 0, model, b))
            pairs += was != 0
            sum += was * above(time_of(what, x, model, a, sample), time_of(what, x, model, b, sample))
        }
    }
    return sum / pairs
}

function fastest(what, x, model, sample,    s, best)
{
    best = 1
    for (s = 2; s <= counts["schedule"]; s++) {
        if (time_of(what, x, model, s, sample) < time_of(what, x, model, best, sample)) {
            best = s
        }
    }
    return best
}

# One level of noise, or one factor of the slow GPU, on one model.
function level(what, x, model,    n, i, s, winner, interval)
{
    n = counts[what " samples"]
    winner = fastest("", 0, model, 0)
    delete wins
    for (i = 1; i <= n; i++) {
        value[i] = kendall(what, x, model, names[what " samples", i])
        wins[fastest(what, x, model, names[what " samples", i])]++
    }
    summarise(n)
    interval = what == "jitter" ? sprintf("%.6f", half) : ""
    printf "%s,%s,%s,%d,%.6f,%s,%.6f,%s,%.6f\n", what, model, x, pairs, mean, interval, low, \
        names["schedule", winner], wins[winner] / n > tau
    for (s = 1; s <= counts["schedule"]; s++) {
        for (i = 1; i <= n; i++) {
            value[i] = time_of(what, x, model, s, names[what " samples", i]) / time_of("", 0, model, s)
        }
        summarise(n)
        interval = what == "jitter" ? sprintf("%.6f", half) : ""
        printf "%s,%s,%s,%s,%.6f,%.6f,%s,%.6f,%.6f,%s,%.6f\n", what, model, names["schedule", s], x, \
            time_of("", 0, model, s), mean, interval, low, high, \
            what == "jitter" ? "" : sprintf("%.6f", 8 / (7 + 1 / x)), wins[s] / n > points
        slowed[what, model, names["schedule", s], x] = mean
    }
}

# The factor at which the mean slowdown is that of the step on seven GPUs; linear in between.
function break_even(model, schedule, target,    k, x, before_x, before)
{
    before_x = before = 1
    for (k = 1; k <= counts["slow-gpu"]; k++) {
        x = names["slow-gpu", k]
        if (slowed["slow-gpu", model, schedule, x] >= target) {
            return sprintf("%.3f", before_x + (x - before_x) * (target - before) / \
                (slowed["slow-gpu", model, schedule, x] - before))
        }
        before_x = x
        before = slowed["slow-gpu", model, schedule, x]
    }
    return ""
}

END {
    if (counts["jitter samples"] != SEEDS || counts["slow-gpu samples"] != 8) {
        print "points.awk: not " SEEDS " seeds and 8 slow GPUs" > "/dev/stderr"
        exit 1
    }
    print "what,model,schedule,x,noise_free_ms,slowdown_mean,half_width_95,slowdown_min,slowdown_max,evenly_spread,fastest" > points
    print "what,model,x,pairs,tau_mean,half_width_95,tau_min,winner,winner_stays" > tau
    print "model,schedule,eight_ms,seven_ms,slowdown,break_even_factor" > without
    for (m = 1; m <= counts["model"]; m++) {
        model = names["model", m]
        for (k = 1; k <= counts["jitter"]; k++) {
            level("jitter", names["jitter", k], model)
        }
        for (k = 1; k <= counts["slow-gpu"]; k++) {
            level("slow-gpu", names["slow-gpu", k], model)
        }
        for (s = 1; s <= counts["schedule"]; s++) {
            schedule = names["schedule", s]
            if ((model, schedule) in seven) {
                ratio = seven[model, schedule] / base[model, schedule]
                printf "%s,%s,%.6f,%.6f,%.6f,%s\n", model, schedule, base[model, schedule], \
                    seven[model, schedule], ratio, break_even(model, schedule, ratio) > without
            }
        }
    }
}
