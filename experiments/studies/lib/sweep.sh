# Sourced after paper-figures/lib/figure.sh: the runs of experiment files. Sets bin and work (a
# folder that goes when the script ends), studies (the folder above). RP_EXPERIMENTS: the folder of the files, unless experiments/.
bin=$(cd "$1" && pwd)
# On the file system of OUTDIR, so that a move there leaves nothing half written.
work=$(mktemp -d "$out/.$name.XXXXXX")
trap 'rm -rf "$work"' EXIT
studies=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

# sweep EXPERIMENT|FILE.yaml...: runs EXPERIMENT.yaml, or a file, into the store, except for points that the store has.
sweep()
{
    local rpsweep=$bin/experiments/rpsweep experiment
    local experiments=${RP_EXPERIMENTS:-$paper/../experiments}
    [ -x "$rpsweep" ] || rpsweep=$bin/rpsweep # installed
    for experiment in "$@"; do
        [ "${experiment%.yaml}" != "$experiment" ] || experiment=$experiments/$experiment.yaml
        RP_TRACES=$traces "$rpsweep" "$experiment" --db "$store" --resume > "$work/sweep.log" 2>&1 || {
            cat "$work/sweep.log" >&2
            return 1
        }
    done
}

# runs EXPERIMENT FILE: a row per run, with the configuration and the metrics that studies need; missing metrics are
# empty; changes, the last, may hold commas. A point that failed has no row.
runs()
{
    sqlite3 -readonly -header -csv "$store" "
        WITH wide AS (SELECT run_id, makespan_ps, busy_ps, iteration_ps, tokens_per_s, fits, peak_gpu_bytes,
            peak_host_bytes, max_seqlen, (SELECT value FROM metrics AS m WHERE m.run_id = r.run_id
                AND name = 'iteration_median_ps') AS iteration_median_ps FROM results AS r)
        SELECT schedule, model, platform, gpus, microbatches, microbatch_size, seq_len, recompute, optimizer, seed,
            json_extract(config_json, '\$.global_batch') AS global_batch,
            json_extract(config_json, '\$.accumulate') AS calls,
            json_extract(config_json, '\$.jitter_cv') AS jitter_cv,
            json_extract(config_json, '\$.slow_gpu') AS slow_gpu,
            json_extract(config_json, '\$.slow_factor') AS slow_factor,
            makespan_ps / 1e9 AS makespan_ms, busy_ps / 1e9 AS busy_ms, iteration_ps / 1e9 AS iteration_ms,
            iteration_median_ps / 1e9 AS replica_ms, tokens_per_s, fits, peak_gpu_bytes / 1e9 AS peak_gb,
            peak_host_bytes / 1e9 AS host_gb, max_seqlen, json_extract(config_json, '\$.set') AS changes
        FROM runs JOIN points ON points.id = runs.point_id
            JOIN experiments ON experiments.id = points.experiment_id JOIN wide ON wide.run_id = runs.id
        WHERE experiments.name = '$1' ORDER BY points.command" > "$2"
}
