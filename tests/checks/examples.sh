#!/usr/bin/env bash
# README.md and the pages of docs/ work as typed: every line of their sh blocks runs in a folder that has the sources and,
# as build/release, this build. A text block behind an sh block has the first lines that the block's last command prints;
# "…" as its last line: more follow. RP_REFRESH=1 writes these lines into the page instead of comparing them.
# ./bootstrap.sh and cmake are run elsewhere. Release only: each program is tested elsewhere.
set -euo pipefail
source=$(cd "$1" && pwd)
build=$(cd "$2" && pwd)
source "$(dirname "${BASH_SOURCE[0]}")/lib/check.sh"
count=0
skipped=0
compared=0
# With RP_LONG=1 only; studies have checks of their own.
long='schedule all (--gpus|--db|--model llama3.1-8b *(--platform l40sx8|#))|/make\.sh |--steps 200|--partition tuned|gnuplot|rpadvise .* --(gpus|optimizer|runnable|schedule|seq-len|tokens) '

mkdir "$work/tree" "$work/tree/build"
for entry in "$source"/*; do
    case $(basename "$entry") in build*) ;; *) ln -s "$entry" "$work/tree/" ;; esac
done
ln -s "$build" "$work/tree/build/release"
cd "$work/tree"
unset RP_TRACES RP_PLOTS RPEXEC_BACKEND

# The same question to rpadvise, on two pages, is asked once.
run_line()
{
    local asked=${line%%#*}
    asked=${asked%"${asked##*[! ]}"}
    if [[ $asked == build/release/rpadvise* && -e $work/answer && $(cat "$work/asked") == "$asked" ]]; then
        cp "$work/answer" "$work/log"
        return
    fi
    bash -e "$work/line.sh" >"$work/log" 2>"$work/errors" </dev/null ||
        fail "$page:$number: $line: $(tail -n 3 "$work/errors")"
    if [[ $asked == build/release/rpadvise* ]]; then
        cp "$work/log" "$work/answer"
        echo "$asked" >"$work/asked"
    fi
}

# told PAGE BLOCK: what the block's last command printed, now in the log, is what the page says.
told()
{
    local page=$1 want=$2.text lines
    [ -e "$want" ] || return 0
    lines=$(grep -cvx '…' "$want")
    { head -n "$lines" "$work/log"; grep -x '…' "$want" || true; } >"$want.now"
    if cmp -s "$want" "$want.now"; then
        compared=$((compared + 1))
    elif [ "${RP_REFRESH:-0}" = 1 ]; then
        awk -v from="$(cat "$2.at")" -v count="$(wc -l <"$want")" -v now="$want.now" '
            NR == from { while ((getline line <now) > 0) print line }
            NR < from || NR >= from + count' "$page" >"$work/page"
        cat "$work/page" >"$page" # the same file, which is a link
    else
        fail "$page:$(cat "$2.at"): the last command prints something else (RP_REFRESH=1 writes it):"
        diff "$want" "$want.now" || true
    fi
}

# A block's lines share a shell's variables, as at a prompt; each line must succeed.
for page in README.md docs/examples.md docs/which-schedule.md docs/your-server.md; do
    awk -v out="$work/block" '/^```sh$/ { open = ++blocks; next } /^```$/ { open = text = 0 }
        /^```text$/ && blocks { text = 1; print FNR + 1 >(out "." blocks ".at"); next }
        text { print >(out "." blocks ".text") }
        open { print FNR "\t" $0 >(out "." open) }' "$page"
    for block in $(find "$work" -name 'block.*[0-9]' | sort -V); do
        : >"$work/state"
        ran=0
        while IFS=$'\t' read -r number line; do
            case $line in '' | '#'* | ./bootstrap.sh* | cmake*) continue ;; esac
            if [ "${line%% *}" = gnuplot ] && ! command -v gnuplot >/dev/null; then
                continue
            fi
            if [[ $line =~ ^(export\ )?[A-Za-z_]+= ]]; then
                echo "$line" >>"$work/state"
                continue
            fi
            if [[ $line =~ $long ]] && [ "${RP_LONG:-0}" != 1 ]; then
                skipped=$((skipped + 1))
                ran=0
                continue
            fi
            count=$((count + 1))
            { cat "$work/state"; echo "$line"; } >"$work/line.sh"
            run_line
            ran=1
        done <"$block"
        [ "$ran" -eq 0 ] || told "$page" "$block"
    done
    rm "$work"/block.*
done

[ "$compared" -ge 2 ] || [ "${RP_REFRESH:-0}" = 1 ] || fail "only $compared outputs compared"
[ "$count" -ge 40 ] || fail "only $count examples"
[ "$(grep -c '^build/release' README.md)" -ge 5 ] || fail "README.md has fewer than five examples"
[ "$failures" -eq 0 ] || exit 1
echo "$count examples work as typed, $compared outputs as shown, $skipped left to RP_LONG=1"
