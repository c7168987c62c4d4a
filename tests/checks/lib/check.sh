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

# within FILE COLUMNS COMMAND: no line of what it printed is wider, than 100 where COLUMNS is empty; and tables of runs
# have in their first 80 columns throughput, memory and, but for those of rpadvise, which names none that does not, fit.
within()
{
    local most=${2:-100}
    [ "$(LC_ALL=C.UTF-8 wc -L <"$1")" -le "$most" ] ||
        fail "COLUMNS=$2 $3: too wide: $(LC_ALL=C.UTF-8 grep -E ".{$((most + 1))}" "$1" | head -n 3)"
    [[ ! $3 =~ --columns ]] || return 0
    LC_ALL=C.UTF-8 awk -v fits="$([[ $3 =~ rpadvise ]] || echo ' fits')" '
        NR <= 2 && /stage( |$)/ { exit 0 } # memory is not modelled
        { line = substr($0, 1, 80) }
        /^ *(\* )?schedule .* tokens\/s / { if (line !~ "tokens/s .*GPU GB .*" fits) bad = 1; head = NR; next }
        head && NR == head + 1 && line !~ /[0-9]+ .*[0-9]+\.[0-9]/ { bad = 1 }
        END { exit bad }' "$1" ||
        fail "COLUMNS=$2 $3: the first 80 columns have not throughput, memory and fit: $(head -n 8 "$1")"
}

# end: the check's result.
end()
{
    [ $failures -eq 0 ] || { echo "$failures failures"; exit 1; }
}
