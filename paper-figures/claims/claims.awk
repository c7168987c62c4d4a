# The claims of published/claims.csv: a CSV row for every number (stdout), and what follows from
# them in Markdown (the file `text`). No number is typed here: bounds are those of claims.csv.

# A number of a claim; published and ours may be empty. Of shares the difference is one in percentage
# points. note_or_empty: of what the number is, beside the model.
function row(claim, model, quantity, unit, published, ours, note_or_empty,    error, points, at)
{
    error = ""
    points = unit ~ /^%/
    if (published != "" && ours != "") {
        error = sprintf("%.2f", points ? ours - published : 100 * (ours / published - 1)) + 0
        worst[claim] = larger(worst[claim], error)
        worst_unit[claim] = points ? "points" : "%"
    }
    printf "%s,%s,\"%s\",%s,%s,%s,%s,%s\n", claim, model, \
        quantity (note_or_empty == "" ? "" : ": " note_or_empty), unit, plain(published), plain(ours), \
        points ? "" : error, points ? error : ""
    at = claim SUBSEP quantity " (" unit ")"
    if (!(at in tables)) {
        table_order[claim, ++table_count[claim]] = quantity " (" unit ")"
    }
    tables[at] = tables[at] sprintf("| %s | %s | %s | %s |\n", model (note_or_empty == "" ? "" : ", " note_or_empty), \
        shown(published), shown(ours), error == "" ? "" : signed(error) " " worst_unit[claim])
}

function signed(x)
{
    return x < 0.05 && x > -0.05 ? "0.0" : sprintf("%+.1f", x)
}

function plain(x)
{
    return x == "" ? "" : sprintf("%.6g", x)
}

function shown(x)
{
    if (x == "" || x == int(x)) {
        return x
    }
    return sprintf(x >= 1000 ? "%.0f" : x >= 100 ? "%.1f" : "%.2f", x)
}

# The one of two signed errors that is farther from 0.
function larger(a, b)
{
    return a == "" || (b < 0 ? -b : b + 0) > (a < 0 ? -a : a + 0) ? b + 0 : a
}

# A set of numbers by name: for "1.48 to 2.16".
function note(set, x)
{
    if (x == "") {
        return
    }
    if (!(set in counted) || x + 0 < least[set]) {
        least[set] = x + 0
    }
    if (!(set in counted) || x + 0 > most[set]) {
        most[set] = x + 0
    }
    counted[set]++
}

function range(set, format)
{
    return least[set] == most[set] ? sprintf(format, most[set]) : sprintf(format " to " format, least[set], most[set])
}

# A verdict: who is "published" or "ours".
function verdict(claim, who, class, why)
{
    verdicts[claim, who] = class
    reasons[claim, who] = why
}

function within(claim)
{
    return sprintf("predicted within %.1f ", worst[claim] < 0 ? -worst[claim] : worst[claim]) worst_unit[claim]
}

function off_by(claim)
{
    return "off by up to " signed(worst[claim]) " " worst_unit[claim]
}

function missing(claim, entry)
{
    verdict(claim, "ours", "not available", "the table of " entry " has not been made")
}

# k of n models reach a bound: the class of a verdict.
function part(k, n, all, none)
{
    return k == n ? all : k == 0 ? none : "in part"
}

# --- 1.48 to 2.16 times the best baseline
function speedup(    i, model, best, ratio, ours, low, high, above, below, theirs, other, models)
{
    low = claimed("speedup", "at_least")
    high = claimed("speedup", "at_most")
    for (i = 1; i <= rows["published_throughput"]; i++) {
        model = data["published_throughput", i, "model"]
        if (data["published_throughput", i, "framework"] != "roundpipe") {
            continue
        }
        best = best_baseline("published_throughput", "framework", "tokens_per_s", model)
        if (best == "") {
            continue
        }
        theirs = best_system
        ratio = data["published_throughput", i, "tokens_per_s"] / best
        ours = ""
        best = best_baseline("throughput", "system", "ours", model)
        # Where the best published one does not fit by our count of memory, what is left may be many times slower:
        # a ratio to that is not compared.
        if (best != "" && is_number(look("throughput", "ours", "model", model, "system", theirs))) {
            ours = look("throughput", "ours", "model", model, "system", "roundpipe") / best
            theirs = theirs (best_system == theirs ? "" : "; ours: " best_system)
            if (ours >= low) above++
            else below = below " " model
        } else if (best != "") {
            other = other (other == "" ? "" : ", ") model " (" theirs ")"
        }
        models++
        note("speedup", ratio)
        note("our speedup", ours)
        row("speedup", model, "RoundPipe over the best baseline", "times", ratio, ours, theirs)
    }
    verdict("speedup", "published", \
        sprintf("%.2f", least["speedup"]) == sprintf("%.2f", low) && \
        sprintf("%.2f", most["speedup"]) == sprintf("%.2f", high) ? "confirmed" : "not confirmed", \
        range("speedup", "%.2f") " times")
    if (!("our speedup" in counted)) {
        missing("speedup", "Figure 10")
        return
    }
    verdict("speedup", "ours", part(above, models, within("speedup"), "not reproduced"), \
        range("our speedup", "%.2f") " times; at least " low " on " above + 0 " of " counted["our speedup"] \
        " models" (below == "" ? "" : ", not on" below) "; ratios " off_by("speedup") \
        (other == "" ? "" : "; nothing to compare with where the best baseline does not fit by our count of memory: " other))
}

# --- near-zero bubbles
function bubbles(    i, model, published, ours, limit, busy, below, idle)
{
    limit = claimed("bubbles", "near_zero")
    for (i = 1; i <= rows["published_bubbles"]; i++) {
        if (data["published_bubbles", i, "schedule"] != "roundpipe") {
            continue
        }
        model = data["published_bubbles", i, "model"]
        published = data["published_bubbles", i, "intra_pct"] + data["published_bubbles", i, "switch_pct"]
        ours = steady_bubble(model, "overlapped")
        note("overlapped", published)
        row("bubbles", model, "simulated from layer times: fill and drain taken away", "% of GPU time", published, ours)
        ours = steady_bubble(model, "steady")
        note("steady", ours)
        row("bubbles", model, "simulated from layer times: steady state", "% of GPU time", "", ours)
    }
    for (i = 1; i <= rows["rtx4090"]; i++) {
        model = data["rtx4090", i, "model"]
        # Busy time of a step on each GPU over the time from one step to the next.
        busy = data["rtx4090", i, "makespan_ms"] * (1 - data["rtx4090", i, "bubble_pct"] / 100)
        ours = 100 * (1 - busy / data["rtx4090", i, "iteration_ms"])
        idle = 100 * (1 - busy_ms_per_token(model) / 1000 * \
            look("published_scaling", model, "gpus", data["rtx4090", i, "gpus"]) / data["rtx4090", i, "gpus"])
        note("idle", idle)
        note("our idle", ours)
        below += ours <= limit
        row("bubbles", model, "on a server: time in which GPUs do not compute", "% of GPU time", idle, ours)
    }
    verdict("bubbles", "published", \
        most["overlapped"] <= limit ? most["idle"] <= limit ? "confirmed" : "in part" : "not confirmed", \
        "simulated by the paper " range("overlapped", "%.1f") " %; but by its own layer times GPUs do not compute for " \
        range("idle", "%.0f") " % of the time at its measured throughput")
    if (!("steady" in counted)) {
        missing("bubbles", "Figure 17")
        return
    }
    verdict("bubbles", "ours", \
        most["steady"] <= limit ? below == rows["rtx4090"] ? "predicted" : "in part" : "not reproduced", \
        "steady state " range("steady", "%.1f") " % from layer times alone; with transfers and the host " \
        range("our idle", "%.0f") " %, at most " limit " % on " below + 0 " of " rows["rtx4090"] " models")
}

# GPU time for a token by the published layer times: forward, again for backward, backward; the head.
function busy_ms_per_token(model,    name)
{
    name = model
    sub(/-lora$/, "", name)
    return (time_of(name, "layers") * (2 * time_of(name, "fwd_ms") + time_of(name, "bwd_ms")) + \
        time_of(name, "lmhead_fwd_ms") + time_of(name, "lmhead_bwd_ms")) / \
        time_of(name, "microbatch_seqs") / time_of(name, "seq_len")
}

function time_of(model, column)
{
    return look("published_times", column, "model", model) + 0
}

function steady_bubble(model, execution,    i)
{
    for (i = 1; i <= rows["bubbles"]; i++) {
        if (data["bubbles", i, "schedule"] == "roundpipe" && data["bubbles", i, "execution"] == execution && \
            data["bubbles", i, "model"] == model && data["bubbles", i, "quantity"] == "bubble_pct") {
            return data["bubbles", i, "ours"] + 0
        }
    }
    return ""
}

# --- linear scaling
function scaling(    i, model, n, gpus, published, ours, limit, reach, ours_reach, names)
{
    limit = claimed("scaling", "linear")
    gpus = rows["published_scaling"]
    for (i = 1; i <= rows["rtx4090"]; i++) {
        model = data["rtx4090", i, "model"]
        published = 100 * look("published_scaling", model, "gpus", gpus) / gpus / \
            look("published_scaling", model, "gpus", 1)
        ours = ""
        if (rows["scaling"]) {
            ours = 100 * look("scaling", "ours", "model", model, "gpus", gpus) / gpus / \
                look("scaling", "ours", "model", model, "gpus", 1)
            ours_reach += ours >= limit
        }
        note("efficiency", published)
        note("our efficiency", ours)
        reach += published >= limit
        if (published < limit) names = names sprintf(", %s %.0f %%", model, published)
        row("scaling", model, gpus " GPUs over " gpus " times one GPU", "%", published, ours)
        n++
    }
    verdict("scaling", "published", part(reach, n, "confirmed", "not confirmed"), \
        "at least " limit " % of linear on " reach + 0 " of " n " models" names)
    if (!rows["scaling"]) {
        missing("scaling", "Figure 15")
        return
    }
    verdict("scaling", "ours", part(ours_reach, n, within("scaling"), "not reproduced"), \
        range("our efficiency", "%.0f") " % of linear, at least " limit " % on " \
        ours_reach + 0 " of " n " models; " off_by("scaling"))
}

# --- on one GPU of 24 GB
function one_gpu(    i, model, published, peak, usable, fit, ran, n, words, hosts)
{
    usable = (platform_number(platform, "memory_gib") - platform_number(platform, "reserved_gib")) * 1.073741824
    if (claimed("one_gpu", "memory") != int(platform_number(platform, "memory_gib") + 0.5)) {
        stop("the claim is about another size of memory than the platform's")
    }
    for (i = 1; i <= rows["one"]; i++) {
        model = data["one", i, "model"]
        n++
        published = look("published_scaling", model, "gpus", 1)
        ran += published + 0 > 0
        peak = largest(data["one", i, "peak_gpu_bytes"]) / 1e9
        fit += data["one", i, "fits"] == "true" && peak <= usable
        row("one_gpu", model, "throughput on one GPU", "tokens/s", published, data["one", i, "tokens_per_s"] + 0)
        row("one_gpu", model, "largest need of GPU memory", "GB", "", peak)
        row("one_gpu", model, "need of host memory", "GB", "", data["one", i, "peak_host_bytes"] / 1e9)
        note("host", data["one", i, "peak_host_bytes"] / 1e9)
        words = words sprintf("%s %s: %.1f GB", words == "" ? "" : ",", model, peak)
    }
    verdict("one_gpu", "published", part(ran, n, "confirmed", "not confirmed"), \
        "a throughput on one GPU is published for " ran + 0 " of " n)
    verdict("one_gpu", "ours", part(fit, n, within("one_gpu"), "not reproduced"), sprintf( \
        "%d of %d fit into the %.1f GB that can be used;%s; throughput %s; both need %s GB of host memory", \
        fit, n, usable, words, off_by("one_gpu"), range("host", "%.0f")))
}

# --- long contexts
function contexts(    i, model, published, ours, big, small, n, k, ours_k, p_big, o_big, names)
{
    big = claimed("contexts", "lora_235b")
    small = claimed("contexts", "smaller_models")
    for (i = 1; i <= rows["published_lengths"]; i++) {
        if (data["published_lengths", i, "framework"] != "roundpipe") {
            continue
        }
        model = data["published_lengths", i, "model"]
        published = data["published_lengths", i, "max_seqlen_k"]
        ours = look("lengths", "ours", "model", model, "system", "roundpipe")
        row("contexts", model, "longest sequence", "1024 tokens", published + 0, ours == "" ? "" : ours + 0)
        if (model ~ /lora$/) {
            p_big = published + 0
            o_big = ours
            continue
        }
        n++
        k += published >= small
        ours_k += ours != "" && ours + 0 >= small
        names = names sprintf(", %s %d", model, published)
    }
    verdict("contexts", "published", p_big >= big ? part(k, n, "confirmed", "in part") : "not confirmed", \
        "235B: " p_big "K; " small "K on " k + 0 " of " n " smaller models (" substr(names, 3) ")")
    if (o_big == "") {
        missing("contexts", "Figure 11")
        return
    }
    verdict("contexts", "ours", o_big + 0 >= big ? part(ours_k, n, within("contexts"), "in part") : "not reproduced", \
        "235B: " o_big "K; " small "K on " ours_k + 0 " of " n " smaller models; lengths " off_by("contexts"))
}

# --- as fast as A800, and cheaper
function servers(    i, model, tokens, published, theirs, near, n, best, cheap, ratio, price, other, a_cost, costs)
{
    near = claimed("a800", "close")
    price = look("prices", "usd_per_hour", "platform", "rtx4090x8")
    other = look("prices", "usd_per_hour", "platform", "a800x8")
    for (i = 1; i <= rows["rtx4090"]; i++) {
        model = data["rtx4090", i, "model"]
        tokens = data["rtx4090", i, "tokens_per_s"]
        published = look("published_scaling", model, "gpus", data["rtx4090", i, "gpus"])
        theirs = look("a800", "tokens_per_s", "model", model)
        n++
        note("near", 100 * tokens / theirs)
        close_enough += 100 * tokens / theirs >= near
        row("a800", model, "RoundPipe on 8 RTX 4090 over RoundPipe on 8 A800", "%", "", 100 * tokens / theirs)
        costs = 1e9 / 3600 * price / tokens
        a_cost = 1e9 / 3600 * other / theirs
        row("cost", model, "8 RTX 4090, RoundPipe", "USD per 1e9 tokens", 1e9 / 3600 * price / published, costs)
        row("cost", model, "8 A800, RoundPipe", "USD per 1e9 tokens", "", a_cost)
        note("cheaper", a_cost / costs)
        cheap += a_cost / costs > claimed("cost", "more_than")
        # A model that no other system has run anywhere is one of which nothing checks the other systems.
        best = best_baseline("published_throughput", "framework", "tokens_per_s", model)
        best = best == "" ? "" : best_baseline("a800_systems", "system", "ours", model)
        if (best != "") {
            row("a800", model, "RoundPipe on 8 RTX 4090 over the best other system on 8 A800", "%", "", \
                100 * tokens / best, best_system)
            row("cost", model, "8 A800, the best other system", "USD per 1e9 tokens", "", \
                1e9 / 3600 * other / best, best_system)
            note("near best", 100 * tokens / best)
            note("cheaper best", other / price * tokens / best)
        }
    }
    verdict("a800", "published", "cannot be checked", "the given data have no throughput of an A800")
    verdict("a800", "ours", part(close_enough, n, "predicted, nothing to compare with", "not reproduced"), \
        range("near", "%.0f") " % of RoundPipe's throughput on A800, at least " near " % on " \
        close_enough + 0 " of " n " models; " \
        ("near best" in counted ? range("near best", "%.0f") " % of the best other system's" : \
        "other systems on A800: not available"))
    verdict("cost", "published", "cannot be checked", sprintf("the prices are given, A800's throughput is not; 8 A800 cost %.2f times as much per hour", other / price))
    verdict("cost", "ours", part(cheap, n, "predicted, nothing to compare with", "not reproduced"), \
        "a token costs " range("cheaper", "%.1f") " times as much on A800 with RoundPipe" \
        ("cheaper best" in counted ? ", " range("cheaper best", "%.1f") " times with the best other system there" : ""))
}

# --- longer sequences than FSDP
function longer(    i, model, theirs, published, ours, limit)
{
    limit = claimed("longer", "at_most")
    for (i = 1; i <= rows["published_lengths"]; i++) {
        model = data["published_lengths", i, "model"]
        theirs = look("published_lengths", "max_seqlen_k", "model", model, "framework", "fsdp-zero3")
        if (data["published_lengths", i, "framework"] != "roundpipe" || !is_number(theirs)) {
            continue
        }
        published = data["published_lengths", i, "max_seqlen_k"] / theirs
        ours = look("lengths", "ours", "model", model, "system", "fsdp-zero3")
        ours = is_number(ours) ? look("lengths", "ours", "model", model, "system", "roundpipe") / ours : ""
        note("longer", published)
        note("our longer", ours)
        row("longer", model, "RoundPipe over FSDP ZeRO-3", "times", published, ours)
    }
    verdict("longer", "published", most["longer"] >= limit ? "confirmed" : "not confirmed", \
        range("longer", "%.1f") " times" (int(most["longer"]) > limit ? ", which is more than claimed" : ""))
    if (!("our longer" in counted)) {
        missing("longer", "Figure 11")
        return
    }
    verdict("longer", "ours", most["our longer"] >= limit ? within("longer") : "not reproduced", \
        range("our longer", "%.1f") " times, ratios " off_by("longer"))
}

function wording(claim)
{
    return look("claims", "wording", "claim", claim)
}

function capital(s)
{
    return toupper(substr(s, 1, 1)) substr(s, 2)
}

# What the verdict is judged by, and where that is from.
function bounds(claim,    i, said)
{
    for (i = 1; i <= rows["claims"]; i++) {
        if (data["claims", i, "claim"] == claim) {
            said = said (said == "" ? "" : ", ") data["claims", i, "quantity"] ": " data["claims", i, "value"] " " \
                data["claims", i, "unit"] " (" data["claims", i, "source"] ")"
        }
    }
    gsub(/_/, " ", said)
    return said
}

function write_text(    i, j, claim)
{
    for (i = 1; i <= rows["claims"]; i++) {
        claim = data["claims", i, "claim"]
        if (wording(claim) == "" || !((claim, "published") in verdicts) || !((claim, "ours") in verdicts)) {
            stop("no wording of or no verdict on the claim " claim)
        }
        if (!seen[claim]++) {
            by_order[++claims_count] = claim
        }
    }
    print "| claim | the published data | our simulation |" > text
    print "|---|---|---|" > text
    for (i = 1; i <= claims_count; i++) {
        claim = by_order[i]
        printf "| %s | **%s**: %s | **%s**: %s |\n", wording(claim), verdicts[claim, "published"], reasons[claim, "published"], \
            verdicts[claim, "ours"], reasons[claim, "ours"] > text
    }
    for (i = 1; i <= claims_count; i++) {
        claim = by_order[i]
        printf "\n## %d. %s\n\nBound: %s.\n\n", i, wording(claim), bounds(claim) > text
        printf "Published data: **%s**; %s.\n\nOur simulation: **%s**; %s.\n\n", verdicts[claim, "published"], \
            reasons[claim, "published"], verdicts[claim, "ours"], reasons[claim, "ours"] > text
        for (j = 1; j <= table_count[claim]; j++) {
            printf "%s:\n\n| model | published | ours | difference |\n|---|---|---|---|\n%s\n", \
                capital(table_order[claim, j]), tables[claim, table_order[claim, j]] > text
        }
        printf "What we cannot say: %s\n", look("limits", "limit", "claim", claim) > text
    }
    close(text)
}

BEGIN {
    read_all()
    print "claim,model,quantity,unit,published,ours,difference_pct,difference_points"
    speedup()
    bubbles()
    scaling()
    one_gpu()
    contexts()
    servers()
    longer()
    write_text()
}
