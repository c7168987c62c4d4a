#!/usr/bin/env bash
# Keeps recorded runs under traces/runs: programs and timelines (NAME.tar.gz), and the costs that predict them.
# usage: keep.sh RUNS NAME
# RUNS: a folder of the validation, logs of the device suite's archive or OUTDIR of tests/bench/record_runs.sh:
#   facts.log (date, device, driver, versions); run-CASE/ (program.txt, timeline.csv); run-CASE.args (model, which may
#   be a file of this repository, and sequence length: two words); costs.yaml and platform.yaml that predict CASE in
#   record-N/, if CASE ends in -N or -N-ANYTHING (its GPUs), or for all cases in record/
# NAME: of the new folder traces/runs/NAME, by custom DATE-DEVICE
# Prints the rows for tests/golden/run_gates.csv; their last column is the error of rpsim's prediction, rounded up to a
# tenth of a percent.  RPSIM, RPDIFF: the programs (build/release/...).
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
if [ $# -ne 2 ] || [ ! -f "$1/facts.log" ]; then
    echo "usage: keep.sh RUNS NAME, where RUNS has a facts.log" >&2
    exit 2
fi
runs=$1
name=$2
target=$root/traces/runs/$name
if [ -e "$target" ]; then
    echo "keep.sh: $target is there already" >&2
    exit 2
fi
new=$(mktemp -d "$root/traces/runs/.new-XXXXXX")
trap 'rm -rf "$new"' EXIT
cp "$runs/facts.log" "$new/facts.txt"
for run in "$runs"/run-*/; do
    case=$(basename "$run")
    case=${case#run-}
    [ -e "$run/timeline.csv" ] || continue # it did not finish
    mkdir "$new/$case"
    cp "$run/program.txt" "$run/timeline.csv" "$new/$case/"
    record=$runs/record-$(sed -E 's/^[a-z0-9-]*[a-z][0-9]?-([0-9]+)(-[0-9]+)?$/\1/' <<<"$case")
    if [ -d "$record" ]; then
        cp "$record/costs.yaml" "$record/platform.yaml" "$new/$case/"
    else
        cp "$runs/record/costs.yaml" "$runs/record/platform.yaml" "$new/"
    fi
    cp "$runs/run-$case.args" "$new/$case/args"
done
chmod 755 "$new"
mv "$new" "$target"
trap - EXIT
for case in "$target"/*/; do
    python3 "$root/tests/checks/lib/recorded_error.py" "$case" "${RPSIM:-$root/build/release/rpsim}" \
        "${RPDIFF:-$root/build/release/rpdiff}" |
        awk -v name="$name/$(basename "$case")" '{ e = $1 < 0 ? -$1 : $1
            printf "%s,%.1f\n", name, int(e * 10 + 1) / 10 }'
done
"$root/tests/tools/folded.py" fold "$target.tar.gz" "$target" '*/*'
rm -r "$target"/*/
