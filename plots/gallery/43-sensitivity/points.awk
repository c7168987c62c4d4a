# Rows schedule, optimizer, change (KEY*FACTOR or empty), tokens per second, read twice: every change
# beside the run without one. Inputs come in the order of their largest effect on any of the runs.
function apart(text) { split(text, part, "*") }
{ gsub(/"/, "") }
FNR == 1 { pass++; next }
pass == 1 && $3 == "" { base[$1, $2] = $4 }
pass == 2 && $3 != "" {
    apart($3)
    effect = 100 * ($4 / base[$1, $2] - 1)
    row[++rows] = $1 "," $2 "," part[1] "," part[2] "," $4 "," base[$1, $2] "," sprintf("%.6f", effect)
    of[rows] = part[1]
    effect = effect < 0 ? -effect : effect
    if (!(part[1] in most)) key[++keys] = part[1]
    most[part[1]] = effect > most[part[1]] ? effect : most[part[1]]
}
END {
    print "schedule,optimizer,input,factor,tokens_per_s,unchanged_tokens_per_s,effect_pct,place"
    for (i = 1; i <= keys; i++) {
        place = 1
        for (k = 1; k <= keys; k++) {
            place += most[key[k]] > most[key[i]] || (most[key[k]] == most[key[i]] && k < i)
        }
        at[key[i]] = place
    }
    for (i = 1; i <= keys; i++) {
        for (r = 1; r <= rows; r++) {
            if (at[of[r]] == i) {
                print row[r] "," i
            }
        }
    }
}
