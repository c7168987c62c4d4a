#!/usr/bin/env bash
# Texts that come from the rows of options: groff accepts the man pages, bash and zsh the completions, bash completes
# what it should, and cli.md names every option of every program with its argument, and no other.
# Sanitized: --long
set -euo pipefail
source_dir=$(cd "$1" && pwd)
build_dir=$(cd "$2" && pwd)
made=$build_dir/command_line
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
programs=(rpsim rpadvise rpexec rpdiff rpsweep rpplan rpimport)

fail()
{
    echo "command line: $*"
    failures=$((failures + 1))
}

path_of()
{
    case $1 in
    rpexec) echo "$build_dir/exec/rpexec" ;;
    rpsweep) echo "$build_dir/experiments/rpsweep" ;;
    *) echo "$build_dir/$1" ;;
    esac
}

# ---- short forms and man pages
warnings_of()
{
    MANROFFOPT=-ww LC_ALL=C.UTF-8 man -l --warnings -E UTF-8 "$1" 2>&1 >/dev/null
}
for program in "${programs[@]}"; do
    tool=$(path_of "$program")
    "$tool" --help >"$work/long"
    "$tool" -h | cmp -s "$work/long" - || fail "$program -h is not --help"
    "$tool" -V | grep -qxE "$program [0-9][0-9.]* \(commit ([0-9a-f]{40}(-dirty)?|unknown)\)" || fail "$program -V says $("$tool" -V)"
    "$tool" --print-man | cmp -s "$made/man1/$program.1" - || fail "$program.1 is not what the program prints"
done
if command -v man >/dev/null && command -v groff >/dev/null; then
    for program in "${programs[@]}"; do
        warnings=$(warnings_of "$made/man1/$program.1")
        [ -z "$warnings" ] || fail "$program.1: $warnings"
    done
    MANWIDTH=100 LC_ALL=C.UTF-8 man -l -E UTF-8 "$made/man1/rpsim.1" | grep -q -- '--schedule NAME\[,NAME…\]|all' ||
        fail "rpsim.1 does not show --schedule"
    { cat "$made/man1/rpsim.1"; printf '.NOSUCH\n'; } >"$work/bad.1"
    [ -n "$(warnings_of "$work/bad.1")" ] || fail "a bad man page is not noticed"
else
    echo "man pages not checked: no man or groff"
fi

# ---- bash
# completes PROGRAM EXPECTED WORD...: the words before the cursor; EXPECTED is what bash offers.
mkdir "$work/files" "$work/files/folder"
touch "$work/files/a file.csv"
completes()
{
    local program=$1 expected=$2 got
    shift 2
    got=$(cd "$work/files" && PATH=$build_dir:$PATH bash -c '
        source "$1"
        COMP_WORDS=("${@:2}")
        COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
        "_$2"
        printf "%s;" "${COMPREPLY[@]}"' bash "$made/completions/$program" "$program" "$@" 2>&1)
    [ "$got" = "$expected" ] || fail "$program $*: bash offers '$got', not '$expected'"
}
completes rpsim '--schedule;' --sch
completes rpsim '--trace-out;' --trace
completes rpsim 'stage;hardware;' --fidelity ''
completes rpsim 'hardware;' --fidelity ha
completes rpsim 'hardware;' --fidelity = h
completes rpsim 'paper;' --partition pap
completes rpsim 'interleaved-1f1b;' --schedule inter
completes rpsim 'rtx4090x8;' --platform rtx4090x8
completes rpsim ';' --gpus ''
completes rpsim 'a file.csv;' --trace-out a
completes rpexec 'folder;' --record ''
completes rpexec 'bf16;' --dtype b
completes rpsweep 'export;' ex
completes rpdiff 'a file.csv;' a
completes rpdiff '--worst;' --w
completes rpplan 'rtx4090x8;' --platform rtx4090x8

# ---- zsh
for program in "${programs[@]}"; do
    file=$made/site-functions/_$program
    if command -v zsh >/dev/null; then
        zsh -n "$file" || fail "zsh does not read $file"
    fi
    [ "$(head -n 1 "$file")" = "#compdef $program" ] || fail "$file does not begin as a completion function of zsh"
    bash -n "$made/completions/$program" || fail "bash does not read the completion of $program"
done

# ---- cli.md
# The options of a program as its man page has them: "--gpus N".
options_of()
{
    "$(path_of "$1")" --print-man | sed -n 's/^\.B //p' | sed 's/\\-/-/g; s/^-[a-zA-Z], //' | grep -vx -e --help -e --version
}
# section DOCUMENT HEADING: from this heading to the next of its level or above.
section()
{
    awk -v heading="$2" '
        /^#+ / { if (index($0, heading) == 1) { inside = 1; level = length($1); next } if (length($1) <= level) inside = 0 }
        inside' "$1"
}
# undocumented DOCUMENT: what the document lacks, or says differently.
undocumented()
{
    local program heading
    while IFS=: read -r program heading; do
        options_of "$program" >"$work/options"
        section "$1" "$heading" | sed 's/\\|/|/g' | grep -o '`[^`]*`' | tr -d '`' >"$work/quoted"
        while read -r name _; do
            grep -qE -- "(^| )$name( |\$)" "$work/quoted" || echo "$heading lacks $name"
        done <"$work/options"
        # In the tables of options an argument is the program's.
        section "$1" "$heading" | sed -n 's/\\|/@/g; s/^| \(`--[^|]*\) |.*/\1/p' | sed 's/@/|/g' | grep -o '`--[^`]*`' |
            tr -d '`' >"$work/listed" || true
        while read -r listed; do
            grep -qxF -- "$listed" "$work/options" || grep -qxF -- "$listed" <(cut -d' ' -f1 "$work/options") ||
                echo "$heading: $listed is no option of $program"
        done <"$work/listed"
    done <<'TEXT'
rpsim:## 2. rpsim
rpexec:## 3. rpexec
rpdiff:## 4. rpdiff
rpsweep:## 5. rpsweep
rpadvise:### 6.4 rpadvise
rpplan:### 6.1 rpplan
rpimport:### 6.3 rpimport
rppredict:### 6.5 rppredict
TEXT
}
document=$source_dir/common/cli/cli.md
wrong=$(undocumented "$document")
[ -z "$wrong" ] || fail "cli.md:"$'\n'"$wrong"
sed 's/`--piece-mb M`/`--piece-mb MB`/; s/--worst N/--best N/' "$document" >"$work/cli.md"
undocumented "$work/cli.md" >"$work/wrong"
grep -q 'piece-mb MB is no option of rpsim' "$work/wrong" && grep -q 'rpdiff lacks --worst' "$work/wrong" ||
    fail "mistakes in cli.md are not noticed"

[ $failures -eq 0 ] || { echo "$failures failures"; exit 1; }
echo "command line: man pages, completions and cli.md agree with the options"
