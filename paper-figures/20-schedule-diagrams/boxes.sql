-- One row per op: the boxes of the diagrams, in units of the cost tables' milliseconds. Backward stages
-- of RoundPipe have a recompute; its first one, the head's, has the head's first forward there.
SELECT r.schedule || CASE WHEN r.iterations > 1 THEN ' overlapped' ELSE '' END AS schedule,
    o.gpu, CASE WHEN o.kind = 'R' AND r.schedule = 'roundpipe' AND o.stage =
        (SELECT min(stage) FROM ops WHERE run_id = o.run_id AND kind = 'R') THEN 'F' ELSE o.kind END AS kind,
    o.stage, o.microbatch, o.iteration, o.start_ps / 1e9 AS start, o.end_ps / 1e9 AS "end"
FROM ops o JOIN runs r ON r.id = o.run_id
WHERE o.end_ps > o.start_ps
ORDER BY r.id, o.gpu, o.start_ps;
