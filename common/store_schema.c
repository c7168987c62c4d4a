#include "common/store_schema.h"

/* `best` breaks ties by the earlier run, so that the same runs always give the same answer. */
const char *const rp_store_migrations[RP_STORE_VERSION] = {
    [0] =
        "CREATE TABLE runs ("
        "  id INTEGER PRIMARY KEY,"
        "  created_utc TEXT NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),"
        "  host TEXT NOT NULL,"
        "  program TEXT NOT NULL,"
        "  version TEXT NOT NULL,"
        "  command TEXT NOT NULL,"
        "  config_json TEXT NOT NULL CHECK (json_valid(config_json)),"
        "  seed TEXT NOT NULL," /* a uint64 does not fit into SQLite's integers */
        "  schedule TEXT NOT NULL,"
        "  model TEXT, platform TEXT, costs TEXT, partition TEXT,"
        "  fidelity TEXT, recompute TEXT, optimizer TEXT,"
        "  gpus INTEGER NOT NULL, microbatches INTEGER NOT NULL,"
        "  microbatch_size INTEGER NOT NULL, seq_len INTEGER NOT NULL,"
        "  iterations INTEGER NOT NULL, ops INTEGER NOT NULL,"
        "  program_hash TEXT NOT NULL"
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

        "CREATE VIEW summary AS "
        "WITH wide AS (SELECT run_id,"
        "  max(value) FILTER (WHERE name = 'makespan_ps') AS makespan_ps,"
        "  max(value) FILTER (WHERE name = 'busy_ps') AS busy_ps,"
        "  max(value) FILTER (WHERE name = 'bubble_ps') AS bubble_ps,"
        "  max(value) FILTER (WHERE name = 'fill_ps') AS fill_ps,"
        "  max(value) FILTER (WHERE name = 'switch_ps') AS switch_ps,"
        "  max(value) FILTER (WHERE name = 'drain_ps') AS drain_ps,"
        "  max(value) FILTER (WHERE name = 'intra_ps') AS intra_ps,"
        "  max(value) FILTER (WHERE name = 'comm_total_ps') AS comm_total_ps,"
        "  max(value) FILTER (WHERE name = 'comm_exposed_ps') AS comm_exposed_ps,"
        "  max(value) FILTER (WHERE name = 'lower_bound_ps') AS lower_bound_ps,"
        "  max(value) FILTER (WHERE name = 'tokens_per_s') AS tokens_per_s "
        "  FROM metrics GROUP BY run_id)"
        "SELECT runs.id AS run_id, created_utc, schedule, model, platform, costs, fidelity,"
        "  recompute, optimizer, partition, gpus, microbatches, microbatch_size, seq_len,"
        "  iterations, ops, seed,"
        "  makespan_ps / 1e9 AS makespan_ms, bubble_ps / 1e9 AS bubble_ms,"
        "  100.0 * bubble_ps / (gpus * makespan_ps) AS bubble_pct,"
        "  100.0 * fill_ps / (gpus * makespan_ps) AS fill_pct,"
        "  100.0 * switch_ps / (gpus * makespan_ps) AS switch_pct,"
        "  100.0 * drain_ps / (gpus * makespan_ps) AS drain_pct,"
        "  100.0 * intra_ps / (gpus * makespan_ps) AS intra_pct,"
        "  comm_total_ps / 1e9 AS comm_total_ms, comm_exposed_ps / 1e9 AS comm_exposed_ms,"
        "  lower_bound_ps / 1e9 AS lower_bound_ms, tokens_per_s "
        "FROM runs LEFT JOIN wide ON wide.run_id = runs.id;"

        "CREATE VIEW latest AS "
        "SELECT * FROM summary WHERE run_id IN (SELECT max(id) FROM runs GROUP BY schedule, model,"
        "  platform, costs, fidelity, recompute, optimizer, partition, gpus, microbatches,"
        "  microbatch_size, seq_len, iterations, seed);"

        "CREATE VIEW best AS "
        "SELECT * FROM (SELECT *, row_number() OVER ("
        "    PARTITION BY model, platform, fidelity, gpus, microbatches, microbatch_size, seq_len,"
        "      iterations ORDER BY makespan_ms, run_id) AS place"
        "  FROM latest WHERE makespan_ms IS NOT NULL) WHERE place = 1;",
    [1] = "CREATE TABLE experiments ("
          "  id INTEGER PRIMARY KEY,"
          "  name TEXT NOT NULL UNIQUE,"
          "  question TEXT,"
          "  file TEXT NOT NULL" /* the text of its file, as it was last run */
          ") STRICT;"

          "CREATE TABLE points ("
          "  id INTEGER PRIMARY KEY,"
          "  experiment_id INTEGER NOT NULL REFERENCES experiments (id) ON DELETE CASCADE,"
          "  command TEXT NOT NULL,"
          "  failure TEXT," /* why it failed; NULL: it has run */
          "  UNIQUE (experiment_id, command)"
          ") STRICT;"

          "ALTER TABLE runs ADD COLUMN point_id INTEGER REFERENCES points (id) ON DELETE CASCADE;"
          "CREATE INDEX runs_by_point ON runs (point_id) WHERE point_id IS NOT NULL;"

          "CREATE VIEW failures AS SELECT name AS experiment, command, failure FROM points "
          "  JOIN experiments ON experiments.id = experiment_id WHERE failure IS NOT NULL;",
};
