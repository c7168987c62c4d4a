# Rows of 02-recompute-or-reload.csv. Variables: models, constants, measured (CSV files), platform
# (YAML). Amounts are FLOP or bytes, times milliseconds.
function row(quantity, name, amount, rate, published, ours)
{
    printf "%s,%s,%.17g,%.17g,%s,%.17g,%s\n", quantity, name, amount, rate, published, ours,
        published == "" ? "" : sprintf("%.17g", 100 * (ours - published) / published)
}

BEGIN {
    count = read_table(models, model, names)
    read_table(constants, constant, unused)
    read_table(measured, layer, unused)
    b = number(constant, "batch", "value")
    s = number(constant, "seq_len", "value")
    peak = number(constant, "peak", "value") * 1e12
    link = number(constant, "link", "value") * 1e9
    slower_link = platform_number(platform, "link_effective_gb_per_s") * 1e9
    print "quantity,model,amount,rate_per_s,published_ms,ours_ms,difference_pct"
    for (i = 1; i <= count; i++) {
        name = names[i]
        flop = forward_flop(model, name, b, s)
        bytes = activation_bytes(model, name, b, s)
        if (number(layer, name, "microbatch_seqs") != b || number(layer, name, "seq_len") != s) {
            stop(name ": measured with another number of tokens")
        }
        row("recompute", name, flop, peak, "", 1000 * flop / peak)
        row("reload", name, bytes, link, "", 1000 * bytes / link)
        row("forward measured", name, flop, peak, layer[name, "fwd_ms"], 1000 * flop / peak)
        row("reload at measured rate", name, bytes, slower_link, "", 1000 * bytes / slower_link)
    }
}
