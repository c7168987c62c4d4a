# Costs of every run and the best system per model and server. Variables: prices and servers (CSV
# files), gpu_gb (nominal memory, CSV platform,gb), points, best, table (files to write). After
# ../lib/table.awk.

BEGIN {
    TIE = 0.01
    REFERENCE = "a800x8"
    CONSUMER = "rtx4090x8"
    while ((getline line < prices) > 0) {
        split(line, cell, ",")
        price[cell[1]] = cell[2]
    }
    while ((getline line < servers) > 0) {
        n = split(line, cell, ",")
        if (cell[1] == "platform") {
            for (i = 1; i <= n; i++) column[cell[i]] = i
            continue
        }
        server[++server_count] = cell[1]
        power_kw[cell[1]] = 8 * cell[column["board_power_w"]] / 1000
        purchase[cell[1]] = cell[column["purchase_usd"]]
        kwh_usd[cell[1]] = cell[column["usd_per_kwh"]]
    }
    while ((getline line < gpu_gb) > 0) {
        split(line, cell, ",")
        nominal[cell[1]] = cell[2]
    }
}

{
    platform = $f["platform"]
    sub(/ with .*/, "", platform)
    model = $f["model"]
    system_name = $f["schedule"] ($f["schedule"] == "roundpipe" && $f["optimizer"] == "sync" ? "-sync" : "")
    if (!(model in seen)) {
        seen[model] = 1
        models[++model_count] = model
    }
    runs++
    at[runs] = platform SUBSEP model
    systems[runs] = system_name
    speed[runs] = $f["tokens_per_s"]
    fits[runs] = $f["fits"]
    shape[runs] = $f["calls"] "," $f["microbatches"] "," $f["global_batch"]
    memory[runs] = $f["peak_gb"] "," $f["host_gb"]
    decimal[runs] = $f["peak_gb"] <= nominal[platform] ? 1 : 0
    if (fits[runs] && (!(at[runs] in fastest) || speed[runs] > speed[fastest[at[runs]]])) {
        fastest[at[runs]] = runs
    }
    if (fits[runs] && system_name != "roundpipe" && (!(at[runs] in exact) || speed[runs] > speed[exact[at[runs]]])) {
        exact[at[runs]] = runs
    }
    if (fits[runs] && system_name !~ /^roundpipe/ && (!(at[runs] in other) || speed[runs] > speed[other[at[runs]]])) {
        other[at[runs]] = runs
    }
}

function hours(tokens_per_s) { return 1e9 / tokens_per_s / 3600 }

function money(value) { return value == "" ? "" : sprintf("%.6f", value) }

function cost(platform, tokens_per_s) { return price[platform] == "" ? "" : price[platform] * hours(tokens_per_s) }

# The hourly price at which a server's billion tokens cost what they cost on `against`.
function break_even(platform, model, against)
{
    if (price[against] == "" || platform == against || !((against, model) in fastest)) {
        return ""
    }
    return price[against] * speed[fastest[platform, model]] / speed[fastest[against, model]]
}

# Hours of use after which a bought server is cheaper than renting for the same tokens at `rent`.
function payback(platform, rent,    saved)
{
    if (purchase[platform] == "" || kwh_usd[platform] == "" || rent == "") {
        return ""
    }
    saved = rent - power_kw[platform] * kwh_usd[platform]
    return saved > 0 ? purchase[platform] / saved : "never"
}

function standing(i)
{
    if (!fits[i]) {
        return ""
    }
    return i == fastest[at[i]] ? "best" : speed[i] >= (1 - TIE) * speed[fastest[at[i]]] ? "tie" : ""
}

function tied(key, winner,    i, list, named)
{
    for (i = 1; i <= runs; i++) {
        if (at[i] == key && fits[i] && systems[i] != systems[winner] && !(systems[i] in named) && \
            speed[i] >= (1 - TIE) * speed[winner]) {
            named[systems[i]] = 1
            list = list (list == "" ? "" : " ") systems[i]
        }
    }
    return list
}

function best_row(platform, model,    key, run, plain, rival, text, rent)
{
    key = platform SUBSEP model
    run = fastest[key]
    plain = exact[key] # every update of the weights before the next step
    rival = other[key]
    rent = price[platform] != "" ? price[platform] : break_even(platform, model, REFERENCE)
    printf "%s,%s,%s,%s,%.6f,%s,%s,%s,%.6f,%.6f,%s,%s,%s,%s,%s,%s,%.6f,%s\n", model, platform, systems[run], tied(key, run), \
        speed[run], rival == "" ? "" : systems[rival], rival == "" ? "" : money(speed[rival]), systems[plain], \
        speed[plain], hours(speed[run]), \
        price[platform], money(cost(platform, speed[run])), rival == "" ? "" : money(cost(platform, speed[rival])), \
        money(cost(platform, speed[plain])), \
        money(break_even(platform, model, REFERENCE)), money(break_even(platform, model, CONSUMER)), \
        power_kw[platform] * hours(speed[run]), payback(platform, rent) > best
    text = rival == "" ? "" : sprintf("%s, %d", systems[rival], speed[rival])
    printf "| %s | %s | %s%s | %d | %s | %s | %s | %s |\n", model, platform, systems[run], \
        tied(key, run) == "" ? "" : " = " tied(key, run), speed[run], text, \
        price[platform] == "" ? "" : sprintf("%.2f", cost(platform, speed[run])), \
        platform == REFERENCE ? "" : sprintf("%.2f", break_even(platform, model, REFERENCE)), \
        platform == CONSUMER ? "" : sprintf("%.2f", break_even(platform, model, CONSUMER)) > table
}

END {
    print "platform,model,system,calls,microbatches,global_batch,tokens_per_s,fits,peak_gb,host_gb,fits_decimal_gb,hours_per_1e9_tokens,usd_per_1e9_tokens,best" > points
    for (i = 1; i <= runs; i++) {
        split(at[i], part, SUBSEP)
        printf "%s,%s,%s,%s,%.6f,%d,%s,%d,%.6f,%s,%s\n", part[1], part[2], systems[i], shape[i], speed[i], fits[i], memory[i], \
            decimal[i], hours(speed[i]), fits[i] ? money(cost(part[1], speed[i])) : "", \
            standing(i) > points
    }
    print "model,platform,system,tied_with,tokens_per_s,other_system,other_tokens_per_s,sync_system,sync_tokens_per_s,hours_per_1e9_tokens,usd_per_hour,usd_per_1e9_tokens,other_usd_per_1e9_tokens,sync_usd_per_1e9_tokens,break_even_a800_usd_per_hour,break_even_4090_usd_per_hour,board_kwh_per_1e9_tokens,payback_hours" > best
    print "| model | server | fastest system that fits | tokens/s | best other than RoundPipe, tokens/s | USD per 10⁹ tokens | worth per hour against the A800 (USD) | against the 4090 (USD) |\n|---|---|---|---|---|---|---|---|" > table
    for (m = 1; m <= model_count; m++) {
        for (s = 1; s <= server_count; s++) {
            if ((server[s], models[m]) in fastest) {
                best_row(server[s], models[m])
            }
        }
    }
}
