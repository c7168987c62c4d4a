#!/usr/bin/env bash
# Texts that come from the rows of options: groff accepts the man pages, bash and zsh the completions, and bash completes
# what it should (docs/generated: checks.generated_docs).
# Sanitized: --long
set -euo pipefail
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

[ $failures -eq 0 ] || { echo "$failures failures"; exit 1; }
echo "command line: man pages and completions agree with the options"
