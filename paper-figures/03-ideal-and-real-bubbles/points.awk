# The ideal bubble of each model and the real one of each schedule. Variables: published, ours (CSV
# files of the study), models (CSV file of models.csv).

function ceiling(x)
{
    return int(x) == x ? x : int(x) + 1
}

BEGIN {
    count = read_study(published, paper, rows, columns)
    read_study(ours, sim, own_rows, own_columns)
    read_table(models, config, names)
    print "model,schedule,kind,published,ours,difference,times_ideal"
    by_model(rows, count, sorted)
    for (i = 1; i <= count; i++) {
        split(sorted[i], name, SUBSEP)
        if (name[2] != model) {
            model = name[2]
            gpus = value(sim, sorted[i], "gpus")
            # Every GPU holds as many stages of one layer as it takes, and all layers cost the same:
            # GPUs - 1 layers of idle time beside microbatches x stages of work.
            work = ceiling(number(config, model, "layers") / gpus) * value(sim, sorted[i], "microbatches")
            ideal = 100 * (gpus - 1) / (work + gpus - 1)
            printf "%s,ideal,formula,,%.6f,,1.0000\n", model, ideal
        }
        given = value(paper, sorted[i], "bubble_pct")
        own = share(sim, sorted[i], "bubble_ms")
        printf "%s,%s,simulated,%s,%.6f,%.6f,%.4f\n", model, name[1], paper[sorted[i], "bubble_pct"], own, \
            own - given, own / ideal
    }
}
