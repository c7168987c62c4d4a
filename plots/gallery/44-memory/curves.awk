# Bytes in use over time, from a run's JSON (its peaks) and its trace (live bytes by kind of buffer, in
# counter events of one line each). Variables: schedule, kinds (columns), platform (YAML), software (key of what the
# schedule's software takes on each GPU, or none), peaks (file).
# To a GPU's buffers come context, workspace and that software, as the platform has them. What the host holds all the
# time (weights, gradients and optimizer of the whole model) is in no trace: the peak less the buffers.

function value(line, key,    from)
{
    from = index(line, "\"" key "\":")
    return from == 0 ? "" : substr(line, from + length(key) + 3) + 0
}

function print_row(place, time,    k, row, total)
{
    total = fixed[place]
    row = ""
    for (k = 1; k <= count; k++) {
        row = row sprintf(",%.0f", live[place, k])
        total += live[place, k]
    }
    printf "%s,%s,%.9g%s,%.0f,%.0f\n", schedule, place == host ? "host" : "GPU " place, time, row, fixed[place], total
}

BEGIN {
    count = split(kinds, kind, ",")
    host = 1000
    always = 1e9 * (platform_number(platform, "context_gb") + platform_number(platform, "workspace_gb") + \
        (software == "" ? 0 : platform_number(platform, software)))
}

FNR == NR {
    if (match($0, /"peak_gpu_bytes":\[[0-9,]*\]/)) {
        gpus = split(substr($0, RSTART + 18, RLENGTH - 19), peak, ",")
        peak[host] = value($0, "peak_host_bytes")
        makespan = value($0, "makespan_ms")
    }
    next
}

/"ph":"C"/ && /"live bytes"/ {
    events++
    line[events] = $0
}

END {
    # Twice: the host's part that does not change follows from the highest sum.
    for (e = 1; e <= events; e++) {
        place = value(line[e], "pid")
        sum = 0
        for (k = 1; k <= count; k++) {
            sum += value(line[e], kind[k])
        }
        most[place] = sum > most[place] ? sum : most[place]
    }
    for (g = 0; g < gpus; g++) {
        fixed[g] = always
        printf "%s,GPU %d,%.0f\n", schedule, g, peak[g + 1] >> peaks
    }
    fixed[host] = peak[host] - most[host]
    printf "%s,host,%.0f\n", schedule, peak[host] >> peaks
    for (g = 0; g <= gpus; g++) {
        place = g == gpus ? host : g
        print_row(place, 0)
        for (e = 1; e <= events; e++) {
            if (value(line[e], "pid") == place) {
                for (k = 1; k <= count; k++) {
                    live[place, k] = value(line[e], kind[k])
                }
                print_row(place, value(line[e], "ts") / 1000)
            }
        }
        print_row(place, makespan)
    }
}
