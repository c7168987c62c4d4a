# Sourced after paper-figures/lib/figure.sh: runs of rpsim and rpsweep. Sets bin and work, a folder
# that goes when the script ends.
bin=$(cd "$1" && pwd)
# On the file system of OUTDIR, so that a move there leaves nothing half written.
work=$(mktemp -d "$out/.$name.XXXXXX")
trap 'rm -rf "$work"' EXIT

# sweep EXPERIMENT: runs experiments/EXPERIMENT.yaml into the store; what it has is not run again.
sweep()
{
    local rpsweep=$bin/rpsweep
    [ -x "$rpsweep" ] || rpsweep=$bin/experiments/rpsweep
    "$rpsweep" "$paper/../experiments/$1.yaml" --db "$store" --resume > "$work/sweep.log" 2>&1 || {
        cat "$work/sweep.log" >&2
        return 1
    }
}

# ask EXPERIMENT COLUMNS ORDER: CSV with a header, one row per run of the experiment. COLUMNS and ORDER
# are SQL; the tables are runs and m, whose columns are the metrics that plots need.
ask()
{
    sqlite3 -batch -readonly -header -csv "$store" "
        WITH m AS (SELECT run_id,
            max(value) FILTER (WHERE name = 'makespan_ps') / 1e9 AS makespan_ms,
            max(value) FILTER (WHERE name = 'busy_ps') / 1e9 AS busy_ms,
            max(value) FILTER (WHERE name = 'tokens_per_s') AS tokens_per_s,
            max(value) FILTER (WHERE name = 'fits') AS fits
            FROM metrics GROUP BY run_id)
        SELECT $2 FROM runs JOIN points ON points.id = runs.point_id
            JOIN experiments ON experiments.id = points.experiment_id JOIN m ON m.run_id = runs.id
        WHERE experiments.name = '$1' ORDER BY $3" | tr -d '\r'
}
