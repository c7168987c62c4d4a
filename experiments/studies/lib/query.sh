# query STORE FILE.sql: asks a store. The questions find a view `measured` with a row per run:
# makespan_ps, iteration_ps and fits. Stores of version 3 keep these in one row, those before a row each.
query()
{
    local have
    have=$(sqlite3 -readonly "$1" "SELECT count(*) FROM sqlite_master WHERE name = 'results'")
    {
        echo "CREATE TEMP VIEW measured AS"
        if [ "$have" -gt 0 ]; then
            echo "SELECT run_id, makespan_ps, iteration_ps, fits FROM results;"
        else
            echo "SELECT run_id, max(value) FILTER (WHERE name = 'makespan_ps') AS makespan_ps,"
            echo "    max(value) FILTER (WHERE name = 'iteration_ps') AS iteration_ps,"
            echo "    max(value) FILTER (WHERE name = 'fits') AS fits FROM metrics GROUP BY run_id;"
        fi
        cat "$2"
    } | sqlite3 -readonly "$1"
}
