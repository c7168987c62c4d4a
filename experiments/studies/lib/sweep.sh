# Sourced after paper-figures/lib/figure.sh: the runs of experiment files. Sets bin and work (a
# folder that goes when the script ends). RP_EXPERIMENTS: the folder of the files, unless experiments/.
bin=$(cd "$1" && pwd)
# On the file system of OUTDIR, so that a move there leaves nothing half written.
work=$(mktemp -d "$out/.$name.XXXXXX")
trap 'rm -rf "$work"' EXIT

# sweep EXPERIMENT...: runs EXPERIMENT.yaml into the store; what it has is not run again.
sweep()
{
    local rpsweep=$bin/experiments/rpsweep experiment
    local experiments=${RP_EXPERIMENTS:-$paper/../experiments}
    [ -x "$rpsweep" ] || rpsweep=$bin/rpsweep # installed
    for experiment in "$@"; do
        "$rpsweep" "$experiments/$experiment.yaml" --db "$store" --resume > "$work/sweep.log" 2>&1 || {
            cat "$work/sweep.log" >&2
            return 1
        }
    done
}

# runs EXPERIMENT FILE: one row per run, with the configuration and the metrics that studies need;
# empty where a run has none; changes, the last, may hold
# commas. A point that failed has no row.
runs()
{
    sqlite3 -readonly -header -csv "$store" "
        SELECT schedule, model, platform, gpus, microbatches, microbatch_size, seq_len, recompute, optimizer, seed,
            json_extract(config_json, '\$.global_batch') AS global_batch,
            json_extract(config_json, '\$.accumulate') AS calls,
            json_extract(config_json, '\$.jitter_cv') AS jitter_cv,
            json_extract(config_json, '\$.slow_gpu') AS slow_gpu,
            json_extract(config_json, '\$.slow_factor') AS slow_factor,
            max(value) FILTER (WHERE metrics.name = 'makespan_ps') / 1e9 AS makespan_ms,
            max(value) FILTER (WHERE metrics.name = 'busy_ps') / 1e9 AS busy_ms,
            max(value) FILTER (WHERE metrics.name = 'iteration_ps') / 1e9 AS iteration_ms,
            max(value) FILTER (WHERE metrics.name = 'iteration_median_ps') / 1e9 AS replica_ms,
            max(value) FILTER (WHERE metrics.name = 'tokens_per_s') AS tokens_per_s,
            max(value) FILTER (WHERE metrics.name = 'fits') AS fits,
            max(value) FILTER (WHERE metrics.name = 'peak_gpu_bytes') / 1e9 AS peak_gb,
            max(value) FILTER (WHERE metrics.name = 'peak_host_bytes') / 1e9 AS host_gb,
            json_extract(config_json, '\$.set') AS changes
        FROM runs JOIN points ON points.id = runs.point_id
            JOIN experiments ON experiments.id = points.experiment_id JOIN metrics ON metrics.run_id = runs.id
        WHERE experiments.name = '$1' GROUP BY runs.id ORDER BY points.command" > "$2"
}
