#!/usr/bin/env bash
# make_all.sh BINDIR OUTDIR: makes every plot of the gallery: each folder with a make.sh, in order. One that
# fails does not stop the others; then the status is 1.
set -euo pipefail

if [ $# -ne 2 ]; then
    echo "usage: make_all.sh BINDIR OUTDIR" >&2
    exit 2
fi
status=0
for script in "$(dirname "${BASH_SOURCE[0]}")"/*/make.sh; do
    bash "$script" "$1" "$2" || {
        echo "make_all.sh: $script failed" >&2
        status=1
    }
done
exit $status
