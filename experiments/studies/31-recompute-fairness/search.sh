#!/usr/bin/env bash
# search.sh BINDIR: finds partitions.csv anew, in some two minutes on two cores. make.sh takes the
# file as it is.
set -euo pipefail
[ $# -eq 1 ] || { echo "usage: search.sh BINDIR" >&2; exit 2; }
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
rpsweep=$1/rpsweep
[ -x "$rpsweep" ] || rpsweep=$1/experiments/rpsweep
work=$(mktemp -d "$here/.search.XXXXXX")
trap 'rm -rf "$work"' EXIT
# A point at a time: the search itself takes all cores.
"$rpsweep" "$here/../../recompute-search.yaml" --db "$work/search.db" --jobs 1
sqlite3 -readonly "$work/search.db" < "$here/best.sql" > "$work/partitions.csv"
mv "$work/partitions.csv" "$here/partitions.csv"
