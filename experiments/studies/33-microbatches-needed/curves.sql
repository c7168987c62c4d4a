-- Every point of the study: time per iteration, in a steady state where it is asynchronous.
.mode csv
.separator "," "\n"
.headers on
SELECT gpus, CASE WHEN instr(points.command, '--partition paper') > 0 THEN 'paper' ELSE 'auto' END AS partition,
    optimizer, model, schedule, length(partition) - length(replace(replace(partition, ',', ''), '|', '')) + 1 AS stages,
    microbatches / gpus AS per_gpu,
    round(CASE optimizer WHEN 'sync' THEN makespan_ps ELSE iteration_ps END / 1e9, 6) AS iteration_ms
FROM runs JOIN points ON points.id = point_id JOIN experiments ON experiments.id = experiment_id
    JOIN (SELECT run_id, makespan_ps, iteration_ps, fits FROM results) ON run_id = runs.id
WHERE experiments.name IN ('microbatches-needed', 'microbatches-needed-exactly')
GROUP BY 1, 2, 3, 4, 5, 6, 7
ORDER BY 1, 2, 3 DESC, CASE model WHEN 'qwen3-1.7b' THEN 1 WHEN 'llama3.1-8b' THEN 2 WHEN 'gpt-oss-20b' THEN 3
    WHEN 'qwen3-32b' THEN 4 ELSE 5 END, schedule, per_gpu;
