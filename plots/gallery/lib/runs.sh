# Sourced after paper-figures/lib/figure.sh: as sweep.sh (bin, work, sweep EXPERIMENT), and ask.
source "$paper/../experiments/studies/lib/sweep.sh"

# ask EXPERIMENT COLUMNS ORDER: CSV with a header, a row per run of the experiment. COLUMNS and ORDER are SQL; the
# tables are runs and m, whose columns are the metrics that plots need.
ask()
{
    sqlite3 -batch -readonly -header -csv "$store" "
        WITH m AS (SELECT run_id, makespan_ms, gpus * makespan_ms - bubble_ms AS busy_ms, tokens_per_s, fits
            FROM summary)
        SELECT $2 FROM runs JOIN points ON points.id = runs.point_id
            JOIN experiments ON experiments.id = points.experiment_id JOIN m ON m.run_id = runs.id
        WHERE experiments.name = '$1' ORDER BY $3" | tr -d '\r'
}
