#!/usr/bin/env bash
# README.md, docs/examples.md and docs/your-server.md work as typed: every line of their sh blocks runs in a folder that has the sources and,
# as build/release, this build. ./bootstrap.sh and cmake are run elsewhere. Release only: each program is tested elsewhere.
set -euo pipefail
source=$(cd "$1" && pwd)
build=$(cd "$2" && pwd)
source "$(dirname "${BASH_SOURCE[0]}")/lib/check.sh"
count=0
skipped=0
long='/make\.sh |--steps 200|--partition tuned|gnuplot' # with RP_LONG=1 only; studies have checks of their own

mkdir "$work/tree" "$work/tree/build"
for entry in "$source"/*; do
    case $(basename "$entry") in build*) ;; *) ln -s "$entry" "$work/tree/" ;; esac
done
ln -s "$build" "$work/tree/build/release"
cd "$work/tree"
unset RP_TRACES RP_PLOTS RPEXEC_BACKEND

# A block's lines share a shell's variables, as at a prompt; each line must succeed.
for page in README.md docs/examples.md docs/your-server.md; do
    awk -v out="$work/block" '/^```sh$/ { open = ++blocks; next } /^```$/ { open = 0 } open { print FNR "\t" $0 >(out "." open) }' "$page"
    for block in "$work"/block.*; do
        : >"$work/state"
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
                continue
            fi
            count=$((count + 1))
            { cat "$work/state"; echo "$line"; } >"$work/line.sh"
            bash -e "$work/line.sh" >"$work/log" 2>&1 </dev/null || fail "$page:$number: $line: $(tail -n 3 "$work/log")"
        done <"$block"
        rm "$block"
    done
done

[ "$count" -ge 40 ] || fail "only $count examples"
[ "$(grep -c '^build/release' README.md)" -ge 5 ] || fail "README.md has fewer than five examples"
[ "$failures" -eq 0 ] || exit 1
echo "$count examples work as typed, $skipped left to RP_LONG=1"
