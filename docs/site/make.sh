#!/usr/bin/env bash
# make.sh OUT: the documentation site in OUT/html, from the repository's documents. Needs MkDocs with the theme material
# (package mkdocs-material of apt or pip); nothing from a network. Exit status 77 if MkDocs or its theme is missing, 1 at a
# warning or a dead link.
set -euo pipefail
source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
mkdir -p "$1"
out=$(cd "$1" && pwd)
missing()
{
    echo "docs-site: no $1 (package mkdocs-material of apt or pip)" >&2
    exit 77
}
command -v mkdocs >/dev/null || missing MkDocs
python3 "$source/docs/site/stage.py" "$source" "$out"
if ! mkdocs build --strict --clean --config-file "$out/mkdocs.yml" >"$out/mkdocs.log" 2>&1; then
    ! grep -qE "Unrecognised theme name: 'material'|No module named 'pymdownx'" "$out/mkdocs.log" ||
        missing "theme material of MkDocs"
    grep -vE '^(INFO|  )' "$out/mkdocs.log" >&2
    exit 1
fi
# For theme/search/from_file.js: version 8 of the theme takes the index from __search, version 9 from __index.
{ printf 'var __index = '; cat "$out/html/search/search_index.json"
    printf ';\nvar __search = { index: Promise.resolve(__index) };\n'; } >"$out/html/search/search_index.js"
python3 "$source/docs/site/links.py" "$out/html"
