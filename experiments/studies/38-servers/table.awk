# A row for each point: tokens/s with its 80 % interval, time that the network adds, GPU hours and, where there is a
# price, USD for 10^9 tokens.
BEGIN {
    while ((getline line < prices) > 0) {
        split(line, cell, ",")
        price[cell[1]] = cell[2]
    }
    print "| server | Gbit/s | system | GPUs | tokens/s | 80 % | idle % | network ms of a step | GPU h per 10⁹ | USD |"
    print "|---|---|---|---|---|---|---|---|---|---|"
}
FNR > 1 && $7 == "true" {
    hours = 1e9 / $9 / 3600
    printf "| %s | %g | %s | %d | %d | %d–%d | %.0f | %d of %d | %.0f | %s |\n", $1, 8 * $2, $3, $5, $9, $10, $11, $12,
        $8 - $14, $8, hours * $5, $1 in price ? sprintf("%.1f", hours * $4 * price[$1]) : "–"
}
