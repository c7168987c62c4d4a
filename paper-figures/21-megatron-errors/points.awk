# points.awk MEANS: megatron_errors.csv, then rppredict's report. Prints a line per row; the file
# MEANS has the errors of each group, and of each degree of each kind of parallelism in it.
BEGIN {
    FS = ","
    OFS = ","
    count = split("all tensor data pipeline", kinds, " ")
    print "group", "model", "gpus", "tensor_parallel", "data_parallel", "pipeline_parallel", \
        "microbatch_size", "global_batch", "measured_ms", "predicted_ms", "difference_pct", \
        "set_a_constant"
}
FNR == 1 { file++ }
file == 1 && FNR > 1 { other[$1] = $3 }
file == 2 && /^\| megatron-a100[a-z-]* \|.* x .* x / {
    split($0, cell, / *\| */)
    group = cell[2]
    set = sub(/-set$/, "", group)
    split(cell[5], degree, " x ")
    print group, cell[3], cell[4], degree[1], degree[2], degree[3], cell[6], cell[7], cell[9], \
        cell[10], cell[8] + 0, set ? "yes" : "no"
    if (set) {
        next
    }
    for (k = 1; k <= count; k++) {
        key = group OFS kinds[k] OFS (k == 1 ? "" : degree[k - 1])
        if (!(key in rows)) {
            order[++keys] = key
        }
        rows[key]++
        signed[key] += cell[8]
        absolute[key] += cell[8] < 0 ? -cell[8] : cell[8]
    }
}
END {
    print "group", "kind", "degree", "rows", "mean_pct", "mean_absolute_pct", "vtrain_pct" > means
    for (i = 1; i <= keys; i++) {
        split(order[i], part, OFS)
        printf "%s,%d,%.2f,%.2f,%s\n", order[i], rows[order[i]], signed[order[i]] / rows[order[i]], \
            absolute[order[i]] / rows[order[i]], part[2] == "all" ? other[part[1]] : "" > means
    }
}
