#!/usr/bin/env bash
# common/store/README.md names every table, view and column of a store, and no other; its queries run.
set -euo pipefail
source=$1
rpsim=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
db=$work/runs.db
doc=$source/common/store/README.md
failures=0
"$rpsim" --schedule gpipe --fidelity stage --db "$db" --db-ops >/dev/null

# "table column" of the store; latest and best have the columns of summary, as the document says.
sqlite3 -batch "$db" "SELECT m.name || ' ' || c.name FROM sqlite_schema AS m JOIN pragma_table_info(m.name) AS c
    WHERE m.type IN ('table', 'view') AND m.name NOT IN ('latest', 'best')" | sort >"$work/store"
for view in latest best; do
    sqlite3 -batch "$db" "SELECT name FROM pragma_table_info('$view')" >"$work/$view"
    sqlite3 -batch "$db" "SELECT name FROM pragma_table_info('summary')" | cmp - "$work/$view"
done
sqlite3 -batch "$db" "SELECT name FROM sqlite_schema WHERE type IN ('table', 'view')" | sort >"$work/names"

# The document: headings of level 3; names in back quotes in the first column of tables, and in
# paragraphs that begin with "Columns:".
sed -n 's/^### //p' "$doc" | sort >"$work/headings"
awk '
    /^### / { section = $2; inside = 0 }
    /^## / { section = ""; inside = 0 }
    section == "" { next }
    { text = "" }
    /^\| `/ { split($0, cells, "|"); text = cells[2] }
    /Columns: `/ { inside = 1; sub(/.*Columns: /, "") }
    inside { text = $0 }
    /^$/ { inside = 0 }
    { while (match(text, /`[a-z_0-9]+`/)) {
          print section, substr(text, RSTART + 1, RLENGTH - 2)
          text = substr(text, RSTART + RLENGTH)
      } }
' "$doc" | sort >"$work/documented"
compare()
{
    if ! diff "$2" "$3" >"$work/diff"; then
        echo "$1: < the store, > common/store/README.md"
        cat "$work/diff"
        failures=$((failures + 1))
    fi
}
compare "tables and views" "$work/names" "$work/headings"
compare "columns" "$work/store" "$work/documented"

# Every query runs, in its own copy.
awk -v out="$work/query" '
    /^```sql/ { file = sprintf("%s%03d", out, ++count); next }
    /^```/ { file = "" }
    file != "" { print > file }
    END { exit count < 10 }
' "$doc"
for query in "$work"/query*; do
    cp "$db" "$work/copy.db"
    if ! sqlite3 -batch -bail "$work/copy.db" <"$query" >"$work/out" 2>&1; then
        cat "$query" "$work/out"
        failures=$((failures + 1))
    fi
done
[ $failures -eq 0 ] || { echo "$failures failures"; exit 1; }
