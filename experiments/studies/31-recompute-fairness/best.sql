-- Of a store of recompute-search: for every schedule, model and recompute rule the best partition
-- over the seeds, those that are best under both rules once. As traces/partitions/paper.csv has it,
-- with RoundPipe's round and its start.
.mode list
.separator ;
.headers on
WITH found AS (
    SELECT schedule, model, recompute, instr(points.command, '--round-start') > 0 AS fixed,
        json_extract(config_json, '$.round') AS round,
        CASE WHEN json_extract(config_json, '$.round') IS NOT NULL
            THEN json_extract(config_json, '$.round_start') END AS round_start,
        partition, row_number() OVER (
            PARTITION BY schedule, model, recompute, instr(points.command, '--round-start') > 0
            ORDER BY makespan_ps, partition) AS place
    FROM runs JOIN (SELECT run_id, makespan_ps, iteration_ps, fits FROM results) ON run_id = runs.id
        JOIN points ON points.id = point_id JOIN experiments ON experiments.id = experiment_id
    WHERE experiments.name = 'recompute-search')
SELECT schedule, model, CASE WHEN fixed THEN 'published' WHEN round IS NOT NULL THEN 'tuned' END AS rounds,
    round, round_start, partition AS layers_per_stage
FROM found WHERE place = 1
GROUP BY 1, 2, 3, 4, 5, 6 ORDER BY schedule, model, rounds, layers_per_stage;
