# USD for a billion tokens: price per hour / (tokens per second x 3600) x 1e9. Reads prices.csv, then
# figure 10's table (published, ours), then figure 12's (measured, ours).
function cost(platform, rate) { return rate + 0 > 0 ? price[platform] / (rate * 3600) * 1e9 : "" }
function shown(platform, rate) { return rate + 0 > 0 ? sprintf("%.4f", cost(platform, rate)) : rate }
function row(platform, model, system_, kind, given, ours, mark,    error) {
    error = given + 0 > 0 && ours + 0 > 0 ? sprintf("%.2f", 100 * (given / ours - 1)) : ""
    printf "%s,%s,%s,%s,%s,%s,%s,%s\n", platform, model, system_, kind, shown(platform, given), shown(platform, ours), \
        error, mark
}
BEGIN { FS = ","; print "platform,model,system,kind,published,ours,difference_pct,set_a_constant" }
FNR == 1 { file++; split("", at); for (i = 1; i <= NF; i++) at[$i] = i; next }
file == 1 { price[$(at["platform"])] = $(at["usd_per_hour"]); next }
file == 2 {
    row("rtx4090x8", $(at["model"]), $(at["system"]), "predicted; published follows from its throughput", \
        $(at["published"]), $(at["ours"]), $(at["set_a_constant"]))
    next
}
{
    row($(at["platform"]), $(at["model"]), $(at["system"]), \
        $(at["measured"]) == "" ? "predicted" : "predicted; published follows from a measured throughput", \
        $(at["measured"]), $(at["ours"]), "")
}
