#!/usr/bin/env bash
# report.sh BINDIR OUTDIR: every entry from an empty store, then one self-contained page, OUTDIR/index.html. An entry is
# a folder with a make.sh in any of the places below; none is named here. A failure does not stop the others: the page
# names it, and the status is 1.
# report.sh --assemble BINDIR OUTDIR: only the page, from the files in OUTDIR.
set -euo pipefail
export LC_ALL=C.UTF-8

fail()
{
    echo "report.sh: $*" >&2
    exit 2
}

make=yes
if [ "${1:-}" = --assemble ]; then
    make=no
    shift
fi
if [ $# -ne 2 ]; then
    echo "usage: report.sh [--assemble] BINDIR OUTDIR" >&2
    exit 2
fi
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$here")
parts=$here/report
bin=$(cd "$1" && pwd) || fail "no folder $1"
for tool in awk sqlite3 cmark-gfm; do
    command -v "$tool" > /dev/null || fail "$tool is missing (Debian packages mawk, sqlite3, cmark-gfm)"
done
# Entries of these places, with the heading of their section; a place may be missing.
places=("$here" "$root/experiments/studies" "$root/plots/gallery")
headings=("Figures of the paper" "Studies that nobody has published" "Further pictures")
short=(Figures Studies Pictures)

# entries PLACE: its entries' folders. Those with a number come in its order; the others, which read files of numbered
# entries, are entries of their own section.
entries()
{
    local folder
    for folder in "$1"/[0-9]*; do
        [ ! -f "$folder/make.sh" ] || echo "$folder"
    done
}
summaries()
{
    local place folder
    for place in "${places[@]}"; do
        for folder in "$place"/[!0-9]*; do
            [ ! -f "$folder/make.sh" ] || echo "$folder"
        done
    done
}
numbered=()
for place in "${places[@]}"; do
    mapfile -t -O ${#numbered[@]} numbered < <(entries "$place")
done
mapfile -t last < <(summaries)
[ ${#numbered[@]} -gt 0 ] || fail "no entry with a make.sh in ${places[*]}"

mkdir -p "$2"
out=$(cd "$2" && pwd -P)
logs=$out/logs
if [ $make = yes ]; then
    # Only a folder that was made here is emptied.
    if [ ! -f "$out/.report" ] && [ -n "$(ls -A "$out")" ]; then
        fail "$out is neither empty nor a folder of this report"
    fi
    find "$out" -mindepth 1 -delete
    touch "$out/.report"
    mkdir "$logs"
    for folder in "${numbered[@]}" "${last[@]}"; do
        name=$(basename "$folder")
        begin=$SECONDS
        status=0
        bash "$folder/make.sh" "$bin" "$out" > "$logs/$name.log" 2>&1 < /dev/null || status=$?
        echo "$status $((SECONDS - begin))" > "$logs/$name.status"
        echo "    $name: $((SECONDS - begin)) s$([ $status -eq 0 ] || echo ", FAILED, exit status $status")"
        [ $status -eq 0 ] || tail -n 20 "$logs/$name.log" >&2
    done
fi

work=$(mktemp -d "$out/.index.XXXXXX")
trap 'rm -rf "$work"' EXIT
source "$parts/page.sh"
page > "$work/index.html"
mv "$work/index.html" "$out/index.html"
echo "$out/index.html"
if [ ${#failed[@]} -gt 0 ]; then
    echo "report.sh: failed: ${failed[*]}" >&2
    exit 1
fi
