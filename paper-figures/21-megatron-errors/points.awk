# points.awk MEANS: megatron_errors.csv, then rppredict's report. Prints a line per row; the file
# MEANS has the errors of each group, and of each degree of each kind of parallelism in it.
BEGIN {
    FS = ","
    OFS = ","
    count = split("all tensor data pipeline", kinds, " ")
    split("megatron-a100 megatron-a100-servers", groups, " ")
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
        rows[key]++
        signed[key] += cell[8]
        absolute[key] += cell[8] < 0 ? -cell[8] : cell[8]
    }
}
END {
    print "group", "kind", "degree", "rows", "mean_pct", "mean_absolute_pct", "vtrain_pct" > means
    for (g = 1; g <= 2; g++) {
        for (k = 1; k <= count; k++) {
            for (n = k == 1 ? 0 : 1; n <= 4096; n = n == 0 ? 8192 : 2 * n) { # all have no degree
                key = groups[g] OFS kinds[k] OFS (n == 0 ? "" : n)
                if (key in rows) {
                    printf "%s,%d,%.2f,%.2f,%s\n", key, rows[key], signed[key] / rows[key], \
                        absolute[key] / rows[key], k == 1 ? other[groups[g]] : "" > means
                }
            }
        }
    }
}
