#!/usr/bin/env bash
# rpexec: what it can do works, everything else exits 2 and names what exists.
set -euo pipefail
rpexec=$2/exec/rpexec
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

# holds FILE NEEDLE: FILE contains NEEDLE; without NEEDLE, FILE is empty.
holds()
{
    if [ -z "$2" ]; then
        [ ! -s "$1" ]
    else
        grep -qF -- "$2" "$1"
    fi
}

# expect STATUS STDOUT_NEEDLE STDERR_NEEDLE ARGUMENT...
expect()
{
    local want=$1 out=$2 err=$3 status=0
    shift 3
    "$rpexec" "$@" >"$work/out" 2>"$work/err" || status=$?
    if [ $status -ne "$want" ] || ! holds "$work/out" "$out" || ! holds "$work/err" "$err"; then
        echo "rpexec $*: exit status $status (expected $want), stdout and stderr:"
        cat "$work/out" "$work/err"
        failures=$((failures + 1))
    fi
}

expect 0 "host: the processors of this machine" "" --list backends
expect 0 " cores" "" --list=backends
expect 0 "--list backends" "" --help
expect 0 "does not exist yet" "" --help
expect 0 "rpexec " "" --version
expect 2 "" "valid options are --list backends"
expect 2 "" "valid values are backends" --list schedules
expect 2 "" "--list: needs a value" --list
expect 2 "" "--schedule: no such option; the executor does not exist yet" --schedule roundpipe --gpus 4
expect 2 "" "tiny: no such option" tiny
expect 2 "" "tiny: no such option" --list backends tiny
status=0
"$rpexec" --help >/dev/full 2>"$work/err" || status=$?
if [ $status -ne 1 ] || ! grep -q 'cannot be written' "$work/err"; then
    echo "a full disk goes unnoticed: exit status $status"
    failures=$((failures + 1))
fi
[ $failures -eq 0 ]
