# The reader's tables, in Markdown, from the study's two CSV files: tau, then slowdowns.
BEGIN {
    count = split("0.02 0.05 0.1 0.2", cv, " ")
    factors = split("1.1 1.2 1.5 2", factor, " ")
}
FNR == 1 { next }
FILENAME ~ /-tau/ {
    if (!($2 in known)) {
        known[$2] = 1
        model[++models] = $2
    }
    tau[$2, $1, $3] = sprintf($1 == "jitter" ? "%.2f ± %.2f" : "%.2f", $5, $6)
    stays[$2, $1, $3] = sprintf("%.0f %%", 100 * $9)
    next
}
{
    if (!(($2, $3) in known)) {
        known[$2, $3] = 1
        schedule[$2, ++schedules[$2]] = $3
    }
    alone[$2, $3] = $5
    slower[$2, $3, $1, $4] = sprintf("%.3f", $6)
}
END {
    print "Kendall's tau with the order without noise (mean, 95 % interval over 30 seeds; mean over the 8 slow GPUs), and"
    print "how often the fastest schedule stays the fastest:\n"
    printf "| model |"
    for (i = 1; i <= count; i++) printf " noise %g %% |", 100 * cv[i]
    for (i = 1; i <= factors; i++) printf " one GPU x %s |", factor[i]
    printf "\n|---|---|---|---|---|---|---|---|---|\n"
    for (m = 1; m <= models; m++) {
        printf "| %s |", model[m]
        for (i = 1; i <= count; i++) printf " %s, %s |", tau[model[m], "jitter", cv[i]], stays[model[m], "jitter", cv[i]]
        for (i = 1; i <= factors; i++) printf " %s, %s |", tau[model[m], "slow-gpu", factor[i]], stays[model[m], "slow-gpu", factor[i]]
        print ""
    }
    print "\nStep time as a multiple of that without noise or slow GPU, means:\n"
    print "| model | schedule | alone, ms | noise 5 % | noise 20 % | one GPU x 1.1 | x 1.2 | x 1.5 | x 2 |"
    print "|---|---|---|---|---|---|---|---|---|"
    for (m = 1; m <= models; m++) {
        for (s = 1; s <= schedules[model[m]]; s++) {
            name = schedule[model[m], s]
            printf "| %s | %s | %.1f | %s | %s |", model[m], name, alone[model[m], name], \
                slower[model[m], name, "jitter", "0.05"], slower[model[m], name, "jitter", "0.2"]
            for (i = 1; i <= factors; i++) printf " %s |", slower[model[m], name, "slow-gpu", factor[i]]
            print ""
        }
    }
}
