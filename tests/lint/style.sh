#!/usr/bin/env bash
# Rules that the compiler does not check: width, blanks, header guards, braces, type names, includes from the root, and
# no conditional compilation that weaves one program into another.
source "$(dirname "$0")/lib/lint.sh"

mapfile -t code < <(lint_files "c h cu cuh inc" common sim exec experiments tests)
mapfile -t text < <(lint_files "c h cu cuh inc sh gp awk yaml cmake md" common sim exec tests traces plots cmake \
    experiments paper-figures docs README.md ARCHITECTURE.md CONTRIBUTING.md CHANGELOG.md bootstrap.sh)
mapfile -t headers < <(lint_files "h cuh" common sim exec experiments tests)
cd "$lint_root"

# search WHY REGEX FILE...
search()
{
    local why=$1 regex=$2
    shift 2
    [ $# -eq 0 ] || { grep -HnE "$regex" "$@" || true; } | lint_report "$why"
}

search "at most 100 columns" '^.{101,}' "${code[@]}"
search "no tabs" $'\t' "${text[@]}"
search "no trailing blanks" '[[:space:]]+$' "${text[@]}"
if [ ${#headers[@]} -gt 0 ]; then
    { grep -LE '^#pragma once$' "${headers[@]}" || true; } | sed 's/$/:1:/' | lint_report "#pragma once is missing"
fi
[ ${#code[@]} -gt 0 ] || lint_end
lint_bare "${code[@]}" >"$lint_work/bare"

bare()
{
    { grep -E "$2" "$lint_work/bare" || true; } | lint_report "$1"
}

bare "our types do not end in _t" ':[[:space:]]*(typedef[^;]*[^A-Za-z0-9_][a-z][a-z0-9_]*_t[[:space:]]*;|}[[:space:]]*[a-z][a-z0-9_]*_t[[:space:]]*;)'
bare "our types do not end in _t" ':[[:space:]]*typedef.*\([[:space:]]*\*[[:space:]]*[a-z0-9_]*_t[[:space:]]*\)'
bare "our types do not end in _t" ':[[:space:]]*(typedef[[:space:]]+)?(struct|enum|union)[[:space:]]+[a-z0-9_]+_t[[:space:]]*([{;]|$)'

# Includes name the path from the root; generated tables and a test's own data are plain .inc names.
{ grep -E ':[[:space:]]*#[[:space:]]*include[[:space:]]*"' "$lint_work/bare" || true; } |
    { grep -vE '#[[:space:]]*include[[:space:]]*"((common|sim|exec|experiments|tests)/[^"]*|[a-z_]+\.inc)"' || true; } |
    lint_report "includes start at the root of the source"

# The only conditions allowed ask the compiler (__NAME), about assertions, or about a macro of the
# same file; never about a program or CUDA.
awk '
    {
        file = substr($0, 1, index($0, ":") - 1)
        at = match($0, /:[ \t]*#[ \t]*/)
        directive = at ? substr($0, RSTART + RLENGTH) : ""
    }
    NR == FNR {
        if (directive ~ /^define[ \t]/) {
            split(directive, word, /[ \t(]+/)
            own[file, word[2]] = 1
        }
        next
    }
    directive ~ /^(if|ifdef|ifndef|elif)([^A-Za-z]|$)/ {
        rest = directive
        sub(/^[a-z]+/, "", rest)
        bad = rest ~ /^[ \t]*[01][ \t]*$/
        gsub(/__has_[a-z_]+[ \t]*\([^)]*\)/, "", rest)
        while (match(rest, /[A-Za-z_][A-Za-z0-9_]*/)) {
            name = substr(rest, RSTART, RLENGTH)
            rest = substr(rest, RSTART + RLENGTH)
            if (name ~ /CUDA/ && name != "__CUDA_ARCH__") bad = 1 # the GPU is not a program
            if (name !~ /^(__.*|defined|NDEBUG|_GNU_SOURCE)$/ && !((file, name) in own)) bad = 1
        }
        if (bad) print
    }' "$lint_work/bare" "$lint_work/bare" | lint_report "no conditional compilation by program, feature or CUDA"

# Braces: after the parenthesis of if, for and while, and after else and do, a brace follows (for
# the while of do-while a semicolon).
awk -f "$lint_root_of_script/braces.awk" "$lint_work/bare" | lint_report "always braces"
lint_end
