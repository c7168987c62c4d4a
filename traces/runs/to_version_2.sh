#!/usr/bin/env bash
# to_version_2.sh RPSIM DTYPE FILE...: adds the statements of version 2 to programs in text form of version 1: the lines
# placement, versions and traits, as this rpsim writes them for a schedule of the file's name, and in lowered programs
# the type of values (rpexec's default was fp32; rpsim only had fp16). An unknown name gets the traits of a pipeline
# with resident weights. Files of version 2 stay as they are.
set -euo pipefail
rpsim=$1
dtype=$2
shift 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# traits_of NAME: the three lines. Sizes do not matter; these are allowed by every schedule.
traits_of()
{
    if [ ! -s "$work/$1" ] && ! "$rpsim" --schedule "$1" --model tiny --gpus 2 --microbatches 8 --iterations 2 \
        --program-out "$work/program" >"$work/log" 2>&1; then
        grep -q 'unknown schedule' "$work/log" || { cat "$work/log" >&2; exit 1; }
        printf 'placement resident\nversions one\ntraits\n' >"$work/$1"
    elif [ ! -s "$work/$1" ]; then
        grep -aE '^(placement|versions|traits)( |$)' "$work/program" >"$work/$1"
    fi
    cat "$work/$1"
}

for file in "$@"; do
    [ "$(head -n 1 "$file")" = 'rp-program 1' ] || continue
    name=$(sed -n 's/^schedule \([A-Za-z0-9_+-]*\)$/\1/p;/^schedule/q' "$file")
    traits=$(traits_of "${name:-none}")
    traits=$traits dtype=$dtype LC_ALL=C awk '
        NR == 1 { print "rp-program 2"; next }
        /^lowered/ { $1 = "lowered " ENVIRON["dtype"] }
        { print }
        /^asynchronous/ && !said { print ENVIRON["traits"]; said = 1 }' "$file" >"$work/converted"
    cat "$work/converted" >"$file" # the file keeps its mode
done
