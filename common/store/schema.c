#include "common/store/schema.h"

/* SQL: the best runs s, with a table or view between CELLS and FIRST: the first entry of each cell,
 * in the order of the index. */
#define CELLS                                                                                      \
    "FROM (SELECT DISTINCT cell FROM results WHERE latest AND makespan_ps IS NOT NULL"             \
    "  AND fits IS NOT 0) AS cells CROSS JOIN "
#define FIRST                                                                                      \
    " AS s ON s.run_id = (SELECT run_id FROM results AS r WHERE r.cell = cells.cell AND latest"    \
    "  AND makespan_ps IS NOT NULL AND fits IS NOT 0 ORDER BY makespan_ps, run_id LIMIT 1)"

/* SQL: triggers that mark the latest run of each configuration, in the database or for a single
 * connection. */
#define TRIGGERS(temporary, in)                                                                    \
    "CREATE " temporary "TRIGGER results_newer AFTER INSERT ON " in "results WHEN new.latest"      \
    " BEGIN UPDATE results SET latest = 0 WHERE configuration = new.configuration AND latest"      \
    "    AND run_id <> new.run_id;"                                                                \
    " END;"                                                                                        \
    "CREATE " temporary "TRIGGER results_gone AFTER DELETE ON " in "results WHEN old.latest BEGIN" \
    "  UPDATE results SET latest = 1 WHERE run_id = (SELECT max(run_id) FROM results"              \
    "    WHERE configuration = old.configuration);"                                                \
    " END;"

const char rp_store_own_triggers[] = TRIGGERS("TEMP ", "main.");

const char *const rp_store_tables[] = {
    "CREATE TABLE experiments ("
    "  id INTEGER PRIMARY KEY,"
    "  name TEXT NOT NULL UNIQUE,"
    "  question TEXT,"
    "  file TEXT NOT NULL" /* text of its file when it last ran */
    ") STRICT;"

    "CREATE TABLE points ("
    "  id INTEGER PRIMARY KEY,"
    "  experiment_id INTEGER NOT NULL REFERENCES experiments (id) ON DELETE CASCADE,"
    "  command TEXT NOT NULL,"
    "  failure TEXT," /* reason of the failure; NULL: it has run */
    "  UNIQUE (experiment_id, command)"
    ") STRICT;"

    "CREATE TABLE runs ("
    "  id INTEGER PRIMARY KEY,"
    "  created_utc TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),"
    "  host TEXT NOT NULL,"
    "  program TEXT NOT NULL,"
    "  version TEXT NOT NULL,"
    "  command TEXT NOT NULL,"
    "  config_json TEXT NOT NULL CHECK (json_valid(config_json)),"
    "  seed TEXT NOT NULL," /* text, as a uint64 does not fit into SQLite's integers */
    "  schedule TEXT NOT NULL,"
    "  model TEXT, platform TEXT, costs TEXT, partition TEXT,"
    "  fidelity TEXT, recompute TEXT, optimizer TEXT,"
    "  gpus INTEGER NOT NULL, microbatches INTEGER NOT NULL,"
    "  microbatch_size INTEGER NOT NULL, seq_len INTEGER NOT NULL,"
    "  iterations INTEGER NOT NULL, ops INTEGER NOT NULL,"
    "  program_hash TEXT NOT NULL,"
    "  point_id INTEGER REFERENCES points (id) ON DELETE CASCADE,"
    "  git_commit TEXT,"
    "  duration_s REAL CHECK (duration_s >= 0)"
    ") STRICT;"

    "CREATE TABLE metrics ("
    "  run_id INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,"
    "  name TEXT NOT NULL,"
    "  value ANY," /* INTEGER for _ps, _bytes and counts, REAL otherwise, NULL: unknown */
    "  PRIMARY KEY (run_id, name)"
    ") STRICT, WITHOUT ROWID;"

    "CREATE TABLE ops ("
    "  run_id INTEGER NOT NULL REFERENCES runs (id) ON DELETE CASCADE,"
    "  op INTEGER NOT NULL,"
    "  queue TEXT NOT NULL,"
    "  gpu INTEGER," /* NULL: the host */
    "  kind TEXT NOT NULL,"
    "  stage INTEGER NOT NULL, microbatch INTEGER NOT NULL, iteration INTEGER NOT NULL,"
    "  start_ps INTEGER NOT NULL, end_ps INTEGER NOT NULL CHECK (end_ps >= start_ps),"
    "  PRIMARY KEY (run_id, op)"
    ") STRICT, WITHOUT ROWID;"

    "CREATE INDEX runs_by_configuration ON runs (model, gpus, microbatches, schedule);"
    "CREATE INDEX runs_by_point ON runs (point_id) WHERE point_id IS NOT NULL;",

    /* Short rows for the views, with a run's usual metrics, so that a view need not read a dozen
     * rows of metrics and a kilobyte of configuration for each run. */
    "CREATE TABLE results ("
    "  run_id INTEGER PRIMARY KEY REFERENCES runs (id) ON DELETE CASCADE,"
    "  latest INTEGER NOT NULL DEFAULT 1 CHECK (latest IN (0, 1)),"
    "  configuration INTEGER NOT NULL," /* hash: equal for runs with the same settings */
    "  cell INTEGER NOT NULL,"          /* hash: equal for runs that compete for the same work */
    "  created_utc TEXT NOT NULL, program TEXT NOT NULL, schedule TEXT NOT NULL,"
    "  model TEXT, platform TEXT, costs TEXT, changes TEXT,"
    "  fidelity TEXT, recompute TEXT, optimizer TEXT, partition TEXT,"
    "  gpus INTEGER NOT NULL, microbatches INTEGER NOT NULL,"
    "  microbatch_size INTEGER NOT NULL, seq_len INTEGER NOT NULL, global_batch INTEGER,"
    "  iterations INTEGER NOT NULL, ops INTEGER NOT NULL, seed TEXT NOT NULL, jitter_cv REAL,"
    "  makespan_ps ANY, busy_ps ANY, bubble_ps ANY, fill_ps ANY, switch_ps ANY, drain_ps ANY,"
    "  intra_ps ANY, comm_total_ps ANY, comm_exposed_ps ANY, lower_bound_ps ANY,"
    "  iteration_ps ANY, tokens_per_s ANY, peak_gpu_bytes ANY, peak_host_bytes ANY,"
    "  fits ANY, max_seqlen ANY"
    ") STRICT;"

    "CREATE INDEX results_by_configuration ON results (configuration);"
    /* SQLite 3.40 checks the conditions of a partial index again, so the index contains their
     * columns, and only wanted rows are read. */
    "CREATE INDEX results_by_cell ON results (cell, makespan_ps, run_id, latest, fits)"
    "  WHERE latest AND makespan_ps IS NOT NULL AND fits IS NOT 0;"
    "CREATE INDEX results_unchanged ON results (schedule, model, gpus, microbatches,"
    "  microbatch_size, seq_len, platform, fidelity, recompute, optimizer, latest, changes,"
    "  jitter_cv, program, max_seqlen)"
    "  WHERE latest AND changes IS NULL AND jitter_cv IS NULL AND program = 'rpsim';"
    /* and its triggers */ TRIGGERS("", ""),

    "CREATE INDEX points_failed ON points (experiment_id, "
    "command) WHERE failure IS NOT NULL;",

    /* Values published or measured elsewhere. */
    "CREATE TABLE reference ("
    "  id INTEGER PRIMARY KEY,"
    "  kind TEXT NOT NULL DEFAULT 'published' CHECK (kind IN ('published', 'measured')),"
    "  source TEXT NOT NULL,"
    "  schedule TEXT NOT NULL,"
    "  model TEXT NOT NULL,"
    "  platform TEXT, fidelity TEXT, recompute TEXT, optimizer TEXT," /* NULL: any */
    "  gpus INTEGER, microbatches INTEGER, microbatch_size INTEGER, seq_len INTEGER,"
    "  quantity TEXT NOT NULL CHECK (quantity IN ('makespan_ms', 'bubble_ms', 'bubble_pct',"
    "    'fill_ms', 'fill_pct', 'switch_ms', 'switch_pct', 'drain_ms', 'drain_pct',"
    "    'intra_ms', 'intra_pct', 'comm_total_ms', 'comm_exposed_ms', 'comm_exposed_pct',"
    "    'iteration_ms', 'tokens_per_s', 'peak_gpu_bytes', 'peak_host_bytes', 'max_seqlen',"
    "    'max_seqlen_k', 'ops')),"
    "  value REAL" /* NULL: the run did not fit into memory */
    ") STRICT;"
    "CREATE UNIQUE INDEX reference_identity ON reference (source, quantity, schedule, model,"
    "  ifnull(platform, ''), ifnull(fidelity, ''), ifnull(recompute, ''),"
    "  ifnull(optimizer, ''), ifnull(gpus, 0), ifnull(microbatches, 0),"
    "  ifnull(microbatch_size, 0), ifnull(seq_len, 0));",

    NULL,
};

const char *const rp_store_upgrade[] = {
    "ALTER TABLE results ADD COLUMN host_memory_bytes ANY;"
    "UPDATE results SET host_memory_bytes = (SELECT value FROM metrics"
    "  WHERE metrics.run_id = results.run_id AND name = 'host_memory_bytes');",
    NULL,
};

#define SHOWN(name, shown) shown
#define METRICS RP_STORE_COLUMNS(SHOWN)

/* `best` prefers the earlier run on ties, so that the same runs always give the same answer. */
const char *const rp_store_views[] = {
    "DROP VIEW IF EXISTS summary; DROP VIEW IF EXISTS latest; DROP VIEW IF EXISTS best;"
    "DROP VIEW IF EXISTS wins; DROP VIEW IF EXISTS failures; DROP VIEW IF EXISTS error_per_cell;",

    "CREATE VIEW summary AS SELECT run_id, created_utc, program, schedule, model, platform,"
    "  costs, changes, fidelity, recompute, optimizer, partition, gpus, microbatches,"
    "  microbatch_size, seq_len, global_batch, iterations, ops, seed, jitter_cv, " METRICS
    "  latest, cell FROM results;"

    "CREATE VIEW latest AS SELECT * FROM summary WHERE latest;"

    "CREATE VIEW best AS SELECT s.* " CELLS "summary" FIRST ";"

    "CREATE VIEW wins AS SELECT model, platform, fidelity, gpus, schedule, count(*) AS wins,"
    "  100.0 * count(*) / sum(count(*)) OVER (PARTITION BY model, platform, fidelity, gpus)"
    "    AS wins_pct " CELLS "results" FIRST "  GROUP BY model, platform, fidelity, gpus, schedule"
    "  ORDER BY model, platform, fidelity, gpus, wins DESC, schedule;"

    "CREATE VIEW failures AS SELECT name AS experiment, command, failure FROM points"
    "  JOIN experiments ON experiments.id = experiment_id WHERE failure IS NOT NULL"
    "  ORDER BY name, command;",

    "CREATE VIEW error_per_cell AS WITH pairs AS ("
    "  SELECT f.kind, f.source, f.quantity, f.schedule, f.model,"
    "    coalesce(r.platform, f.platform) AS platform,"
    "    coalesce(r.fidelity, f.fidelity) AS fidelity,"
    "    coalesce(r.recompute, f.recompute) AS recompute,"
    "    coalesce(r.optimizer, f.optimizer) AS optimizer,"
    "    coalesce(r.gpus, f.gpus) AS gpus,"
    "    coalesce(r.microbatches, f.microbatches) AS microbatches,"
    "    coalesce(r.microbatch_size, f.microbatch_size) AS microbatch_size,"
    "    coalesce(r.seq_len, f.seq_len) AS seq_len, r.run_id, r.configuration,"
    "    r.fits = 0 OR (r.max_seqlen = 0 AND f.quantity LIKE 'max_seqlen%') AS is_full,"
    "    f.value AS measured, CASE WHEN r.fits = 0 AND f.quantity NOT LIKE 'peak%' THEN NULL"
    "      ELSE CASE f.quantity"
    "      WHEN 'makespan_ms' THEN makespan_ps / 1e9 WHEN 'bubble_ms' THEN bubble_ps / 1e9"
    "      WHEN 'fill_ms' THEN fill_ps / 1e9 WHEN 'switch_ms' THEN switch_ps / 1e9"
    "      WHEN 'drain_ms' THEN drain_ps / 1e9 WHEN 'intra_ms' THEN intra_ps / 1e9"
    "      WHEN 'comm_total_ms' THEN comm_total_ps / 1e9"
    "      WHEN 'comm_exposed_ms' THEN comm_exposed_ps / 1e9"
    "      WHEN 'iteration_ms' THEN iteration_ps / 1e9"
    "      WHEN 'bubble_pct' THEN 100.0 * bubble_ps / (r.gpus * makespan_ps)"
    "      WHEN 'fill_pct' THEN 100.0 * fill_ps / (r.gpus * makespan_ps)"
    "      WHEN 'switch_pct' THEN 100.0 * switch_ps / (r.gpus * makespan_ps)"
    "      WHEN 'drain_pct' THEN 100.0 * drain_ps / (r.gpus * makespan_ps)"
    "      WHEN 'intra_pct' THEN 100.0 * intra_ps / (r.gpus * makespan_ps)"
    "      WHEN 'comm_exposed_pct' THEN 100.0 * comm_exposed_ps / (r.gpus * makespan_ps)"
    "      WHEN 'tokens_per_s' THEN tokens_per_s WHEN 'ops' THEN ops"
    "      WHEN 'peak_gpu_bytes' THEN peak_gpu_bytes"
    "      WHEN 'peak_host_bytes' THEN peak_host_bytes"
    "      WHEN 'max_seqlen' THEN nullif(max_seqlen, 0)"
    "      WHEN 'max_seqlen_k' THEN nullif(max_seqlen, 0) / 1024.0 END END AS predicted"
    "  FROM reference AS f LEFT JOIN results AS r ON r.latest AND r.changes IS NULL"
    "    AND r.jitter_cv IS NULL AND r.program = 'rpsim' AND r.schedule = f.schedule"
    "    AND r.model = f.model AND (f.gpus IS NULL OR r.gpus = f.gpus)"
    "    AND (r.max_seqlen IS NOT NULL) = (f.quantity LIKE 'max_seqlen%')"
    "    AND (f.platform IS NULL OR r.platform = f.platform)"
    "    AND (f.fidelity IS NULL OR r.fidelity = f.fidelity)"
    "    AND (f.recompute IS NULL OR r.recompute = f.recompute)"
    "    AND (f.optimizer IS NULL OR r.optimizer = f.optimizer)"
    "    AND (f.microbatches IS NULL OR r.microbatches = f.microbatches)"
    "    AND (f.microbatch_size IS NULL OR r.microbatch_size = f.microbatch_size)"
    "    AND (f.seq_len IS NULL OR r.seq_len = f.seq_len)) "
    "SELECT kind, source, quantity, schedule, model, platform, fidelity, recompute, optimizer,"
    "  gpus, microbatches, microbatch_size, seq_len, run_id, measured, predicted,"
    "  predicted - measured AS error, 100.0 * (predicted - measured) / measured AS error_pct,"
    "  CASE WHEN run_id IS NULL THEN 'no run'"
    "    WHEN measured IS NOT NULL AND predicted IS NOT NULL THEN 'compared'"
    "    WHEN predicted IS NOT NULL THEN 'out of memory only when measured'"
    "    WHEN is_full IS NOT 1 THEN 'not predicted'"
    "    WHEN measured IS NULL THEN 'both out of memory'"
    "    ELSE 'out of memory only when predicted' END AS outcome "
    "FROM pairs ORDER BY source, quantity, model, schedule, gpus, platform, fidelity,"
    "  recompute, optimizer, microbatches, microbatch_size, seq_len, configuration;",
    NULL,
};
