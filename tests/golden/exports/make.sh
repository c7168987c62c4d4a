#!/usr/bin/env bash
# make.sh BINDIR FOLDER: writes rpadvise's export for each line of lines.tsv below FOLDER. checks.exports has the
# packages themselves read the result.
set -euo pipefail
bin=$1
here=$(cd "$(dirname "$0")" && pwd)
RP_TRACES=$(cd "$here/../../.." && pwd)/traces
export RP_TRACES
tail -n +2 "$here/lines.tsv" | while IFS=$'\t' read -r name line; do
    rm -rf "${2:?}/$name"
    # shellcheck disable=SC2086 # words
    "$bin/tests/export_row" "$2/$name" ${line#rpsim }
done
