# Sourced by checks. work: a folder that goes when the check ends; failures: how many there were.
work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
failures=0

fail()
{
    echo "$*"
    failures=$((failures + 1))
}

# expect STATUS NEEDLE COMMAND...: its exit status; the needle is in what it says, on either stream.
# prefix: what the command is run by, none unless set.
prefix=()
expect()
{
    local want=$1 needle=$2 status=0
    shift 2
    "${prefix[@]}" "$@" >"$work/out" 2>&1 </dev/null || status=$?
    if [ $status -ne "$want" ] || ! grep -qF -- "$needle" "$work/out"; then
        fail "$*: exit status $status (expected $want), no '$needle' in:"
        cat "$work/out"
    fi
}

# end: the check's result.
end()
{
    [ $failures -eq 0 ] || { echo "$failures failures"; exit 1; }
}
