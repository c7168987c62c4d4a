#!/usr/bin/env bash
# Public prototypes have a doc comment; everything that a user can name is listed; the README names both commands; the
# changelog has an Unreleased section, a line per entry and CMake's version; README and ARCHITECTURE stay short; named
# documents exist.
source "$(dirname "$0")/lib/lint.sh"
rpsim=${3:-}
cd "$lint_root"

# A prototype is documented if a comment stands right before it, or before the prototypes that it directly follows
# (pairs such as begin and end share a comment). Heuristic: prototypes begin in column 1 and end with a semicolon.
mapfile -t headers < <(lint_files "h" common sim exec experiments)
if [ ${#headers[@]} -gt 0 ]; then
    awk '
        FNR == 1 { documented = 0; inside = 0; comment = 0; body = 0 }
        comment { if (/\*\//) { comment = 0; documented = 1 } next }
        inside { if (/;[ \t]*$/) inside = 0; next }
        body { if (/^}/) body = 0; next }
        /^[ \t]*\/\*/ { if (/\*\//) documented = 1; else comment = 1; next }
        /^[ \t]*$/ { documented = 0; next }
        /^static/ || (/^(typedef|enum|struct|union)([ \t]|$)/ && /{[ \t]*$/) { if (!/[;}][ \t]*$/) body = 1; next }
        /^typedef/ { if (!/;[ \t]*$/) inside = 1; next }
        /^[a-z_].*[A-Za-z0-9_]\(/ {
            if (!documented) print FILENAME ":" FNR ": " $0
            if (!/;[ \t]*$/) inside = 1
        }' "${headers[@]}" | lint_report "public prototypes are documented"
fi

# Files with a user-visible name: rpsim lists them, or the README names them.
need_listed()
{
    local kind=$1 folder=$2 extension=$3 file name
    : >"$lint_work/list"
    if [ -n "$rpsim" ] && [ -x "$rpsim" ]; then
        RP_TRACES=$lint_root/traces "$rpsim" --list "$kind" >"$lint_work/list" 2>&1 || true
    fi
    for file in "$folder"/*."$extension"; do
        [ -f "$file" ] || continue
        name=$(basename "$file" ".$extension")
        if ! grep -qE "(^|[^A-Za-z0-9._-])${name//./\\.}([^A-Za-z0-9._-]|\$)" "$lint_work/list" README.md; then
            echo "$file:1: $name is neither listed by rpsim --list $kind nor named in README.md"
        fi
    done | lint_report "users must be able to find it"
}

[ -f README.md ] || { echo "README.md:1: missing" | lint_report "the project has a README"; lint_end; }
need_listed schedules common/schedules c
need_listed models traces/models yaml
need_listed platforms traces/platforms yaml
need_listed gpus traces/gpus yaml
need_listed costs traces/costs yaml

# A document named in a source or a document exists: from the root, beside the naming file, or under its bare name
# anywhere. NAME and 91-my-figure stand for files to be made; runs write report.md and a study's NN-NAME.md.
mapfile -t texts < <(lint_files "c h cu cuh md yaml awk" common sim exec experiments tests traces plots paper-figures docs
    ls ./*.md | sed 's|^./||' | grep -vx CHANGELOG.md)
find . -name '.git' -prune -o -name 'build*' -prune -o -name '*.md' -print | sed 's|^./||' >"$lint_work/documents"
sed 's|.*/||' "$lint_work/documents" | sort -u >"$lint_work/bare_documents"
grep -noE '[A-Za-z0-9_./-]*[A-Za-z0-9_-]\.md' "${texts[@]}" /dev/null | grep -vE ':(.*/)?((NAME|report|[0-9]+-[a-z-]+)\.md|[0-9]+-my-figure/README\.md)$' |
    while IFS=: read -r file line name; do
        if [[ $name != */* ]]; then
            grep -qxF "$name" "$lint_work/bare_documents" && continue
        elif [ -e "$name" ] || [ -e "$(dirname "$file")/$name" ] || [ -e "${name#/}" ]; then
            continue
        fi
        echo "$file:$line: $name"
    done | lint_report "no such document"

for command in './bootstrap.sh run' './bootstrap.sh test'; do
    grep -qF "$command" README.md || echo "README.md:1: does not name $command" | lint_report "both commands are named"
done
grep -qE '^## \[?Unreleased\]?' CHANGELOG.md 2>/dev/null ||
    echo "CHANGELOG.md:1: no Unreleased section" | lint_report "Keep a Changelog"
# CMake's version is the newest release of the changelog, and the version to cite.
released=$(sed -nE '/^## \[[0-9]/{s/^## \[([^]]*)\].*/\1/p;q}' CHANGELOG.md 2>/dev/null || true)
for file in CMakeLists.txt CITATION.cff; do
    said=$(sed -nE 's/^(project\(.* VERSION|version:) ([0-9.]+).*/\2/p' "$file" 2>/dev/null || true)
    [ "$said" = "$released" ] || echo "$file:1: version '$said', the newest release of CHANGELOG.md is '$released'"
done | lint_report "one version"
# Below "## ", every line of the changelog is a heading, an entry or blank.
awk '/^## / { inside = 1 } inside && !/^(#|- |$)/ { print FILENAME ":" FNR ": " $0 }' CHANGELOG.md 2>/dev/null |
    lint_report "one line per change"
# Outside of code, except for addresses on their own lines and rows of generated tables.
{ git ls-files '*.md' 2>/dev/null || cat "$lint_work/documents"; } | { grep -v '^docs/generated/' || true; } | while IFS= read -r file; do
    [ ! -f "$file" ] ||
        awk -v name="$file" '/^[ \t]*(```|~~~)/ { code = !code; next } !code { print name ":" FNR ": " $0 }' "$file"
done | { grep -E '^[^:]*:[0-9]+: .{121,}' || true; } |
    { grep -vE '^[^:]*:[0-9]+: *([-*] )?<?https?://[^ ]*$' || true; } | lint_report "at most 120 columns"
for limit in README.md=6000 ARCHITECTURE.md=11000; do
    file=${limit%=*}
    [ -f "$file" ] || continue
    size=$(wc -c <"$file")
    [ "$size" -le "${limit#*=}" ] || echo "$file:1: $size bytes, at most ${limit#*=}"
done | lint_report "the first pages are short"
for name in ARCHITECTURE.md CONTRIBUTING.md LICENSE; do
    [ -s "$name" ] || echo "$name:1: missing" | lint_report "the project has one"
done
lint_end
