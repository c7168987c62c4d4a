# The means and the orders of rpdiff's CSV as a Markdown table.
BEGIN {
    print "| what | asked for | measured |"
    print "|---|---|---|"
}
$1 == "mean |error|" { mean = $14; rows = $10 }
$1 == "mean error" { signed = $14 }
$1 == "worst |error|" { worst = $14 }
$1 == "order" {
    orders = orders sprintf("| Kendall's tau of %d schedules, %d tokens, %d GPUs (%d pairs apart) | 0.8 or more | %s |\n",
        $10, $6, $7, $16, $15)
}
END {
    if (rows == 0) {
        print "table.awk: no means" > "/dev/stderr"
        exit 1
    }
    printf "| mean error of the iteration time, %d configurations | 10 %% at most | %s %% (signed %+.2f %%) |\n", rows, mean,
        signed
    printf "| worst error | 20 %% at most | %s %% |\n", worst
    printf "%s", orders
}
