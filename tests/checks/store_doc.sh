#!/usr/bin/env bash
# The queries of common/store/README.md run.
set -euo pipefail
source=$1
rpsim=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
db=$work/runs.db
doc=$source/common/store/README.md
failures=0
"$rpsim" --schedule gpipe --fidelity stage --db "$db" --db-ops >/dev/null

# Every query runs, in its own copy.
awk -v out="$work/query" '
    /^```sql/ { file = sprintf("%s%03d", out, ++count); next }
    /^```/ { file = "" }
    file != "" { print > file }
    END { exit count < 5 }
' "$doc"
for query in "$work"/query*; do
    cp "$db" "$work/copy.db"
    if ! sqlite3 -batch -bail "$work/copy.db" <"$query" >"$work/out" 2>&1; then
        cat "$query" "$work/out"
        failures=$((failures + 1))
    fi
done
[ $failures -eq 0 ] || { echo "$failures failures"; exit 1; }
