#!/usr/bin/env bash
# Pages work as typed: every line of the sh blocks of every document runs in a folder that has the sources and, as
# build/release, this build, whose programs are on PATH as well. A text block behind an sh block has the first lines that
# the block's last command prints; "…" as its last line: more follow. RP_REFRESH=1 writes these lines into the page
# instead of comparing them. The examples of the man pages, which the site has, too, run as well. No line on stdout is
# wider than COLUMNS, 80 but where the page shows what is printed; with RP_LONG=1 all lines run at 80, at 100 and without
# COLUMNS. What other checks run: ./bootstrap.sh, cmake, cpack and sudo, and the pages of `elsewhere`. Release only: each
# program is tested elsewhere.
set -euo pipefail
source=$(cd "$1" && pwd)
build=$(cd "$2" && pwd)
source "$(dirname "${BASH_SOURCE[0]}")/lib/check.sh"
count=0
skipped=0
compared=0
again=0
# With RP_LONG=1 only; studies have checks of their own, what measures a machine has checks.describe, and the same
# search or record is made by another page.
long='schedule all (--gpus|--model llama3.1-8b *(--platform l40sx8|#))|/make\.sh |--steps 200|--partition tuned|gnuplot|rpadvise --model llama.* --(gpus|optimizer|runnable|schedule|seq-len|tokens) |^rppredict |rppredict --cells|rpadvise --model llama3.1-8b --platform rtx4090x8 *#|rpadvise --model qwen3-235b |rpexec --host-rates -|rpexec --platform-out |fitted\.yaml|rpexec --steps 16 --record r$|qwen3-32b --explain|--replicas 1000|--platform my-server.yaml'
# CONTRIBUTING.md: checks.walkthroughs; the CUDA backend's programs, which need a GPU: tests/gpu/run.sh.
elsewhere='^(CONTRIBUTING|exec/cuda/README)\.md$'

# What is for programs: its width is free.
for_programs='--format (json|csv|kv|md)|--dry-run|--host-rates -|rppredict --cells|^\./command '

unset COLUMNS RP_TRACES RP_PLOTS RPEXEC_BACKEND
mkdir "$work/bin"
# Slurm's array of jobs, one after the other.
cat >"$work/bin/sbatch" <<'SH'
#!/usr/bin/env bash
range=${1#--array=}
[ "$2" = --wrap ] || exit 1
for task in $(seq "${range%-*}" "${range#*-}"); do
    SLURM_ARRAY_TASK_ID=$task sh -ec "$3"
done
SH
chmod +x "$work/bin/sbatch"
PATH=$work/bin:$work/tree/build/release:$work/tree/build/release/exec:$work/tree/build/release/experiments:$PATH

# new_tree: the folder to run in, as after ./bootstrap.sh run.
new_tree()
{
    local entry
    rm -rf "$work/tree" "$work/answers"
    mkdir -p "$work/tree/build" "$work/answers"
    for entry in "$source"/*; do
        case $(basename "$entry") in build*) ;; *) ln -s "$entry" "$work/tree/" ;; esac
    done
    ln -s "$build" "$work/tree/build/release"
    cd "$work/tree"
}

# run_line: runs $work/line.sh, the line with the variables of its block; what it prints is in the log. A line that
# another page has, too, runs once: its answer and its files are there.
run_line()
{
    local asked=${line%%#*} answer
    asked=${asked%"${asked##*[! ]}"}
    answer=$work/answers/$({ cat "$work/state"; echo "$columns $asked"; } | cksum | tr ' ' _)
    if [ -e "$answer" ]; then
        cp "$answer" "$work/log"
        again=$((again + 1))
        ran=1
        return
    fi
    env ${columns:+COLUMNS=$columns} bash -e "$work/line.sh" >"$work/log" 2>"$work/errors" </dev/null ||
        { fail "$page:$number: $line: $(tail -n 3 "$work/errors")"; return; }
    ran=1
    [[ $asked =~ $for_programs ]] || within "$work/log" "$columns" "$page:$number: $asked"
    [[ $asked != *rpexec*--resume* && $asked != cp* ]] || return 0
    cp "$work/log" "$answer"
}

# run_lines BLOCK: a block's lines ("number<TAB>line") share a shell's variables, as at a prompt; each must succeed.
# ran: whether the last one did run.
run_lines()
{
    : >"$work/state"
    ran=0
    while IFS=$'\t' read -r number line; do
        case $line in '' | '#'* | ./bootstrap.sh* | cmake* | cpack* | 'sudo '*) continue ;; esac
        if [ "${line%% *}" = gnuplot ] && ! command -v gnuplot >/dev/null; then
            continue
        fi
        if [[ $line =~ ^(export\ )?[A-Za-z_]+= ]]; then
            echo "$line" >>"$work/state"
            continue
        fi
        ran=0
        if [[ $line =~ $long ]] && [ "${RP_LONG:-0}" != 1 ]; then
            skipped=$((skipped + 1))
            continue
        fi
        count=$((count + 1))
        { cat "$work/state"; echo "$line"; } >"$work/line.sh"
        run_line
    done <"$1"
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

# Those whose files others read come first.
mapfile -t pages < <(cd "$source" && {
    printf '%s\n' README.md docs/{examples,quickstart,which-schedule}.md
    find . -name '*.md' ! -path './build*' ! -path './tests/golden/*' -exec grep -l '^ *```sh$' {} + | sed 's|^./||' | sort
} | awk '!seen[$0]++')

# run_page PAGE WIDTH
run_page()
{
    local block
    page=$1
    awk -v out="$work/block" '/^ *```sh$/ { open = ++blocks; next } /^ *```$/ { open = text = 0 }
        /^```text$/ && blocks { text = 1; print FNR + 1 >(out "." blocks ".at"); next }
        text { print >(out "." blocks ".text") }
        open { sub(/^ +/, ""); print FNR "\t" $0 >(out "." open) }' "$page"
    while IFS= read -r block; do
        columns=$2
        if [ "$2" = narrow ]; then
            columns=80
            [ ! -e "$block.text" ] || columns=
        fi
        run_lines "$block"
        [ "$ran" -eq 0 ] || [ -n "$columns" ] || told "$page" "$block"
    done < <(find "$work" -maxdepth 1 -name 'block.*[0-9]' | sort -V)
    rm "$work"/block.*
}

# run_man_page PROGRAM WIDTH
run_man_page()
{
    page=$1.1
    columns=${2/narrow/80}
    "$1" --print-man | awk '/^\.SH EXAMPLES/ { inside = 1; next } inside && !/^\./ { gsub(/\\-/, "-"); print NR "\t" $0 }' >"$work/man"
    [ -s "$work/man" ] || fail "$page has no example"
    run_lines "$work/man"
}

# narrow: 80 columns, but none said where a page shows what is printed.
widths=(narrow)
[ "${RP_LONG:-0}" != 1 ] || widths=('' 80 100)
for width in "${widths[@]}"; do
    new_tree
    for page in "${pages[@]}"; do
        [[ $page =~ $elsewhere ]] || run_page "$page" "$width"
    done
    # Files that the examples of man pages name.
    ln -s tests/golden/kineto/zb1p-p2v1m4.0.json rank0.json
    ln -s tests/golden/kineto/zb1p-p2v1m4.1.json rank1.json
    ln -s r2/predicted.csv .
    ln -s r2 record
    for program in rpsim rpadvise rpplan rpimport rpdiff rppredict rpexec rpsweep; do
        run_man_page $program "$width"
    done
done

[ "$compared" -ge 2 ] || [ "${RP_REFRESH:-0}" = 1 ] || fail "only $compared outputs compared"
[ "$count" -ge $((80 * ${#widths[@]})) ] || fail "only $count examples"
[ "$(grep -c '^build/release' "$source/README.md")" -ge 5 ] || fail "README.md has fewer than five examples"
[ "$failures" -eq 0 ] || exit 1
echo "$count examples work as typed, $compared outputs as shown, $again asked before; $skipped left to RP_LONG=1"
