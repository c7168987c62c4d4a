-- Every point of the study: which partition, which rule, how long. At stage fidelity the makespan, at
-- hardware fidelity the period. A partition of a search may be the paper's: then both rows are there.
.mode csv
.separator "," "\n"
.headers on
WITH point AS (
    SELECT runs.id AS id, experiments.name AS experiment, fidelity, optimizer, recompute,
        replace(model, '-lora', '') AS model, schedule, partition,
        instr(points.command, '--partition paper') > 0 AS listed,
        instr(points.command, '--partition even') > 0 AS even,
        json_extract(config_json, '$.round') AS round
    FROM runs JOIN points ON points.id = point_id JOIN experiments ON experiments.id = experiment_id
    WHERE experiments.name IN ('recompute-fairness', 'recompute-fairness-found', 'recompute-fairness-hardware')
        AND seed = '0'),
list AS (SELECT * FROM point WHERE listed OR even),
known AS (SELECT point.*,
    CASE WHEN even THEN 'even'
        WHEN listed OR (fidelity = 'hardware' AND partition = (SELECT partition FROM list
            WHERE list.model = point.model AND list.schedule = replace(point.schedule, 'mobius', 'looped-bfs')
                AND list.listed)) THEN 'paper'
        ELSE 'found' END AS source
    FROM point)
SELECT fidelity, optimizer, model, schedule, recompute, source AS partition_of,
    CASE WHEN schedule <> 'roundpipe' THEN NULL WHEN round = 'all' THEN 'one call'
        WHEN round = 8 THEN 'published' ELSE 'tuned' END AS rounds,
    round(CASE fidelity WHEN 'stage' THEN makespan_ps ELSE iteration_ps END / 1e9, 6) AS iteration_ms,
    CASE fits WHEN 1 THEN 'yes' WHEN 0 THEN 'no' END AS fits, partition
FROM known
    JOIN (SELECT run_id, makespan_ps, iteration_ps, fits FROM results) ON run_id = id
GROUP BY fidelity, optimizer, model, schedule, recompute, partition, 7, source
ORDER BY fidelity DESC, optimizer DESC, model, schedule, recompute, partition_of, iteration_ms;
