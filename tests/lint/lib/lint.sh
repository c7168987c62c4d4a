# Shared by the lints: where the files are, and C without its comments and strings. Sourced, not
# run. A lint gets: source folder, build folder, rpsim. It prints "file:line: text: what is wrong"
# and exits 1.
set -euo pipefail

lint_root=$(cd "${1:?usage: $0 SOURCE_DIR [BUILD_DIR [RPSIM]]}" && pwd)
lint_failures=$(mktemp)
lint_work=$(mktemp -d)
trap 'rm -rf "$lint_failures" "$lint_work"' EXIT
export LC_ALL=C.UTF-8

# lint_need TOOL PACKAGE: skipped where the tool is missing.
lint_need()
{
    if ! command -v "$1" >/dev/null 2>&1; then
        echo "skipped: $1 is missing (apt package $2)"
        exit 77
    fi
}

# lint_files EXTENSIONS ROOM...: files relative to the source folder, sorted. EXTENSIONS like "c h".
# Probes are copies of somebody's experiment, kept as they came; corpora are broken on purpose.
lint_files()
{
    local extensions=$1 room
    shift
    cd "$lint_root"
    for room in "$@"; do
        [ -e "$room" ] || continue
        find "$room" -name 'build*' -prune -o -type f -print
    done | grep -E "\.(${extensions// /|})\$" |
        grep -vE '^(exec/probes|tests/(bad|golden|fuzz/corpus[^/]*)|traces/runs)/' | sort -u || true
}

# lint_bare FILE...: prints "file:line:code" of C files with comments, strings and character
# constants blanked, so that words in prose are never taken for code.
lint_bare()
{
    [ $# -eq 0 ] || (cd "$lint_root" && awk -f "$lint_root_of_script/bare.awk" "$@")
}
lint_root_of_script=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# lint_report WHY: marks every line of stdin as a violation.
lint_report()
{
    sed "s|\$|    <- $1|" | tee -a "$lint_failures"
}

# lint_end: the exit status.
lint_end()
{
    if [ -s "$lint_failures" ]; then
        echo "$(wc -l <"$lint_failures") violation(s)"
        exit 1
    fi
}
