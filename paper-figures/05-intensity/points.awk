# Rows of 05-intensity.csv on standard output; the rows of every batch in the file curve. Further
# variables: models, constants, thresholds (CSV files), platforms (folder).
BEGIN {
    count = read_table(models, model, names)
    read_table(constants, constant, unused)
    gpus = read_table(thresholds, limit, gpu)
    s = number(constant, "seq_len", "value")
    first = number(constant, "batch_first", "value")
    last = number(constant, "batch_last", "value")
    print "quantity,name,gpu,batch,flop,bytes,published,ours,difference_pct"
    for (g = 1; g <= gpus; g++) {
        platform = platforms "/" limit[gpu[g], "platform"] ".yaml"
        published = number(limit, gpu[g], "flop_per_byte")
        ours = 1000 * platform_number(platform, "fp16_tflops_fp16_acc") / platform_number(platform, "link_gb_per_s")
        printf "threshold,%s,%s,,,,%s,%.17g,%.17g\n", limit[gpu[g], "platform"], gpu[g], published, ours,
            100 * (ours - published) / published
    }
    print "name,batch,flop_per_byte" > curve
    for (i = 1; i <= count; i++) {
        name = names[i]
        split("", reached)
        drawn = first
        for (b = first; b <= last; b++) {
            flop = forward_flop(model, name, b, s) + router_flop(model, name, b, s)
            bytes = weight_bytes(model, name) + boundary_bytes(model, name, b, s)
            printf "%s,%d,%.17g\n", name, b, flop / bytes > curve
            if (b == drawn || b == last) {
                printf "intensity,%s,,%d,%.17g,%.17g,,%.17g,\n", name, b, flop, bytes, flop / bytes
                drawn = 2 * b
            }
            for (g = 1; g <= gpus; g++) {
                if (!(g in reached) && flop / bytes >= number(limit, gpu[g], "flop_per_byte")) {
                    reached[g] = b
                }
            }
        }
        # Empty where no batch of the range reaches the threshold.
        for (g = 1; g <= gpus; g++) {
            printf "batch to reach,%s,%s,,,,,%s,\n", name, gpu[g], reached[g]
        }
        # Two empty lines: the next curve, to gnuplot.
        if (i < count) {
            printf "\n\n" > curve
        }
    }
}
