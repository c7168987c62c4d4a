# Sourced by the make_all.sh of a place, with its arguments BINDIR OUTDIR: runs the make.sh of each folder beside that
# script, in order. A failure does not stop the others; then the status is 1.
set -euo pipefail

if [ $# -ne 2 ]; then
    echo "usage: make_all.sh BINDIR OUTDIR" >&2
    exit 2
fi
status=0
for script in "$(dirname "${BASH_SOURCE[1]}")"/*/make.sh; do
    bash "$script" "$1" "$2" || {
        echo "make_all.sh: $script failed" >&2
        status=1
    }
done
exit $status
