# key,value lines from the trace files: parameters of dense models, link and host rates of servers.
function short(file) { sub(/.*\//, "", file); sub(/\.yaml$/, "", file); return file }

function model(    attention, norms)
{
    if (v["experts"] == 1) {
        attention = v["hidden"] * v["head_dim"] * (2 * v["heads"] + 2 * v["kv_heads"])
        norms = 2 * v["hidden"] + (v["qk_norm"] == "true" ? 2 * v["head_dim"] : 0)
        printf "parameters %s,%.0f\n", name, v["layers"] * (attention + 3 * v["hidden"] * v["intermediate"] + norms) + \
            v["hidden"] + v["vocab"] * v["hidden"] * (v["tied_head"] == "true" ? 1 : 2)
    }
}

function platform(    link)
{
    link = v["link_effective_gb_per_s"] > 0 ? v["link_effective_gb_per_s"] : v["link_gb_per_s"] * v["link_efficiency"]
    printf "link %s,%.6g\n", name, 1e9 * link
    printf "host %s,%.6g\n", name, 1e9 * v["host_optimizer_gb_per_s"]
}

function flush()
{
    if (name != "") {
        if (file ~ /\/models\//) model()
        else platform()
    }
    delete v
}

FNR == 1 {
    flush()
    file = FILENAME
    name = short(FILENAME)
}
/^[a-z]/ {
    split($0, part, /: */)
    sub(/ .*/, "", part[2])
    v[part[1]] = part[2]
}
END { flush() }
