# A row per server, model and batch: what a layer's forward pass reaches when its weights and its output
# cross the host link. Variables: models, constants (CSV files), batches, servers (lists), platforms (folder).
# FLOP and bytes are those of Figure 5; attainable = min(peak, link x intensity).
BEGIN {
    count = read_table(models, model, names)
    read_table(constants, constant, unused)
    s = number(constant, "seq_len", "value")
    batch_count = split(batches, batch, " ")
    server_count = split(servers, server, " ")
    print "platform,model,batch,flop,bytes,flop_per_byte,peak_tflops,link_gb_per_s,attainable_tflops,bound_by"
    for (p = 1; p <= server_count; p++) {
        file = platforms "/" server[p] ".yaml"
        peak = platform_number(file, "fp16_tflops_fp16_acc")
        link = platform_number(file, "link_gb_per_s")
        for (i = 1; i <= count; i++) {
            for (k = 1; k <= batch_count; k++) {
                b = batch[k]
                flop = forward_flop(model, names[i], b, s) + router_flop(model, names[i], b, s)
                bytes = weight_bytes(model, names[i]) + boundary_bytes(model, names[i], b, s)
                reached = link * flop / bytes / 1000
                printf "%s,%s,%d,%.17g,%.17g,%.10g,%s,%s,%.10g,%s\n", server[p], names[i], b, flop, bytes, flop / bytes, \
                    peak, link, reached < peak ? reached : peak, reached < peak ? "link" : "peak"
            }
        }
    }
}
