-- Every point of the study: the period of a step and whether it fits.
.mode csv
.separator "," "\n"
.headers on
WITH point AS (
    SELECT runs.id AS id, model, schedule, gpus, global_batch, seq_len,
        instr(changes, 'pcie_gen=') AS generation, instr(changes, 'gpus_per_root=') AS uplink, changes
    FROM (SELECT *, json_extract(config_json, '$.set') AS changes,
            json_extract(config_json, '$.global_batch') AS global_batch FROM runs) AS runs
        JOIN points ON points.id = point_id JOIN experiments ON experiments.id = experiment_id
    WHERE experiments.name = 'pcie-topology')
SELECT model, CAST(substr(changes, generation + 9) AS INTEGER) AS pcie_gen,
    CAST(substr(changes, uplink + 14) AS INTEGER) AS gpus_per_uplink, schedule,
    round(iteration_ps / 1e9, 6) AS step_ms, round(global_batch * seq_len / (iteration_ps / 1e12), 3) AS tokens_per_s,
    CASE fits WHEN 1 THEN 'yes' ELSE 'no' END AS fits
FROM point JOIN (SELECT run_id, makespan_ps, iteration_ps, fits FROM results) ON run_id = id
ORDER BY CASE model WHEN 'qwen3-1.7b' THEN 1 WHEN 'llama3.1-8b' THEN 2 WHEN 'gpt-oss-20b' THEN 3 ELSE 4 END,
    pcie_gen, gpus_per_uplink, iteration_ps, schedule;
