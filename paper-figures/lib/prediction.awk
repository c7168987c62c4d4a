# rppredict's report, its answers for cells (may be missing), then a published table: a row per
# published cell with rppredict's number beside it. Needs kind (throughput, lengths, scaling) and
# means (a file for the groups' means).
function cell(system_, model, gpus, value,    key, ours, error, mark) {
    key = system_ SUBSEP model SUBSEP gpus
    ours = key in prediction ? prediction[key] : key in answer ? answer[key] : ""
    mark = key in set_cell ? "yes" : ""
    error = ""
    if (value + 0 > 0 && ours + 0 > 0) {
        error = sprintf("%.2f", 100 * (ours / value - 1))
        group = (kind == "scaling" ? model : system_) (mark == "" ? "" : " (set a constant)")
        if (!(group in cells)) order[++groups] = group
        cells[group]++
        signed[group] += error
        absolute[group] += error < 0 ? -error : error
    }
    printf "%s,%s,%d,%s,%s,%s,%s", model, system_, gpus, value, ours, error, mark
    if (kind == "throughput") printf ",%s", fits[key]
    if (kind != "lengths") printf ",%s", (ours + 0 > 0 ? interval[key] : ",")
    print ""
}
BEGIN {
    print "model,system,gpus,published,ours,difference_pct,set_a_constant" (kind == "throughput" ? ",fits" : "") \
        (kind != "lengths" ? ",p10,p90" : "")
}
FILENAME ~ /\.md$/ {
    fields = split($0, f, / *\| */)
    if (fields == 13 && f[5] + 0 > 0 && kind != "lengths") {
        prediction[f[3], f[4], f[5]] = f[7]
        interval[f[3], f[4], f[5]] = f[9] "," f[11]
        if (f[2] ~ /-set$/) set_cell[f[3], f[4], f[5]]
    }
    if (fields == 7 && f[4] ~ /^[0-9]+$/ && kind == "lengths")
        prediction[f[2], f[3], 8] = f[5] == 0 ? "OOM" : f[5] / 1024
    next
}
FNR == 1 {
    split("", at)
    for (i = split($0, head, ","); i > 0; i--) at[head[i]] = i
    FS = ","
    next
}
"fits" in at {
    split($0, f, ",")
    key = f[1] SUBSEP f[2] SUBSEP f[at["gpus"]]
    fits[key] = f[at["fits"]]
    answer[key] = fits[key] == "yes" ? f[at["tokens_per_s"]] : "OOM"
    if (!(key in interval)) interval[key] = f[at["tokens_per_s_p10"]] "," f[at["tokens_per_s_p90"]]
    next
}
{
    n = split($0, f, ",")
    if (kind == "scaling")
        for (i = 2; i <= n; i++) cell("roundpipe", head[i], f[1], f[i])
    else
        cell(f[1], f[2], 8, f[3])
}
END {
    print "" > means
    for (i = 1; i <= groups; i++)
        printf "%s: %d cells, mean error %+.2f %%, mean absolute error %.2f %%\n", order[i], \
            cells[order[i]], signed[order[i]] / cells[order[i]], \
            absolute[order[i]] / cells[order[i]] > means
}
